"""Target and instruction declarations: a GPU and its matrix instructions as data."""

from __future__ import annotations

from collections.abc import Mapping

from kdsl.check.evaluate import evaluate
from kdsl.check.model import Instruction, Target
from kdsl.syntax import nodes as n


def resolve_target(declaration: n.Target, declarations: Mapping[str, n.Target]) -> Target:
    """Fields and features, with those of what it extends below its own."""
    fields: dict[str, object] = {}
    has: frozenset[str] = frozenset()
    chain: tuple[str, ...] = ()
    if declaration.extends is not None and declaration.extends.text in declarations:
        base = resolve_target(declarations[declaration.extends.text], declarations)
        fields, has, chain = dict(base.fields), base.has, (base.name, *base.chain)
    for item in declaration.items:
        if isinstance(item, n.Field):
            fields[item.name.text] = field_value(item.value)
        elif isinstance(item, n.Has):
            has |= {name.text for name in item.names}
        elif isinstance(item, n.Lacks):
            has -= {name.text for name in item.names}
    return Target(declaration.name.text, fields, has, declaration, chain)


def resolve_instruction(declaration: n.Instruction) -> Instruction:
    return Instruction(
        declaration.name.text,
        {item.name.text: field_value(item.value) for item in declaration.items if isinstance(item, n.Field)},
        {item.target.name.text: item for item in declaration.items if isinstance(item, n.Operand)},
        declaration,
    )


def field_value(value: n.Expr):
    """A number, a tuple, a text, or the name itself (`family = cuda`)."""
    return value.text if isinstance(value, n.Name) else evaluate(value, {})
