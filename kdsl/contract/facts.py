"""Facts that need no compiler: bytes of every memory, launch sizes, bank conflicts of declared layouts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import evolve

from kdsl.check.evaluate import NotStatic, Undecided
from kdsl.check.model import DTYPE_BYTES, Instruction, Kernel
from kdsl.contract.banks import SWIZZLE_BITS, ldmatrix_degree
from kdsl.contract.resources import MemoryUse, Setting, grid_extents, memory_use
from kdsl.contract.verdict import Fact
from kdsl.source.diagnostic import Evidence

APART, BARRIER_BYTES = 128, 8  # as kdsl/lower/link.py lays out the shared memory of a launch
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
    for kernel in kernels:
        add_warps_beside(facts, kernel)
    return facts, uses


def add_warps_beside(facts: dict[str, Fact], kernel: Kernel) -> None:
    """Shared memory of a launch with the warps of another kernel: theirs as well, once for each of their groups, and
    two barriers of 8 bytes for each slot."""
    homes = [home for home in kernel.homes.values() if home.beside is not None]
    key = f"{kernel.name}/shared_bytes"
    other = facts.get(f"{homes[0].beside}/shared_bytes") if homes else None
    if other is not None and key in facts:
        groups = int(homes[0].attributes.get("ring", 1))
        own, theirs = (-(-int(fact.value) // APART) * APART for fact in (facts[key], other))
        facts[key] = evolve(facts[key], value=own + groups * (theirs + 2 * BARRIER_BYTES))


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
