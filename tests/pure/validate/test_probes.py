"""Every honest emulation passes every probe; every cheat is rejected by the probes that name its fault."""

import dataclasses

import numpy as np
import pytest

from kdsl.validate import emulation
from kdsl.validate.bfloat16 import decode
from kdsl.validate.call import copy_of, digest, gate_of, oracle_arguments, reference
from kdsl.validate.errors import MissingArrayError, OptionError
from kdsl.validate.judge import judge
from kdsl.validate.oracle import _operands
from kdsl.validate.probes import PROBES, SHUFFLED_LENGTHS, make_probes

CONTROLS = [(cheat, name) for cheat in emulation.CHEATS for name in cheat.caught_by if name in PROBES]


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("kernel", emulation.HONEST)
def test_honest_kernels_pass(kernel, probe, drawn_probes):
    run, drawn = emulation.HONEST[kernel], drawn_probes[probe]
    if run.needs_bounded_gate and gate_of(drawn.call) != "bounded":
        with pytest.raises(OptionError, match="bounded"):
            judge(drawn, run)
        return
    verdict = judge(drawn, run)
    assert verdict.accepted, verdict.explain()
    assert "accepted" in verdict.explain()


@pytest.mark.parametrize(("cheat", "probe"), CONTROLS, ids=lambda x: getattr(x, "name", x))
def test_cheats_are_rejected(cheat, probe, drawn_probes):
    verdict = judge(drawn_probes[probe], cheat.make())
    assert not verdict.accepted
    assert "rejected for" in verdict.explain()


def test_every_probe_has_a_kernel_that_it_rejects():
    assert {name for _, name in CONTROLS} == set(PROBES)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("probe", [name for name in PROBES if name != "P13"])
def test_margins_do_not_hang_on_the_seed(probe, seed):
    """The largest chunk errs most, and stays at half of the rms limits, or 0.85 of them for P10."""
    verdict = judge(PROBES[probe].make(seed), emulation.HONEST["chunk 64"])
    share = 0.85 if probe == "P10" else 0.5
    for result in verdict.results:
        for one in (result.o, result.final_state):
            assert one.rms_ratio <= share * one.rms_limit and one.worst_share <= 0.75, verdict.explain()


def test_the_oracle_itself_passes_and_draws_are_repeatable(drawn_probes):
    for probe in drawn_probes.values():
        again = PROBES[probe.name].make(20_260)
        assert digest(again.call) == digest(probe.call)
        assert judge(probe, reference).accepted
    other = {probe.name: digest(probe.call) for probe in make_probes(1)}
    assert all(other[name]["q"] != digest(probe.call)["q"] for name, probe in drawn_probes.items())


def test_probes_are_frozen_calls_of_chunk_kda(drawn_probes):
    for probe in drawn_probes.values():
        oracle_arguments(probe.call)
        assert probe.catches and all(np.asarray(x).dtype in (np.uint16, np.float32, np.int64)
                                     for x in probe.call.values() if isinstance(x, np.ndarray))  # fmt: skip
    with pytest.raises(dataclasses.FrozenInstanceError):
        drawn_probes["P1"].name = "P2"


def test_a_kernel_that_writes_its_inputs_is_rejected(drawn_probes):
    def run(call):
        results = reference(call)
        call["v"][0, 0, 0, 0] ^= 1
        return results

    verdict = judge(drawn_probes["P1"], run)
    assert not verdict.accepted and "wrote to its input v" in verdict.explain()
    assert judge(drawn_probes["P1"], reference).accepted


def test_a_missing_state_is_an_error(drawn_probes):
    with pytest.raises(MissingArrayError, match="final_state"):
        judge(drawn_probes["P1"], lambda call: (reference(call)[0], None))


def test_what_the_table_promises_about_the_inputs(drawn_probes):
    def of(name):
        arguments = oracle_arguments(drawn_probes[name].call)
        gate = {x: arguments.get(x) for x in ("gate", "A_log", "dt_bias", "lower_bound")}
        return drawn_probes[name].call, _operands(
            *(arguments[x] for x in ("q", "k", "v", "g", "beta")), scale=1.0, use_qk_l2norm=True, gate=gate,
            strength={"beta_sigmoid": True, "allow_neg_eigval": False},
        )  # fmt: skip

    call, _ = of("P1")
    sizes = np.log2(np.linalg.norm(decode(call["q"]).astype(float), axis=-1) / 128**0.5)
    assert -6.5 < sizes.min() < -5 and 5 < sizes.max() < 6.5
    call, _ = of("P2")
    assert ((decode(call["q"]) != 0).sum(-1) == 1).all() and ((decode(call["k"]) != 0).sum(-1) == 1).all()
    call, _ = of("P3")
    assert (decode(call["k"]) == 0).all(-1).mean() > 0.1
    call, x = of("P4")
    filled = (call["initial_state"] != 0).any(-1)
    assert (filled.sum(-1) == 8).all() and filled.any((0, 1)).all()
    assert not decode(call["v"]).any() and x.decay.min() > 0.998
    call, x = of("P5")
    assert x.decay.shape[1] == 512 and x.decay.min() > 0.997 and not decode(call["v"])[:, 1:].any()
    _, x = of("P6")
    assert np.log(x.decay).min() < -4.999 and x.decay.max() > 1 - 1e-5
    assert ((np.log(x.decay) > -4.5) & (np.log(x.decay) < -0.5)).mean() > 0.15
    _, x = of("P7")
    assert np.abs(np.log(x.decay) + 5).max() < 1e-6
    _, x = of("P8")
    with np.errstate(divide="ignore"):
        assert np.log(x.decay).min() < -500
    assert (x.decay[..., 1, :] > 0.9).any()
    _, x = of("P10")
    cosine = np.einsum("thd,hd->th", x.k[0], x.k[0, 0])
    assert cosine.min() > 0.99 and np.ptp(cosine[:, 0]) < 1e-12 < np.ptp(cosine[:, 1]) and x.beta.min() > 0.98
    assert np.log(x.decay).min() > -0.0105 and np.log(x.decay).max() < -0.00095
    call, _ = of("P11")
    for cu in (call["cu_seqlens"], *drawn_probes["P11"].refills):
        assert sorted(np.diff(cu).tolist()) == sorted(SHUFFLED_LENGTHS)


def test_the_array_of_boundaries_is_refilled_in_place(drawn_probes):
    seen = []

    def run(call):
        seen.append((id(call["cu_seqlens"]), call["cu_seqlens"].tolist()))
        return reference(call)

    kept = drawn_probes["P11"].call["cu_seqlens"].copy()
    assert judge(drawn_probes["P11"], run).accepted
    assert len({identity for identity, _ in seen}) == 1
    assert all(a[1] != b[1] for a, b in zip(seen, seen[1:], strict=False))
    assert np.array_equal(drawn_probes["P11"].call["cu_seqlens"], kept)


def test_emulations_take_both_layouts_and_more_value_heads():
    rng = np.random.default_rng(0)
    call = {"q": rng.standard_normal((2, 40, 1, 16)), "k": rng.standard_normal((2, 40, 1, 16)),
            "v": rng.standard_normal((2, 40, 3, 8)), "g": -rng.uniform(0, 3, (2, 40, 3, 16)),
            "beta": rng.uniform(0, 1, (2, 40, 3)), "initial_state": rng.standard_normal((2, 3, 8, 16)),
            "state_v_first": True, "use_qk_l2norm_in_kernel": True, "scale": 0.5}  # fmt: skip
    exact = emulation.ChunkedKernel(chunk=16, operands="exact", arithmetic=np.float64)
    for found, needed in zip(exact(copy_of(call)), reference(call), strict=True):
        np.testing.assert_allclose(found, needed, rtol=1e-9, atol=1e-11)
