"""What a rule requires of the strides of ports, and which option exchanges the axes of one."""

from __future__ import annotations

from collections.abc import Iterator

from kdsl.check.model import Operator, Rule, names_in
from kdsl.syntax import nodes as n

CLAIMS = ("unit_stride", "dense")


def required_layouts(rule: Rule) -> dict[str, str]:
    """`unit_stride(q, k)` and `dense(pool)` in `require`, by port: where the claim holds only if they do."""
    return {
        argument.text: node.function.text
        for claim in rule.require
        for node in conjuncts(claim.predicate)
        if isinstance(node, n.Call) and node.function.text in CLAIMS
        for argument in node.arguments
        if isinstance(argument, n.Name)
    }


def conjuncts(predicate: n.Node) -> Iterator[n.Node]:
    """What a predicate needs in any case: both sides of `and`, neither side of `or`, nothing below `not`."""
    if isinstance(predicate, n.Group):
        yield from conjuncts(predicate.inner)
    elif isinstance(predicate, n.Logical) and predicate.operator == "and":
        yield from conjuncts(predicate.left)
        yield from conjuncts(predicate.right)
    else:
        yield predicate


def transposing_options(operator: Operator) -> dict[str, str]:
    """Ports that say `or [...] when option`, with that option."""
    return {
        name.text: option
        for line in port_lines(operator)
        if line.alternative is not None
        for option in names_in(line.alternative.condition)
        for name in line.names
    }


def port_lines(operator: Operator) -> Iterator[n.Port]:
    for item in operator.declaration.items:
        if isinstance(item, n.Block) and item.kind in ("inputs", "outputs"):
            yield from item.items


def layout_options(operator: Operator, rule: Rule) -> tuple[set[str], set[str]]:
    """Options that only say how a port lies in memory: those that strides carry, and those a rule compiles in.

    A rule that requires a port to be dense is compiled for each layout of it.
    """
    transposing = transposing_options(operator)
    dense = {port for port, layout in required_layouts(rule).items() if layout == "dense"}
    compiled = {option for port, option in transposing.items() if port in dense}
    return set(transposing.values()) - compiled, compiled
