"""The judge on the CPU kernels that the compiler makes: every probe, every relation, every recorded input."""

from __future__ import annotations

import numpy as np
import pytest

from kdsl.validate.judge import judge
from kdsl.validate.probes import PROBES, random_call
from kdsl.validate.relations import RELATIONS, batched_equals_packed, splitting_at_chunk
from kdsl.validate.traces import TRACE_NAMES, load_trace

from ..workshop import TRACES, run_call, verdict


@pytest.fixture(scope="module")
def seed() -> int:
    """Not one that the kernels' author chose: drawn anew, and shown when a test fails."""
    return int(np.random.SeedSequence().generate_state(1)[0])


@pytest.mark.parametrize("name", PROBES)
def test_probes(name, seed, error_row):
    found = judge(PROBES[name].make(seed), run_call)
    for result in found.results:
        error_row(name, result)
    assert found.accepted, f"seed {seed}: {found.explain()}"


@pytest.mark.parametrize("name", PROBES)
def test_a_kernel_without_the_input_that_a_probe_is_about_fails(name, seed):
    """Negative control: the compiled kernel, but called with something left out or in a wrong place."""

    def sloppy(call):
        wrong = dict(call)
        if name in ("P1", "P2", "P3"):
            wrong["use_qk_l2norm_in_kernel"] = False
        elif name in ("P4", "P5"):
            wrong["initial_state"] = None
            wrong["v"] = np.roll(call["v"], 1, axis=1)
        elif name == "P11":
            wrong["cu_seqlens"] = np.sort(call["cu_seqlens"][-1] - call["cu_seqlens"])
        else:
            wrong["beta"] = np.full_like(call["beta"], 0xC120)  # logits of -10: almost nothing is written
        return run_call({key: value for key, value in wrong.items() if value is not None})

    assert not judge(PROBES[name].make(seed), sloppy).accepted


@pytest.mark.parametrize("name", RELATIONS)
def test_relations_of_any_call(name):
    call = random_call(np.random.default_rng(11), 150, lengths=(70, 0, 80))
    assert RELATIONS[name](run_call, call) == ()


def test_relations_of_batches():
    rng = np.random.default_rng(12)
    call = random_call(rng, 192)
    assert splitting_at_chunk(run_call, call) == ()
    rows = [random_call(rng, 45, with_state=True) for _ in range(3)]
    batch = rows[0] | {name: np.concatenate([row[name] for row in rows])
                       for name in ("q", "k", "v", "g", "beta", "initial_state")}  # fmt: skip
    assert batched_equals_packed(run_call, batch) == ()


def test_a_kernel_that_is_no_function_of_its_call_breaks_the_relations():
    """Negative control: results that hang on the place of a token in memory."""

    def drifting(call):
        o, state = run_call(call)
        return o + np.arange(o.shape[1], dtype=np.float32)[None, :, None, None] * 1e-3, state

    call = random_call(np.random.default_rng(11), 128)
    assert RELATIONS["doubling is exact"](drifting, call)
    assert splitting_at_chunk(drifting, call)


@pytest.mark.parametrize("name", TRACE_NAMES)
def test_recorded_inputs(name, error_row):
    result = verdict(load_trace(TRACES / f"{name}.npz"))
    error_row(name, result)
    assert result.accepted, result.explain()
    # More accurate than FLA 0.6.0, which reaches 0.0038 and 0.0026.
    assert result.o.rms_ratio < 0.0038 and result.final_state.rms_ratio < 0.0026
