"""Kernels of one launch: the warps of both are in every block, and what one makes the other takes from shared memory.

`k_decayed : bf16 in shared swizzle 128 ring 4 via prepare` says that the tensor comes from the warps of `prepare`. They
work on four steps at a time, a group of warps on each, and a step's tensors stay in one of four slots until the other
warps have used them. Barriers of shared memory (mbarriers) say when a slot is full and when it is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from attrs import evolve

from kdsl.check.model import Home, Kernel, RulePoint
from kdsl.plan.homes import rounded_name
from kdsl.plan.model import KernelPlan, PlannedStage, Tensor
from kdsl.plan.refusal import PlanRefused

# where the kernels are launches of their own
PIECE = 16  # bytes of a copy
PAD = 8  # elements of a row that is not swizzled


def takers(point: RulePoint, kernel: Kernel) -> dict[str, str]:
    """Tensors of a kernel that warps beside its own take, and the kernels of these."""
    return {home.tensor: other.name for other in point.kernels for home in other.homes.values()
            if home.beside == kernel.name}  # fmt: skip


def handed(point: RulePoint, kernel: Kernel) -> frozenset[str]:
    """The same tensors under the names they have in the kernel: the copy for a reader, if there is one."""
    taken = takers(point, kernel)
    copies = {name: rounded_name(name, home) for name in taken for home in kernel.views.get(name, ())
              if taken[name] in home.readers}  # fmt: skip
    return frozenset(copies.get(name, name) for name in taken)


def passed_on(tensors: Mapping[str, Tensor], names: frozenset[str]) -> dict[str, Tensor]:
    """The tensors, those of these names as what lies in a slot for another kernel. Raises PlanRefused."""
    found = dict(tensors)
    for name in names & set(tensors):
        if tensors[name].memory != "shared":
            raise PlanRefused(
                "D363", f"`{name}` goes to warps beside from shared memory", tensors[name].span,
                observed=f"in {tensors[name].memory}", required="in shared",
                help=("place it `in shared`, or add a copy for the kernel that takes it",),
            )  # fmt: skip
        found[name] = evolve(tensors[name], scope="passed")
    return found


def parted(stages: Iterable[PlannedStage], which: Callable[[PlannedStage], bool]):
    """Those that it is true of, and the others."""
    stages = tuple(stages)
    return tuple(s for s in stages if which(s)), tuple(s for s in stages if not which(s))


def beside_of(kernel: Kernel, arrivals: tuple[PlannedStage, ...]) -> str | None:
    """The one kernel that a kernel's tensors come from. Raises PlanRefused."""
    names = dict.fromkeys(kernel.homes[stage.tensor].beside for stage in arrivals)
    if len(names) > 1:
        raise PlanRefused(
            "D362", f"kernel `{kernel.name}` takes tensors from {len(names)} kernels beside it", kernel.span,
            observed=", ".join(map(str, names)), required="one", help=("leave the others in the workspace",),
        )  # fmt: skip
    return next(iter(names), None)


def with_passes(kernels: list[KernelPlan]) -> tuple[KernelPlan, ...]:
    """The kernels, those that pass tensors with the rings that take them. Raises PlanRefused."""
    by_name = {kernel.name: kernel for kernel in kernels}
    found = dict(by_name)
    for kernel in kernels:
        if kernel.beside is None:
            continue
        giver = by_name.get(kernel.beside)
        if giver is None:
            raise PlanRefused("D362", f"no kernel `{kernel.beside}` comes before `{kernel.name}`", kernel.span,
                              observed=f"via {kernel.beside}", required="a kernel of the rule, made before")  # fmt: skip
        refuse_apart(kernel, giver)
        rings = {there: kernel.tensors[here] for here, there in kernel.passed.items()}
        found[giver.name] = evolve(giver, passes=rings)
    return tuple(found.values())


def refuse_apart(kernel: KernelPlan, giver: KernelPlan) -> None:
    """Both have to have the same tasks and steps, and all that one leaves has to go to the other, in equal rings."""
    unlike = {here for here, there in kernel.passed.items() if layout(kernel.tensors[here]) != layout(giver.tensors[there])}
    left = {name for name, tensor in giver.tensors.items() if tensor.scope == "call"}
    rings = {kernel.tensors[name].ring for name in kernel.passed}
    groups = next(iter(rings))
    warps = (kernel.threads[1], groups * giver.threads[1])
    for wrong, what, found, needed in (
        (kernel.grid != giver.grid, "have different grids", f"{grid_text(giver)} and {grid_text(kernel)}", "one grid"),
        (kernel.sequential is None or kernel.sequential != giver.sequential, "step through different indices",
         f"{giver.sequential} and {kernel.sequential}", "one index outside of both grids"),
        (bool(left), f"do not share all that `{giver.name}` leaves", ", ".join(sorted(left)),
         f"`via {giver.name}` for every tensor"),
        (bool(unlike), "lay out what they share differently", ", ".join(sorted(unlike)), "one swizzle, pad and dtype"),
        (len(rings) > 1, "share rings of different depths", ", ".join(map(str, sorted(rings))), "one depth"),
        (bool(giver.carries), f"cannot take steps in turn: `{giver.name}` carries a tensor from step to step",
         ", ".join(carry.tensor for carry in giver.carries), "steps that do not depend on each other"),
        (any(count % 4 for count in warps), "do not fill groups of four warps, which registers are dealt to",
         f"{warps[0]} warps and {groups} times {giver.threads[1]}", "multiples of 4"),
    ):  # fmt: skip
        if wrong:
            raise PlanRefused("D363", f"kernels `{giver.name}` and `{kernel.name}` {what}", kernel.span,
                              observed=found, required=needed)  # fmt: skip


def layout(tensor: Tensor) -> tuple:
    return tensor.dtype, tensor.pad, tensor.swizzle


def grid_text(kernel: KernelPlan) -> str:
    return "; ".join(f"{axis} : {', '.join(loop.name for loop in loops)}" for axis, loops in kernel.grid)


def apart(point: RulePoint) -> RulePoint:
    """The same rule with every kernel a launch of its own: what passes between them lies in the workspace."""
    kernels = (evolve(kernel, **stored(kernel, takers(point, kernel))) for kernel in point.kernels)
    return evolve(point, kernels=tuple(evolve(kernel, homes=fetched(kernel)) for kernel in kernels))


def stored(kernel: Kernel, taken: Mapping[str, str]) -> dict[str, dict]:
    """Homes and copies of a kernel that puts into the workspace what it left in shared memory for warps beside."""
    homes, views = dict(kernel.homes), dict(kernel.views)
    for name, reader in taken.items():
        if not any(reader in copy.readers for copy in views.get(name, ())):
            homes[name] = evolve(homes[name], attributes={"pad": PAD} if "swizzle" in homes[name].attributes else {})
            views[name] = (*views.get(name, ()), evolve(homes[name], readers=(reader,)))
        views[name] = tuple(
            evolve(copy, memory="workspace", attributes={}) if reader in copy.readers else copy for copy in views[name]
        )
    return {"homes": homes, "views": views}


def fetched(kernel: Kernel) -> dict[str, Home]:
    """The homes of a kernel, with copies in place of what warps beside it pass; all rings are then of one depth."""
    depths = [home.attributes["ring"] for home in kernel.homes.values() if "ring" in home.attributes and not home.beside]
    copied = {"via": "cp.async", "via.bytes": PIECE, **({"ring": depths[0]} if depths else {})}
    return {
        name: evolve(home, attributes={**home.attributes, **copied}) if home.beside else home
        for name, home in kernel.homes.items()
    }
