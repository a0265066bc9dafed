"""Hovers of stages and tensors: the formula, who reads it, its shape, and what a rule makes of it."""

from __future__ import annotations

from collections.abc import Iterator

from kdsl.check.blueprint import GuardedStage, blueprint
from kdsl.check.model import Operator
from kdsl.lsp.names import Symbol
from kdsl.syntax import nodes as n
from kdsl.syntax.phrase import expression

KIND_TEXT = {
    "map": "element by element", "contract": "a product: sums of products of two tensors",
    "reduce": "a reduction",
    "scan": "a scan: reads its own earlier elements",
}  # fmt: skip


def stage_parts(hover, symbol: Symbol) -> Iterator[str]:
    from kdsl.lsp.hover import code, listed, stage_text

    operator = hover.owner(symbol)
    if operator is None:
        return
    found = [s for s in blueprint(operator).stages if s.stage.name == symbol.name]
    for guarded in found[:4]:
        yield code(stage_text(guarded.node))
        yield f"{KIND_TEXT[guarded.stage.kind]}{_under(guarded)}"
    tensors = dict.fromkeys(s.stage.tensor for s in found)
    reads = dict.fromkeys(r.tensor for s in found for r in s.stage.reads)
    yield f"reads {listed(reads)}" if reads else ""
    readers = dict.fromkeys(name for tensor in tensors for name in readers_of(operator, tensor))
    yield f"read by {listed(readers)}" if readers else ""
    yield from _computed(hover, operator, symbol.name)


def readers_of(operator: Operator, tensor: str) -> Iterator[str]:
    """Stages that read a tensor, and the carry that keeps it."""
    graph = blueprint(operator)
    for guarded in graph.stages:
        if any(read.tensor == tensor for read in guarded.stage.reads) and guarded.stage.tensor != tensor:
            yield guarded.stage.name
    for guarded in graph.carries:
        if guarded.carry.next == tensor:
            yield f"carry {guarded.carry.tensor}"


def _under(guarded: GuardedStage) -> str:
    if not guarded.guards:
        return ""
    return ", when " + ", ".join(f"`{name} = {value}`" for name, value in guarded.guards)


def _computed(hover, operator: Operator, stage: str) -> Iterator[str]:
    """How the rules of the file compute a stage, at their default choices."""
    for name, kernel in kernels_of(hover, operator):
        computation = kernel.computations.get(stage)
        if computation is not None:
            attributes = " ".join(f"{key} {attribute_text(value)}" for key, value in computation.attributes.items())
            how = " ".join(filter(None, (computation.instruction, attributes))) or "plain code"
            yield f"rule `{name}`, kernel `{kernel.name}`: {how}"


def attribute_text(value: object) -> str:
    """`j by 8` of an attribute's resolved value."""
    if isinstance(value, tuple):
        return ", ".join(f"{item[0]} by {item[1]}" if isinstance(item, tuple) else str(item) for item in value)
    return str(value)


def kernels_of(hover, operator: Operator):
    """(rule, kernel) of the rules in the file that schedule an operator, at their default choices."""
    from kdsl.lsp.verdicts import default_point

    own = {d.name.text for tree in hover.scope.loaded.trees[:1] for d in tree.declarations if isinstance(d, n.Rule)}
    for name, rule in hover.analysis.library.rules.items():
        if rule.operator != operator.name or name not in own:
            continue
        point = default_point(hover.analysis.library, rule)
        for kernel in point.kernels if point is not None else ():
            yield name, kernel


def tensor_parts(hover, symbol: Symbol) -> Iterator[str]:
    from kdsl.lsp.hover import code, listed, stage_text

    operator = hover.owner(symbol)
    if operator is None:
        return
    indices = indices_of(operator, symbol.name)
    view = operator.views.get(symbol.name)
    graph = blueprint(operator)
    if view is not None:
        yield code(" ".join(view.span.text.split()))
        port = operator.ports.get(view.port)
        if port is not None:
            yield f"a view of `{port.name}`, {', '.join((*(f'like {x}' for x in port.like), *port.dtypes))}"
    else:
        shape = " x ".join(expression(operator.indices[i].extent) for i in indices if i in operator.indices)
        yield code(f"{symbol.name}[{', '.join(indices)}]")
        yield f"{shape or 'one element'} of f32" + _rounded(operator, symbol.name)
    made = [s for s in graph.stages if s.stage.tensor == symbol.name]
    yield code("\n".join(stage_text(s.node) for s in made[:4])) if made else ""
    for guarded in graph.carries:
        if guarded.carry.tensor == symbol.name:
            carry = guarded.carry
            start = " ".join(carry.start.span.text.split())
            where = f" in every `{carry.within}`" if carry.within is not None else ""
            yield f"carried over `{carry.over}`{where}: starts as `{start}`, then `{carry.next}`"
            break
    readers = dict.fromkeys(readers_of(operator, symbol.name))
    yield f"read by {listed(readers)}" if readers else ""
    yield from _placed(hover, operator, symbol.name)


def indices_of(operator: Operator, tensor: str) -> tuple[str, ...]:
    graph = blueprint(operator)
    for guarded in graph.stages:
        if guarded.stage.tensor == tensor:
            return guarded.stage.indices
    for carry in graph.carries:
        end = carry.carry.end
        if tensor in (carry.carry.tensor, end.tensor if end is not None else None):
            return carry.carry.indices
    view = operator.views.get(tensor)
    return view.indices if view is not None else ()


def _rounded(operator: Operator, tensor: str) -> str:
    allowed = operator.rounding.get(tensor)
    return f"; a rule may round it to {', '.join(allowed)}" if allowed else "; no rule may round it"


def _placed(hover, operator: Operator, tensor: str) -> Iterator[str]:
    """The tensor's tiles in the rules of the file, with their bytes."""
    from kdsl.lsp.verdicts import bank_text, buffers

    rows, notes = [], []
    for name, found, kernel in buffers(hover, operator, tensor):
        for buffer in found:
            pad = f" pad {buffer.pad}" if buffer.pad else ""
            ring = f" ring {buffer.slots}" if buffer.slots > 1 else ""
            shape = " x ".join(map(str, buffer.shape)) or "1"
            tile = f"{shape} {buffer.dtype}{pad}{ring}"
            rows.append((name, kernel.name, buffer.memory, tile, str(buffer.bytes)))
            notes.append(bank_text(kernel, buffer))
    if rows:
        heads = ("rule", "kernel", "memory", "tile", "bytes")
        if any(notes):
            heads, rows = (*heads, "banks"), [(*row, note) for row, note in zip(rows, notes, strict=True)]
        lines = [f"| {' | '.join(cells)} |" for cells in (heads, *rows[:12])]
        yield "\n".join([lines[0], "|" + "---|" * len(heads), *lines[1:]])
