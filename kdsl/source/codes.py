"""The codes of diagnostics.

A code is registered by its page, `pages/<CODE>.md`, whose first lines hold its slug, severity and summary:

    # E004 missing-brace

    error: a header is not followed by `{`

Then come the sections What, Why, Fails and Fixed; the last two hold fenced blocks opened by "```kds fail" and
"```kds ok", which the tests run.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path

from attrs import frozen

from kdsl.source.diagnostic import Severity

PAGES = Path(__file__).with_name("pages")
FAMILIES = {
    "E0": "syntax and files", "E1": "names and types", "E2": "targets and instructions",
    "E3": "placement and resources",
    "E4": "coverage of the graph", "E5": "contracts", "W5": "warnings", "R0": "refusals of `select`",
    "D1": "derivation: pins, orders and loops", "D3": "derivation: lanes, fragments and copies",
    "T0": "tools", "T1": "schedules that TVM refuses",
    "P1": "proofs",
}  # fmt: skip
SECTIONS = ("What", "Why", "Fails", "Fixed")

_CODE = re.compile(r"[A-Z]\d{3}")
_HEAD = re.compile(r"# ([A-Z]\d{3}) ([a-z0-9-]+)\n\n(error|warning|note): (.+)\n")
_FENCE = re.compile(r"^```kds (fail|ok)[^\n]*\n(.*?)^```$", re.M | re.S)


@frozen
class Code:
    """What a code stands for. `slug` is its name in words, `summary` one line."""

    code: str
    slug: str
    severity: Severity
    summary: str


@frozen
class Page:
    """The page of a code: its Markdown, and the texts of its examples."""

    code: Code
    text: str
    failing: tuple[str, ...]
    fixed: tuple[str, ...]


@cache
def page(code: str) -> Page | None:
    """The page of a code, or None if there is none."""
    if not _CODE.fullmatch(code):
        return None
    try:
        text = (PAGES / f"{code}.md").read_text(encoding="utf-8")
    except OSError:
        return None
    head = _HEAD.match(text)
    if head is None or head.group(1) != code:
        return None
    entry = Code(code, head.group(2), Severity(head.group(3)), head.group(4).strip())
    blocks = _FENCE.findall(text)
    failing = tuple(body for kind, body in blocks if kind == "fail")
    return Page(entry, text, failing, tuple(body for kind, body in blocks if kind == "ok"))


def lookup(code: str) -> Code | None:
    """Slug, severity and summary of a code, or None."""
    found = page(code)
    return found.code if found else None


def slug(code: str) -> str:
    """The name in words, or nothing for a code without a page."""
    found = page(code)
    return found.code.slug if found else ""


@lru_cache(maxsize=1)
def all_codes() -> tuple[Code, ...]:
    """Every registered code, in order."""
    found = (lookup(path.stem) for path in sorted(PAGES.glob("*.md")))
    return tuple(code for code in found if code is not None)


def family(code: str) -> str:
    return FAMILIES.get(code[:2], "")
