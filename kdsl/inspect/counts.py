"""How many instructions of which kind stand in a kernel's code.

Counts are static: an instruction in a loop counts once, and a loop unrolled three times counts thrice.
That is why every count names its level, "ptx" or "sass".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from attrs import frozen

from kdsl.inspect import names
from kdsl.inspect.listing import PTX, Function, Instruction, Listing, Selection, executing
from kdsl.inspect.memory import Access, access

_BARRIERS = {"BAR", "SYNCS", "WARPSYNC", "UCGABAR_ARV", "UCGABAR_WAIT", "bar", "barrier", "mbarrier"}


@frozen
class Counts:
    """A kernel's instructions by kind at one level. `matrix` and `barriers` by exact name."""

    level: str
    total: int
    shuffles: int
    matrix: Mapping[str, int]
    barriers: Mapping[str, int]
    accesses: Mapping[Access, int]
    bulk_copies: Mapping[str, int]


def count(
    listing: Listing, name: str, kernel: str | None = None, selected: Selection | None = None
) -> int | None:
    """Instructions of that name in the kernel. A PTX name at "sass" counts what it becomes there; None if
    nothing fixed stands for it, or if a SASS name is asked of PTX."""
    found = executing(listing.of(kernel), selected)
    if listing.level == PTX:
        return None if names.is_sass(name) else sum(names.matches(i, name) for i in found)
    if names.is_sass(name):
        return sum(names.matches(i, name) for i in found)
    patterns = names.sass_patterns(name)
    if patterns is None:
        return None
    return sum(any(pattern.matches(i) for pattern in patterns) for i in found)


def uses(
    listing: Listing, name: str, kernel: str | None = None, selected: Selection | None = None
) -> bool | None:
    """Whether the instruction stands in the kernel, or in the selected part of it; None where `count` is."""
    number = count(listing, name, kernel, selected)
    return None if number is None else number > 0


def counts(listing: Listing, kernel: str | None = None, selected: Selection | None = None) -> Counts:
    """Every kind at once."""
    function = listing.of(kernel)
    found = list(executing(function, selected))
    accesses = Counter(known for i in found if (known := access(i)) is not None)
    return Counts(
        listing.level,
        len(found),
        sum(i.opcode in ("shfl", "SHFL") for i in found),
        _tally(i.name for i in found if is_matrix(i)),
        _tally(i.name for i in found if i.opcode in _BARRIERS),
        dict(sorted(accesses.items(), key=lambda item: (item[0].space, item[0].kind, item[0].width))),
        _tally(i.name for i in found if _is_bulk_copy(i)),
    )


def is_matrix(instruction: Instruction) -> bool:
    if instruction.opcode in names.MATRIX_SASS:
        return True
    name = instruction.name
    return any(name == kind or name.startswith(f"{kind}.") for kind in names.MATRIX_PTX)


def instruction_mix(function: Function) -> dict[str, int]:
    """Every exact name with its number, most frequent first."""
    return dict(Counter(i.name for i in executing(function)).most_common())


def _is_bulk_copy(instruction: Instruction) -> bool:
    if instruction.opcode in ("UBLKCP", "UTMALDG", "UTMASTG", "UBLKRED", "UTMAREDG"):
        return True
    return names.family(instruction.name) in ("cp.async.bulk", "cp.async.bulk.tensor", "cp.reduce.async.bulk")


def _tally(found) -> dict[str, int]:
    return dict(sorted(Counter(found).items()))
