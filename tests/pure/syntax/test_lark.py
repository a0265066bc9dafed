"""The driver against Lark's own parser of the same grammar: the same texts, trees and places."""

from __future__ import annotations

import random

import pytest
from lark import Transformer
from lark.exceptions import UnexpectedInput

from kdsl.source.span import Origin, SourceFile, Span
from kdsl.syntax.build import Build
from kdsl.syntax.parse import parse_source
from kdsl.syntax.print import print_node
from kdsl.syntax.tables import lark
from kdsl.syntax.tokens import Token

from .fuzz import Mutations, shipped
from .programs import Programs, disarrange


@pytest.fixture(scope="module")
def reference():
    return lark()


class _Rebuild(Transformer):
    """Lark's tree through the same methods that the driver calls."""

    def __init__(self, origin: Origin):
        super().__init__()
        self.build = Build(origin)

    def __default__(self, data, children, meta):
        if data == "start":
            return tuple(children)
        span = Span(self.build.origin, getattr(meta, "start_pos", 0), getattr(meta, "end_pos", 0))
        return getattr(self.build, data)(span, children)

    def __default_token__(self, token):
        return Token((token.type,), str(token), token.start_pos, token.end_pos)


def places(node, found=None) -> list:
    found = [] if found is None else found
    if isinstance(node, tuple):
        for item in node:
            places(item, found)
    elif hasattr(node, "span"):
        found.append((type(node).__name__, node.span.first, node.span.last))
        for name in node.__attrs_attrs__:
            places(getattr(node, name.name), found)
    return found


def compare(reference, text: str) -> None:
    ours = parse_source(SourceFile("", text))
    assert ours.ok, text
    theirs = _Rebuild(Origin(SourceFile("", text))).transform(reference.parse(text + "\n"))
    assert ours.tree.declarations == theirs
    assert places(ours.tree.declarations) == places(theirs)


@pytest.mark.parametrize("number", range(len(shipped())))
def test_shipped(reference, number):
    compare(reference, shipped()[number])


def test_random_programs(reference):
    chance = random.Random(3)
    for _ in range(60):
        programs = Programs(chance, 2)
        compare(reference, disarrange(print_node(programs.declaration()), chance))


def test_what_is_right_is_right_for_both(reference):
    """Lark also takes `rulex` for `rule x`; the driver wants a space between two words."""
    chance = random.Random(4)
    mutations = Mutations(chance, shipped())
    agreed = 0
    for _ in range(300):
        text = mutations.text()
        try:
            reference.parse(text + "\n")
            theirs = True
        except UnexpectedInput:
            theirs = False
        ours = parse_source(SourceFile("", text)).ok
        assert theirs or not ours, text
        agreed += ours == theirs
    assert agreed >= 290
