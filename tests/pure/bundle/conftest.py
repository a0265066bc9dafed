"""A small manifest and a bundle of it on disk; its library is never loaded here."""

import attrs
import pytest

from kdsl.bundle import manifest as m
from kdsl.bundle import this_machine, write_bundle

LIBRARY = "lib/scale.so"


def make_variant(**changes) -> m.Variant:
    kernel = m.Kernel(
        name="all",
        file=LIBRARY,
        symbol="kdsl_all",
        arguments=[
            m.TensorArgument("q", "bf16"),
            m.StrideArgument("q", 1),
            m.TensorArgument("dt_bias", "f32"),
            m.GivenArgument("dt_bias"),
            m.WorkspaceArgument("decayed"),
            m.SizeArgument("T"),
            m.ScalarArgument("scale", "f32"),
            m.GridBegin(),
            m.GridEnd(),
        ],
        grid={"tasks": "N * HV"},
    )
    variant = m.Variant(
        id="abcd1234",
        target="cpu",
        machine=this_machine(),
        dtypes={"q": "bf16", "dt_bias": "f32"},
        options={"gate": "bounded", "allow_neg_eigval": False, "unroll": 4},
        sizes={"K": 128},
        form={"decay": "factored"},
        choices={"chunk": 64},
        requires=[m.Requirement("T % 16 == 0", "pad T to a multiple of 16")],
        kernels=[kernel],
        workspace=[m.Workspace("decayed", "f32", "N * HV * 4096")],
        verdicts=[m.Verdict("spills == 0", "holds", "binary", 0, 0), m.Verdict("p95", "pending", "unknown")],
    )
    return attrs.evolve(variant, **changes)


def make_cuda_variant(**changes) -> m.Variant:
    """The same kernel for a GPU: no range of tasks, a grid and a block instead."""
    host = make_variant()
    kernel = attrs.evolve(
        host.kernels[0],
        arguments=host.kernels[0].arguments[:-2],
        grid={"x": "N * HV", "y": "ceildiv(T, 64)", "z": "1"},
        launch="cuda",
        block=(128, 2, 1),
        shared_bytes=98304,
    )
    variant = attrs.evolve(
        host, id="cd90", target="sm_90a", machine=None, kernels=[kernel], unit_stride=["q"]
    )
    return attrs.evolve(variant, **{"dense": ["q"], "alignment": {"q": 16}, **changes})


def make_manifest(*variants: m.Variant, files=None) -> m.Manifest:
    return m.Manifest(
        kdsl="0.1.0",
        operator="kda.chunk_forward",
        rule=m.Rule("cpu", "rules/kda.chunk_forward/cpu.kds", "0" * 64),
        made_with=m.MadeWith("3.11", "none", "none", "gcc 12", ["-O2", ""]),
        variants=variants or [make_variant()],
        files={LIBRARY: "1" * 64} if files is None else files,
    )


@pytest.fixture
def variant():
    return make_variant


@pytest.fixture
def cuda_variant():
    return make_cuda_variant


@pytest.fixture
def manifest():
    return make_manifest


@pytest.fixture
def bundle_path(tmp_path):
    return write_bundle(tmp_path / "scale.kdsb", make_manifest(), {LIBRARY: b"not a library"})
