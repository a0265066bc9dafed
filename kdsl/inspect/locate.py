"""From an instruction to the line it comes from, and the instructions that cost more than they must."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from attrs import field, frozen

from kdsl.inspect.access import BankFinding
from kdsl.inspect.counts import is_matrix
from kdsl.inspect.listing import Function, Instruction, Place, executing
from kdsl.inspect.memory import Access, access

WIDEST = 16  # bytes that one thread can move at once on every target
SPILL, LOCAL, NARROW, CONFLICT = "spill", "local array", "narrow global access", "bank conflict"


@frozen
class Costly:
    """Instructions of one kind at one place. `addresses` are those of the code, in bytes."""

    kind: str
    name: str
    places: tuple[Place, ...]
    addresses: tuple[int, ...] = field(repr=False)
    note: str

    @property
    def count(self) -> int:
        return len(self.addresses)


def place(instruction: Instruction, files: Collection[str] = ()) -> Place | None:
    """Where the instruction comes from: the innermost line, or the innermost of one of these files (a rule,
    the emitted CUDA) if it was inlined from elsewhere."""
    return next((p for p in instruction.places if not files or p.file in files), None)


def at_address(function: Function, address: int) -> Instruction:
    """The instruction at an address of the code. Raises KeyError."""
    for instruction in function.instructions:
        if instruction.address == address:
            return instruction
    raise KeyError(f"{function.name} has no instruction at {address:#x}")


def costly(
    function: Function,
    spills: bool,
    conflicts: Mapping[Place, BankFinding] | None = None,
    narrow: int = WIDEST,
    files: Collection[str] = (),
) -> tuple[Costly, ...]:
    """Costly instructions of SASS, those of most instructions first.

    `spills` says whether ptxas reports any: local memory is spill code then, and arrays with computed indices
    otherwise. `conflicts` gives the bank finding of a line's shared accesses. Global accesses of fewer than
    `narrow` bytes a thread are listed.
    """
    found: dict[tuple, list[int]] = {}
    for instruction in executing(function):
        touched = access(instruction)
        if touched is None:
            continue
        known = _cost(instruction, touched, spills, conflicts or {}, narrow)
        if known is not None:
            where = place(instruction, files)
            chain = (where,) if files and where else instruction.places
            key = (known[0], instruction.name, chain, known[1])
            found.setdefault(key, []).append(instruction.address)
    items = [Costly(kind, name, chain, tuple(a), note) for (kind, name, chain, note), a in found.items()]
    return tuple(sorted(items, key=lambda item: (-item.count, item.addresses)))


def lines(function: Function, files: Collection[str] = ()) -> dict[Place, dict[str, int]]:
    """For every line, how many instructions it became, with matrix instructions and accesses by space."""
    found: dict[Place, dict[str, int]] = {}
    for instruction in executing(function):
        where = place(instruction, files)
        if where is None:
            continue
        row = found.setdefault(where, {"instructions": 0})
        row["instructions"] += 1
        touched = access(instruction)
        kind = "matrix" if is_matrix(instruction) else touched.space if touched else None
        if kind is not None:
            row[kind] = row.get(kind, 0) + 1
    return dict(sorted(found.items(), key=lambda item: (item[0].file, item[0].line)))


def _cost(
    instruction: Instruction,
    touched: Access,
    spills: bool,
    conflicts: Mapping[Place, BankFinding],
    narrow: int,
) -> tuple[str, str] | None:
    if touched.space == "local":
        note = "registers are short" if spills else "an array is indexed by a computed value"
        return SPILL if spills else LOCAL, f"{note}: {touched}"
    if touched.space == "global" and touched.kind in ("load", "store") and touched.width < narrow:
        return NARROW, f"{touched.width} bytes a thread; up to {WIDEST} move in one instruction"
    if "shared" in touched.space:
        hit = next((conflicts[p] for p in instruction.places if p in conflicts), None)
        if hit is not None and hit.wavefronts is not None and hit.wavefronts.excess > 0:
            fronts = hit.wavefronts
            return CONFLICT, f"{fronts.count} wavefronts where {fronts.ideal} suffice ({hit.access})"
    return None
