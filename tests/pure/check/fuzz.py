"""Mutated and random texts through the whole check, derivation included: findings or none, never an exception.

`python -m tests.pure.check.fuzz 200000 [SEED [EVERY]]` is the long run, in one process; with EVERY = 1 all texts are
right rules with tokens exchanged.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections import Counter

from kdsl.check.driver import check_loaded
from kdsl.check.files import load_text
from kdsl.data import data_root
from kdsl.plan.derivable import derivations
from kdsl.source import codes
from kdsl.source.diagnostic import Severity
from kdsl.source.render import FORMATS, render
from kdsl.source.span import SourceFile

from ..syntax.fuzz import Mutations, shipped

EVERY = 32  # one in so many texts is a right rule with tokens exchanged: it takes ten times as long as another
SLOW = 20.0  # CPU seconds that no text of this size may take
TOKEN = re.compile(r'"[^"\n]*"|[A-Za-z_][\w.]*|\d+(?:\.\d+)?|\s+|.', re.S)
NUMBERS = ("0", "1", "-1", "3", "7", "17", "48", "1000000007", "1e400", "9" * 40, "16 / 0", "0.5")


def rules() -> list[str]:
    """Shipped rules, each with copies of the tactics it applies under names of its own."""
    tactics = {}
    for path in sorted((data_root() / "stdlib" / "tactics").glob("*.kds")):
        for found in re.finditer(r"^tactic (\w+).*?^}\n", path.read_text("utf-8"), re.S | re.M):
            tactics[found[1]] = found[0]
    texts = []
    for path in sorted((data_root() / "rules").rglob("*.kds")):
        text = path.read_text("utf-8")
        for name, body in tactics.items():
            if f"apply {name}(" in text:
                text = text.replace(f"apply {name}(", f"apply own_{name}(") + body.replace(
                    f"tactic {name}", f"tactic own_{name}"
                )
        texts.append(text)
    return texts


class TokenMutations:
    """A few tokens of a right rule or operator replaced by others of the same kind, dropped, doubled or moved."""

    def __init__(self, chance: random.Random):
        self.chance = chance
        self.rules = [TOKEN.findall(text) for text in rules()]
        self.others = [TOKEN.findall(text) for text in shipped()]

    def text(self) -> str:
        tokens = list(self.chance.choice(self.rules if self.chance.random() < 0.75 else self.others))
        own = sorted({t for t in tokens if t.strip()})
        for _ in range(self.chance.choice((1, 1, 1, 2, 3))):
            self.mutate(tokens, own)
        return "".join(tokens)

    def mutate(self, tokens: list[str], own: list[str]) -> None:
        at = self.chance.randrange(len(tokens))
        word = tokens[at]
        alike = [t for t in own if t[0].isalpha() == word[:1].isalpha() and t[0].isdigit() == word[:1].isdigit()]
        kind = self.chance.random()
        if word[:1].isdigit() and kind < 0.5:
            tokens[at] = self.chance.choice(NUMBERS)
        elif kind < 0.6 and alike:
            tokens[at] = self.chance.choice(alike)
        elif kind < 0.75:
            tokens[at] = ""
        elif kind < 0.85:
            tokens[at] = word + " " + word
        elif kind < 0.95:  # a list loses a name
            text = "".join(tokens)
            names = list(re.finditer(r"\b[a-z_]\w*, |, [a-z_]\w*", text))
            if names:
                name = self.chance.choice(names)
                tokens[:] = TOKEN.findall(text[: name.start()] + text[name.end() :])
        else:
            tokens[at] = self.chance.choice(("{", "}", "(", ")", ":", ";", "**", "%", "sum over d of", "95%", "KiB"))


def examine(text: str) -> tuple[str, ...]:
    """Codes of what is found in one text; what must always hold of findings is asserted."""
    began = time.process_time()
    result = check_loaded(load_text(SourceFile("fuzz.kds", text)), None)
    found = [*result.diagnostics, *derivations(result.library, result.library.rules.values())]
    for diagnostic in found:
        assert codes.page(diagnostic.code) is not None, diagnostic.code
        for span in (diagnostic.span, *(label.span for label in diagnostic.labels)):
            assert 0 <= span.first <= span.last, diagnostic
            assert span.path != "fuzz.kds" or span.last <= len(text), diagnostic
    assert len({(d.code, d.span.path, d.span.first, d.span.last, d.message) for d in found}) == len(found), found
    for form in FORMATS:
        render(tuple(found), form)
    took = time.process_time() - began
    assert took < SLOW, f"{took:.1f} s for {len(text)} characters"
    return tuple(d.code for d in found if d.severity is Severity.ERROR)


def fuzz(count: int, seed: int = 0, every: int = EVERY) -> tuple[int, Counter]:
    """Examine `count` texts, a few of them tokens exchanged in right rules; how many were right, and the codes."""
    chance = random.Random(seed)
    anything, tokens = Mutations(chance, shipped()), TokenMutations(chance)
    right, found = 0, Counter()
    for number in range(count):
        text = tokens.text() if number % every == 0 else anything.text()
        try:
            own = examine(text)
        except BaseException as error:
            raise AssertionError(f"text {number} of seed {seed}: {error!r}\n{text}") from error
        right += not own
        found.update(set(own))
        if __name__ == "__main__" and number % 10_000 == 9_999:
            print(f"{number + 1} texts, {right} without errors, {time.process_time():.0f} CPU s", flush=True)
    return right, found


if __name__ == "__main__":
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    start = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    began = time.perf_counter()
    right, found = fuzz(total, start, int(sys.argv[3]) if len(sys.argv) > 3 else EVERY)
    print(f"{total} texts, {right} without errors, none failed, {time.perf_counter() - began:.0f} s")
    print("texts with each code: " + ", ".join(f"{code} {count}" for code, count in sorted(found.items())))
