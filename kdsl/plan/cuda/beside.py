"""Kernels of one launch: the warps of both are in every block, and what one makes the other takes from shared memory.

`k_decayed : bf16 in shared swizzle 128 ring 4 via prepare` says that the tensor comes from the warps of `prepare`. They
work on four steps at a time, a group of warps on each, and a step's tensors stay in one of four slots until the other
warps have used them. Barriers of shared memory (mbarriers) say when a slot is full and when it is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from attrs import evolve

from kdsl.check.model import Home, Kernel, RulePoint
from kdsl.plan.cuda.loads import is_load
from kdsl.plan.cuda.warp import LANES
from kdsl.plan.homes import rounded_name
from kdsl.plan.model import KernelPlan, PlannedStage, Tensor
from kdsl.plan.refusal import PlanRefused

WARPS, BARRIERS = 32, 16  # warps of a block, named barriers of a block
KEPT = 2  # barriers that are no group's: of all threads, and of the warps that take
FEW, MANY, STEP = 24, 248, 8  # registers of a thread that `setmaxnreg` deals: from, to, multiples of
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


def beside_of(kernel: Kernel, arrivals: tuple[PlannedStage, ...], tensors: Container[str]) -> str | None:
    """The one kernel that a kernel's tensors come from. Raises PlanRefused."""
    arriving = {stage.tensor for stage in arrivals}
    for name, home in kernel.homes.items():
        if home.beside is not None and name in tensors and name not in arriving:
            raise PlanRefused(
                "D362", f"`{name}` does not come from another kernel", home.span, observed=f"via {home.beside}",
                required=f"a tensor that `{home.beside}` computes", help=("fetch it with `via cp.async of 16 bytes`",),
            )  # fmt: skip
    names = dict.fromkeys(kernel.homes[stage.tensor].beside for stage in arrivals)
    if len(names) > 1:
        raise PlanRefused(
            "D362", f"kernel `{kernel.name}` takes tensors from {len(names)} kernels beside it", kernel.span,
            observed=", ".join(map(str, names)), required="one", help=("leave the others in the workspace",),
        )  # fmt: skip
    return next(iter(names), None)


def with_passes(kernels: list[KernelPlan], registers: int) -> tuple[KernelPlan, ...]:
    """The kernels, those that pass tensors with the rings that take them. A multiprocessor has so many `registers`.

    Raises PlanRefused.
    """
    found = {kernel.name: kernel for kernel in kernels}
    for kernel in kernels:
        if kernel.beside is None:
            refuse_dealing_alone(kernel, kernels)
            continue
        giver = found.get(kernel.beside)
        refuse_other_givers(kernel, giver)
        refuse_apart(kernel, giver)
        left = registers_left(kernel, giver, registers)
        rings = {there: kernel.tensors[here] for here, there in kernel.passed.items()}
        found[giver.name] = evolve(giver, passes=rings, registers=left)
    return tuple(found.values())


def refuse_dealing_alone(kernel: KernelPlan, kernels: Iterable[KernelPlan]) -> None:
    """Registers are dealt where kernels share a launch, by the one that takes what the other makes."""
    if kernel.registers is None:
        return
    taker = next((other.name for other in kernels if other.beside == kernel.name), None)
    help_ = f"say it at the role of `{taker}`: the others have what it leaves" if taker else \
        f"drop it; `pin {{ {kernel.name}.blocks_per_sm = N }}` bounds the registers of a kernel by itself"
    raise PlanRefused("D363", f"kernel `{kernel.name}` has nobody to take registers from", kernel.span,
                      observed=f"registers {kernel.registers}", required="a tensor `via` a kernel beside it",
                      help=(help_,))  # fmt: skip


def refuse_other_givers(kernel: KernelPlan, giver: KernelPlan | None) -> None:
    """It has to make what it passes, for one kernel, and take nothing from a third one."""
    if giver is None:
        raise PlanRefused("D362", f"no kernel `{kernel.beside}` comes before `{kernel.name}`", kernel.span,
                          observed=f"via {kernel.beside}", required="a kernel of the rule above this one")  # fmt: skip
    made = {name for name, tensor in giver.tensors.items() if tensor.scope == "passed"}
    others = [here for here, there in kernel.passed.items() if there not in made]
    for wrong, what, found, needed in (
        (bool(others), f"does not compute {', '.join(f'`{name}`' for name in others)}", f"via {giver.name}",
         "the kernel that computes it"),
        (giver.beside is not None, f"takes tensors from `{giver.beside}` itself", f"via {giver.beside}",
         "kernels of one launch in pairs"),
        (bool(giver.passes), f"passes tensors to another kernel as well as to `{kernel.name}`", "two kernels",
         "one: leave the tensors of the other in the workspace"),
    ):  # fmt: skip
        if wrong:
            raise PlanRefused("D362", f"kernel `{giver.name}` {what}", kernel.span, observed=found, required=needed)


def refuse_apart(kernel: KernelPlan, giver: KernelPlan) -> None:
    """Both have to have the same tasks and steps, and all that one leaves has to go to the other, in equal rings."""
    unlike = {here for here, there in kernel.passed.items()
              if layout(kernel.tensors[here]) != layout(giver.tensors[there])}  # fmt: skip
    left = {name for name, tensor in giver.tensors.items() if tensor.scope == "call"}
    rings = {kernel.tensors[name].ring for name in kernel.passed}
    groups = groups_of(kernel)
    warps = (kernel.threads[1], groups * giver.threads[1])
    dealt = f"{warps[0]} warps and {groups} times {giver.threads[1]}"
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
         dealt, "multiples of 4"),
        (sum(warps) > WARPS, "have more warps than a block", dealt, f"at most {WARPS} warps"),
        (groups > BARRIERS - KEPT, "have more groups than there are named barriers", f"{groups} groups",
         f"rings of at most {BARRIERS - KEPT} slots"),
    ):  # fmt: skip
        if wrong:
            raise PlanRefused("D363", f"kernels `{giver.name}` and `{kernel.name}` {what}", kernel.span,
                              observed=found, required=needed)  # fmt: skip


def groups_of(kernel: KernelPlan) -> int:
    """Groups of warps that make what a kernel takes: one for each slot of its rings."""
    return next(kernel.tensors[name].ring for name in kernel.passed)


def registers_left(kernel: KernelPlan, giver: KernelPlan, registers: int) -> int | None:
    """What a thread of the giving kernel has of a multiprocessor's registers when one of the other has its own, in the
    steps of the instruction that deals them out; a block starts with as many for each. Raises PlanRefused."""
    if kernel.registers is None:
        return None
    takers, givers = kernel.threads[1], groups_of(kernel) * giver.threads[1]
    each = registers // (LANES * (takers + givers)) // STEP * STEP
    left = min((each * (takers + givers) - kernel.registers * takers) // givers // STEP * STEP, MANY)
    most = min((each * (takers + givers) - FEW * givers) // takers // STEP * STEP, MANY)
    if kernel.registers % STEP or not FEW <= kernel.registers <= most:
        raise PlanRefused(
            "D363", f"registers cannot be dealt to {LANES * takers} threads of `{kernel.name}` by {kernel.registers}",
            kernel.span, observed=f"{kernel.registers}, which leaves {left} to each thread of `{giver.name}`",
            required=f"a multiple of {STEP} from {FEW} to {most}",
        )  # fmt: skip
    return left


def layout(tensor: Tensor) -> tuple:
    return tensor.dtype, tensor.pad, tensor.swizzle


def grid_text(kernel: KernelPlan) -> str:
    return "; ".join(f"{axis} : {', '.join(loop.name for loop in loops)}" for axis, loops in kernel.grid)


def apart(point: RulePoint) -> RulePoint:
    """The same rule with every kernel a launch of its own: what passes between them lies in the workspace."""
    kernels = (evolve(kernel, **stored(kernel, takers(point, kernel))) for kernel in point.kernels)
    return evolve(point, kernels=tuple(map(alone, kernels)))


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


def alone(kernel: Kernel) -> Kernel:
    """The kernel with copies in place of what warps beside it pass, and all registers; rings are of one depth."""
    homes, roles = kernel.homes, kernel.roles
    copies = [home for home in homes.values() if not home.beside and not is_load(home)]
    depths = [home.attributes["ring"] for home in copies if "ring" in home.attributes]
    copied = {"via": "cp.async", "via.bytes": PIECE, **({"ring": depths[0]} if depths else {})}
    return evolve(
        kernel,
        homes={name: fetched(home, copied) if home.beside else home for name, home in homes.items()},
        roles={name: evolve(role, registers=None) for name, role in roles.items()},
    )


def fetched(home: Home, copied: dict[str, object]) -> Home:
    return evolve(home, attributes={**home.attributes, **copied})
