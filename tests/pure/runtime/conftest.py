"""Real bundles for the tests: C kernels compiled with gcc, and the manifest that a compiler of rules would
write.

`compiler` stands in for the compiler of kdsl: it makes a bundle for whatever request it gets.
"""

import hashlib
import shutil
import subprocess
import sys
import types
from pathlib import Path

import attrs
import numpy as np
import pytest
import torch

import kdsl
from kdsl import kda
from kdsl.bundle import manifest as m
from kdsl.bundle import this_machine, write_bundle
from kdsl.runtime import cuda_driver

from .fake_cuda import FakeDriver, as_cuda, kernel_text

HERE = Path(__file__).parent
FLAGS = ["-O2", "-shared", "-fPIC", "-ffp-contract=off"]
ORDER = {
    "kda.chunk_forward": (
        ["q", "k", "v", "g", "beta", "A_log", "dt_bias", "initial_state", "cu_seqlens", "o", "final_state"],
        ["q", "k", "v", "g", "beta", "A_log", "dt_bias", "initial_state", "o", "final_state"],
        ["T", "H", "HV", "K", "V"],
        ["dt_bias", "initial_state", "cu_seqlens", "final_state"],
    ),
    "kda.decode": (
        [
            "q",
            "k",
            "v",
            "g",
            "beta",
            "A_log",
            "dt_bias",
            "pool",
            "ssm_state_indices",
            "num_accepted_tokens",
            "o",
        ],
        ["q", "k", "v", "g", "beta", "A_log", "dt_bias", "pool", "o"],
        ["T", "W", "SLOTS", "H", "HV", "K", "V"],
        ["dt_bias", "ssm_state_indices", "num_accepted_tokens"],
    ),
}
AXES = {"beta": 3, "A_log": 1, "dt_bias": 2}
GATES = ("precomputed", "softplus", "bounded")


def pytest_collection_modifyitems(items):
    if shutil.which("gcc") is None:
        for item in items:
            if HERE in item.path.parents and "gcc" in item.fixturenames:
                item.add_marker(pytest.mark.skip(reason="no gcc"))


@pytest.fixture(scope="session")
def gcc(tmp_path_factory):
    """Compile C text to a shared library; the same text and flags once."""
    folder = tmp_path_factory.mktemp("libraries")

    def compile_c(text, *flags):
        name = hashlib.sha256(repr((text, flags)).encode()).hexdigest()[:16]
        library = folder / f"{name}.so"
        if not library.exists():
            (folder / f"{name}.c").write_text(text)
            subprocess.run(
                ["gcc", *FLAGS, f"-I{HERE}", *flags, str(folder / f"{name}.c"), "-o", str(library), "-lm"],
                check=True,
            )
        return library

    return compile_c


def simple_manifest(operator, *variants):
    return m.Manifest(
        kdsl=kdsl.__version__,
        operator=operator,
        rule=m.Rule("by_hand", "rules/by_hand.kds", "0" * 64),
        made_with=m.MadeWith(sys.version.split()[0], "none", "none", "gcc", FLAGS),
        variants=variants,
    )


def kda_variant(operator, file, dtypes, options, sizes, **changes):
    """The variant of a KDA kernel of this folder."""
    tensors, strided, names, given = ORDER[operator]
    arguments = [m.TensorArgument(name, dtypes[name]) for name in tensors if name in dtypes]
    arguments.append(m.WorkspaceArgument("state"))
    for name in strided:
        if name in dtypes:
            arguments += [m.StrideArgument(name, axis) for axis in range(AXES.get(name, 4))]
    arguments += [m.SizeArgument(name) for name in names]
    arguments += [m.GivenArgument(name) for name in given if name in dtypes]
    arguments += [m.ScalarArgument("scale", "f32"), m.ScalarArgument("lower_bound", "f32")]
    arguments += [m.GridBegin(), m.GridEnd()]
    identity = hashlib.sha256(repr((operator, sorted(dtypes.items()), sorted(options.items()))).encode())
    variant = m.Variant(
        id=identity.hexdigest()[:12],
        target="cpu",
        machine=attrs.evolve(this_machine(), features=[]),
        dtypes=dtypes,
        options=options,
        sizes=sizes,
        form={},
        choices={},
        kernels=[m.Kernel("all", file, "kdsl_all", arguments, {"tasks": "N * HV"})],
        workspace=[m.Workspace("state", "f32", "N * HV * K * V * 4")],
    )
    return attrs.evolve(variant, **changes)


def full_dtypes(operator, dtypes, options):
    """The dtypes of all tensors of the operator, completed where a request leaves them open."""
    state = dtypes.get("initial_state") or dtypes.get("final_state") or dtypes.get("pool") or "f32"
    full = {
        "q": "f32",
        "k": "f32",
        "v": "f32",
        "g": "f32",
        "beta": "f32",
        "o": dtypes.get("q", "f32"),
        **dtypes,
    }
    if options["gate"] != "precomputed":
        full |= {"A_log": "f32", "dt_bias": "f32"}
    if operator == "kda.decode":
        return full | {"pool": state, "ssm_state_indices": "i64", "num_accepted_tokens": "i64"}
    return full | {"initial_state": state, "final_state": state, "cu_seqlens": "i64"}


@pytest.fixture(scope="session")
def build_kda(gcc):
    """Write a bundle for a KDA kernel: build_kda(path, operator, dtypes, options, sizes, **changes of the
    variant).
    """

    def build(path, operator, dtypes, options, sizes=None, **changes):
        dtypes = full_dtypes(operator, dtypes, options)
        library = gcc(kda_source(operator), *kda_flags(operator, dtypes, options))
        variant = kda_variant(operator, "lib/all.so", dtypes, options, sizes or {}, **changes)
        return write_bundle(path, simple_manifest(operator, variant), {"lib/all.so": library})

    return build


def kda_source(operator):
    return (HERE / ("kda_decode.c" if operator == "kda.decode" else "kda_chunk.c")).read_text()


def kda_flags(operator, dtypes, options):
    state = dtypes["pool" if operator == "kda.decode" else "initial_state"]
    kinds = {"Q": dtypes["q"], "G": dtypes["g"], "BETA": dtypes["beta"], "STATE": state}
    flags = [f"-D{name}_DTYPE={dtype.upper()}" for name, dtype in kinds.items()]
    flags.append(f"-DGATE={GATES.index(options['gate'])}")
    for macro, option in (
        ("L2NORM", "use_qk_l2norm_in_kernel"),
        ("SIGMOID", "use_beta_sigmoid_in_kernel"),
        ("NEG_EIGVAL", "allow_neg_eigval"),
        ("SLOT_ZERO_IS_REAL", "slot_zero_is_real"),
    ):
        flags.append(f"-D{macro}={int(options.get(option, False))}")
    return flags


@pytest.fixture(scope="session")
def build_cuda(gcc):
    """Write a bundle of stand-in cubins: build_cuda(path, operator, dtypes, options, targets, **changes of
    the variants, as `as_cuda` takes them).
    """

    def build(path, operator, dtypes, options, targets=("sm_90a",), sizes=None, **changes):
        dtypes = full_dtypes(operator, dtypes, options)
        host = kda_variant(operator, "lib/all.so", dtypes, options, sizes or {})
        text = kernel_text(kda_source(operator), "kdsl_all", host.kernels[0].arguments[:-2])
        library = gcc(text, *kda_flags(operator, dtypes, options))
        variants = [
            as_cuda(host, target, **{"id": f"{host.id}{number:02x}", **changes})
            for number, target in enumerate(targets)
        ]
        return write_bundle(path, simple_manifest(operator, *variants), {"lib/all.cubin": library})

    return build


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """The library of a stand-in driver, for a GPU of capability 9.0 unless `gpu.capability` is changed."""
    library = FakeDriver(tmp_path)
    library.capability = (9, 0)
    monkeypatch.setattr(cuda_driver, "_opened", cuda_driver.Driver(library))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: library.capability)
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda index: types.SimpleNamespace(cuda_stream=0x5000 + index)
    )
    library.calls.clear()
    return library


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The folder and table that the stand-in compiler keeps over the session."""
    return tmp_path_factory.mktemp("built"), {}


@pytest.fixture
def compiler(monkeypatch, build_kda, built):
    """The stand-in for kdsl.driver; `requests` has the requests it got in this test."""
    folder, table = built
    requests = []

    def bundle_for(request):
        requests.append(request)
        key = (
            request.operator,
            tuple(sorted(request.dtypes.items())),
            tuple(sorted(request.options.items())),
        )
        if key not in table:
            table[key] = build_kda(
                folder / f"{len(table)}.kdsb", request.operator, dict(request.dtypes), dict(request.options)
            )
        return table[key]

    driver = types.ModuleType("kdsl.driver")
    driver.bundle_for = bundle_for
    driver.requests = requests
    monkeypatch.setitem(sys.modules, "kdsl.driver", driver)
    monkeypatch.setattr(kdsl, "driver", driver, raising=False)
    monkeypatch.setattr(kda, "_compiler_installed", lambda: True)
    return driver


@pytest.fixture(autouse=True)
def fresh_shelf(monkeypatch):
    monkeypatch.delenv("KDSL_BUNDLES", raising=False)
    monkeypatch.setenv("KDSL_POISON", "1")
    kda.forget_bundles()
    yield
    kda.forget_bundles()


def recurrence(q, k, v, g, beta, initial=None, scale=None):
    """One sequence in float64: q, k [T, H, K], v [T, HV, V], log decay g [T, HV, K], beta [T, HV], state [HV,
    K, V].
    """
    q, k, v, g, beta = (np.asarray(array, np.float64) for array in (q, k, v, g, beta))
    heads, key, value = v.shape[1], q.shape[2], v.shape[2]
    group = heads // q.shape[1]
    state = np.zeros((heads, key, value)) if initial is None else np.array(initial, np.float64)
    o = np.zeros(v.shape)
    for t in range(v.shape[0]):
        qt = np.repeat(q[t], group, 0) * (key**-0.5 if scale is None else scale)
        kt = np.repeat(k[t], group, 0)
        state *= np.exp(g[t])[:, :, None]
        write = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", state, kt))
        state += kt[:, :, None] * write[:, None, :]
        o[t] = np.einsum("hkv,hk->hv", state, qt)
    return o, state


@pytest.fixture
def reference():
    return recurrence
