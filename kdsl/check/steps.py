"""Which step of which sequential index a tensor belongs to: a read meets a tensor of its own step, or a whole run's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from kdsl.check.blueprint import Blueprint, GuardedCarry, compatible
from kdsl.check.findings import Findings
from kdsl.check.graph import tensor_steps
from kdsl.check.model import Operator, Read, View, names_in
from kdsl.source.diagnostic import Diagnostic, Label
from kdsl.source.span import Span


def check_steps(operator: Operator, graph: Blueprint, findings: Findings) -> None:
    """E215 for an operator in which an index cuts another: what is read at a step that it was not made for."""
    if all(index.cuts is None for index in operator.indices.values()):
        return
    for found in (*_carries(operator, graph), *_reads(operator, graph)):
        findings.add(found)


def _carries(operator: Operator, graph: Blueprint) -> Iterator[Diagnostic]:
    """The carries of one part step through one index."""
    for found, other in combinations(graph.carries, 2):
        same = other.carry.over == found.carry.over or other.carry.part != found.carry.part
        if not same and compatible(found.guards, other.guards):
            yield Diagnostic(
                "E215", f"part `{found.carry.part}` steps through `{found.carry.over}` and `{other.carry.over}`",
                other.node.over.span, labels=(Label(found.node.over.span, "the other"),),
                help=("make them two parts: each is a loop of its own",),
            )  # fmt: skip
            return


def _reads(operator: Operator, graph: Blueprint) -> Iterator[Diagnostic]:
    made = tensor_steps(operator, (s.stage for s in graph.stages), (c.carry for c in graph.carries))
    for found in graph.stages:
        here = _steps_of(operator, graph, found.stage.part)
        for read in found.stage.reads:
            yield from _met(operator, made, read, here, f"stage `{found.stage.name}`")
    for found in graph.carries:
        here = found.carry.within
        for read in found.carry.reads:
            yield from _met(operator, made, read, here, f"carry `{found.carry.tensor}`")
        if found.carry.end is not None:
            yield from _end(operator, found, here)


def _steps_of(operator: Operator, graph: Blueprint, part: str) -> str | None:
    return next((c.carry.over for c in graph.carries if c.carry.part == part), operator.steps)


def _met(operator: Operator, made: dict, read: Read, here: str | None, reader: str) -> Iterator[Diagnostic]:
    view = operator.views.get(read.tensor)
    found = view_steps(operator, view) if view is not None else made.get(read.tensor)
    if found is None and view is not None or found == here:
        return
    yield _wrong(read.span, f"{reader} reads `{read.tensor}`", found, here)


def _end(operator: Operator, found: GuardedCarry, here: str | None) -> Iterator[Diagnostic]:
    """A run cannot write what every run of its sequence would write."""
    end = found.carry.end
    if here is not None and end.tensor in operator.views:
        yield Diagnostic(
            "E215", f"carry `{found.carry.tensor}` ends in `{end.tensor}` in every run `{here}` of its steps", end.span,
            observed=f"a view that is one for all `{here}`", required="a tensor of the run",
            help=("end it in a tensor, and write the view where the runs are joined",),
        )  # fmt: skip


def view_steps(operator: Operator, view: View) -> str | None:
    """The sequential index that a window depends on."""
    parts = (*view.port_indices, *(x for x in (view.condition, view.otherwise) if x is not None))
    names = {name for part in parts for name in names_in(part)}
    return next((name for name in names if name in operator.indices and operator.indices[name].mode == "sequential"),
                None)  # fmt: skip


def _wrong(span: Span, what: str, found: str | None, here: str | None) -> Diagnostic:
    def said(step: str | None) -> str:
        return f"for each `{step}`" if step is not None else "once"

    return Diagnostic(
        "E215", f"{what}, which is made {said(found)}, and itself runs {said(here)}", span,
        observed=said(found), required=said(here),
        help=("carry it through the steps: `carry ... over c in s` starts and ends in tensors of s",),
    )  # fmt: skip
