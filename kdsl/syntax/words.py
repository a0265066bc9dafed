"""How messages name what the parser expects, and which word was meant."""

from __future__ import annotations

from kdsl.syntax.here import Here
from kdsl.syntax.tables import tables

NAMES = {
    "NAME": "a name", "NUMBER": "a number", "STRING": "a string", "DOC": "a doc string",
    "_NL": "the end of the line",
    "MEMORY": "a memory (`registers`, `shared`, `workspace`, `tensor_memory`, `stack`, `global`)",
    "INDEX_MODE": "`parallel` or `sequential`", "COMPARE": "a comparison", "SIGN": "`+` or `-`",
    "TIMES": "`*`, `/` or `%`", "UNIT": "a unit", "$END": "the end of the file",
}  # fmt: skip
EXPRESSION = frozenset(
    {"NAME", "NUMBER", "LPAR", "SIGN", "IF", "BASELINE", "REDUCER", "PERCENT", "NOT", "LSQB"}
)
CONTINUING = frozenset({"SIGN", "TIMES", "__ANON_1", "AT", "COMPARE", "AND", "OR", "IS", "IN", "UNIT"})
MEANT = {
    "reg": "registers", "regs": "registers", "register": "registers", "rf": "registers", "smem": "shared",
    "sharedmem": "shared", "shared_memory": "shared", "tmem": "tensor_memory", "gmem": "global",
    "dram": "global",
    "hbm": "global", "device": "global", "scratch": "workspace", "local": "stack", "par": "parallel",
    "seq": "sequential", "serial": "sequential", "import": "use", "include": "use", "inherits": "extends",
    "assert": "require", "requirements": "require", "where": "when", "unless": "when", "elif": "else",
    "param": "parameters", "params": "parameters", "dims": "sizes", "memory": "place", "placement": "place",
    "computation": "compute", "constants": "parameters", "for": "schedules", "implements": "schedules",
    "with": "requires", "given": "when", "threads": "warps", "warpgroup": "warps", "constraints": "require",
    "guarantee": "ensure", "postcondition": "ensure", "precondition": "require", "tune": "choose",
}  # fmt: skip


def literal_texts(kinds) -> list[str]:
    """The texts that the literal terminals among `kinds` stand for, in order."""
    return sorted(t for t, names in tables().literals.items() if any(name in kinds for name in names))


def describe(kinds: frozenset[str]) -> str:
    """`a name, a number or `(``: what may come next, short enough to read."""
    kinds = set(kinds)
    parts = []
    if kinds | {"LSQB", "NOT", "IF", "REDUCER", "PERCENT", "BASELINE"} >= EXPRESSION and "NUMBER" in kinds:
        parts.append("an expression")
        kinds -= EXPRESSION | {"STRING"}
    if len(kinds & CONTINUING) >= 3:
        parts.append("an operator")
        kinds -= CONTINUING | {"LESSTHAN"}
    for kind in ("NAME", "NUMBER", "STRING", "MEMORY", "INDEX_MODE", "COMPARE", "SIGN", "TIMES", "DOC"):
        if kind in kinds:
            parts.append(NAMES[kind])
            kinds.discard(kind)
    enumerated = {"UNIT", "COMPARE", "LESSTHAN"}
    words = [f"`{text}`" for text in literal_texts(kinds - enumerated - {"MEMORY", "INDEX_MODE"})]
    if len(words) > 12:
        words = [*words[:11], f"{len(words) - 11} other words"]
    parts += words
    if "_NL" in kinds:
        parts.append(NAMES["_NL"])
    return enumerate_words(parts) if parts else "the end of the file"


def enumerate_words(parts: list[str], last: str = "or") -> str:
    if len(parts) < 2:
        return "".join(parts)
    return ", ".join(parts[:-1]) + f" {last} {parts[-1]}"


def found(here: Here) -> str:
    """How a message names the wrong token."""
    token = here.token
    kind = token.kinds[0]
    if kind == "_NL":
        return "`;`" if token.text.startswith(";") else "the end of the line"
    if kind == "DOC":
        return "a doc string"
    if kind == "STRING":
        return f"the string {shorten(token.text)}"
    if kind in ("NUMBER", "PERCENT"):
        return f"the number `{shorten(token.text)}`"
    return f"`{shorten(token.text)}`"


def shorten(text: str, most: int = 40) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def meant(word: str, choices: list[str]) -> str | None:
    """The choice that `word` was meant to be: another case, a known synonym, or a near spelling."""
    if len(word) > 40 or not choices:
        return None
    lower = {choice.lower(): choice for choice in choices}
    if word.lower() in lower:
        return lower[word.lower()]
    if MEANT.get(word.lower()) in choices:
        return MEANT[word.lower()]
    if len(word) < 2:
        return None
    from difflib import get_close_matches

    near = get_close_matches(word.lower(), lower, 1, 0.72 if len(word) > 3 else 0.66)
    return lower[near[0]] if near else None
