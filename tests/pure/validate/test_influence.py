"""Influence checks: their effects stand clear of rounding, and each unread input is noticed."""

import numpy as np
import pytest

from kdsl.validate import emulation
from kdsl.validate.call import copy_of, reference
from kdsl.validate.influence import Influence, movements, smallest_movement
from kdsl.validate.judge import judge
from kdsl.validate.probes import PROBES

NAMES = ("q", "k", "v", "g", "beta", "A_log", "dt_bias", "initial_state", "cu_seqlens")


def test_every_input_is_changed_by_some_check(drawn_probes):
    changed = {name for check in drawn_probes["P13"].influences for name in check.change}
    assert changed == set(NAMES)


def test_every_effect_stands_clear_of_rounding(drawn_probes):
    """The weakest are single keys at the start of a sequence; projecting on them averages rounding away."""
    probe = drawn_probes["P13"]
    for check in probe.influences:
        assert smallest_movement(probe.call, check) > 0.005, check.name


@pytest.mark.parametrize("seed", range(4))
def test_honest_kernels_move_as_the_recurrence_does(seed):
    verdict = judge(PROBES["P13"].make(seed), emulation.HONEST["chunk 64"])
    shares = [movement.share for movement in verdict.movements]
    assert verdict.accepted and min(shares) > 0.8 and max(shares) < 1.2


@pytest.mark.parametrize("name", NAMES)
def test_an_input_that_is_never_read_is_noticed(name, drawn_probes):
    probe = drawn_probes["P13"]
    stale = probe.call[name].copy()
    verdict = judge(probe, lambda call: reference(copy_of(call, **{name: stale})))
    still = {movement.influence for movement in verdict.movements if not movement.moved}
    assert still == {check.name for check in probe.influences if name in check.change}
    assert not verdict.accepted


@pytest.mark.parametrize("token", ["first", "last"])
def test_one_unread_value_channel_at_the_ends_is_noticed(token, drawn_probes):
    probe = drawn_probes["P13"]
    cu = probe.call["cu_seqlens"]
    at = int(cu[1] if token == "first" else cu[2] - 1)

    def run(call):
        v = call["v"].copy()
        v[0, at, 1, 77] = probe.call["v"][0, at, 1, 77]
        return reference({**call, "v": v})

    verdict = judge(probe, run)
    still = {movement.influence for movement in verdict.movements if not movement.moved}
    assert f"v at the {token} token" in still


def test_outputs_that_are_not_finite_have_not_moved(drawn_probes):
    probe = drawn_probes["P13"]
    check = probe.influences[0]
    before, after = reference(probe.call), reference(check.changed(probe.call))
    broken = (np.full_like(after[0], np.nan), after[1])
    assert not any(movement.moved for movement in movements(check, before, broken, before, after))


def test_a_change_without_effect_counts_as_not_moved(drawn_probes):
    call = drawn_probes["P13"].call
    nothing = Influence("nothing", {"q": call["q"]}, {"o": np.zeros((1, 1, 1, 1), int)})
    same = reference(call)
    (movement,) = movements(nothing, same, same, same, same)
    assert np.isnan(movement.share) and not movement.moved and "nothing" in movement.explain()
