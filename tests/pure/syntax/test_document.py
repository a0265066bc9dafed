"""An editor's text: an edit parses one declaration again and moves the others."""

from __future__ import annotations

import random

from kdsl.source.span import SourceFile
from kdsl.syntax.document import Document
from kdsl.syntax.parse import parse_source

from ..pace import Paced
from .fuzz import Mutations, shipped


def same(document: Document, text: str) -> None:
    fresh = parse_source(SourceFile(document.path, text))
    kept = document.parsed
    assert kept.tree == fresh.tree and kept.tree.source.text == text
    assert [d.order for d in kept.diagnostics] == [d.order for d in fresh.diagnostics]
    for one, two in zip(kept.tree.declarations, fresh.tree.declarations, strict=True):
        assert (one.span.first, one.span.last, one.span.text) == (
            two.span.first,
            two.span.last,
            two.span.text,
        )
    assert [c.span.first for c in kept.tree.comments] == [c.span.first for c in fresh.tree.comments]


def test_an_edit_reads_one_declaration():
    text = "\n".join(shipped())
    document = Document("a.kds", text)
    assert document.reread == len(document.parsed.tree.declarations)
    before = document.parsed.tree.declarations
    edited = "# a line more\n\n" + text.replace("sms = 132", "sms = 133", 1)
    document.update(edited)
    assert document.reread == 1
    assert (
        sum(one is two for one, two in zip(before, document.parsed.tree.declarations, strict=True))
        == len(before) - 1
    )
    same(document, edited)


def test_equal_declarations_keep_their_own_places():
    text = "target a { }\n" * 3
    document = Document("a.kds", text)
    document.update("target b { }\n" + text)
    assert document.reread == 1
    assert [d.span.line for d in document.parsed.tree.declarations] == [1, 2, 3, 4]


def test_many_edits():
    chance = random.Random(8)
    mutations = Mutations(chance, shipped())
    text = mutations.part()
    document = Document("a.kds", text)
    for _ in range(300):
        text = mutations.mutate(text)[:3000]
        document.update(text)
        same(document, text)


def test_an_edit_in_two_thousand_lines_is_quick():
    texts = shipped()
    text = "\n".join(texts * (2000 // "".join(texts).count("\n") + 1))
    document = Document("a.kds", text)
    best = 1.0
    for number in range(5):
        edited = text.replace("sms = 132", f"sms = {number}", 1)
        with Paced() as took:
            document.update(edited)
        best = min(best, took.seconds)
        assert document.reread == 1
    assert best < 0.02
