"""Each kind of item as the cells of one line; those of neighbours of a kind stand below each other."""

from __future__ import annotations

from kdsl.syntax import nodes as n
from kdsl.syntax.phrase import (
    attribute,
    axes,
    dtypes,
    expression,
    index,
    joined,
    listed,
    names,
    optional,
    predicate,
    shape,
)


def cells(item: n.Node) -> list[str]:
    """The cells of an item that has no block."""
    return [cell for cell in _CELLS[type(item)](item) if cell]


def header(node: n.Node) -> str:
    """What stands before the `{` of a node that has a block."""
    return _HEADERS[type(node)](node)


def body(node: n.Node) -> tuple[n.Node, ...] | None:
    """The items between the braces of a node, or None if it has none."""
    if isinstance(node, (n.Part, n.FormCase)):
        return node.nodes
    if isinstance(node, n.Either):
        return node.cases
    if isinstance(node, n.Acceptance):
        return node.claims
    return node.items if type(node) in _HEADERS else None


def _port(node: n.Port) -> list[str]:
    text = joined(f": {shape(node.shape)} of {dtypes(node.dtypes)}", *node.flags)
    if node.alternative is not None:
        text += f" or {shape(node.alternative.shape)} when {expression(node.alternative.condition)}"
    return [names(node.names), text]


def _option(node: n.Option) -> list[str]:
    default = optional("default", node.default)
    for one in node.target_defaults:
        default += f", {expression(one.value)} on {one.target.text}"
    given = joined(default, optional("when", node.condition))
    return [f"{names(node.names)} in {expression(node.values)}", given]


def _view(node: n.View) -> list[str]:
    tail = joined(optional("where", node.condition), optional("else", node.otherwise))
    return [expression(node.target), f"= {expression(node.source)}", tail]


def _stage(node: n.Stage) -> list[str]:
    text = f": {expression(node.target)} = {expression(node.body)}"
    return [node.name.text, joined(text, f"scan {node.scan.text}" if node.scan else "")]


def _carry(node: n.Carry) -> list[str]:
    return [
        joined(
            f"carry {expression(node.tensor)} over {node.over.text}",
            f"in {node.within.text}" if node.within is not None else "",
            f"from {expression(node.start)}", optional("to", node.end), f"next {node.next.text}",
        )
    ]  # fmt: skip


def _operand(node: n.Operand) -> list[str]:
    text = f"operand {expression(node.target)} of {dtypes(node.dtypes)} in {', '.join(node.memories)}"
    maps = ", ".join(f"{item.name.text} = {expression(item.value)}" for item in node.maps)
    return [f"{text} : {maps}" if maps else text]


def _placement(node: n.Placement) -> list[str]:
    left = names(node.names) + (f" for {names(node.readers)}" if node.readers else "")
    dtype = node.dtype.text if node.dtype is not None else ""
    return [left, joined(":", dtype, f"in {node.memory}", *map(attribute, node.attributes))]


def _computation(node: n.Computation) -> list[str]:
    instruction = node.instruction.text if node.instruction is not None else ""
    return [names(node.stages), joined(":", instruction, *map(attribute, node.attributes))]


def _role(node: n.Role) -> list[str]:
    count = expression(node.warps)
    return [
        node.name.text,
        joined(
            f": {count} {'warp' if count == '1' else 'warps'}",
            f"over {axes(node.over)}" if node.over else "",
            optional("registers", node.registers),
        ),
    ]  # fmt: skip


_CELLS = {
    n.Doc: lambda x: [f'"""{x.text}"""'],
    n.Edition: lambda x: [f"edition {x.year.text}"],
    n.Use: lambda x: [f"use {expression(x.path)}"],
    n.Domain: lambda x: [joined(names(x.names), optional("in", x.values), optional("when", x.condition))],
    n.Port: _port,
    n.Option: _option,
    n.Index: lambda x: [index(x)],
    n.Definition: lambda x: [f"{x.name.text}({names(x.parameters)})", f"= {expression(x.body)}"],
    n.View: _view,
    n.Allowance: lambda x: [names(x.names), f": {dtypes(x.dtypes)}"],
    n.Claim: lambda x: [predicate(x.predicate), optional("else", x.message)],
    n.Stage: _stage,
    n.Carry: _carry,
    n.Field: lambda x: [f"{x.name.text} = {expression(x.value)}"],
    n.Has: lambda x: [f"has {names(x.names)}"],
    n.Lacks: lambda x: [f"lacks {names(x.names)}"],
    n.Operand: _operand,
    n.Chosen: lambda x: [f"{x.name.text} = {expression(x.value)}"],
    n.GridLine: lambda x: [
        x.axis.text,
        joined(f": {axes(x.axes)}", f"order {x.order.text}" if x.order else ""),
    ],
    n.Role: _role,
    n.Placement: _placement,
    n.Computation: _computation,
    n.PinValue: lambda x: [f"{x.name.text} = {listed(x.values)}"],
    n.PinOrder: lambda x: [f"{x.first.text} before {x.second.text}"],
    n.Apply: lambda x: [f"apply {x.tactic.text}({listed(x.arguments)})"],
}


def _case(node: n.FormCase) -> str:
    requires = ""
    if node.requires is not None:
        requires = joined(
            "requires", predicate(node.requires.predicate), optional("else", node.requires.message)
        )
    return joined("when", node.name.text, requires)


_HEADERS = {
    n.Operator: lambda x: f"operator {x.name.text}",
    n.Target: lambda x: joined("target", x.name.text, f"extends {x.extends.text}" if x.extends else ""),
    n.Instruction: lambda x: f"instruction {x.name.text}",
    n.Tactic: lambda x: f"tactic {x.name.text}({names(x.parameters)})",
    n.Rule: lambda x: f"rule {x.name.text} schedules {x.operator.text} on {names(x.targets)}",
    n.Kernel: lambda x: joined(
        f"kernel {x.name.text} computes {names(x.parts)}", optional("when", x.condition)
    ),
    n.Block: lambda x: x.kind,
    n.Part: lambda x: f"part {x.name.text}",
    n.Acceptance: lambda x: f"acceptance {x.name.text}",
    n.Either: lambda x: joined("either", x.name.text, f"default {x.default.text}" if x.default else ""),
    n.FormCase: _case,
    n.Expectation: lambda x: f"expect refuse {names(x.codes)}" if x.codes else "expect pass",
}
