"""Stages on other warps than the first: kdsl/plan/cuda/turns.py says which, the marks of stages where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kdsl.lower.guards import thread_indices
from kdsl.lower.sourcemap import begun, is_mark, rebuilt, renamed, with_bodies
from kdsl.lower.tvm import SeqStmt, tirx


def with_turns(turns: Mapping[str, int], stages: Sequence[str], warps: int):
    """The pass that turns the warps of some stages: what warp 0 did, warp `turn` does."""
    by_number = {stages.index(name): turn for name, turn in turns.items() if name in stages}

    def turned(module):
        return with_bodies(module, lambda body: changed(body, by_number, thread_indices(body, "threadIdx.y")[0], warps))

    return turned if by_number else lambda module: module


def changed(statement, turns: Mapping[int, int], warp, warps: int):
    if not isinstance(statement, SeqStmt):
        return rebuilt(statement, lambda inner: changed(inner, turns, warp, warps))
    kept, turn = [], 0
    for part in statement.seq:
        if is_mark(part):
            turn = turns.get(begun(part), 0)
            kept.append(part)
        elif turn:
            here = tirx.truncmod(warp + (warps - turn), warps)
            kept.append(renamed(part, warp, here))
        else:
            kept.append(changed(part, turns, warp, warps))
    return SeqStmt(kept)
