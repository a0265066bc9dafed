"""A line left out of a placement is placed by the compiler, or a finding on a line of the rule; never a fault."""

from __future__ import annotations

import re

import pytest

from kdsl.data import data_root
from kdsl.lower.lowering import Lowering
from kdsl.plan.remembered import check_and_derive

from ..workshop import plan

RULES = data_root() / "rules"
ON = {"gate": "bounded", "use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True}
PINS = re.compile(r"    pin \{.*?\}\n", re.S)
LINE = re.compile(r"^      ([a-z_]\w*(?:, \w+)*) *: .*\n", re.M)


def left_out(rule: str):
    """(what, text) for every line of `place` and `compute`, every name of it, and two neighbours."""
    text = PINS.sub("", next(RULES.rglob(f"{rule}.kds")).read_text("utf-8"))
    for line in LINE.finditer(text):
        names = line[1].split(", ")
        parts = [names, *([name] for name in names), *(names[i : i + 2] for i in range(len(names) - 1))]
        for part in map(list, dict.fromkeys(map(tuple, parts))):
            kept = ", ".join(name for name in names if name not in part)
            new = line[0].replace(line[1], kept, 1) if kept else ""
            yield f"{rule}: {', '.join(part)}", text[: line.start()] + new + text[line.end() :]


CASES = dict(case for rule in ("lane_columns", "cpu_stream") for case in left_out(rule))


@pytest.mark.parametrize("what", CASES)
def test_lowered_or_refused_on_a_line(what, tmp_path):
    rule = what.partition(":")[0]
    file = tmp_path / "rule.kds"
    file.write_text(CASES[what].replace("8 KiB", "128 KiB"), encoding="utf-8")
    result = check_and_derive([file])
    errors = [d for d in result.diagnostics if d.code[0] != "W"]
    for finding in errors:
        places = [finding.span, *(label.span for label in finding.labels)]
        assert any(span.path == str(file) for span in places), finding
    if not errors:
        target = "cpu" if rule.startswith("cpu") else "sm_90a"
        made = plan(result.library, rule, target=target, **ON)
        assert all(source.source for source in Lowering(made).sources)
