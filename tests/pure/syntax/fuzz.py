"""Mutated and random texts through the parser, the printer and the renderers: none may fail.

`python tests/pure/syntax/fuzz.py 200000 [SEED]` is the long run, in one process.
"""

from __future__ import annotations

import random
import sys
import time

from kdsl.data import data_root
from kdsl.source.render import FORMATS, render
from kdsl.source.span import SourceFile
from kdsl.syntax.document import Document
from kdsl.syntax.parse import Parsed, parse_source
from kdsl.syntax.print import print_tree
from kdsl.syntax.split import split
from kdsl.syntax.tables import tables

SLOW = 2.0  # seconds that no text of this size may take
ODD = (
    "{", "}", "(", ")", "[", "]", '"', '"""', "'", "#", "\n", "\r\n", ";", ",", ":", "=", "==",
    "//", "/*", "*/", "&&", "\t", "\0", "\ufeff", "\u00a0", "\u201c", "\u2264", "é", "日本",
    "\U0001f600", "%", "95% of", "sum over", "->", "...", "1_000", "164 KB", "\\", "\x0b", "\u2028",
    "def", "if", "then", "else", "not", "in", "of",
)  # fmt: skip


def shipped() -> list[str]:
    """Every declaration of the standard library and the shipped rules."""
    texts = []
    for folder in ("stdlib", "rules"):
        for path in sorted((data_root() / folder).rglob("*.kds")):
            text = path.read_text(encoding="utf-8")
            texts += [text[piece.start : piece.stop] + "\n" for piece in split(text).pieces]
    return texts


class Mutations:
    def __init__(self, chance: random.Random, texts: list[str]):
        self.chance, self.texts = chance, texts
        self.words = (*tables().literals, *ODD)

    def text(self) -> str:
        kind = self.chance.random()
        if kind < 0.08:
            return self.noise()
        if kind < 0.16:
            return "".join(
                self.chance.choice((" ", "\n", "")) + self.word() for _ in range(self.chance.randint(0, 60))
            )
        text = self.part()
        for _ in range(self.chance.choice((0, 1, 1, 1, 2, 3, 8))):
            text = self.mutate(text)
        return text

    def word(self) -> str:
        return self.chance.choice(self.words)

    def noise(self) -> str:
        size = self.chance.randint(0, 200)
        return "".join(
            chr(self.chance.choice((self.chance.randint(0, 127), self.chance.randint(0, 0x2FFF))))
            for _ in range(size)
        )

    def part(self) -> str:
        """One to three declarations; of a long one only some lines."""
        found = []
        for _ in range(self.chance.randint(1, 3)):
            lines = self.chance.choice(self.texts).splitlines(keepends=True)
            if len(lines) > 40:
                first = self.chance.randrange(1, len(lines) - 25)
                lines = [lines[0], *lines[first : first + 25], lines[-1]]
            found.append("".join(lines))
        return "\n".join(found)

    def mutate(self, text: str) -> str:
        if not text:
            return self.word()
        at = self.chance.randrange(len(text))
        to = min(len(text), at + self.chance.choice((1, 1, 2, 5, 20, 80)))
        other = self.chance.randrange(len(text))
        return self.chance.choice((
            lambda: text[:at] + text[to:],
            lambda: text[:at] + self.word() + text[at:],
            lambda: text[:at] + " " + self.word() + " " + text[to:],
            lambda: text[:at] + text[at:to] * 2 + text[to:],
            lambda: text[:other] + text[at:to] + text[other:],
            lambda: text[:at],
            lambda: text.replace(text[at], self.word(), 1),
            lambda: text[:at] + self.word() * 50 + text[at:],
        ))()  # fmt: skip


def examine(text: str, document: Document | None = None) -> Parsed:
    """Parse, print and render one text, and look at what must always hold."""
    began = time.perf_counter()
    source = SourceFile("fuzz.kds", text)
    parsed = parse_source(source)
    for diagnostic in parsed.diagnostics:
        spans = [
            diagnostic.span,
            *(label.span for label in diagnostic.labels),
            *(edit.span for edit in diagnostic.edits),
        ]
        assert all(0 <= span.first <= span.last <= len(text) for span in spans), diagnostic
        assert diagnostic.message and diagnostic.code.startswith("E0")
    for form in FORMATS:
        render(parsed.diagnostics, form)
    if parsed.ok:
        once = print_tree(parsed.tree)
        again = parse_source(SourceFile("fuzz.kds", once))
        assert again.ok and again.tree == parsed.tree
        assert print_tree(again.tree) == once
    if document is not None:
        update = document.update(text)
        assert update.tree == parsed.tree
        assert [d.order for d in update.diagnostics] == [d.order for d in parsed.diagnostics]
    assert time.perf_counter() - began < SLOW, (
        f"{time.perf_counter() - began:.1f} s for {len(text)} characters"
    )
    return parsed


def fuzz(count: int, seed: int = 0) -> tuple[int, int]:
    """Examine `count` texts; how many were right and how many were not."""
    chance = random.Random(seed)
    mutations = Mutations(chance, shipped())
    document = Document("fuzz.kds")
    right = 0
    for number in range(count):
        text = mutations.text()
        try:
            right += examine(text, document if number % 4 == 0 else None).ok
        except BaseException as error:
            raise AssertionError(f"text {number} of seed {seed}: {error!r}\n{text!r}") from error
    return right, count - right


if __name__ == "__main__":
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    start = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    began = time.perf_counter()
    right, wrong = fuzz(total, start)
    print(f"{total} texts, {right} right, {wrong} wrong, none failed, {time.perf_counter() - began:.0f} s")
