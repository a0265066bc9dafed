"""The line that a message shows as an example of a block is a right line of it."""

from __future__ import annotations

import pytest

from kdsl.source.span import SourceFile
from kdsl.syntax.examples import LINES, line_help
from kdsl.syntax.here import sections
from kdsl.syntax.parse import parse_source

OUTER = {"operator": "operator o {{ {} }}", "rule": "rule r schedules o on t {{ {} }}",
         "kernel": "rule r schedules o on t {{ kernel k computes p {{ {} }} }}",
         "part": "operator o {{ part p {{ {} }} }}"}  # fmt: skip
NAMED = {"acceptance": "acceptance a", "part": "part p", "either": "either x"}


@pytest.mark.parametrize("keyword", LINES)
def test_the_example_parses(keyword):
    container = next(c for c in sections()[keyword] if c in OUTER)
    for line in LINES[keyword].replace("...", "y[d] = x[d]").split("`, or `"):
        line = line.replace("{ y[d]", "{ scale : y[d]")
        text = OUTER[container].format(f"{NAMED.get(keyword, keyword)} {{ {line} }}")
        parsed = parse_source(SourceFile("a.kds", text))
        assert parsed.ok, (text, parsed.diagnostics)


def test_a_message_without_better_help_shows_it():
    text = "rule r schedules o on t {\n  choose { width in (8, 16) }\n}\n"
    (found,) = parse_source(SourceFile("a.kds", text)).diagnostics
    assert found.help == (line_help("choose"),)
