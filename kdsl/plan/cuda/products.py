"""Matrix products: operands, loop order, and the steps that turn a stage into matrix instructions."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from attrs import evolve, frozen

from kdsl.check.graph import strip
from kdsl.check.model import DTYPE_BYTES
from kdsl.plan import steps as s
from kdsl.plan.cuda.fragments import TILE
from kdsl.plan.model import Decision, PlannedStage, Tensor
from kdsl.plan.pins import Pins
from kdsl.plan.refusal import PlanRefused
from kdsl.source.span import Span
from kdsl.syntax import nodes as n

DESCRIBED_ROWS = 8  # of shared memory, after which a swizzle repeats


def intrinsic_name(instruction: str, dtype: str, stored: str, left_stored: str = "") -> str:
    """The device function of one product: operand A in fragments, or, as `left_stored` says, in shared memory."""
    left = (left_stored,) if left_stored else ()
    return "_".join(("kdsl", instruction.replace(".", "_"), *left, dtype, stored))


def whole_name(instruction: str, columns: int, depth: int, dtype: str, stored: str, swizzle: int) -> str:
    """The device function of a warpgroup's product, all columns and the whole contraction at once."""
    return f"kdsl_{instruction.replace('.', '_')}_{columns}x{depth}_{dtype}_{stored}_sw{swizzle}"


def by_descriptor(instruction: str) -> bool:
    """Whether the Tensor Cores fetch operand B from shared memory themselves."""
    return instruction.partition(".")[0] == "wgmma"


@frozen
class Product:
    """`rows x contract` times `contract x columns`: the left operand in fragments or in shared memory, the right one
    in shared memory.

    `stored` is how the right operand lies: "nk" (a row of it is a column of the result) or "kn"; `left_stored` how
    the left one does: "" in fragments, "mk" or "km" in shared memory.
    """

    stage: PlannedStage
    instruction: str
    rows: str
    columns: str
    contract: str
    left: str
    right: str
    stored: str
    left_stored: str
    initial_reads: tuple[str, ...]
    span: Span


def product_of(stage: PlannedStage, instruction: str, rows: str, tensors: Mapping[str, Tensor], span: Span) -> Product:
    """The operands of a contraction, by which of them has the rows. Raises PlanRefused."""
    graph_stage = stage.stage
    if graph_stage.kind != "contract" or len(graph_stage.contracted) != 1:
        raise PlanRefused(
            "D344", f"stage `{stage.name}` is no matrix product, so `{instruction}` cannot compute it", span
        )
    body = strip(graph_stage.reduction.body)
    operands = {}
    for reference in (strip(body.left), strip(body.right)):
        name = stage.renamed.get(reference.name.text, reference.name.text)
        operands[name] = tuple(i.text for i in reference.indices if isinstance(i, n.Name))
    names = list(operands)
    (contract,) = graph_stage.contracted
    left = [name for name in names if rows in operands[name]]
    right = [name for name in names if name not in left]
    if len(left) != 1 or len(right) != 1:
        raise PlanRefused(
            "D345", f"stage `{stage.name}`: one operand of a product has the rows `{rows}`, the other has not", span,
            observed=f"operands {' and '.join(names)}",
        )  # fmt: skip
    _check_operands(stage, instruction, tensors[left[0]], tensors.get(right[0]), right[0], span)
    columns = next(index for index in stage.indices if index != rows)
    stored = "nk" if operands[right[0]][-1] == contract else "kn"
    left_stored = "" if tensors[left[0]].fragment is not None else "mk" if operands[left[0]][-1] == contract else "km"
    if by_descriptor(instruction):
        _check_descriptor(stage, instruction, tensors[left[0]], tensors[right[0]], span)
    reads = graph_stage_reads(stage) - {left[0], right[0]}
    ordered = {loop.index: loop for loop in stage.loops}
    planned = evolve(stage, loops=(ordered[rows], ordered[columns], ordered[contract]), left=left[0])
    return Product(planned, instruction, rows, columns, contract, left[0], right[0], stored, left_stored,
                   tuple(sorted(reads)), span)  # fmt: skip


def graph_stage_reads(stage: PlannedStage) -> set[str]:
    return {stage.renamed.get(read.tensor, read.tensor) for read in stage.stage.reads}


def _check_operands(stage, instruction, left: Tensor, right: Tensor | None, right_name: str, span: Span) -> None:
    if (left.fragment is None and left.memory != "shared") or left.dtype == "f32":
        raise PlanRefused(
            "E301", f"`{left.name}` is operand A of `{stage.name}`: 16-bit values in fragments or shared memory", span,
            observed=f"{left.dtype} in {left.memory}",
            help=(f"add `{left.name} for {stage.name} : bf16 in registers as {instruction}.A`",),
        )  # fmt: skip
    if right is None or right.memory != "shared" or right.dtype == "f32":
        found = f"{right.dtype} in {right.memory}" if right is not None else "no tensor of this kernel"
        raise PlanRefused(
            "E306", f"`{right_name}` is operand B of `{stage.name}`, which is read from shared memory as 16-bit values",
            span, observed=found, help=(f"place `{right_name} : bf16 in shared pad 8`",),
        )  # fmt: skip
    if left.dtype != right.dtype:
        raise PlanRefused(
            "E308", f"the operands of `{stage.name}` have two dtypes: {left.name} {left.dtype},"
            f" {right.name} {right.dtype}",
            span,
        )  # fmt: skip


def _check_descriptor(stage, instruction: str, left: Tensor, right: Tensor, span: Span) -> None:
    """What a descriptor can say of operand B, and that A is where the instruction takes it."""
    row = right.shape[-1] * DTYPE_BYTES[right.dtype]
    if left.fragment is None:
        raise PlanRefused(
            "E301", f"`{left.name}` is operand A of `{stage.name}`: `{instruction}` takes it from registers", span,
            observed=f"{left.dtype} in {left.memory}",
            help=(f"add `{left.name} for {stage.name} : bf16 in registers as {instruction}.A`",),
        )  # fmt: skip
    if right.swizzle not in (32, 64, 128) or row % right.swizzle or right.shape[0] % DESCRIBED_ROWS:
        raise PlanRefused(
            "E306", f"`{right.name}` is operand B of `{stage.name}`, which `{instruction}` reads through a descriptor",
            span, observed=f"rows of {row} bytes, {f'swizzle {right.swizzle}' if right.swizzle else 'no swizzle'}",
            required=f"a multiple of {DESCRIBED_ROWS} rows, and a swizzle of 32, 64 or 128 bytes that divides a row",
            help=(f"place `{right.name} : bf16 in shared swizzle {min(row & -row, 128)} ...`",),
        )  # fmt: skip


def tiles_of(product: Product) -> dict[str, int]:
    """How much of every index one call of the device function takes."""
    tiles = {index: TILE for index in (product.rows, product.columns, product.contract)}
    if by_descriptor(product.instruction):
        tiles |= {loop.index: loop.extent for loop in product.stage.loops if loop.index != product.rows}
    return tiles


def with_panels(
    tensors: Mapping[str, Tensor], products: Iterable[Product], fetched: Container[str]
) -> dict[str, Tensor]:
    """Operands that are read through descriptors lie in panels as wide as their swizzle. Only what is fetched is fenced
    for such reads."""
    found = dict(tensors)
    for product in products:
        if by_descriptor(product.instruction):
            right = tensors[product.right]
            if right.name not in fetched:
                raise PlanRefused(
                    "E306", f"`{right.name}` is operand B of `{product.stage.name}`, and {product.instruction} reads it"
                    " through a descriptor", product.span, observed="made in this kernel",
                    required="a tensor that asynchronous copies fetch for each step",
                    help=("make it in another kernel, or compute the product by mma.m16n8k16",),
                )  # fmt: skip
            found[right.name] = evolve(right, panel=right.swizzle // DTYPE_BYTES[right.dtype])
    for product in products:
        if not by_descriptor(product.instruction) and found[product.right].panel:
            raise PlanRefused(
                "E306", f"`{product.right}` lies in panels for a warpgroup's product, and `{product.stage.name}` reads"
                f" it by {product.instruction}", product.span, help=("compute both with one instruction",),
            )  # fmt: skip
    return found


def product_steps(
    product: Product, warps: int, tensors: Mapping[str, Tensor], pins: Pins
) -> tuple[list[s.Step], Decision]:
    """Tiles of 16, the accumulator's rows over the warps, initial values first, then the instruction."""
    stage, span = product.stage, product.span
    extent, tile = {loop.index: loop.extent for loop in stage.loops}, tiles_of(product)
    trips = {index: extent[index] // tile[index] for index in (product.columns, product.contract)}
    outer = (product.contract, product.columns)
    if trips[product.contract] < trips[product.columns]:
        outer = (product.columns, product.contract)
    pinned = pins.names(stage.name, "loop_order")
    if pinned is not None:
        if sorted(pinned) != sorted(outer):
            raise PlanRefused(
                "D136", f"`pin {stage.name}.loop_order` orders the tiles of {' and '.join(sorted(outer))}",
                pins.span(stage.name, "loop_order"), observed=", ".join(pinned),
            )  # fmt: skip
        outer = pinned
    decision = Decision(stage.name, "loop_order", outer, "more trips outside, ties: the contraction")
    return list(_steps(product, warps, tensors, outer, span)), decision


def _steps(product: Product, warps: int, tensors, outer, span) -> Iterator[s.Step]:
    name, why = product.stage.name, f"{product.stage.name} by {product.instruction}"
    indices = (product.rows, product.columns, product.contract)
    tiles = tiles_of(product)
    for index in indices:
        yield s.Split(name, span, why, index, (None, tiles[index]), (f"{index}.tile", f"{index}.in"))
    yield s.Reorder(
        name, span, why, (f"{product.rows}.tile", *(f"{i}.tile" for i in outer), *(f"{i}.in" for i in indices))
    )
    block, initial = f"{name}.tile", f"{name}.initial"
    yield s.Blockize(name, span, why, f"{product.rows}.in", block)
    yield s.BindWarps(name, span, why, f"{product.rows}.tile", warps)
    yield s.DecomposeBlock(name, span, "initial values before the sum", f"{outer[0]}.tile", block, initial, 1)
    for index in outer:
        yield s.Unroll(name, span, why, f"{index}.tile")
    if product.initial_reads:
        kept = (product.left, product.right, product.stage.tensor)
        yield s.HideReads(name, span, "what only the initial value reads", (name, block), kept)
    intrinsic = _intrinsic(product, tiles, tensors)
    yield s.Tensorize(name, span, why, f"{product.rows}.in", intrinsic)
    yield s.InitialLanes(name, span, why, product.instruction, initial)


def _intrinsic(product: Product, tiles: Mapping[str, int], tensors: Mapping[str, Tensor]) -> str:
    dtype = tensors[product.left].dtype
    if not by_descriptor(product.instruction):
        return intrinsic_name(product.instruction, dtype, product.stored, product.left_stored)
    columns, depth = tiles[product.columns], tiles[product.contract]
    return whole_name(product.instruction, columns, depth, dtype, product.stored, tensors[product.right].swizzle)
