"""Facts that need no compiler: bytes of every memory, launch sizes, bank conflicts of declared layouts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import evolve

from kdsl.check.evaluate import NotStatic, Undecided
from kdsl.check.model import DTYPE_BYTES, Instruction, Kernel
from kdsl.contract.banks import SWIZZLE_BITS, ldmatrix_degree
from kdsl.contract.linked import Shared
from kdsl.contract.resources import MemoryUse, Setting, grid_extents, memory_use
from kdsl.contract.verdict import Fact
from kdsl.source.diagnostic import Evidence

MEMORY_FACTS = {"shared": "shared_bytes", "stack": "stack_bytes", "workspace": "workspace_bytes"}


def plan_facts(setting: Setting, kernels: Iterable[Kernel]) -> tuple[dict[str, Fact], list[MemoryUse]]:
    """Facts by key (`recurrence/shared_bytes`), and what memories hold; nothing where a call decides."""
    facts: dict[str, Fact] = {}
    uses: list[MemoryUse] = []
    kernels = tuple(kernels)
    for kernel in kernels:
        for memory, name in MEMORY_FACTS.items():
            try:
                use = memory_use(setting, kernel, (memory,)).get(memory, MemoryUse(kernel.name, memory, ()))
            except (Undecided, NotStatic):
                continue
            facts[f"{kernel.name}/{name}"] = Fact(use.bytes, "bytes")
            if use.buffers:
                uses.append(use)
        for axis, count in grid_extents(setting, kernel).items():
            if count is not None:
                name = "grid_tasks" if axis == "task" else f"grid_{axis}"
                facts[f"{kernel.name}/{name}"] = Fact(count, "tasks" if axis == "task" else "blocks")
    return with_warps_beside(facts, uses, kernels)


def with_warps_beside(
    facts: Mapping[str, Fact], uses: Iterable[MemoryUse], kernels: Iterable[Kernel]
) -> tuple[dict[str, Fact], list[MemoryUse]]:
    """The facts with the shared memory of launches in place of that of kernels which have others' warps in their
    blocks: theirs as well, once for each of their groups, and two barriers for each slot."""
    facts, shared = dict(facts), {use.kernel: use for use in uses if use.memory == "shared"}
    uses = list(uses)
    for kernel in kernels:
        homes = [home for home in kernel.homes.values() if home.beside is not None]
        beside = homes[0].beside if homes else None
        key, other = f"{kernel.name}/shared_bytes", facts.get(f"{beside}/shared_bytes")
        if other is None or key not in facts:
            continue
        groups = int(homes[0].attributes.get("ring", 1))
        block = Shared(int(facts[key].value), int(other.value), groups)
        facts[key] = evolve(facts[key], value=block.total)
        if beside in shared and kernel.name in shared:
            more = [evolve(buffer, slots=buffer.slots * groups) for buffer in shared[beside].buffers]
            buffers = sorted([*shared[kernel.name].buffers, *more], key=lambda buffer: -buffer.bytes)
            uses = [evolve(u, buffers=tuple(buffers)) if u is shared[kernel.name] else u for u in uses]
    return facts, uses


def conflict_degree(row_bytes: int, pad: int, swizzle: int, dtype: str) -> int:
    """Wavefronts of one ldmatrix over the ideal, for a tensor with rows of `row_bytes` padded by `pad`
    elements.
    """
    return ldmatrix_degree(row_bytes, pad * DTYPE_BYTES[dtype], swizzle if swizzle in SWIZZLE_BITS else 0)


def loads_with(instruction: Instruction | None) -> str | None:
    """What brings the instruction's operands from shared memory into registers."""
    value = instruction.fields.get("loads") if instruction is not None else None
    return str(value) if value is not None else None


def conflict_fact(degrees: Mapping[str, int]) -> dict[str, Fact]:
    """The worst conflict, where it is one: accesses whose layout is not declared can only add to it."""
    worst = max(degrees.values(), default=1)
    facts = {
        f"bank_conflicts({tensor})": Fact(float(degree), "", Evidence.SIMULATED)
        for tensor, degree in degrees.items()
    }
    if worst >= 2:
        facts["bank_conflicts"] = Fact(float(worst), "", Evidence.SIMULATED)
    return facts
