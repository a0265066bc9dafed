"""A token of a right text dropped, doubled or replaced: a tree or findings, never an exception."""

from __future__ import annotations

import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from texts import CPU, MMA, RULES, STANDARD

from kdsl.check import check_source
from kdsl.source import codes
from kdsl.source.render.text import render_text

TOKEN = re.compile(r'"[^"\n]*"|[A-Za-z_][\w.]*|\d+(?:\.\d+)?|\s+|.', re.S)
FILES = [*sorted(RULES.rglob("*.kds")), *sorted(STANDARD.rglob("*.kds"))]
TEXTS = [("rule.kds", MMA), ("rule.kds", CPU), *((str(path), path.read_text("utf-8")) for path in FILES)]
TEXTS += [("page.kds", text) for code in codes.all_codes()
          if code.code[:2] in ("E1", "E2", "E3", "E4", "E5", "W5")
          for text in codes.page(code.code).failing]  # fmt: skip
ODD = (
    "0",
    "-1",
    "1e400",
    "9" * 40,
    "n",
    "e",
    "T",
    "bf16",
    "16 / 0",
    "sum over d of",
    "{",
    "}",
    "(",
    "**",
    "%",
    "KiB",
)


@st.composite
def mutants(draw) -> tuple[str, str]:
    path, text = draw(st.sampled_from(TEXTS))
    tokens = TOKEN.findall(text)
    own = sorted({t for t in tokens if t.strip()})
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(tokens) - 1))
        word = tokens[at]
        alike = [
            t for t in own if t[0].isalpha() == word[:1].isalpha() and t[0].isdigit() == word[:1].isdigit()
        ]
        kind = draw(st.integers(0, 9))
        if kind < 6 and alike:
            tokens[at] = draw(st.sampled_from(alike))
        elif kind < 8:
            tokens[at] = draw(st.sampled_from(ODD))
        else:
            tokens[at] = "" if kind == 8 else word + " " + word
    return path, "".join(tokens)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(mutants())
def test_never_raises(mutant):
    path, text = mutant
    found = check_source(text, path)
    render_text(found)
    assert len({(d.code, d.span.first, d.span.last, d.message) for d in found}) == len(found)
