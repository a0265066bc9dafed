"""Plans as pure data, for every shipped rule, without TVM: every step has a line, every stage its place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kdsl.check import check_paths
from kdsl.check.rules import points, rule_at
from kdsl.data import data_root
from kdsl.plan.derive import derive
from kdsl.plan.listing import picture, plan_text
from kdsl.plan.model import Plan
from kdsl.plan.order import needs
from kdsl.plan.specialize import SettingRefused, specialize

LIBRARY = check_paths([data_root() / "rules"]).library
POINTS = [
    (name, target, point)
    for name, rule in LIBRARY.rules.items()
    for target in rule.targets
    for point in points(rule)
]


def planned(name: str, target: str, point, **settings) -> Plan:
    rule = LIBRARY.rules[name]
    operator = LIBRARY.operators[rule.operator]
    special = specialize(operator, rule, **settings)
    at = rule_at(rule, LIBRARY.targets[target], point, LIBRARY.tactics)
    return derive(at, operator, special)


@pytest.mark.parametrize(("name", "target", "point"), POINTS, ids=str)
def test_every_shipped_rule_has_a_plan_at_every_point(name, target, point):
    plan = planned(name, target, point)
    assert plan == planned(name, target, point)  # nothing but the text and the settings decides
    stages = [stage.name for kernel in plan.kernels for stage in kernel.stages]
    graph = [stage.name for stage in plan.graph.stages]
    assert set(graph) <= set(stages), "every stage of the graph is computed"
    for kernel in plan.kernels:
        assert_order(kernel)
        known = {kernel.name, *(stage.name for stage in kernel.stages)}
        for step in kernel.steps:
            assert step.span.line > 0 and step.why
            assert step.sblock in known or any(step.sblock.startswith(name) for name in known)


def assert_order(kernel) -> None:
    """A stage stands after whatever makes what it reads in the same step."""
    made: set[str] = set()
    within = {stage.tensor for stage in kernel.body}
    for stage in kernel.body:
        late = (needs(stage) & within) - made
        assert not late, f"{stage.name} stands before {late}"
        made.add(stage.tensor)


WITHOUT_TVM = """
import sys
sys.path.insert(0, sys.argv[1])
import test_derive
test_derive.planned("cpu_split", "cpu", {"chunk": 16, "width": 8})
heavy = {"tvm", "numpy", "torch"} & set(sys.modules)
assert not heavy, heavy
"""


def test_planning_never_loads_tvm_or_numpy():
    command = [sys.executable, "-c", WITHOUT_TVM, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("settings", "said"), [
    ({"options": {"gate": "open"}}, "gate = open: needed precomputed or softplus or bounded"),
    ({"options": {"scale": 1.0}}, "scale = 1.0: needed an option"),
    ({"options": {"speed": True}}, "speed = True: needed an option"),
    ({"dtypes": {"q": "f64"}}, "q = f64: needed bf16 or f16 or f32"),
    ({"dtypes": {"w": "f32"}}, "w = f32: needed a tensor"),
    ({"sizes": {"K": 512}}, "K = 512: needed from 16 to 256"),
])  # fmt: skip
def test_settings_that_the_operator_does_not_have(settings, said):
    with pytest.raises(SettingRefused, match=said):
        planned("cpu_split", "cpu", {"chunk": 16, "width": 8}, **settings)


def test_dtypes_follow_each_other():
    plan = planned("cpu_split", "cpu", {"chunk": 16, "width": 8}, dtypes={"q": "f16"})
    dtypes = plan.specialization.dtypes
    assert {dtypes[name] for name in ("q", "k", "v", "o")} == {"f16"}


def test_pictures_show_grid_loops_lanes_and_homes():
    plan = planned("cpu_split", "cpu", {"chunk": 32, "width": 16}, options={"gate": "softplus"})
    drawn = picture(plan)
    assert "kernel all   grid task over n, h" in drawn and "for c in " in drawn
    (line,) = (line for line in drawn.splitlines() if "| state_key" in line)
    words = line.split("state_key", 1)[1].split()
    assert words == ["sw", "j", "d", "e.outer", "e.inner*", "f32", "stack", "|"]
    boxes = {len(line) for line in drawn.splitlines() if line[:1] in "|+"}
    assert boxes == {82}
    assert "state_key" in plan_text(plan) and "cpu_split.kds:" in plan_text(plan)
