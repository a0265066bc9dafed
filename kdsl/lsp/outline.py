"""Document symbols: a file's declarations, their kernels, parts, stages and blocks."""

from __future__ import annotations

from lsprotocol import types

from kdsl.lsp.positions import range_of
from kdsl.syntax import nodes as n
from kdsl.syntax.lines import body, header

K = types.SymbolKind
KINDS = {
    n.Operator: K.Class, n.Target: K.Struct, n.Instruction: K.Struct, n.Tactic: K.Function, n.Rule: K.Class,
    n.Kernel: K.Method, n.Part: K.Namespace, n.Stage: K.Function, n.Carry: K.Variable, n.Either: K.Enum,
    n.FormCase: K.EnumMember, n.Acceptance: K.Interface, n.Expectation: K.Event,
}  # fmt: skip


def outline(declarations, encoding: str) -> list[types.DocumentSymbol]:
    return [symbol for node in declarations if (symbol := _symbol(node, encoding)) is not None]


def _symbol(node: n.Node, encoding: str) -> types.DocumentSymbol | None:
    kind = KINDS.get(type(node))
    if kind is None:
        return None
    name = node.tensor.name if isinstance(node, n.Carry) else getattr(node, "name", None)
    inner = outline(body(node) or (), encoding)
    whole = range_of(node.span, encoding)
    if name is None:
        return types.DocumentSymbol(header(node), kind, whole, whole, children=inner)
    chosen = range_of(name.span, encoding)
    return types.DocumentSymbol(name.text, kind, whole, chosen, detail=_detail(node), children=inner)


def _detail(node: n.Node) -> str:
    if isinstance(node, n.Stage):
        return " ".join(node.target.span.text.split())
    if isinstance(node, n.Carry):
        return f"carried over {node.over.text}"
    text = header(node)
    return text if len(text) <= 80 else text[:77] + "..."


def workspace_symbols(workspace, query: str) -> list[types.SymbolInformation]:
    """Declarations of the workspace whose name holds `query`."""
    found = []
    for path in workspace.reachable():
        parsed = workspace.session.parsed(path)
        for node in parsed.tree.declarations if parsed is not None else ():
            kind = KINDS.get(type(node))
            if kind is not None and hasattr(node, "name") and query.lower() in node.name.text.lower():
                place = types.Location(workspace.session.uri_of(path), range_of(node.name.span, workspace.encoding))
                found.append(types.SymbolInformation(place, node.name.text, kind))
    return found


def folding(declarations, comments) -> list[types.FoldingRange]:
    """Every block of more than one line, and runs of comments."""
    found = []
    pending = list(declarations)
    while pending:
        node = pending.pop()
        pending += [item for item in body(node) or () if body(item) is not None] if body(node) is not None else []
        first, last = node.span.line, node.span.source.location(node.span.last)[0]
        if last > first:
            found.append(types.FoldingRange(first - 1, last - 1))
    run: list[int] = []
    for line in sorted(comment.span.line for comment in comments if _alone(comment)):
        if run and line == run[-1] + 1:
            run.append(line)
        else:
            _fold(found, run)
            run = [line]
    _fold(found, run)
    return sorted(found, key=lambda r: r.start_line)


def _alone(comment: n.Comment) -> bool:
    span = comment.span
    return not span.source.line(span.line)[: span.column - 1].strip()


def _fold(found: list, run: list[int]) -> None:
    if len(run) > 1:
        found.append(types.FoldingRange(run[0] - 1, run[-1] - 1, kind=types.FoldingRangeKind.Comment))
