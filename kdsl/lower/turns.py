"""Stages on other warps than the first: kdsl/plan/cuda/turns.py says which, the marks of stages where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kdsl.lower.sourcemap import BEGIN, is_mark, rebuilt
from kdsl.lower.tvm import AttrStmt, SeqStmt, Var, structural_map, structural_walk, tirx, tvm


def with_turns(turns: Mapping[str, int], stages: Sequence[str], warps: int):
    """The pass that turns the warps of some stages: what warp 0 did, warp `turn` does."""
    by_number = {stages.index(name): turn for name, turn in turns.items() if name in stages}

    def turned(module):
        functions = {}
        for name, func in module.functions.items():
            functions[name] = func.with_body(changed(func.body, by_number, warp_index(func.body), warps))
        return tvm.IRModule(functions, attrs=module.attrs)

    return turned if by_number else lambda module: module


def changed(statement, turns: Mapping[int, int], warp, warps: int):
    if not isinstance(statement, SeqStmt):
        return rebuilt(statement, lambda inner: changed(inner, turns, warp, warps))
    kept, turn = [], 0
    for part in statement.seq:
        if is_mark(part):
            word, number = (argument.value for argument in part.value.args)
            turn = turns.get(int(number), 0) if str(word) == BEGIN else 0
            kept.append(part)
        elif turn:
            here = tirx.truncmod(warp + (warps - turn), warps)
            kept.append(structural_map(part, (Var, lambda var, here=here: here if var.same_as(warp) else var)))
        else:
            kept.append(changed(part, turns, warp, warps))
    return SeqStmt(kept)


def warp_index(body):
    """The variable bound to a thread's warp in its block."""
    found: list = []

    def look(statement) -> None:
        if statement.attr_key == "thread_extent" and str(statement.node.thread_tag) == "threadIdx.y":
            found.append(statement.node.var)

    structural_walk(body, (AttrStmt, look))
    return found[0]
