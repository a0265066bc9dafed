"""What must hold of every derived kernel, whatever made it: rows lie where copies and matrix loads reach them, warps
hold all rows of a fragment, and what leaves a block leaves one block only."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from kdsl.check.model import DTYPE_BYTES, Kernel, Operator, Role
from kdsl.plan.cuda.fragments import TILE
from kdsl.plan.model import KernelPlan, PlannedStage, Tensor
from kdsl.plan.refusal import PlanRefused
from kdsl.source.span import Span


def refuse_misaligned(pieces: Iterable[tuple[Tensor, int, str]]) -> None:
    """`pieces` are tensors in shared memory with the bytes that are accessed at once there, and by what."""
    for tensor, size, what in pieces:
        row = tensor.shape[tensor.stored[-1]]
        item = DTYPE_BYTES[tensor.dtype]
        if len(tensor.shape) < 2 or (row + tensor.pad) * item % size == 0:
            continue
        near = next(pad for pad in range(tensor.pad, tensor.pad + size) if (row + pad) * item % size == 0)
        raise PlanRefused(
            "D356", f"rows of `{tensor.name}` lie {(row + tensor.pad) * item} bytes apart, and {what} {size} at once",
            tensor.span, observed=f"{row} + {tensor.pad} elements of {item} bytes",
            required=f"a multiple of {size} bytes", help=(f"`pad {near}` keeps every row aligned",),
        )  # fmt: skip


def refuse_other_readers(
    stages: Iterable[PlannedStage], tensors: Mapping[str, Tensor], in_pieces: Container[str]
) -> None:
    """A swizzled tensor is read in whole pieces of 16 bytes: by matrix loads, and by stages that only move it.
    `in_pieces` are the stages that do."""
    for tensor in tensors.values():
        if not tensor.swizzle:
            continue
        row = (tensor.panel or tensor.shape[tensor.stored[-1]]) * DTYPE_BYTES[tensor.dtype]
        readers = [s.name for s in stages if s.name not in in_pieces and tensor.name in reads_by_name(s)]
        where = f"swizzle {tensor.swizzle}"
        if tensor.memory != "shared" or tensor.pad or row & (row - 1) or row < tensor.swizzle:
            found = f"rows of {row} bytes in {tensor.memory}{f', pad {tensor.pad}' if tensor.pad else ''}"
            needed = f"rows of a power of two bytes, {tensor.swizzle} or more, in shared memory"
        elif readers:
            found = f"stage `{readers[0]}` reads it"
            needed = "readers that are products of a matrix instruction, or move 16 bytes of it at once"
        else:
            continue
        raise PlanRefused("D359", f"`{tensor.name}` cannot be laid out with `{where}`", tensor.span, observed=found,
                          required=needed, help=("use a pad",))  # fmt: skip


def reads_by_name(stage: PlannedStage) -> set[str]:
    """Tensors that a stage or a part of it reads, under the names it reads them by."""
    found = {stage.source.tensor} if stage.source is not None else set()
    for part in stage.unrolled:
        if part.stage is not None:
            found |= {part.renamed.get(read.tensor, read.tensor) for read in part.stage.reads}
    return found


def refuse_uncovered_rows(tensors: Mapping[str, Tensor], role: Role, span: Span) -> None:
    """The warps hold all rows of a fragment, a tile each; warps beyond the last tile have none."""
    for tensor in tensors.values():
        if tensor.fragment is None:
            continue
        rows = tensor.fragment.rows
        extent, held = tensor.shape[tensor.indices.index(rows)], role.warps * TILE
        if extent > held:
            raise PlanRefused(
                "D355", f"{role.warps} warps hold {held} rows `{rows}` of `{tensor.name}`, which has {extent}", span,
                observed=f"{role.warps} warps of {TILE} rows", required=f"{extent // TILE} warps",
                help=(f"deal `{rows} by {held}` over the grid, or give the role {extent // TILE} warps",),
            )  # fmt: skip


def refuse_shared_results(operator: Operator, kernel: Kernel, plan: KernelPlan) -> None:
    """A tensor that leaves the block is written by one block: it has every index that the grid deals."""
    outputs = {name for name, view in operator.views.items() if operator.ports[view.port].written}
    spans = {index: axis.span for axis in kernel.grid for index, _ in axis.indices}
    dealt = [index for index in spans if operator.indices[index].mode == "local"]
    for stage in plan.stages:
        tensor = plan.tensors.get(stage.tensor)
        leaves = stage.tensor in outputs or (tensor is not None and tensor.scope in ("call", "passed"))
        for index in dealt if leaves else ():
            if index not in stage.indices:
                raise PlanRefused(
                    "D357", f"`{stage.tensor}` has no index `{index}`, so every block along `{index}` would write it",
                    spans[index], observed=f"`{index}` in the grid of kernel `{plan.name}`",
                    required="one block for each element of a result", help=(f"leave `{index}` out of this grid",),
                )  # fmt: skip
