"""The operator's graph under a form and the options of a call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import frozen

from kdsl.check.model import Carry, Graph, Operator, Read, Stage, walk
from kdsl.syntax import nodes as n


@frozen
class FormMissing(Exception):
    """An `either` whose alternative nothing chooses, or chooses to be something it does not have."""

    either: n.Either
    found: object

    def __str__(self) -> str:
        cases = ", ".join(case.name.text for case in self.either.cases)
        return f"`{self.either.name.text}` is {self.found!r}; the operator has {cases}"


def build_graph(operator: Operator, settings: Mapping[str, object]) -> Graph:
    """Stages and carries in the operator's order; `settings` holds forms, parameters and options by name. A form
    that is not among them takes its default.

    Raises FormMissing.
    """
    settings = {**operator.defaults, **settings}
    stages: list[Stage] = []
    carries: list[Carry] = []
    for part in operator.parts.values():
        for node in chosen_nodes(part.nodes, settings):
            if isinstance(node, n.Stage):
                stages.append(resolve_stage(operator, node, part.name.text))
            elif isinstance(node, n.Carry):
                carries.append(resolve_carry(node, part.name.text))
    return Graph(tuple(stages), tuple(carries))


def chosen_nodes(nodes: tuple[n.GraphNode, ...], settings: Mapping[str, object]):
    for node in nodes:
        if isinstance(node, n.Either):
            yield from chosen_nodes(chosen_case(node, settings).nodes, settings)
        elif not isinstance(node, n.Doc):
            yield node


def chosen_case(either: n.Either, settings: Mapping[str, object]) -> n.FormCase:
    value = settings.get(either.name.text)
    wanted = str(value).lower() if isinstance(value, bool) else value
    for case in either.cases:
        if case.name.text == wanted:
            return case
    raise FormMissing(either, value)


def resolve_stage(operator: Operator, node: n.Stage, part: str) -> Stage:
    """The stage as the graph has it; the same object for the same line of the same operator."""
    found = operator.memo.get(id(node))
    if found is None:
        found = operator.memo[id(node)] = _stage(operator, node, part)
    return found


def _stage(operator: Operator, node: n.Stage, part: str) -> Stage:
    indices = tuple(i.text for i in node.target.indices if isinstance(i, n.Name))
    initial, sign, reduction = split_reduction(node.body)
    scan = node.scan.text if node.scan is not None else None
    reads = tensor_reads(operator, node.body)
    if scan is not None:
        kind = "scan"
    elif reduction is None:
        kind = "map"
    else:
        kind = "contract" if is_product(reduction) else "reduce"
    return Stage(
        node.name.text,
        part,
        node.target.name.text,
        indices,
        kind,
        initial,
        reduction,
        sign,
        scan,
        reads,
        node.span,
    )


def resolve_carry(node: n.Carry, part: str) -> Carry:
    return Carry(
        node.tensor.name.text,
        tuple(i.text for i in node.tensor.indices if isinstance(i, n.Name)),
        node.over.text,
        node.start,
        as_read(node.end) if node.end is not None else None,
        node.next.text,
        part,
        node.span,
        node.within.text if node.within is not None else None,
    )


def tensor_steps(operator: Operator, stages: Iterable[Stage], carries: Iterable[Carry]) -> dict[str, str | None]:
    """The sequential index for whose every value a tensor is made: that of its part's carry, else the graph's; of what
    a carry leaves, the runs in which it starts anew. None: once for each value of the parallel indices."""
    carries = tuple(carries)
    over = {carry.part: carry.over for carry in carries}
    found = {carry.tensor: carry.over for carry in carries}
    found |= {carry.end.tensor: carry.within for carry in carries if carry.end is not None}
    return {**found, **{stage.tensor: over.get(stage.part, operator.steps) for stage in stages}}


def as_read(reference: n.Reference) -> Read:
    return Read(reference.name.text, reference.indices, reference.span)


def strip(expr: n.Expr) -> n.Expr:
    """Without the parentheses around it."""
    while isinstance(expr, n.Group):
        expr = expr.inner
    return expr


def split_reduction(body: n.Expr) -> tuple[n.Expr | None, int, n.Reduction | None]:
    """`initial + sign * reduction`: the three parts. No reduction: the whole body is the initial value."""
    body = strip(body)
    if isinstance(body, n.Reduction):
        return None, 1, body
    if isinstance(body, n.Signed) and isinstance(strip(body.operand), n.Reduction):
        return None, -1 if body.sign == "-" else 1, strip(body.operand)
    if isinstance(body, n.Binary) and body.operator in "+-":
        right = strip(body.right)
        if isinstance(right, n.Reduction):
            return body.left, -1 if body.operator == "-" else 1, right
        left = strip(body.left)
        if isinstance(left, n.Reduction) and body.operator == "+":
            return body.right, 1, left
    return body, 1, None


def is_product(reduction: n.Reduction) -> bool:
    """A matrix product: the summand is one tensor times another."""
    body = strip(reduction.body)
    return (
        reduction.operator == "sum"
        and all(binder.bound is None for binder in reduction.binders)
        and isinstance(body, n.Binary)
        and body.operator == "*"
        and isinstance(strip(body.left), n.Reference)
        and isinstance(strip(body.right), n.Reference)
    )


def tensor_reads(operator: Operator, body: n.Expr) -> tuple[Read, ...]:
    """References to views and graph tensors, each once; ports are read through views only."""
    reads: dict[tuple, Read] = {}
    for node in walk(body):
        if isinstance(node, n.Reference) and node.name.text not in operator.ports:
            read = as_read(node)
            reads.setdefault((read.tensor, read.indices), read)
    return tuple(reads.values())
