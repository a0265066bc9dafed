"""Whether a barrier keeps two threads apart: shared addresses on both sides of it, counted thread by thread.

Shares nothing with the emulator: the index expressions of the text are evaluated for every thread and every
turn of the loops around them. Conditions are left out, so what is counted is at least what happens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from attrs import frozen

from .cuda_text import Access, accesses, body_start, closing

BARRIER = "__syncthreads();"
LOOP = re.compile(r"for \((?:int|int64_t) (\w+) = \D*(\d+)\)?; \1 < \(?(?:\(int64_t\))?(\d+)\)?; \+\+\1\) \{")
CAST = re.compile(r"\(int(?:64_t)?\)")
MOST = 200_000  # addresses of one access


@frozen
class Touched:
    """Addresses of one access by thread; None where the text says too little."""

    writes: bool
    addresses: frozenset | None


def keeps_nothing_apart(text: str, place: int) -> bool:
    """Whether no thread writes, on one side of the barrier at `place`, what another touches on the other."""
    before, after = sides(text, place)
    if before is None or after is None:
        return False
    for first, second in product(before, after):
        if not (first.writes or second.writes):
            continue
        if first.addresses is None or second.addresses is None:
            return False
        owners: dict = {}
        for address, thread in first.addresses:
            owners.setdefault(address, set()).add(thread)
        if any(owners.get(address, {thread}) - {thread} for address, thread in second.addresses):
            return False
    return True


def sides(text: str, place: int):
    """Accesses since the barrier before, and up to the next one; both lie in the same block of text."""
    earlier = max(text.rfind(BARRIER, body_start(text), place), body_start(text))
    later = text.find(BARRIER, place + len(BARRIER))
    later = len(text) if later < 0 else later
    if not (level(text[earlier:place]) and level(text[place:later])):
        return None, None
    return [list(touched(text, a, b)) for a, b in ((earlier, place), (place, later))]


def level(text: str) -> bool:
    """Whether every bracket that is opened is closed and none other."""
    depth = 0
    for sign in re.findall(r"[{}]", text):
        depth += 1 if sign == "{" else -1
        if depth < 0:
            return False
    return depth == 0


def touched(text: str, start: int, end: int) -> Iterator[Touched]:
    for access in accesses(text):
        if access.kind == "shared" and start <= access.start < end:
            writes = text[access.end :].startswith(" = ")
            yield Touched(writes, addresses(text, access))


def addresses(text: str, access: Access) -> frozenset | None:
    index = CAST.sub("", access.index(text)).replace("threadIdx.", "").replace("/", "//")
    loops = enclosing(text, access.start)
    names = {"x": range(32), "y": range(4), **loops}
    used = [name for name in names if re.search(rf"\b{name}\b", index)]
    free = set(re.findall(r"[a-z_]\w*", index)) - set(names)
    if free:
        return None
    code = compile(index, "index", "eval")
    count = 32 * 4
    for name in loops:
        count *= len(loops[name])
    if count > MOST:
        return None
    ranges = [names[name] for name in ("x", "y", *(n for n in loops if n in used))]
    order = ["x", "y", *(n for n in loops if n in used)]
    found = set()
    for values in product(*ranges):
        found.add((eval(code, {}, dict(zip(order, values, strict=True))), values[:2]))
    return frozenset(found)


def enclosing(text: str, place: int) -> dict[str, range]:
    """Loops around a place with their turns."""
    found = {}
    for loop in LOOP.finditer(text, body_start(text), place):
        if closing(text, loop.end() - 1) > place:
            found[loop[1]] = range(int(loop[2]), int(loop[3]))
    return found
