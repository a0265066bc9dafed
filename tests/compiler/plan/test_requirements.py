"""A rule is not lowered for a call that it does not take."""

from __future__ import annotations

import pytest

from kdsl.plan.refusal import PlanRefused

from ..workshop import plan, shipped


@pytest.mark.parametrize(("rule", "gate", "remedy"), [
    ("mma_any_gate", "bounded", "bounded gates have mma_bounded"),
    ("mma_bounded", "softplus", "unbounded gates have mma_any_gate"),
    ("mma_bounded", "precomputed", "unbounded gates have mma_any_gate"),
])  # fmt: skip
def test_a_gate_that_the_rule_refuses(rule, gate, remedy):
    with pytest.raises(PlanRefused) as caught:
        plan(shipped(), rule, target="sm_90a", gate=gate)
    assert caught.value.code == "R001" and caught.value.help == (remedy,)
    assert f"gate = {gate}" in caught.value.observed


def test_a_size_that_the_rule_refuses():
    with pytest.raises(PlanRefused, match="does not take this call"):
        plan(shipped(), "mma_bounded", sizes={"K": 64}, target="sm_90a", gate="bounded")


@pytest.mark.parametrize(("rule", "gate"), [("mma_bounded", "bounded"), ("mma_any_gate", "precomputed")])
def test_what_it_takes(rule, gate):
    assert plan(shipped(), rule, target="sm_90a", gate=gate).settings["gate"] == gate
