"""Schedules are TVM's own: their trace gives the same TIR again; what TVM refuses names the rule's line."""

from __future__ import annotations

import json

import pytest

from kdsl.check.library import load
from kdsl.check.rules import points
from kdsl.data import data_root
from kdsl.driver import plan_of
from kdsl.lower.lowering import Lowering
from kdsl.lower.stir.schedule import StepRefused, replay, replays
from kdsl.lower.tvm import assert_structural_equal, deep_copy, load_json, save_json
from kdsl.plan.refusal import PlanRefused
from kdsl.plan.specialize import specialize
from kdsl.source.render.text import render_text

from ..forms import form_rule
from ..workshop import library_of, plan, shipped

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "softplus"}
RULES = {name: rule for name, rule in shipped().rules.items() if "cpu" in rule.targets}
POINTS = [(name, point) for name, rule in RULES.items() for point in points(rule)]
CPU_SPLIT = data_root() / "rules" / "kda.chunk_forward" / "cpu_split.kds"


@pytest.mark.parametrize(("name", "choices"), POINTS, ids=lambda x: x if isinstance(x, str) else str(x))
def test_the_trace_alone_gives_the_same_tir(name, choices):
    for kernel in Lowering(plan(shipped(), name, choices, **ON)).scheduled:
        assert replays(kernel)
        assert str(replay(kernel.function, kernel.trace_json).mod) == str(kernel.module)
        assert len(json.loads(kernel.trace_json)[0]) > 20  # instructions, not an empty trace


@pytest.mark.parametrize("name", RULES)
def test_a_copy_shares_nothing_and_is_what_tvm_reads(name):
    (function,) = Lowering(plan(shipped(), name, **ON)).functions
    copy = deep_copy(function.func)
    assert_structural_equal(copy, function.func)
    assert_structural_equal(copy, load_json(save_json(function.func)))
    assert not copy.same_as(function.func) and not copy.body.same_as(function.func.body)


def test_a_trace_without_an_instruction_gives_other_tir():
    """Negative control of the replay."""
    (kernel,) = Lowering(plan(shipped(), "cpu_split", **ON)).scheduled
    instructions, decisions = json.loads(kernel.trace_json)
    place = next(i for i, entry in enumerate(instructions) if entry[0] == "Vectorize")
    cut = json.dumps([instructions[:place] + instructions[place + 1 :], decisions])
    assert str(replay(kernel.function, cut).mod) != str(kernel.module)


def test_two_kernels_have_a_schedule_each(tmp_path):
    name, text = form_rule("centred", "folded", kernels=2, place="qn : f32 in stack")
    scheduled = Lowering(plan(library_of(tmp_path, text), name, **ON | {"gate": "bounded"})).scheduled
    assert [kernel.function.name for kernel in scheduled] == ["prepare", "recur"]
    assert all(replays(kernel) for kernel in scheduled)


def unchecked(folder, old: str, new: str):
    """The lowering of an edited cpu_split that nobody checked, as an editor of plans may have one."""
    text = CPU_SPLIT.read_text(encoding="utf-8")
    assert text.count(old) == 1
    file = folder / "edited.kds"
    file.write_text(text.replace(old, new), encoding="utf-8")
    library = load([file])
    rule = library.rules["cpu_split"]
    special = specialize(library.operators[rule.operator], rule)
    return Lowering(plan_of(library, "cpu_split", "cpu", {}, special))


@pytest.mark.parametrize(("line", "pin", "stage", "loop"), [
    ("gram_kk : vector d by 8", "gram_kk.loop_order = i, j, d.outer, d.inner", "gram_kk", "d.inner"),
    ("gram_qk : vector d by 128", "gram_qk.loop_order = i, j, d", "gram_qk", "d"),
])  # fmt: skip
def test_what_tvm_refuses_is_a_diagnostic_on_the_rule_line(tmp_path, line, pin, stage, loop):
    """S08: lanes over a sum, asked for in a rule that was not checked (the check refuses it as E124)."""
    old = "    apply vector_products(width)\n"
    more = f"    compute {{\n      {line}\n    }}\n    pin {{\n      {pin}\n    }}\n"
    lowering = unchecked(tmp_path, old, old + more)
    with pytest.raises(StepRefused) as caught:
        lowering.scheduled  # noqa: B018
    diagnostic = caught.value.diagnostic
    assert diagnostic.code == "T101" and stage in diagnostic.message and f"`{loop}`" in diagnostic.message
    assert diagnostic.span.path.endswith("edited.kds") and diagnostic.span.text.startswith(line.split()[0])
    text = render_text([diagnostic])
    assert "TVM:" in text and len(text.splitlines()) < 14
    assert "Traceback" not in text and "T.sblock" not in text


def test_what_no_schedule_can_be_made_of_is_refused_before_tvm(tmp_path):
    """One index dealt twice, a parallel index left out, a tile that does not divide."""
    vector = "inverse : fma.f32 vector j by 8"
    with pytest.raises(PlanRefused) as caught:
        unchecked(tmp_path, vector, f"{vector}\n      residual : vector e by 8 unroll e by 4")
    assert caught.value.code == "E122"
    for grid, code in (("n", "D138"), ("n, h by 2", "D138"), ("n, h, e by 48", "E120")):
        with pytest.raises(PlanRefused) as caught:
            unchecked(tmp_path, "grid { task : n, h }", f"grid {{ task : {grid} }}")
        assert caught.value.code == code
        assert caught.value.span.text.startswith("task")
