"""Every value that a shipped rule may choose lowers: no step of its schedule is refused at any point."""

from __future__ import annotations

import pytest

pytest.importorskip("tvm_ffi", reason="lowering needs TVM")

from kdsl.check.library import load
from kdsl.check.rules import points
from kdsl.data import data_root
from kdsl.lower.lowering import Lowering
from kdsl.prove.jobs import rule_jobs

LIBRARY = load(sorted((data_root() / "rules").rglob("*.kds")))
RULES = tuple(LIBRARY.rules.values())
POINTS = [(rule, point) for rule in RULES for point in points(rule)]


def label(rule, point) -> str:
    return f"{rule.name}: " + ", ".join(f"{name} = {value}" for name, value in point.items())


@pytest.mark.parametrize(("rule", "point"), POINTS, ids=[label(*each) for each in POINTS])
def test_a_point_lowers(rule, point):
    """Under one call for each point; a stage of the plan is an sblock of its TIR, by name."""
    job = next(rule_jobs(LIBRARY, rule, rule.targets[0], every_point=True, choices=point))
    lowering = Lowering(job.plan())
    assert len(lowering.scheduled) == len(lowering.plan.kernels)
    for function, kernel in zip(lowering.functions, lowering.plan.kernels, strict=True):
        text = str(function.func)
        assert all(f'sblock("{stage.name}")' in text for stage in kernel.stages if stage.scan is None)


def test_the_first_steps_of_a_deep_ring_are_fetched_each():
    rule = LIBRARY.rules["mma_any_gate"]
    of_depth = {}
    for depth in rule.choices["depth"]:
        job = next(rule_jobs(LIBRARY, rule, "sm_90a", every_point=True, choices={"depth": depth, "v_tile": 64}))
        (kernel,) = (k for k in job.plan().kernels if k.copies)
        of_depth[depth] = kernel
    for depth, kernel in of_depth.items():
        assert kernel.ring == depth and len(kernel.ahead) == depth - 1
        names = [stage.name for stage in kernel.first]
        assert len(set(names)) == len(names) == (depth - 1) * len(kernel.copies)
