"""Loops of stages that go together row by row (kdsl/plan/cuda/together.py says which) as one loop."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from kdsl.lower.reads import read_at_once
from kdsl.lower.sourcemap import begun, body_of, is_mark, rebuilt, renamed, with_bodies
from kdsl.lower.tvm import For, SeqStmt, sequence


@frozen
class Rows:
    """The loop over the rows of one stage, its number, and the body with its marks."""

    number: int
    loop: object
    body: list


def with_rows_together(groups: Sequence[Sequence[str]], stages: Sequence[str], at_once: int = 1):
    """The pass that joins the loops of every group, and has `at_once` rows read before the first of them writes."""
    numbers = [{stages.index(name) for name in group if name in stages} for group in groups]

    def joined(module):
        return with_bodies(module, lambda body: changed(body, numbers, at_once))

    return joined if numbers else lambda module: module


def changed(statement, groups: list[set[int]], at_once: int):
    statement = rebuilt(statement, lambda inner: changed(inner, groups, at_once))
    if not isinstance(statement, SeqStmt):
        return statement
    parts, made = list(statement.seq), []
    while parts:
        first, rest = leading(parts)
        if first is None:
            made.append(parts.pop(0))
            continue
        group = next((group for group in groups if first.number in group), set())
        bodies, alone = list(first.body), True
        while rest and first.number in group:
            other, after = leading(rest)
            if other is None or other.number not in group or not alike(first.loop, other.loop):
                break
            bodies += [renamed(part, other.loop.loop_var, first.loop.loop_var) for part in other.body]
            rest, alone = after, False
        loop = rebuilt(first.loop, lambda _, bodies=bodies: SeqStmt(bodies))
        made.append(loop if alone else read_at_once(loop, at_once))
        parts = rest
    return sequence(made)


def leading(parts: list) -> tuple[Rows | None, list]:
    """The stage that the statements begin with, if it is one loop, and what comes behind it. Marks stand around the
    loop, or in it for the rows of a scan."""
    first = parts[0]
    number = begun(first)
    if number is not None and len(parts) > 2 and isinstance(parts[1], For) and is_mark(parts[2]):
        return Rows(number, parts[1], [first, *body_of(parts[1]), parts[2]]), parts[3:]
    if isinstance(first, For):
        body = body_of(first)
        number = begun(body[0])
        if number is not None and len(body) > 2 and is_mark(body[-1]) and not any(map(is_mark, body[1:-1])):
            return Rows(number, first, body), parts[1:]
    return None, parts


def alike(one, other) -> bool:
    return (int(one.extent), one.kind, str(one.loop_var.ty.dtype)) == (
        int(other.extent), other.kind, str(other.loop_var.ty.dtype))  # fmt: skip
