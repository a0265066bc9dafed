"""Conditions on thread indices, once around what they guard.

A tile that does not fill the block gives every statement of its loops the same `if (threadIdx.y < 1)`. Neighbours with
one condition become one statement, and a condition leaves the loops whose whole body it guards: a chain of
multiply-adds then has no branch between any two of them.
"""

from __future__ import annotations

from kdsl.lower.sourcemap import is_mark, rebuilt
from kdsl.lower.tvm import (
    AttrStmt,
    For,
    SeqStmt,
    structural_equal,
    structural_walk,
    tirx,
    tvm,
)


def with_joined_guards(module):
    """The module's functions with conditions on thread indices joined and moved out of loops."""
    found = {}
    for name, func in module.functions.items():
        found[name] = func.with_body(joined(func.body, thread_indices(func.body)))
    return tvm.IRModule(found, attrs=module.attrs)


def thread_indices(body) -> list:
    """The variables bound to indices of a thread in its block."""
    found: list = []
    structural_walk(body, (AttrStmt, lambda statement: found.extend(thread_index(statement))))
    return found


def thread_index(statement: AttrStmt) -> list:
    """The variable that an attribute binds to an index of a thread in its block."""
    if statement.attr_key == "thread_extent" and str(statement.node.thread_tag).startswith("threadIdx"):
        return [statement.node.var]
    return []


def joined(statement, threads):
    statement = rebuilt(statement, lambda inner: joined(inner, threads))
    if isinstance(statement, SeqStmt):
        return _sequence(statement, threads)
    if isinstance(statement, For) and guards(statement.body, threads):
        inner = statement.body
        loop = For(statement.loop_var, statement.min, statement.extent, statement.kind, inner.then_case,
                   statement.thread_binding, statement.annotations, statement.step)  # fmt: skip
        return tirx.IfThenElse(inner.condition, loop, None)
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
    return SeqStmt(kept) if len(kept) > 1 else kept[0]


def _closed(run: list, condition) -> list:
    if condition is None:
        return run
    return [tirx.IfThenElse(condition, SeqStmt(run) if len(run) > 1 else run[0], None)]
