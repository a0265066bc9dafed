"""Places in generated CUDA: the kernel's body, its statements, its accesses of memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from attrs import frozen

from .mutant import Edit, Edits, Operator, each

KERNEL = re.compile(r'^extern "C" __global__ [^\n]*\n', re.MULTILINE)
ROLE = re.compile(r"^[^\n]*__device__[^\n]* kdsl_\w+_role\([^\n]*\{\n", re.MULTILINE)
HELPER = re.compile(
    r"^[^\n]*__device__[^\n]* (?:kdsl_mma|kdsl_wgmma|ptx_cp_async|tvm_builtin_ptx)\w*\([^\n]*\{\n", re.MULTILINE
)
ACCESS = re.compile(r"(\(\([\w ]+\*\)buf_dyn_shmem_ptr\)|\b\w+_ptr)\[")
STATEMENT = re.compile(r"^ *([^\n;=]*\S) = ([^\n]*);$", re.MULTILINE)


def closing(text: str, opening: int) -> int:
    """The place of the bracket that closes the one at `opening`."""
    pairs = {"(": ")", "[": "]", "{": "}"}
    stack = []
    for place in range(opening, len(text)):
        if text[place] in pairs:
            stack.append(pairs[text[place]])
        elif stack and text[place] == stack[-1]:
            stack.pop()
            if not stack:
                return place
    raise ValueError(f"nothing closes the bracket at {opening}")


def body_start(text: str) -> int:
    """Behind the head of the kernel; of its first role, where the warps have roles."""
    return (ROLE.search(text) or KERNEL.search(text)).end()


def in_body(operator: Operator) -> Operator:
    """The operator's places inside the kernel."""

    def inside(text: str) -> Iterator[Edits]:
        start = body_start(text)
        yield from (edits for edits in operator(text) if edits[0].start >= start)

    return inside


def dropped(pattern: str) -> Operator:
    """The operator that leaves a statement out, inside the kernel."""
    return in_body(each(pattern, ";"))


def in_helpers(operator: Operator) -> Operator:
    """The operator's places inside the functions that the kernel's instructions are written in."""

    def inside(text: str) -> Iterator[Edits]:
        ranges = [
            (found.start(), closing(text, text.index("{", found.start()))) for found in HELPER.finditer(text)
        ]
        for edits in operator(text):
            if any(first <= edits[0].start <= last for first, last in ranges):
                yield edits

    return inside


@frozen
class Access:
    """`base[index]` from `start` to `end`; kind: shared, registers or global."""

    kind: str
    start: int
    end: int
    index_start: int

    def index(self, text: str) -> str:
        return text[self.index_start : self.end - 1]


def accesses(text: str) -> Iterator[Access]:
    """Every access of memory in the kernel."""
    local = set(re.findall(r"^ *alignas\(\d+\) \w+ (\w+)\[", text, re.MULTILINE))
    for found in ACCESS.finditer(text, body_start(text)):
        name = found[1]
        if re.search("alignas|extern", text[text.rindex("\n", 0, found.start()) : found.start()]):
            continue  # a declaration
        end = closing(text, found.end() - 1) + 1
        kind = "shared" if "buf_dyn_shmem_ptr" in name else "registers" if name in local else "global"
        yield Access(kind, found.start(), end, found.end())


@frozen
class Statement:
    """`target = value;` of the kernel, with places of both."""

    start: int
    end: int
    target: str
    value: str
    value_start: int

    @property
    def stores(self) -> bool:
        """Whether it writes memory, not a scalar of the thread."""
        return self.target.endswith("]")

    @property
    def replaced(self) -> Edit:
        return Edit(self.start, self.end, ";")


def statements(text: str) -> Iterator[Statement]:
    for found in STATEMENT.finditer(text, body_start(text)):
        start = found.start(1)
        if not text[start:].startswith(("for ", "if ")):
            yield Statement(start, found.end(), found[1], found[2], found.start(2))


def operands(text: str, start: int) -> tuple[int, str, int] | None:
    """Of `(a op b)` at `start`: the place of the operator, the operator, the place of the closing bracket."""
    if text[start] != "(":
        return None
    end, depth, place = closing(text, start), 0, start + 1
    while place < end:
        if text[place] in "([{":
            place = closing(text, place)
        elif depth == 0 and text[place] in "+-*/" and text[place - 1] == " " and text[place + 1] == " ":
            return place, text[place], end
        place += 1
    return None
