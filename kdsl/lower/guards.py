"""Conditions on thread indices, once around what they guard.

A tile that does not fill the block gives every statement of its loops the same `if (threadIdx.y < 1)`. Neighbours with
one condition become one statement, and a condition leaves the loops whose whole body it guards: a chain of
multiply-adds then has no branch between any two of them.
"""

from __future__ import annotations

from kdsl.lower.sourcemap import is_mark, rebuilt, with_bodies
from kdsl.lower.tvm import (
    AttrStmt,
    For,
    SeqStmt,
    sequence,
    structural_equal,
    structural_walk,
    tirx,
)


def with_joined_guards(module):
    """The module's functions with conditions on thread indices joined and moved out of loops."""
    return with_bodies(module, lambda body: joined(body, thread_indices(body)))


def thread_indices(body, tag: str = "threadIdx") -> list:
    """The variables bound to indices of a thread in its block; with `threadIdx.y`, to that of its warp."""
    found: list = []

    def look(statement) -> None:
        if statement.attr_key == "thread_extent" and str(statement.node.thread_tag).startswith(tag):
            found.append(statement.node.var)

    structural_walk(body, (AttrStmt, look))
    return found


def joined(statement, threads):
    statement = rebuilt(statement, lambda inner: joined(inner, threads))
    if isinstance(statement, SeqStmt):
        return _sequence(statement, threads)
    if isinstance(statement, For) and guards(statement.body, threads):
        inner = statement.body
        return tirx.IfThenElse(inner.condition, rebuilt(statement, lambda _: inner.then_case), None)
    return statement


def guards(statement, threads) -> bool:
    """Whether a statement is one condition on thread indices alone, without an alternative."""
    if not isinstance(statement, tirx.IfThenElse) or statement.else_case is not None:
        return False
    others: list = []

    def look(node):
        kind = type(node).__name__
        if kind in ("TensorLoad", "Call") or (kind == "Var" and not any(node.same_as(t) for t in threads)):
            others.append(node)

    structural_walk(statement.condition, look)
    return not others


def _sequence(statement: SeqStmt, threads):
    """Runs of statements under one condition as one; marks of the source map go along with their neighbours."""
    kept: list = []
    run: list = []  # statements of the run, marks included
    condition = None
    for part in statement.seq:
        if is_mark(part):
            run.append(part)
        elif guards(part, threads) and (condition is None or structural_equal(part.condition, condition)):
            condition = part.condition
            run.append(part.then_case)
        else:
            kept += _closed(run, condition)
            run, condition = ([part.then_case], part.condition) if guards(part, threads) else ([part], None)
            if condition is None:
                kept += run
                run = []
    kept += _closed(run, condition)
    return sequence(kept)


def _closed(run: list, condition) -> list:
    if condition is None:
        return run
    return [tirx.IfThenElse(condition, sequence(run), None)]
