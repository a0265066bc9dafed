"""Rows over warps: an index that the role deals over its warps, beside the one that lanes own.

A warp has `tile` neighbouring rows of every tensor with both indices; a tensor without rows every warp has whole. A
sum over the rows becomes two stages: each warp sums its own rows into shared memory, then the parts are added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import evolve, frozen

from kdsl.check.graph import strip, tensor_reads
from kdsl.check.model import Operator, Read, Role, Stage
from kdsl.check.rules import substitute
from kdsl.plan.cuda.private import OWNED, owners
from kdsl.plan.cuda.warp import warp_loop
from kdsl.plan.model import Loop, PlannedStage, Tensor
from kdsl.plan.refusal import PlanRefused
from kdsl.plan.stages import sums_of, with_sum
from kdsl.source.span import Span
from kdsl.syntax import nodes as n


@frozen
class Parts:
    """The body with every sum over rows as two stages, all tensors, and those that hold the parts."""

    body: tuple[PlannedStage, ...]
    tensors: dict[str, Tensor]
    names: frozenset[str]


def with_rows(tensors: Mapping[str, Tensor], role: Role) -> dict[str, Tensor]:
    """Tensors of lanes with the rows that a warp has, if the role deals an index of theirs over its warps."""
    index, tile = role.over[0] if role.over else ("", 1)
    dealt = [t for t in tensors.values() if t.owner is not None and t.owner[0] != index and index in t.indices]
    for tensor in dealt:
        extent = tensor.shape[tensor.indices.index(index)]
        if extent != role.warps * tile:
            raise PlanRefused(
                "D360", f"{role.warps} warps have {role.warps * tile} rows `{index}` of `{tensor.name}`, which has"
                f" {extent}", role.span, observed=f"{role.warps} warps over {index} by {tile}",
                required="all rows, in one piece for each warp",
                help=((f"write `{role.warps} warps over {index} by {extent // role.warps}`",)
                      if extent % role.warps == 0 else (f"choose warps that divide {extent}",)),
            )  # fmt: skip
    if not dealt:
        return dict(tensors)
    return {name: evolve(t, rows=(index, tile)) if t.owner is not None else t for name, t in tensors.items()}


def with_parts(body: Iterable[PlannedStage], tensors: Mapping[str, Tensor], operator: Operator, role: Role) -> Parts:
    """Sums over rows that warps have, in two stages. Raises PlanRefused."""
    found, made, names = [], dict(tensors), set()
    for stage in body:
        owned = summed_rows(stage, tensors)
        if owned is None:
            found.append(stage)
            continue
        result = tensors.get(stage.tensor)
        part, total = _two(stage, owned, operator, role.warps, result is not None and result.owner is not None)
        held = evolve(owned, name=f"{part.tensor}_sum", dtype="f32", memory=OWNED, scope="step", span=stage.span)
        shape = tuple(loop.extent for loop in part.loops)
        made[part.tensor] = Tensor(part.tensor, part.indices, shape, "f32", "shared", "step", stage.span)
        made[held.name] = evolve(held, indices=part.indices, shape=shape, order=(), pad=0, ring=1)
        made.update({inner.tensor: sums_of(inner, "cuda") for inner in total.inner})
        names.add(part.tensor)
        found += [part, total]
    return Parts(tuple(found), made, frozenset(names))


def refuse_other_owners(stages: Iterable[PlannedStage], tensors: Mapping[str, Tensor]) -> None:
    """A stage reads registers of a thread at its own elements: the lane's index, and the warp's rows."""
    for stage in (part for outer in stages for part in outer.unrolled):
        spatial = {loop.index for loop in stage.loops if loop.kind == "spatial"}
        for read in stage.stage.reads if stage.stage is not None else ():
            name = stage.renamed.get(read.tensor, read.tensor)
            tensor = tensors.get(name)
            if tensor is None or tensor.owner is None or len(owners(stage, tensors)) > 1:  # D351 says more
                continue
            for (index, tile), who in ((tensor.owner, "lanes"), (tensor.rows or ("", 1), "warps")):
                own = n.Name(stage.span, index) if index in spatial else own_row(stage.span, index, tile)
                if index not in tensor.indices or strip(read.indices[tensor.indices.index(index)]) == own:
                    continue
                raise PlanRefused(
                    "D361", f"stage `{stage.name}` reads elements of `{name}` that other {who} have", tensor.span,
                    observed=f"`{name}[{', '.join(i.span.text for i in read.indices)}]`, of which {who} own"
                    f" `{index}`; the stage over {', '.join(loop.index for loop in stage.loops)}",
                    required=f"a stage over `{index}` that reads its own elements",
                    help=(f"place `{name} : {tensor.dtype} in shared`",),
                )  # fmt: skip


def own_row(span: Span, index: str, tile: int) -> n.Expr:
    """A row of the warp's own, in a sum of each warp's rows."""
    first = n.Binary(span, "*", n.Name(span, warp_loop(index)), n.Number(span, str(tile)))
    return n.Binary(span, "+", first, n.Name(span, f"{index}_row"))


def summed_rows(stage: PlannedStage, tensors: Mapping[str, Tensor]) -> Tensor | None:
    """A tensor over whose rows, which other warps have, the stage sums."""
    summed = stage.stage.contracted if stage.stage is not None else ()
    for name in stage.touched:
        tensor = tensors.get(name)
        if tensor is not None and tensor.rows is not None and tensor.rows[0] in {*tensor.indices} & {*summed}:
            return tensor
    return None


def _two(
    stage: PlannedStage, owned: Tensor, operator: Operator, warps: int, in_lanes: bool
) -> tuple[PlannedStage, PlannedStage]:
    """The sum of each warp's own rows, and the sum of those; the result is `in_lanes`, or where all see it."""
    (index, tile), whole, span = owned.rows, stage.stage, stage.span
    warp, row = warp_loop(index), f"{index}_row"
    own = {index: own_row(span, index, tile)}
    bound = next((b.bound for b in whole.reduction.binders if b.name.text == index), None)
    if bound is not None or whole.scan is not None:
        raise PlanRefused(
            "D361", f"stage `{stage.name}` sums `{index}`, whose rows lie over {warps} warps, {_how(whole, bound)}",
            span, required="a sum over all rows of elements that do not wait for each other",
            help=(f"place `{owned.name}` in shared memory, or leave `over {index}` out of the role",),
        )  # fmt: skip
    spatial = tuple(loop for loop in stage.loops if loop.kind == "spatial")
    binders = tuple(_renamed(b, index, row) for b in whole.reduction.binders)
    body = substitute(whole.reduction.body, own)
    part = evolve(
        whole, name=f"{stage.name}_part", tensor=f"{stage.tensor}_part", indices=(warp, *whole.indices), kind="reduce",
        initial=None, sign=1, reduction=evolve(whole.reduction, binders=binders, body=body),
        reads=tuple(Read(r.tensor, substitute(r.indices, own), r.span) for r in tensor_reads(operator, body)),
    )  # fmt: skip
    loops = (Loop(warp, warps, "spatial"), *spatial)
    loops += tuple(Loop(row, tile, "reduce") if loop.index == index else loop for loop in stage.loops
                   if loop.kind == "reduce")  # fmt: skip
    first = evolve(stage, name=part.name, tensor=part.tensor, indices=part.indices, loops=loops, stage=part)
    total = _total(whole, part, warp, operator)
    second = evolve(stage, loops=(*spatial, Loop(warp, warps, "reduce")), stage=total)
    return with_sum(first), second if in_lanes else with_sum(second)


def _total(whole: Stage, part: Stage, warp: str, operator: Operator) -> Stage:
    """The stage that adds the parts up, with the initial value and the sign of the whole sum."""
    span = whole.span
    reference = n.Reference(span, n.Id(span, part.tensor), tuple(n.Name(span, i) for i in part.indices))
    reduction = evolve(whole.reduction, binders=(n.Binder(span, n.Id(span, warp), None),), body=reference)
    reads = tensor_reads(operator, whole.initial) if whole.initial is not None else ()
    reads += (Read(part.tensor, reference.indices, span),)
    return evolve(whole, kind="reduce", reduction=reduction, reads=reads)


def _renamed(binder: n.Binder, index: str, row: str) -> n.Binder:
    return evolve(binder, name=evolve(binder.name, text=row)) if binder.name.text == index else binder


def _how(stage: Stage, bound: n.Expr | None) -> str:
    return f"below {bound.span.text}" if bound is not None else f"in every row of `{stage.scan}`"
