"""The sblocks of a kernel: its graph stages, and the loads, roundings, commits and stores around them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from attrs import evolve, frozen

from kdsl.check.evaluate import decide
from kdsl.check.graph import as_read, strip
from kdsl.check.model import Carry, Graph, Home, Kernel, Operator, Read, Stage, names_in
from kdsl.plan.homes import extents, load_name, over, rounded_name, tiles, whole_extents
from kdsl.plan.model import Loop, PlannedStage, Tensor
from kdsl.syntax import nodes as n

PRIVATE_MEMORY = {"cpu": "stack", "cuda": "thread"}


@frozen
class KernelStages:
    prologue: tuple[PlannedStage, ...]
    body: tuple[PlannedStage, ...]  # in the operator's order: `order.ordered` comes next
    commits: tuple[PlannedStage, ...]
    epilogue: tuple[PlannedStage, ...]
    copies: tuple[Tensor, ...]


def kernel_stages(
    operator: Operator,
    graph: Graph,
    kernel: Kernel,
    family: str,
    tensors: Mapping[str, Tensor],
    settings: Mapping[str, object],
    private_sum: Callable[[Stage], bool] = lambda stage: False,
    handed: Collection[str] = (),
) -> KernelStages:
    """`private_sum` says which stages sum in registers of a thread before they write; `handed` are copies that warps
    beside take, which wait for room."""
    sizes, whole = extents(operator, settings, kernel), whole_extents(operator, settings)
    prologue, body, commits, epilogue, copies = [], [], [], [], []
    renamed: dict[str, dict[str, str]] = {}
    behind_barriers: dict[str, list[PlannedStage]] = {}
    for tensor, views in kernel.views.items():
        if tensor not in tensors:
            continue
        for home in views:
            copy = _copy(tensors[tensor], home, whole if home.memory == "workspace" else sizes)
            copies.append(copy)
            name = f"{tensor}_round_{home.readers[0]}"
            rounded = _copying("round", name, copy.name, tensor, copy.indices, sizes, home.span)
            late = (home.memory == "workspace" or copy.name in handed) and tensors[tensor].memory == "shared"
            (behind_barriers.setdefault(tensor, []) if late else body).append(rounded)
            for reader in home.readers:
                renamed.setdefault(reader, {})[tensor] = copy.name
    for view, indices in tiles(operator, graph, kernel).items():
        body.append(_copying("tile", f"{view}_tile", view, view, indices, sizes, kernel.homes[view].span))
    for carry in graph.carries:
        prologue.append(_load(carry, sizes))
        commits.append(
            _copying("commit", f"{carry.tensor}_commit", carry.tensor, carry.next, carry.indices, sizes, carry.span)
        )
        if carry.end is not None:
            epilogue.append(
                _copying(
                    "store", f"{carry.tensor}_store", carry.end.tensor, carry.tensor, carry.indices, sizes, carry.span
                )
            )
    for stage in graph.stages:
        planned = _computing(stage, sizes, renamed.get(stage.name, {}), private_sum(stage))
        for read in stage.reads:  # the barrier before the first reader is the copy's as well
            body += behind_barriers.pop(read.tensor, ())
        body.append(planned)
        copies += [sums_of(inner, family) for inner in planned.inner]
    body += [rounded for left in behind_barriers.values() for rounded in left]
    return KernelStages(tuple(prologue), tuple(body), tuple(commits), tuple(epilogue), tuple(copies))


def sums_of(stage: PlannedStage, family: str) -> Tensor:
    shape = tuple(loop.extent for loop in stage.loops if loop.kind == "spatial")
    return Tensor(stage.tensor, stage.indices, shape, "f32", PRIVATE_MEMORY[family], "step", stage.span)


def _copy(tensor: Tensor, home: Home, sizes: Mapping[str, int]) -> Tensor:
    scope = "call" if home.memory == "workspace" else "step"
    shape = tuple(sizes[i] for i in tensor.indices)
    return Tensor(
        rounded_name(tensor.name, home), tensor.indices, shape, home.dtype or tensor.dtype, home.memory, scope,
        home.span, tensor.order, int(home.attributes.get("pad", 0)), swizzle=int(home.attributes.get("swizzle", 0)),
        over=over(home.attributes), steps=tensor.steps,
    )  # fmt: skip


def _loops(indices: tuple[str, ...], sizes: Mapping[str, int]) -> tuple[Loop, ...]:
    return tuple(Loop(index, sizes[index], "spatial") for index in indices)


def _computing(stage: Stage, sizes: Mapping[str, int], renamed: Mapping[str, str], private: bool) -> PlannedStage:
    loops = tuple(Loop(index, sizes[index], "scan" if index == stage.scan else "spatial") for index in stage.indices)
    if stage.reduction is not None:
        loops += tuple(Loop(b.name.text, sizes[b.name.text], "reduce", b.bound) for b in stage.reduction.binders)
    planned = PlannedStage(
        stage.name, "compute", stage.tensor, stage.indices, loops, stage, None, dict(renamed), stage.span
    )
    return with_sum(planned) if stage.reduction is not None and (private or stage.scan is not None) else planned


def sum_name(stage: Stage) -> str:
    """The tensor that holds sums before they are written: of one row of a scan, or of a thread's elements."""
    return f"{stage.tensor}_sum"


def with_sum(planned: PlannedStage) -> PlannedStage:
    """A stage with a sum as two: the sum, then the elements from it. In a scan both run in every row.

    So no block of a scan reads the tensor that it accumulates into, which neither TVM's schedules nor a GPU's
    threads allow, and sums stay in registers. A condition that holds for all terms or for none is asked once, of
    the sum: inside the loop it would keep a compiler from loading several terms at once.
    """
    stage = planned.stage
    condition, summand = common_condition(stage.reduction)
    indices = tuple(index for index in stage.indices if index != stage.scan)
    own = tuple(loop for loop in planned.loops if loop.kind != "scan")
    name = sum_name(stage)
    total = evolve(
        stage, name=f"{stage.name}_sum", tensor=name, indices=indices, initial=None, sign=1, scan=None, kind="reduce",
        reduction=evolve(stage.reduction, body=summand),
    )  # fmt: skip
    summed = n.Reference(stage.span, n.Id(stage.span, name), tuple(n.Name(stage.span, i) for i in indices))
    if condition is not None:
        summed = n.Conditional(stage.span, condition, summed, n.Number(stage.span, "0.0"))
    value = summed
    if stage.initial is not None:
        value = n.Binary(stage.span, "+" if stage.sign > 0 else "-", stage.initial, summed)
    elif stage.sign < 0:
        value = n.Signed(stage.span, "-", summed)
    rest = evolve(stage, reduction=None, initial=value, sign=1)
    inner = evolve(planned, name=total.name, tensor=name, indices=indices, loops=own, stage=total)
    loops = tuple(loop for loop in planned.loops if loop.kind != "reduce")
    return evolve(planned, stage=rest, loops=loops, inner=(inner,))


def common_condition(reduction: n.Reduction) -> tuple[n.Expr | None, n.Expr]:
    """`sum over d of if C then X else 0`, where C does not speak of d, as (C, X); else (None, the body).

    X of a pair that C leaves out may be infinite: it is summed and not chosen.
    """
    body = strip(reduction.body)
    if reduction.operator != "sum" or not isinstance(body, n.Conditional):
        return None, reduction.body
    summed_over = {binder.name.text for binder in reduction.binders}
    if decide(body.otherwise, {}) != 0 or summed_over & set(names_in(body.condition)):
        return None, reduction.body
    return body.condition, body.then


def stored_as_it_is(stage: Stage) -> str | None:
    """The tensor whose elements are those of the result, if the stage is `x[i, j] = y[i, j]`."""
    value = strip(stage.initial) if stage.initial is not None and stage.reduction is None else None
    if not isinstance(value, n.Reference) or tuple(strip(i).span.text for i in value.indices) != stage.indices:
        return None
    return value.name.text


def _copying(kind, name, target, source, indices, sizes, span) -> PlannedStage:
    read = Read(source, tuple(n.Name(span, i) for i in indices), span)
    return PlannedStage(name, kind, target, indices, _loops(indices, sizes), None, read, {}, span)


def _load(carry: Carry, sizes: Mapping[str, int]) -> PlannedStage:
    name, loops, start = load_name(carry), _loops(carry.indices, sizes), strip(carry.start)
    if isinstance(start, n.Reference):
        return PlannedStage(name, "load", carry.tensor, carry.indices, loops, None, as_read(start), {}, carry.span)
    stage = Stage(name, carry.part, carry.tensor, carry.indices, "map", start, None, 1, None, carry.reads, carry.span)
    return PlannedStage(name, "load", carry.tensor, carry.indices, loops, stage, None, {}, carry.span)
