"""Which tensors live in the registers of matrix fragments, and which stages work on them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from attrs import evolve

from kdsl.check.graph import strip
from kdsl.check.model import Graph, Kernel, Role
from kdsl.plan.model import Fragment, PlannedStage, Tensor
from kdsl.plan.refusal import PlanRefused
from kdsl.syntax import nodes as n

TILE = 16


def matrix_instruction(kernel: Kernel, stage: str) -> str | None:
    """The matrix instruction that computes a stage, or None."""
    computation = kernel.computations.get(stage)
    name = computation.instruction if computation is not None else None
    return name if name is not None and name.partition(".")[0] in ("mma", "wgmma", "tcgen05") else None


def row_index(kernel: Kernel, role: Role, stage: str | None = None) -> str | None:
    """The index whose tiles are dealt over the warps, the rows of a fragment: what the stage's own line says, else
    the role's."""
    computation = kernel.computations.get(stage) if stage is not None else None
    dealt = computation.attributes.get("over") if computation is not None else None
    dealt = dealt or role.over
    return dealt[0][0] if dealt else None


def with_fragments(tensors: Mapping[str, Tensor], graph: Graph, kernel: Kernel, role: Role) -> dict[str, Tensor]:
    """Tensors in registers get their fragment: as placed, or as accumulators of the instruction that makes them."""
    makers = {stage.tensor: matrix_instruction(kernel, stage.name) for stage in graph.stages}
    rows = rows_dealt(graph, kernel, role)
    first = next((i for i in makers.values() if i is not None), None)
    found = {}
    for name, tensor in tensors.items():
        if tensor.memory == "registers":
            tensor = evolve(tensor, **_fragment(
                tensor, kernel, rows.get(name, row_index(kernel, role)), makers.get(name) or first
            ))
        found[name] = tensor
    return found


def rows_dealt(graph: Graph, kernel: Kernel, role: Role) -> dict[str, str | None]:
    """The row index of what stages and carries make: that of the stage's line or of the role, or where the tensor has
    no such index, of what it is made from. A carried tensor lies as what it becomes, a copy as its tensor."""
    found: dict[str, str | None] = {}
    for stage in graph.stages:
        rows = row_index(kernel, role, stage.name)
        if rows not in stage.indices:
            others = (found.get(read.tensor) for read in stage.reads)
            rows = next((index for index in others if index in stage.indices), rows)
        found[stage.tensor] = rows
    found |= {carry.tensor: found[carry.next] for carry in graph.carries if carry.next in found}
    copies = {f"{view.tensor}_for_{view.readers[0]}": view.tensor for views in kernel.views.values() for view in views}
    return {**found, **{copy: found[tensor] for copy, tensor in copies.items() if tensor in found}}


def _fragment(tensor: Tensor, kernel: Kernel, rows: str | None, maker: str | None) -> dict:
    placed = kernel.homes.get(tensor.name)
    written = placed.attributes.get("as") if placed is not None else None
    for views in kernel.views.values():
        for view in views:
            if f"{view.tensor}_for_{view.readers[0]}" == tensor.name:
                written = view.attributes.get("as")
    instruction, _, operand = str(written).rpartition(".") if written else (maker, "", "C")
    if instruction is None or rows is None or rows not in tensor.indices or len(tensor.indices) != 2:
        raise PlanRefused(
            "D342", f"`{tensor.name}` is in registers, but no matrix fragment fits it", tensor.span,
            observed=f"indices {', '.join(tensor.indices) or 'none'}; rows dealt over warps: {rows or 'none'}",
            help=(f"place it in shared memory: `{tensor.name} : {tensor.dtype} in shared`",),
        )  # fmt: skip
    (columns,) = (index for index in tensor.indices if index != rows)
    for index, extent in zip(tensor.indices, tensor.shape):
        if extent % TILE:
            raise PlanRefused("E120", f"`{tensor.name}`: {index} = {extent} is not a multiple of {TILE}", tensor.span)
    return {"fragment": Fragment(instruction, operand, rows, columns), "order": (rows, columns)}


def on_fragments(stage: PlannedStage, tensors: Mapping[str, Tensor]) -> Fragment | None:
    """The fragment whose elements a stage that is no product works on, or None."""
    found = (tensors[name].fragment for name in stage.touched if name in tensors)
    return next((fragment for fragment in found if fragment is not None), None)


def by_rows(stage: PlannedStage, fragment: Fragment) -> PlannedStage:
    """The stage with its loops as rows, columns: the order a fragment is mapped in."""
    order = {fragment.rows: 0, fragment.columns: 1}
    loops = sorted(stage.loops, key=lambda loop: order.get(loop.index, 2))
    if tuple(loop.index for loop in loops[:2]) == (fragment.rows, fragment.columns) and len(loops) == 2:
        return evolve(stage, loops=tuple(loops))
    # the same tile with another column index: rows first
    loops = sorted(stage.loops, key=lambda loop: 0 if loop.index == fragment.rows else 1)
    if len(loops) != 2 or loops[0].index != fragment.rows:
        raise PlanRefused(
            "D343", f"stage `{stage.name}` works on fragments of rows {fragment.rows}, but has loops"
            f" {', '.join(loop.index for loop in stage.loops)}", stage.span,
        )  # fmt: skip
    return evolve(stage, loops=tuple(loops))


def refuse_other_lanes(stages: Iterable[PlannedStage], tensors: Mapping[str, Tensor], products: Container[str]) -> None:
    """A stage that is no product works on the elements of a fragment that its own lane holds, one by one."""
    for stage in (part for outer in stages for part in outer.unrolled):
        if stage.name in products or stage.kind == "copy":
            continue
        own = {loop.index for loop in stage.loops if loop.kind == "spatial"}
        for read in stage.stage.reads if stage.stage is not None else ():
            name = stage.renamed.get(read.tensor, read.tensor)
            tensor = tensors.get(name)
            if tensor is None or tensor.fragment is None:
                continue
            indices = tuple(strip(i).text if isinstance(strip(i), n.Name) else "" for i in read.indices)
            row = indices[tensor.indices.index(tensor.fragment.rows)]
            if row == tensor.fragment.rows and set(indices) <= own and not any(x.kind == "reduce" for x in stage.loops):
                continue
            instruction = tensor.fragment.instruction
            raise PlanRefused(
                "D343", f"stage `{stage.name.removesuffix('_sum')}` reads elements of `{name}` that other lanes hold",
                tensor.span, observed=f"`{read.tensor}[{', '.join(i.span.text for i in read.indices)}]` in a fragment"
                f" of {instruction}, the stage over {', '.join(loop.index for loop in stage.loops) or 'nothing'}",
                required=f"a product of {instruction}, or a stage over the fragment's own elements",
                help=(f"add `{stage.name.removesuffix('_sum')} : {instruction}` to compute, or place"
                      f" `{read.tensor}` in shared",),
            )  # fmt: skip
