"""One canonical form: it means the same, keeps what people wrote, and is its own canonical form."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdsl.data import data_root
from kdsl.source.span import SourceFile
from kdsl.syntax import nodes as n
from kdsl.syntax.parse import Parsed, parse
from kdsl.syntax.print import format_text, print_node

from .programs import NOWHERE, Programs, disarrange, without_groups

SHIPPED = sorted(path for folder in ("stdlib", "rules") for path in (data_root() / folder).rglob("*.kds"))
GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.kds"))


def tree(text: str) -> n.Tree:
    return parse(SourceFile("t.kds", text))


def comments(text: str) -> list[str]:
    return sorted(comment.text.rstrip() for comment in tree(text).comments)


def check(text: str) -> str:
    once = format_text(text)
    assert isinstance(once, str)
    assert tree(once) == tree(text)
    assert comments(once) == comments(text)
    assert format_text(once) == once
    assert all(line == line.rstrip() for line in once.split("\n") if '"""' not in once)
    return once


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped(path):
    text = path.read_text(encoding="utf-8")
    assert check(text) == text, f"kdsl fmt {path.name}"


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_trees_print_and_parse_back(seed):
    node = Programs(random.Random(seed)).declaration()
    (back,) = tree(print_node(node)).declarations
    assert without_groups(back) == without_groups(node)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_any_layout_gives_one_form(seed):
    chance = random.Random(seed)
    programs = Programs(chance, 2)
    texts = [print_node(programs.declaration()) for _ in range(chance.randint(1, 3))]
    text = disarrange("\n".join(texts), chance)
    once = check(text)
    assert tree(once) == tree("\n".join(texts))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden(path, golden):
    text = check(path.read_text(encoding="utf-8"))
    golden(path.with_suffix(".formatted"), text)


def test_errors_are_returned():
    result = format_text("target a {")
    assert isinstance(result, Parsed) and result.diagnostics[0].code == "E002"


def test_nothing():
    assert format_text("") == "" and format_text("\n\n") == ""
    assert format_text("# only a comment") == "# only a comment\n"


def test_parentheses_where_the_grammar_needs_them():
    def name(text):
        return n.Name(NOWHERE, text)

    total = n.Binary(NOWHERE, "+", name("a"), name("b"))
    line = n.Chosen(NOWHERE, n.Id(NOWHERE, "x"), n.Binary(NOWHERE, "*", total, name("c")))
    assert print_node(line) == "x = (a + b) * c\n"
    bound = n.Binder(NOWHERE, n.Id(NOWHERE, "p"), n.Number(NOWHERE, "4"))
    line = n.Chosen(NOWHERE, n.Id(NOWHERE, "x"), n.Reduction(NOWHERE, "sum", (bound,), name("a")))
    assert print_node(line) == "x = sum over p < 4 of a\n"
    below = n.Binder(NOWHERE, n.Id(NOWHERE, "p"), n.Signed(NOWHERE, "-", n.Number(NOWHERE, "4")))
    line = n.Chosen(NOWHERE, n.Id(NOWHERE, "x"), n.Reduction(NOWHERE, "sum", (below,), name("a")))
    assert print_node(line) == "x = sum over p < (-4) of a\n"
