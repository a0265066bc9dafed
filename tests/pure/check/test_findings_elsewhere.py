"""Findings in a tactic of the standard library that a rule applies are findings of the rule."""

from __future__ import annotations

from kdsl.check import check_paths
from kdsl.data import data_root

RULE = data_root() / "rules" / "kda.chunk_forward" / "mma_bounded.kds"


def test_an_error_in_an_applied_tactic_is_shown(tmp_path):
    text = RULE.read_text(encoding="utf-8").replace("rule mma_bounded", "rule forgetful")
    right, wrong = tmp_path / "right.kds", tmp_path / "wrong.kds"
    right.write_text(text, encoding="utf-8")
    assert check_paths([right]).ok
    assert "gamma, b for recurrence " in text
    wrong.write_text(text.replace("gamma, b for recurrence ", "gamma for recurrence "), encoding="utf-8")
    result = check_paths([wrong])
    assert not result.ok
    (found,) = result.diagnostics
    assert found.code == "E402" and "tactics" in found.span.path
    assert any(label.span.path == str(wrong) for label in found.labels)
