"""Which lines of the generated CUDA belong to which stage.

The scheduled TIR still has the sblocks of every stage. Around each statement that holds those of one stage
alone two calls are put, which no pass touches, since they read and write nothing; they come out as two lines
of CUDA, are taken out of the text, and say where the stage begins and ends. The text is then the one without
marks, letter for letter (a test holds it against that), so the marks cannot change machine code.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from attrs import field, frozen

from kdsl.lower.tvm import (
    AttrStmt,
    Evaluate,
    For,
    SBlock,
    SBlockRealize,
    SeqStmt,
    Var,
    op,
    structural_map,
    tirx,
    tvm,
)

BEGIN, END = "kdsl_stage_begins", "kdsl_stage_ends"
_MARK = re.compile(rf"^\s*(?:\(void\)\s*)?({BEGIN}|{END})\((\d+)\);$")
# What TVM appends to the name of a block that a primitive makes of another.
_DERIVED = re.compile(r"(.+?)_(?:init|update|o|\d+)$")


@frozen
class SourceMap:
    """Lines of the text, from 1, by stage; a line of no stage sets up the kernel or a step."""

    stages: Mapping[str, frozenset[int]] = field(factory=dict)

    def lines(self, *stages: str) -> frozenset[int]:
        """All lines of these stages; none for a stage that is not there."""
        return frozenset().union(*(self.stages.get(stage, ()) for stage in stages))

    def stage_of(self, line: int) -> str | None:
        return next((stage for stage, lines in self.stages.items() if line in lines), None)


def stage_of(sblock: str, stages: Collection[str]) -> str | None:
    """The stage that an sblock computes: `within_update_o` is of stage `within`."""
    name = sblock
    while name not in stages:
        found = _DERIVED.match(name)
        if found is None:
            return None
        name = found[1]
    return name


def marked_module(module, stages: Sequence[str]):
    """A copy of a scheduled module with marks in its only function; the module itself without stages."""
    if not stages:
        return module
    ((name, func),) = module.functions.items()
    return tvm.IRModule({name: func.with_body(marked(func.body, stages))})


def marked(statement, stages: Sequence[str]):
    """The statement with marks around what belongs to one stage: the number is that of the stage.

    The sblocks that only nest others (the grid's, a step's, a row's) stay outside of the marks.
    """
    held, nesting = survey(statement, stages)
    if len(held) == 1 and not nesting:
        number = stages.index(next(iter(held)))
        return SeqStmt([_mark(BEGIN, number), statement, _mark(END, number)])
    return rebuilt(statement, lambda inner: marked(inner, stages)) if held else statement


def survey(statement, stages: Collection[str]) -> tuple[set[str], bool]:
    """Stages with an sblock inside the statement, and whether one is there that is of no stage."""
    if isinstance(statement, SBlockRealize):
        own = stage_of(str(statement.block.name_hint), stages)
        return ({own}, False) if own is not None else (survey(statement.block.body, stages)[0], True)
    parts = [survey(inner, stages) for inner in _inner(statement)]
    return set().union(*(held for held, _ in parts)), any(nesting for _, nesting in parts)


def unmarked(text: str, stages: Sequence[str]) -> tuple[str, SourceMap]:
    """The text without its marks, and the lines between each pair."""
    kept: list[str] = []
    found: dict[str, set[int]] = {}
    inside: list[str] = []
    for line in text.split("\n"):
        mark = _MARK.match(line)
        if mark is None:
            kept.append(line)
            if inside:
                found.setdefault(inside[-1], set()).add(len(kept))
        elif mark[1] == BEGIN:
            inside.append(stages[int(mark[2])])
        else:
            inside.pop()
    return "\n".join(kept), SourceMap({stage: frozenset(lines) for stage, lines in found.items()})


def rebuilt(s, change):
    """The statement with `change` made of every statement right inside it."""
    if isinstance(s, SeqStmt):
        return SeqStmt([change(inner) for inner in s.seq])
    if isinstance(s, For):
        body = change(s.body)
        return For(s.loop_var, s.min, s.extent, s.kind, body, s.thread_binding, s.annotations, s.step)
    if isinstance(s, AttrStmt):
        return AttrStmt(s.node, s.attr_key, s.value, change(s.body))
    if isinstance(s, tirx.IfThenElse):
        otherwise = s.else_case
        return tirx.IfThenElse(s.condition, change(s.then_case), otherwise and change(otherwise))
    if isinstance(s, SBlockRealize):
        b, body = s.block, change(s.block.body)
        inner = SBlock(
            b.iter_vars,
            b.reads,
            b.writes,
            b.name_hint,
            body,
            b.init,
            b.alloc_buffers,
            b.match_buffers,
            b.annotations,
        )
        return SBlockRealize(s.iter_values, s.predicate, inner)
    return s


def _inner(statement) -> list:
    if isinstance(statement, SeqStmt):
        return list(statement.seq)
    if isinstance(statement, tirx.IfThenElse):
        return [case for case in (statement.then_case, statement.else_case) if case is not None]
    body = getattr(statement, "body", None)
    return [body] if body is not None else []


def with_bodies(module, change):
    """The module with `change` made of the body of every function."""
    functions = {name: func.with_body(change(func.body)) for name, func in module.functions.items()}
    return tvm.IRModule(functions, attrs=module.attrs)


def renamed(statement, old, new):
    """The statement with `new` in place of the variable `old`."""
    return structural_map(statement, (Var, lambda var: new if var.same_as(old) else var))


def body_of(loop) -> list:
    """The statements of a loop."""
    return list(loop.body.seq) if isinstance(loop.body, SeqStmt) else [loop.body]


def called(statement) -> str:
    """The device function that a statement is a call of; nothing for another statement."""
    args = getattr(statement.value, "args", ()) if isinstance(statement, Evaluate) else ()
    return str(getattr(args[0], "value", "")) if args else ""


def is_mark(statement) -> bool:
    """Whether a statement is one of the marks that come out of the text again."""
    return called(statement) in (BEGIN, END)


def begun(statement) -> int | None:
    """The number of the stage that begins with a mark; None for another statement, and for the mark of an end."""
    if not is_mark(statement) or str(statement.value.args[0].value) != BEGIN:
        return None
    return int(statement.value.args[1].value)


def _mark(name: str, number: int):
    return Evaluate(op.call_extern("int32", name, number))
