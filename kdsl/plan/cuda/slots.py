"""Tensors that copies or other warps bring to shared memory for a step, and the slots that they land in."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from attrs import evolve

from kdsl.check.model import LOAD, Kernel, Read
from kdsl.plan.homes import extents, over
from kdsl.plan.model import Loop, PlannedStage, Tensor
from kdsl.plan.refusal import PlanRefused
from kdsl.plan.request import KernelRequest
from kdsl.syntax import nodes as n


def copied(name: str, kernel: Kernel, source: Tensor, settings: Mapping, request: KernelRequest) -> PlannedStage:
    """The stage that fetches a workspace tensor into the kernel's own memory."""
    sizes = extents(request.operator, settings, kernel)
    span = kernel.homes[name].span
    loops = tuple(Loop(index, sizes[index], "spatial") for index in source.indices)
    read = Read(f"{name}.workspace", tuple(n.Name(span, i) for i in source.indices), span)
    return PlannedStage(f"{name}_copy", "copy", name, source.indices, loops, None, read, {}, span)


def first_copies(copies, tensors: Mapping[str, Tensor], kernel: Kernel) -> tuple[tuple[PlannedStage, ...], ...]:
    """The same fetches for each step that no earlier step fetches for: as many as a ring has further slots."""
    rings = {tensors[stage.tensor].ring for stage in copies}
    if len(rings) > 1:
        raise PlanRefused(
            "D349", f"kernel `{kernel.name}`: its rings have depths {sorted(rings)}", kernel.span,
            required="one depth for every tensor that is fetched for a step",
        )  # fmt: skip
    steps = range(max(rings, default=1) - 1)
    suffixes = [f"_first_{step}" if len(steps) > 1 else "_first" for step in steps]
    return tuple(tuple(evolve(stage, name=stage.name + suffix) for stage in copies) for suffix in suffixes)


def shared_copy(stage: PlannedStage, kernel: Kernel, source: Tensor) -> Tensor:
    """The tensor that a copy from the workspace fills: as much of it as the block uses."""
    name, home = stage.tensor, kernel.homes[stage.tensor]
    dtype = home.dtype or source.dtype
    if home.memory != "shared" or dtype != source.dtype:
        raise PlanRefused(
            "D347", f"`{name}` comes from the workspace as {source.dtype}", home.span,
            observed=f"{dtype} in {home.memory}", required=f"{source.dtype} in shared",
        )  # fmt: skip
    attributes = home.attributes
    shape = tuple(loop.extent for loop in stage.loops)
    return Tensor(
        name, source.indices, shape, dtype, "shared", "step", home.span, pad=int(attributes.get("pad", 0)),
        ring=int(attributes.get("ring", 1)), swizzle=int(attributes.get("swizzle", 0)), over=over(attributes),
    )  # fmt: skip


def refuse_fetched_starts(request: KernelRequest, incoming: Mapping[str, Tensor]) -> None:
    """What a carry starts with is read where it lies, once; fetches are for the stages of a step."""
    for read in (read for carry in request.graph.carries for read in carry.reads):
        if read.tensor in incoming and read.tensor in request.kernel.homes:
            home = request.kernel.homes[read.tensor]
            raise PlanRefused(
                "D347", f"`{read.tensor}` comes from the workspace before the first step", home.span,
                observed=f"in {home.memory}", required="no place: a carry starts with it",
                help=("drop the line",),
            )  # fmt: skip


def refuse_idle_slots(kernel: Kernel, tensors: Iterable[Tensor], landing: Container[str], steps: str | None) -> None:
    """A ring holds what comes ahead of its step: in a kernel that steps, a copy or what other warps pass."""
    rings = [(tensor.name, tensor.ring, tensor.span) for tensor in tensors if tensor.name not in landing]
    for home in (home for homes in kernel.views.values() for home in homes):
        rings.append((home.tensor, int(home.attributes.get("ring", 1)), home.span))
    found = "made in the step that reads it"
    required = f"`via cp.async of 16 bytes`, in registers `via {LOAD}`, or `via` a kernel above"
    if steps is None:
        found, required = f"no steps in kernel `{kernel.name}`", "a kernel that steps through an index"
    for name, slots, span in rings:
        if slots > 1:
            raise PlanRefused("D366", f"`{name}` has a ring of {slots} slots and fills one", span, observed=found,
                              required=required, help=("drop its ring",))  # fmt: skip
