"""Where every tensor of a kernel lives, and the rounded copies that views ask for."""

from __future__ import annotations

from collections.abc import Mapping

from kdsl.check.evaluate import evaluate
from kdsl.check.model import Graph, Home, Kernel, Operator
from kdsl.plan.model import Decision, Tensor
from kdsl.plan.pins import Pins
from kdsl.plan.refusal import PlanRefused


def extents(operator: Operator, settings: Mapping[str, object], kernel: Kernel) -> dict[str, int]:
    """The extent of every index that shapes tensors, inside one block: an index in tiles has a tile's."""
    sizes = {
        name: evaluate(index.extent, settings) for name, index in operator.indices.items() if index.mode == "local"
    }
    for axis in kernel.grid:
        for index, tile in axis.indices:
            if index in sizes and tile > 1:
                if sizes[index] % tile:
                    raise PlanRefused(
                        "E120", f"`{index} by {tile}`: {sizes[index]} is not a multiple of {tile}", axis.span
                    )
                sizes[index] = tile
    return sizes


def tensor_indices(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Every tensor that the graph makes, with its indices."""
    found = {carry.tensor: carry.indices for carry in graph.carries}
    found.update({stage.tensor: stage.indices for stage in graph.stages})
    return found


def place(
    operator: Operator, graph: Graph, kernel: Kernel, default: str, settings: Mapping[str, object], pins: Pins
) -> tuple[dict[str, Tensor], list[Decision]]:
    """The home of every tensor that the kernel makes; what the rule leaves out goes to memory `default`."""
    sizes = extents(operator, settings, kernel)
    carried = {carry.tensor: carry for carry in graph.carries}
    tensors: dict[str, Tensor] = {}
    decisions: list[Decision] = []
    for name, indices in {**tiles(operator, graph, kernel), **tensor_indices(graph)}.items():
        if name in operator.views and name not in kernel.homes:
            continue
        home = kernel.homes.get(name)
        spare = "registers" if default == "shared" and not indices else default  # a number, which all threads compute
        dtype, memory = _home(name, home, spare, pins, decisions)
        span = home.span if home is not None else kernel.span
        scope = "call" if memory == "workspace" else "carried" if name in carried else "step"
        attributes = home.attributes if home is not None else {}
        tensors[name] = Tensor(
            name, indices, tuple(sizes[i] for i in indices), dtype, memory, scope, span,
            order=tuple(attributes.get("order", ())), pad=int(attributes.get("pad", 0)),
            ring=int(attributes.get("ring", 1)), swizzle=int(attributes.get("swizzle", 0)),
        )  # fmt: skip
    return tensors, decisions


def tiles(operator: Operator, graph: Graph, kernel: Kernel) -> dict[str, tuple[str, ...]]:
    """Views that the kernel reads and that the rule gives a home: fetched once a step, read from there."""
    read = {read.tensor for stage in graph.stages for read in stage.reads}
    return {name: view.indices for name, view in operator.views.items() if name in read and name in kernel.homes}


def received(operator: Operator, graph: Graph, kernel: Kernel, made: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that the kernel reads and others made: they lie in the workspace. `made` holds those of others."""
    own = set(tensor_indices(graph)) | set(operator.views)
    found: dict[str, Tensor] = {}
    for stage in graph.stages:
        for read in stage.reads:
            if read.tensor in own or read.tensor in found:
                continue
            tensor = made.get(f"{read.tensor}_for_{kernel.name}") or made.get(read.tensor)
            if tensor is None or tensor.scope != "call":
                raise PlanRefused(
                    "E402", f"`{read.tensor}` goes to stage `{stage.name}` of kernel `{kernel.name}`, but the kernel"
                    " that makes it never puts it into the workspace",
                    tensor.span if tensor is not None else kernel.span,
                    help=(f"add `{read.tensor} : f32 in workspace` where it is made",),
                )  # fmt: skip
            found[read.tensor] = tensor
    return found


def _home(name: str, home: Home | None, default: str, pins: Pins, decisions: list[Decision]) -> tuple[str, str]:
    if home is not None:
        return home.dtype or "f32", home.memory
    pinned = pins.names(name, "home")
    dtype, memory = pinned if pinned is not None and len(pinned) == 2 else ("f32", default)
    decisions.append(Decision(name, "home", (dtype, memory), "the rule does not place it"))
    return dtype, memory


def rounded_name(tensor: str, home: Home) -> str:
    return f"{tensor}_for_{home.readers[0]}"
