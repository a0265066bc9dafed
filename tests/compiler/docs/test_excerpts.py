"""What the README shows of cheap commands is what they print: shown lines in order, `...` for anything between."""

from __future__ import annotations

import re

import pytest

from kdsl.data import data_root

from .session import Step, prepare, run, steps

README = (data_root() / "README.md").read_text("utf-8")
BLOCK = README.partition("\n## Commands\n")[2].partition("```\n")[2].partition("```")[0]
MADE_ELSEWHERE = "kdsl diff mine.kds"  # from files that docs/first-ten-minutes.md makes, where they are compared


def shows(step: Step, printed: str) -> bool:
    """Whether the excerpt's lines stand in the output in their order."""
    lines = [line.rstrip() for line in step.output.splitlines() if line.strip() not in ("", "...")]
    pattern = r"[\s\S]*?".join("^" + re.escape(line).replace(r"\.\.\.", ".*") + r"\s*$" for line in lines)
    return bool(lines) and re.search(pattern, printed, re.M) is not None


@pytest.mark.parametrize("step", steps(BLOCK), ids=lambda step: " ".join(step.command.split()[:2]))
def test_an_excerpt_is_real(step, tmp_path):
    if step.command.startswith(MADE_ELSEWHERE):
        assert step.output
        return
    prepare(tmp_path)
    printed = run(step.command, tmp_path)
    assert shows(step, printed), printed


def test_a_line_that_is_not_printed_is_noticed():
    assert shows(Step("a", "one\n...\n  three ... five"), "zero\none\ntwo\n  three 4 five\n")
    assert not shows(Step("a", "one\nfour"), "one\ntwo\n")
    assert not shows(Step("a", "two\none"), "one\ntwo\n")
