"""Whether a barrier keeps two threads apart: shared addresses on both sides of it, counted thread by thread.

Shares nothing with the emulator: the index expressions of the text are evaluated for every thread and every
turn of the loops around them. Conditions that speak of more are left out, so what is counted is at least
what happens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import product

from attrs import frozen

from .cuda_text import Access, accesses, body_start, closing

BARRIER = "__syncthreads();"
LOOP = re.compile(r"for \((?:int|int64_t) (\w+) = \D*(\d+)\)?; \1 < \(?(?:\(int64_t\))?(\d+)\)?; \+\+\1\) \{")
VECTOR = re.compile(r"\*\(float(\d)\*\)\(\(\(float\*\)buf_dyn_shmem_ptr\) \+ (?=\()\(")
CAST = re.compile(r"\(int(?:64_t)?\)")
ARITHMETIC = re.compile(r"[\w\s()+*/%<>&|-]+")
MOST = 200_000  # addresses of one access


@frozen
class Touched:
    """Addresses of one access by thread; None where the text says too little."""

    writes: bool
    addresses: frozenset | None


def keeps_nothing_apart(text: str, place: int) -> bool:
    """Whether no thread writes, on one side of the barrier at `place`, what another touches on the other."""
    return apart_from(*sides(text, place))


def may_come_after(text: str, start: int, end: int) -> bool:
    """Whether the statement from `start` to `end` may come after the barrier that follows it."""
    place = text.index(BARRIER, end)
    before, after = sides(text, place)
    if before is None:
        return False
    return apart_from(list(touched(text, start, end)), after)


def apart_from(before: list[Touched] | None, after: list[Touched] | None) -> bool:
    """Whether no address is touched by two threads, one in each list, of which one writes."""
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
    others = VECTOR.sub("", text[earlier:later])
    if re.search(r"\bbuf_dyn_shmem_ptr(?!\)\[)|&\(", others):
        return None, None  # copies and products touch more than the element that they name
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
    for found in VECTOR.finditer(text, start, end):
        last = closing(text, found.end() - 1) + 1
        access = Access("shared", found.start(), last, found.end())
        writes = text[last:].startswith(") = ")
        yield Touched(writes, addresses(text, access, int(found[1])))


def addresses(text: str, access: Access, elements: int = 1) -> frozenset | None:
    """(address, thread) of every element accessed; None where the text says too little."""
    index = plain(access.index(text))
    loops = enclosing(text, access.start)
    known = {"x", "y", *loops}
    if names_of(index) - known or not ARITHMETIC.fullmatch(index):
        return None
    conditions = [c for c in conditions_around(text, access.start) if not names_of(c) - known]
    used = [name for name in loops if name in names_of(" ".join([index, *conditions]))]
    ranges = [range(32), range(4), *(loops[name] for name in used)]
    if math.prod(map(len, ranges)) > MOST:
        return None
    order = ["x", "y", *used]
    code = compile(index, "index", "eval")
    allowed = compile(" and ".join(["True", *(f"({c})" for c in conditions)]), "condition", "eval")
    found = set()
    for turn in product(*ranges):
        values = dict(zip(order, turn, strict=True))
        if eval(allowed, {}, values):
            first = eval(code, {}, values)
            found |= {(first + element, turn[:2]) for element in range(elements)}
    return frozenset(found)


def plain(expression: str) -> str:
    """C as Python: casts left out, threads as x and y."""
    text = CAST.sub("", expression).replace("threadIdx.", "").replace("/", "//")
    return text.replace("&&", " and ").replace("||", " or ")


def names_of(expression: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", expression)) - {"and", "or", "not", "True"}


def conditions_around(text: str, place: int) -> Iterator[str]:
    """Conditions of the `if` blocks that a place is in."""
    for found in re.finditer(r"\bif \(", text[body_start(text) : place]):
        opening = body_start(text) + found.end() - 1
        end = closing(text, opening)
        if text[end + 1 :].startswith(" {") and closing(text, end + 2) > place:
            yield plain(text[opening + 1 : end])


def enclosing(text: str, place: int) -> dict[str, range]:
    """Loops around a place with their turns."""
    found = {}
    for loop in LOOP.finditer(text, body_start(text), place):
        if closing(text, loop.end() - 1) > place:
            found[loop[1]] = range(int(loop[2]), int(loop[3]))
    return found
