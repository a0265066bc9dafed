"""Fragments, which TVM calls memory of a warp, as registers of the lanes."""

from __future__ import annotations

from kdsl.lower.intrinsics.tiles import FILLING
from kdsl.lower.sourcemap import called, rebuilt, with_bodies
from kdsl.lower.tvm import AllocBuffer, AttrStmt, BufferStore, For, SeqStmt, sequence, t_transform, tirx, tvm


def lower_warp_memory(func):
    """Registers of a warp's lanes.

    The pass needs every allocation above the binding of threadIdx.x, and sees one allocation a run.
    """
    allocations: list = []
    body = without_allocations(func.body, allocations)
    func = func.with_body(above_threads(body, allocations))
    module = tvm.IRModule({"main": func})
    module = with_bodies(module, with_stores)
    for _ in allocations:
        module = t_transform.LowerWarpMemory()(module)
    return with_bodies(module, without_stores)


def fills(statement):
    """The first element of the lane's part of a fragment that a device function fills, if the statement is its call."""
    if not called(statement).startswith(FILLING):
        return None
    return statement.value.args[1].args[0]


def with_stores(statement):
    """The statement with a store before every such call: the pass learns from stores how lanes share a buffer."""
    element = fills(statement)
    if element is None:
        return rebuilt(statement, with_stores)
    nothing = tirx.const(0, str(element.source.dtype))
    return SeqStmt([BufferStore(element.source, nothing, list(element.indices)), statement])


def without_stores(statement):
    if isinstance(statement, SeqStmt):
        parts = list(statement.seq)
        kept = [part for part, after in zip(parts, (*parts[1:], None)) if not is_before(part, after)]
        return sequence([without_stores(part) for part in kept])
    return rebuilt(statement, without_stores)


def is_before(statement, call) -> bool:
    """Whether the statement is the store that was put before a call."""
    element = fills(call)
    return element is not None and isinstance(statement, BufferStore) and statement.buffer.same_as(element.source)


def without_allocations(statement, found: list):
    """The statement without its allocations of warp memory, which are added to `found`."""
    if isinstance(statement, AllocBuffer) and statement.buffer.scope() == "warp":
        found.append(statement)
        return None
    if isinstance(statement, SeqStmt):
        kept = [s for s in (without_allocations(s, found) for s in statement.seq) if s is not None]
        return sequence(kept) if kept else None
    if isinstance(statement, AttrStmt):
        body = without_allocations(statement.body, found)
        return AttrStmt(statement.node, statement.attr_key, statement.value, body)
    if isinstance(statement, For):
        body = without_allocations(statement.body, found)
        return For(statement.loop_var, statement.min, statement.extent, statement.kind, body,
                   statement.thread_binding, statement.annotations, statement.step)  # fmt: skip
    return statement


def above_threads(statement, allocations: list):
    """The allocations right above the first binding of a thread index."""
    if isinstance(statement, AttrStmt):
        if statement.attr_key == "thread_extent" and str(statement.node.thread_tag).startswith("threadIdx"):
            return sequence([*allocations, statement])
        body = above_threads(statement.body, allocations)
        return AttrStmt(statement.node, statement.attr_key, statement.value, body)
    if isinstance(statement, SeqStmt):
        return SeqStmt([*list(statement.seq)[:-1], above_threads(statement.seq[-1], allocations)])
    return statement
