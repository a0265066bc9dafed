"""Operators on the graph of an operator: each changes one expression of its mathematics."""

from __future__ import annotations

from collections.abc import Iterator

from kdsl.check.model import walk
from kdsl.source.span import SourceFile
from kdsl.syntax import nodes as n
from kdsl.syntax.parse import parse

from .mutant import Edit, Edits, Operator

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
SIGNS = {"+": "-", "-": "+", "*": "/", "/": "*"}


def declaration_of(text: str) -> n.Operator:
    return next(d for d in parse(SourceFile("operator.kds", text)).declarations if isinstance(d, n.Operator))


def mathematics(text: str) -> Iterator[n.Node]:
    """Nodes of stages, views, definitions, carries and extents: all that has a value."""
    for node in walk(declaration_of(text)):
        if isinstance(node, (n.Stage, n.View, n.Definition, n.Carry, n.Index)):
            yield from walk(node)


def expressions(kind) -> Iterator:
    def found(text: str):
        seen = set()
        for node in mathematics(text):
            if isinstance(node, kind) and (node.span.first, node.span.last) not in seen:
                seen.add((node.span.first, node.span.last))
                yield node

    return found


def whole(node: n.Node, new: str) -> Edits:
    return (Edit(node.span.first, node.span.last, new),)


def between(left: n.Node, right: n.Node, text: str, old: str, new: str) -> Edits:
    """The sign between two operands exchanged."""
    at = text.index(old, left.span.last, right.span.first)
    return (Edit(at, at + len(old), new),)


def other_sign(text: str) -> Iterator[Edits]:
    for node in expressions(n.Binary)(text):
        if node.operator in SIGNS:
            yield between(node.left, node.right, text, node.operator, SIGNS[node.operator])


def one_operand(keep: str) -> Operator:
    def operator(text: str) -> Iterator[Edits]:
        for node in expressions(n.Binary)(text):
            yield whole(node, getattr(node, keep).span.text)

    return operator


def swapped_operands(text: str) -> Iterator[Edits]:
    for node in expressions(n.Binary)(text):
        if node.operator in ("-", "/"):
            yield whole(node, f"({node.right.span.text}) {node.operator} ({node.left.span.text})")


def mask_off_by_one(text: str) -> Iterator[Edits]:
    for node in expressions(n.Comparison)(text):
        yield between(node.left, node.right, text, node.operator, COMPARISONS[node.operator])


def bound_off_by_one(text: str) -> Iterator[Edits]:
    """`sum over p < i`: one more term, and all of them."""
    for node in expressions(n.Binder)(text):
        if node.bound is not None:
            yield (Edit(node.bound.span.first, node.bound.span.last, f"{node.bound.span.text} + 1"),)
            yield (Edit(node.name.span.last, node.bound.span.last, ""),)


def one_branch(keep: str) -> Operator:
    def operator(text: str) -> Iterator[Edits]:
        for node in expressions(n.Conditional)(text):
            yield whole(node, getattr(node, keep).span.text)

    return operator


def connective(text: str) -> Iterator[Edits]:
    for node in expressions(n.Logical)(text):
        yield between(node.left, node.right, text, node.operator, {"and": "or", "or": "and"}[node.operator])


def without_call(text: str) -> Iterator[Edits]:
    """`exp(x)` becomes `x`; of `min` and `max` the first argument stays."""
    for node in expressions(n.Call)(text):
        if node.function.text != "given" and node.arguments:
            yield whole(node, f"({node.arguments[0].span.text})")


FUNCTIONS = {
    "exp": "sigmoid",
    "sigmoid": "exp",
    "softplus": "exp",
    "rsqrt": "exp",
    "min": "max",
    "max": "min",
}


def other_function(text: str) -> Iterator[Edits]:
    for node in expressions(n.Call)(text):
        if node.function.text in FUNCTIONS:
            span = node.function.span
            yield (Edit(span.first, span.last, FUNCTIONS[node.function.text]),)


def other_number(text: str) -> Iterator[Edits]:
    for node in expressions(n.Number)(text):
        value = float(node.text)
        new = node.text.replace(
            node.text, str(int(value) + 1) if node.text.isdigit() else repr(value * 2 or 1.0)
        )
        yield whole(node, new)


def reads(text: str) -> Iterator[tuple[n.Node, n.Reference]]:
    for node in mathematics(text):
        if isinstance(node, (n.Stage, n.Carry, n.View)):
            targets = {id(node.target)} if not isinstance(node, n.Carry) else {id(node.tensor)}
            for read in walk(node):
                if isinstance(read, n.Reference) and id(read) not in targets:
                    yield node, read


def transposed_read(text: str) -> Iterator[Edits]:
    for _, read in reads(text):
        if len(read.indices) >= 2:
            *rest, first, second = (index.span.text for index in read.indices)
            yield whole(read, f"{read.name.text}[{', '.join([*rest, second, first])}]")


def other_index(text: str) -> Iterator[Edits]:
    """Each index of a read one back or one further, by turns."""
    for _, read in reads(text):
        for number, index in enumerate(read.indices):
            yield (Edit(index.span.first, index.span.last, f"{index.span.text} {'+-'[number % 2]} 1"),)


def other_tensor(text: str) -> Iterator[Edits]:
    """A read of the next tensor, in the order of the text, that has the same indices."""
    shapes = {}
    for node in mathematics(text):
        if isinstance(node, (n.Stage, n.View)):
            shapes.setdefault(node.target.name.text, len(node.target.indices))
    names = list(shapes)
    for _, read in reads(text):
        if read.name.text in shapes:
            place = names.index(read.name.text)
            others = [x for x in names[place + 1 :] + names[:place] if shapes[x] == len(read.indices)]
            if others:
                yield (Edit(read.name.span.first, read.name.span.last, others[0]),)


def drop_scan(text: str) -> Iterator[Edits]:
    for node in expressions(n.Stage)(text):
        if node.scan is not None:
            yield (Edit(node.body.span.last, node.scan.span.last, ""),)


def drop_stage(text: str) -> Iterator[Edits]:
    for node in expressions(n.Stage)(text):
        yield whole(node, "")


def drop_condition(text: str) -> Iterator[Edits]:
    """A view without its `where`."""
    for node in expressions(n.View)(text):
        if node.condition is not None:
            yield (Edit(node.source.span.last, node.span.last, ""),)


def other_option(text: str) -> Iterator[Edits]:
    """Two cases of an `either` exchange their names."""
    for node in walk(declaration_of(text)):
        if isinstance(node, n.Either) and len(node.cases) > 1:
            for first, second in zip(node.cases, node.cases[1:], strict=False):
                yield (
                    Edit(first.name.span.first, first.name.span.last, second.name.text),
                    Edit(second.name.span.first, second.name.span.last, first.name.text),
                )


MATHEMATICS: dict[str, Operator] = {
    "other_sign": other_sign,
    "keep_left": one_operand("left"),
    "keep_right": one_operand("right"),
    "swapped_operands": swapped_operands,
    "mask_off_by_one": mask_off_by_one,
    "bound_off_by_one": bound_off_by_one,
    "always": one_branch("then"),
    "never": one_branch("otherwise"),
    "connective": connective,
    "without_function": without_call,
    "other_function": other_function,
    "other_number": other_number,
    "transposed_read": transposed_read,
    "other_index": other_index,
    "other_tensor": other_tensor,
    "drop_scan": drop_scan,
    "drop_stage": drop_stage,
    "drop_condition": drop_condition,
    "other_option": other_option,
}
