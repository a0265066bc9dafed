"""Sums of squares of rows by a matrix instruction: the diagonal of a tile's product with itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen

from kdsl.check.graph import strip
from kdsl.plan import steps as s
from kdsl.plan.cuda.fragments import TILE
from kdsl.plan.model import PlannedStage, Tensor
from kdsl.plan.refusal import PlanRefused
from kdsl.source.span import Span
from kdsl.syntax import nodes as n

INSTRUCTION = "mma.m16n8k16"


@frozen
class Squares:
    """`sums[i] = sum over d of x[i, d] * x[i, d]`, 16 rows a warp; x in shared memory as 16-bit values."""

    stage: PlannedStage
    rows: str
    contract: str
    operand: str
    depth: int
    span: Span


def is_squares(stage: PlannedStage) -> bool:
    """Whether a sum is no product of two tensors, but has one row index alone."""
    return stage.stage is not None and stage.stage.kind == "contract" and len(stage.indices) == 1


def squares_of(stage: PlannedStage, instruction: str, tensors: Mapping[str, Tensor], span: Span) -> Squares:
    """Raises PlanRefused."""
    body = strip(stage.stage.reduction.body)
    sides = [strip(side) for side in (body.left, body.right)] if isinstance(body, n.Binary) else []
    texts = {(side.name.text, tuple(i.span.text for i in side.indices)) for side in sides if hasattr(side, "indices")}
    (rows,), contracted = stage.indices, stage.stage.contracted
    name = stage.renamed.get(sides[0].name.text, sides[0].name.text) if len(texts) == 1 else ""
    operand, sums = tensors.get(name), tensors.get(stage.tensor)
    right = operand is not None and operand.memory == "shared" and operand.dtype != "f32" and not operand.swizzle
    if instruction != INSTRUCTION or len(contracted) != 1 or not right or operand.indices != (rows, contracted[0]):
        raise PlanRefused(
            "D344", f"stage `{stage.name}` is no matrix product, so `{instruction}` cannot compute it", span,
            observed=f"`{body.span.text}`" + (f", {operand.dtype} in {operand.memory}" if operand is not None else ""),
            required=f"for sums of one index: squares of a row of 16-bit values in shared memory, by {INSTRUCTION}",
            help=(f"compute it as `{stage.name} : fma.f32 lanes {contracted[0]} by 4 via shuffle`",),
        )  # fmt: skip
    extent = {loop.index: loop.extent for loop in stage.loops}
    if sums is None or sums.memory != "shared" or extent[rows] % TILE or extent[contracted[0]] % TILE:
        raise PlanRefused(
            "D344", f"`{stage.tensor}`, sums of squares by {instruction}, are in shared memory, {TILE} a tile", span,
            observed=f"{sums.memory if sums is not None else 'global'}, {extent[rows]} x {extent[contracted[0]]}",
            help=(f"place `{stage.tensor} : f32 in shared`",),
        )  # fmt: skip
    return Squares(stage, rows, contracted[0], name, extent[contracted[0]], span)


def squares_steps(squares: Squares, warps: int, tensors: Mapping[str, Tensor]) -> Iterator[s.Step]:
    """A tile of rows a warp, from its first lanes on; zeros before the sum."""
    name, span, why = squares.stage.name, squares.span, f"{squares.stage.name} by {INSTRUCTION}"
    rows, contract = squares.rows, squares.contract
    yield s.Split(name, span, why, rows, (None, TILE), (f"{rows}.tile", f"{rows}.in"))
    yield s.Split(name, span, why, contract, (None, squares.depth), (f"{contract}.tile", f"{contract}.in"))
    yield s.Reorder(name, span, why, (f"{rows}.tile", f"{contract}.tile", f"{rows}.in", f"{contract}.in"))
    block, initial = f"{name}.tile", f"{name}.initial"
    yield s.Blockize(name, span, why, f"{rows}.in", block)
    yield s.BindWarps(name, span, why, f"{rows}.tile", warps)
    yield s.DecomposeBlock(name, span, "zeros before the sum", f"{contract}.tile", block, initial, 0)
    intrinsic = f"kdsl_squares_{INSTRUCTION.replace('.', '_')}_{tensors[squares.operand].dtype}_{squares.depth}"
    yield s.Tensorize(name, span, why, f"{rows}.in", intrinsic)
    yield s.InitialRows(name, span, why, initial)
