"""Where every tensor of a kernel lives, and the rounded copies that views ask for."""

from __future__ import annotations

from collections.abc import Mapping

from kdsl.check.evaluate import evaluate
from kdsl.check.graph import tensor_steps
from kdsl.check.model import Carry, Graph, Home, Kernel, Operator
from kdsl.plan.model import Decision, Tensor
from kdsl.plan.pins import Pins
from kdsl.plan.refusal import PlanRefused


def extents(operator: Operator, settings: Mapping[str, object], kernel: Kernel) -> dict[str, int]:
    """The extent of every index that shapes tensors, inside one block: an index in tiles has a tile's."""
    sizes = whole_extents(operator, settings)
    for axis in kernel.grid:
        for index, tile in axis.indices:
            if index in sizes and tile > 1:
                if sizes[index] % tile:
                    raise PlanRefused(
                        "E120", f"`{index} by {tile}`: {sizes[index]} is not a multiple of {tile}", axis.span
                    )
                sizes[index] = tile
    return sizes


def whole_extents(operator: Operator, settings: Mapping[str, object]) -> dict[str, int]:
    """The same, over all blocks: what a tensor in the workspace has."""
    return {name: evaluate(index.extent, settings) for name, index in operator.indices.items() if index.mode == "local"}


def tensor_indices(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Every tensor that the graph makes, and views that it writes, with their indices."""
    found = {carry.tensor: carry.indices for carry in graph.carries}
    found.update({carry.end.tensor: carry.indices for carry in graph.carries if carry.end is not None})
    found.update({stage.tensor: stage.indices for stage in graph.stages})
    return found


def place(
    operator: Operator, graph: Graph, kernel: Kernel, default: str, settings: Mapping[str, object], pins: Pins
) -> tuple[dict[str, Tensor], list[Decision]]:
    """The home of every tensor that the kernel makes; what the rule leaves out goes to memory `default`."""
    sizes, whole = extents(operator, settings, kernel), whole_extents(operator, settings)
    carried = {carry.tensor: carry for carry in graph.carries}
    made_for = tensor_steps(operator, graph.stages, graph.carries)
    left = {carry.end.tensor for carry in graph.carries if carry.end is not None}
    tensors: dict[str, Tensor] = {}
    decisions: list[Decision] = []
    for name, indices in {**tiles(operator, graph, kernel), **tensor_indices(graph)}.items():
        if name in operator.views and name not in kernel.homes:
            continue
        home = kernel.homes.get(name)
        spare = "registers" if default == "shared" and not indices else default  # a number, which all threads compute
        dtype, memory = _home(name, home, spare, pins, decisions)
        span = home.span if home is not None else kernel.span
        if name in left and memory != "workspace":
            raise PlanRefused(
                "E402", f"`{name}` is what a run of kernel `{kernel.name}` leaves, and the kernel does not put it into"
                " the workspace", span, observed=f"in {memory}", required="in workspace",
                help=(f"add `{name} : f32 in workspace` to `{kernel.name}`",),
            )  # fmt: skip
        scope = "call" if memory == "workspace" else "carried" if name in carried else "step"
        attributes = home.attributes if home is not None else {}
        tensors[name] = Tensor(
            name, indices, tuple((whole if scope == "call" else sizes)[i] for i in indices), dtype, memory, scope, span,
            order=tuple(attributes.get("order", ())), pad=int(attributes.get("pad", 0)),
            ring=int(attributes.get("ring", 1)), swizzle=int(attributes.get("swizzle", 0)), over=over(attributes),
            steps=made_for.get(name, operator.steps),
        )  # fmt: skip
    return tensors, decisions


def over(attributes: Mapping[str, object]) -> tuple[str, int] | None:
    """The index that a home deals over warps, and how many of its values each has."""
    axes = attributes.get("over")
    return axes[0] if axes else None


def tiles(operator: Operator, graph: Graph, kernel: Kernel) -> dict[str, tuple[str, ...]]:
    """Views that the kernel reads and that the rule gives a home: fetched once a step, read from there."""
    read = {read.tensor for stage in graph.stages for read in stage.reads}
    return {name: view.indices for name, view in operator.views.items() if name in read and name in kernel.homes}


def received(operator: Operator, graph: Graph, kernel: Kernel, made: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that the kernel reads and others made: they lie in the workspace. `made` holds those of others."""
    own = set(tensor_indices(graph)) | set(operator.views)
    found: dict[str, Tensor] = {}
    readers = [(stage.name, stage.reads) for stage in graph.stages]
    readers += [(load_name(carry), carry.reads) for carry in graph.carries]
    for reader, reads in readers:
        for read in reads:
            if read.tensor in own or read.tensor in found:
                continue
            tensor = made.get(f"{read.tensor}_for_{kernel.name}") or made.get(read.tensor)
            if tensor is None or tensor.scope not in ("call", "passed"):
                raise PlanRefused(
                    "E402", f"`{read.tensor}` goes to stage `{reader}` of kernel `{kernel.name}`, but the kernel"
                    " that makes it never puts it into the workspace",
                    tensor.span if tensor is not None else kernel.span,
                    help=(f"add `{read.tensor} : f32 in workspace` where it is made",),
                )  # fmt: skip
            found[read.tensor] = tensor
    return found


def load_name(carry: Carry) -> str:
    """The stage that sets a carried tensor before its first step."""
    return f"{carry.tensor}_load"


def _home(name: str, home: Home | None, default: str, pins: Pins, decisions: list[Decision]) -> tuple[str, str]:
    if home is not None:
        return home.dtype or "f32", home.memory
    pinned = pins.names(name, "home")
    dtype, memory = pinned if pinned is not None and len(pinned) == 2 else ("f32", default)
    decisions.append(Decision(name, "home", (dtype, memory), "the rule does not place it"))
    return dtype, memory


def rounded_name(tensor: str, home: Home) -> str:
    return f"{tensor}_for_{home.readers[0]}"
