"""`--emit decisions` gives `pin` lines that the rule accepts back, with the same plan, trace and TIR."""

from __future__ import annotations

import re

import pytest

from kdsl.check.rules import points
from kdsl.data import data_root
from kdsl.lower.lowering import Lowering
from kdsl.plan.derive import decisions_text
from kdsl.plan.refusal import PlanRefused
from kdsl.syntax import nodes as n

from ..forms import form_rule
from ..workshop import library_of, plan, shipped

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}
RULES = {name: rule for name, rule in shipped().rules.items() if "cpu" in rule.targets}
POINTS = [(name, point) for name, rule in RULES.items() for point in points(rule)]


def with_pins(text: str, decisions: str) -> str:
    """The rule's text with each block of pins before the brace that closes its kernel, in place of pins of its own."""
    for name in re.findall(r"^ +(\S+) = ", decisions, re.MULTILINE):
        text = re.sub(rf"^ +{re.escape(name)} = .*\n", "", text, flags=re.MULTILINE)
    for name, block in re.findall(r"  # kernel (\S+)\n(  pin \{.*?\n  \})", decisions, re.DOTALL):
        start = text.index(f"kernel {name} computes")
        closing = re.compile(r"^  \}", re.MULTILINE).search(text, start).start()
        text = text[:closing] + block + "\n" + text[closing:]
    return text


def traces(made):
    return [(kernel.trace_json, kernel.tir) for kernel in Lowering(made).scheduled]


def same_again(library, text, rule, choices, folder, **settings):
    made = plan(library, rule, choices, **settings)
    decisions = decisions_text(made)
    pinned_library = library_of(folder, with_pins(text, decisions), "pinned")
    pinned = plan(pinned_library, rule, choices, **settings)
    assert pinned.kernels == made.kernels
    assert decisions_text(pinned) == decisions
    assert traces(pinned) == traces(made)
    pins = [pin for kernel in pinned.point.kernels for pin in kernel.pins]
    named = {pin.name.text for pin in pins if isinstance(pin, n.PinValue)}
    assert named >= set(re.findall(r"^ +(\S+) = ", decisions, re.MULTILINE)) and named


@pytest.mark.parametrize(("name", "choices"), POINTS, ids=lambda x: x if isinstance(x, str) else str(x))
def test_decisions_of_shipped_rules_go_back(name, choices, tmp_path):
    text = RULES[name].declaration.span.text
    same_again(shipped(), text, name, choices, tmp_path, **ON)


@pytest.mark.parametrize("name", sorted(name for name, rule in shipped().rules.items() if "sm_90a" in rule.targets))
def test_decisions_of_cuda_rules_go_back(name, tmp_path):
    text = shipped().rules[name].declaration.span.text
    gate = {"gate": "softplus"} if name == "mma_any_gate" else {}
    same_again(shipped(), text, name, {}, tmp_path, target="sm_90a", **{**ON, **gate})


def barriers_of(folder, names: str):
    """mma_bounded with these barriers in kernel prepare."""
    text = shipped().rules["mma_bounded"].declaration.span.text
    block = f"  # kernel prepare\n  pin {{\n    prepare.barriers_before = {names}\n  }}"
    return plan(library_of(folder, with_pins(text, block)), "mma_bounded", target="sm_90a", **ON)


def test_pinned_barriers_must_be_enough(tmp_path):
    derived = plan(shipped(), "mma_bounded", target="sm_90a", **ON).kernels[0]
    needed = derived.barriers
    (one_more, *_) = (stage.name for stage in derived.body if stage.name not in needed)
    assert set(barriers_of(tmp_path, ", ".join([one_more, *needed])).kernels[0].barriers) == {one_more, *needed}
    for left_out in needed:
        rest = ", ".join(name for name in needed if name != left_out)
        with pytest.raises(PlanRefused, match="without a barrier") as caught:
            barriers_of(tmp_path, rest)
        assert caught.value.code == "D139"
    with pytest.raises(PlanRefused, match="is no stage"):
        barriers_of(tmp_path, ", ".join(["no_such", *needed]))


def test_decisions_of_a_rule_that_leaves_everything_to_the_compiler(tmp_path):
    name, text = form_rule("centred", "folded", kernels=2)
    same_again(library_of(tmp_path, text), text, name, {}, tmp_path, **ON)


def pinned_rule(folder, *lines: str):
    """cpu_split with these pins, planned."""
    text = (data_root() / "rules" / "kda.chunk_forward" / "cpu_split.kds").read_text(encoding="utf-8")
    block = "  # kernel all\n  pin {\n" + "".join(f"    {line}\n" for line in lines) + "  }"
    return plan(library_of(folder, with_pins(text, block)), "cpu_split", **ON)


def test_another_order_is_another_schedule_of_the_same_values(tmp_path):
    order = "state_key.loop_order = d, j, e.outer, e.inner"
    other = pinned_rule(tmp_path, order, "state_query before state_key")
    derived = plan(shipped(), "cpu_split", **ON)
    assert other.kernels != derived.kernels and traces(other) != traces(derived)
    order = [stage.name for stage in other.kernels[0].body]
    assert order.index("state_query") < order.index("state_key")
    assert {stage.name for stage in other.kernels[0].body} == {s.name for s in derived.kernels[0].body}


@pytest.mark.parametrize(("lines", "code"), [
    (("unit_q.loop_order = d, i", "unit_q.loop_order = i, d"), "D130"),
    (("unit_q.loop_order = 1, 2",), "D131"),
    (("unit_q.loop_ordre = i, d",), "D132"),
    (("qn.home = f32, stack",), "D132"),
    (("no_such_stage before unit_q",), "E101"),
    (("mask_kk before gram_kk",), "D134"),
    (("all.order = unit_q, unit_k",), "D135"),
    (("state_key.loop_order = j, d, e",), "D136"),
])  # fmt: skip
def test_wrong_pins_are_refused_with_their_line(tmp_path, lines, code):
    with pytest.raises((PlanRefused, AssertionError)) as caught:
        pinned_rule(tmp_path, *lines)
    if isinstance(caught.value, PlanRefused):
        assert caught.value.code == code
        assert caught.value.span.text.split()[0] in lines[-1]
    else:
        assert f"error[{code}]" in str(caught.value)


def test_a_pinned_number_may_depend_on_a_choice():
    for columns, resident in ((64, 3), (128, 2)):
        (step,) = plan(shipped(), "lane_columns", {"columns": columns}, target="sm_90a", gate="bounded").kernels
        assert step.resident == resident
