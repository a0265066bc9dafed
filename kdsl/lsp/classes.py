"""Every token of a text with its class, as the parser read it: what highlighters are compared with.

A word is a keyword only where the parser took it as one, so `order` is a keyword after a grid line and a
name in an operator.
"""

from __future__ import annotations

from attrs import frozen

from kdsl.check.model import DTYPE_BYTES
from kdsl.lsp.keywords import MEMORIES, MODES, UNITS
from kdsl.syntax import nodes as n
from kdsl.syntax.parse import Parsed
from kdsl.syntax.tokens import LINE, tokenize

CLASSES = (
    "comment",
    "keyword",
    "name",
    "number",
    "operator",
    "string",
    "unit",
    "memory",
    "doc",
    "dtype",
    "punctuation",
)


@frozen
class Classed:
    start: int
    stop: int
    name: str


def classes(parsed: Parsed) -> list[Classed]:
    """Tokens and comments in the order of the text; line ends are left out."""
    text = parsed.tree.source.text
    names, dtypes = _names(parsed.tree)
    tokens, comments = tokenize(text)
    found = [Classed(start, stop, "comment") for start, stop in comments]
    for token in tokens:
        kind = _class(token, names, dtypes)
        if kind is not None:
            found.append(Classed(token.start, token.stop, kind))
    return sorted(found, key=lambda c: c.start)


def _names(tree: n.Tree) -> tuple[set[int], set[int]]:
    """Where names begin, and where dtypes do."""
    names: set[int] = set()
    dtypes: set[int] = set()
    pending: list = [*tree.declarations]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            pending += node
            continue
        if not isinstance(node, n.Node):
            continue
        if isinstance(node, (n.Id, n.Name)):
            names.add(node.span.first)
        elif isinstance(node, n.Dtype):
            where = node.span.last - len(node.name)
            (names if node.like else dtypes).add(where)
        elif isinstance(node, n.Placement) and node.dtype is not None:
            dtypes.add(node.dtype.span.first)
        pending += [getattr(node, attribute.name) for attribute in node.__attrs_attrs__]
    return names, dtypes


def _class(token, names: set[int], dtypes: set[int]) -> str | None:
    kind, text = token.kinds[0], token.text
    if kind == LINE:
        return None
    if kind in ("DOC", "STRING", "NUMBER", "PERCENT"):
        return {"DOC": "doc", "STRING": "string", "NUMBER": "number", "PERCENT": "number"}[kind]
    if not (text[0].isalpha() or text[0] == "_"):
        return "punctuation" if text in "{}()[],:" else "operator"
    if token.start in names or token.start in dtypes:
        return "dtype" if text in DTYPE_BYTES else "name"
    if text in UNITS:
        return "unit"
    return "memory" if text in MEMORIES else "mode" if text in MODES else "keyword"
