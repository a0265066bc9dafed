"""A rule as statements: writing changes nothing, meaning does."""

from __future__ import annotations

import re

import pytest

from kdsl.check import check_paths
from kdsl.check.rules import rule_at
from kdsl.data import data_root
from kdsl.review.meaning import Line, changes, statements
from kdsl.source.render.text import render_text

RULE = (data_root() / "rules/kda.chunk_forward/mma_bounded.kds").read_text(encoding="utf-8")


@pytest.fixture
def lines(tmp_path):
    """`lines(text)`: the statements of a rule's text on sm_90a at its defaults."""

    def read(text: str, target: str = "sm_90a"):
        file = tmp_path / "rule.kds"
        file.write_text(text, encoding="utf-8")
        result = check_paths([file])
        assert result.ok, render_text(result.diagnostics)
        rule = next(r for r in result.library.rules.values() if r.declaration.span.path == str(file))
        point = rule_at(rule, result.library.targets[target], rule.defaults, result.library.tactics)
        return tuple(statements(point))

    return read


def test_comments_layout_and_the_order_of_names_mean_nothing(lines):
    written = RULE.replace("k_restored, m       ", "m, k_restored       ").replace("  form {", "  # forms\n  form {")
    assert written != RULE
    assert changes(lines(RULE), lines(written)) == ()


def test_one_statement_of_one_name(lines):
    (change,) = changes(
        lines(RULE), lines(RULE.replace("v_tile in [32, 64] default 64", "v_tile in [32, 64] default 32"))
    )[:1]
    assert (change.section, change.key) == ("choose", "v_tile")
    assert change.old.endswith("default 64") and change.new.endswith("default 32")


def test_a_requirement_dropped_and_a_promise_added(lines):
    text = RULE.replace("    spills == 0\n", "    spills == 0\n    occupancy >= 2\n")
    text = re.sub(r"    unit_stride\(q, k, v, g, o\) .*\n", "", text)
    found = {(c.section, c.key): (c.old, c.new) for c in changes(lines(RULE), lines(text))}
    assert found[("ensure", "occupancy >= 2")] == (None, "")
    assert found[("require", "unit_stride(q, k, v, g, o)")][1] is None and len(found) == 2


def test_tactics_are_read_in_their_place(lines):
    """A line of the rule and a line of its tactic are statements alike, with parameters at their values."""
    found = {(line.section, line.key): line.text for line in lines(RULE)}
    assert found[("recurrence place", "inv")] == ": bf16 in shared pad 8 ring 2 via cp.async of 16 bytes"
    assert found[("recurrence roles", "all")] == ": 4 warps over e by 16"
    assert found[("recurrence compute", "within")] == ": mma.m16n8k16"


def test_what_is_said_of_the_same_thing_is_one_change():
    before, after = (Line("k place", "x", ": f32 in shared"),), (Line("k place", "x", ": f32 in shared pad 1"),)
    (change,) = changes(before, after)
    assert (change.old, change.new) == (": f32 in shared", ": f32 in shared pad 1")
    assert changes(before, before) == ()
