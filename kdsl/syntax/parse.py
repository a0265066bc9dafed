"""Text to tree."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from lark import Lark

from kdsl.data import data_root
from kdsl.source.span import Origin, SourceFile
from kdsl.syntax.build import Build
from kdsl.syntax.layout import Layout
from kdsl.syntax.nodes import Tree


@lru_cache(maxsize=1)
def lark() -> Lark:
    text = (data_root() / "grammar" / "kds.lark").read_text(encoding="utf-8")
    return Lark(
        text, parser="lalr", lexer="contextual", postlex=Layout(), propagate_positions=True, maybe_placeholders=True
    )


def parse(source: SourceFile) -> Tree:
    """The tree of a text that is right; a syntax error is Lark's exception."""
    tree = lark().parse(source.text + "\n")
    return Tree(source, Build(Origin(source)).transform(tree))


def parse_file(path: Path) -> Tree:
    return parse(SourceFile(str(path), path.read_text(encoding="utf-8")))
