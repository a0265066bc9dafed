"""Where control goes in SASS: successors of every instruction, and what lies in a loop."""

from __future__ import annotations

import re

from attrs import field, frozen

from kdsl.inspect.listing import Function, Instruction

_TARGET = re.compile(r"`\(([^)]+)\)|\b0x([0-9a-f]+)$")
_ALWAYS = (None, "PT", "UPT")
INDIRECT = ("BRX", "JMX", "JMXU", "BRXU")


@frozen
class Flow:
    """`successors` by position in the function. `resolved` is false if a branch goes to a computed place."""

    function: Function = field(repr=False)
    successors: tuple[tuple[int, ...], ...] = field(repr=False)
    resolved: bool = True

    @property
    def looping(self) -> frozenset[int]:
        """Positions that can be reached again from themselves."""
        return frozenset(_in_cycles(self.successors))


def flow(function: Function) -> Flow:
    """The graph of a function. A call is taken to return; BSYNC goes where the BSSY that reaches it says that
    threads meet: one barrier register serves many places one after the other."""
    code = function.instructions
    position = {instruction.address: at for at, instruction in enumerate(code)}
    resolved = not any(instruction.opcode in INDIRECT for instruction in code)
    plain = []
    for at, instruction in enumerate(code):
        following = [at + 1] if at + 1 < len(code) else []
        plain.append(tuple(dict.fromkeys(_next(instruction, following, function, position))))
    meetings = _meetings(function, plain, position)
    successors = [tuple(dict.fromkeys((*meetings.get(at, ()), *found))) for at, found in enumerate(plain)]
    return Flow(function, tuple(successors), resolved)


def _next(instruction: Instruction, following, function: Function, position) -> list[int]:
    """Successors but for the meeting place of a BSYNC: of that only those of threads not asked to meet."""
    opcode = instruction.opcode
    if opcode in ("BRA", "JMP"):
        targets = _targets(instruction, function, position)
        return targets + (following if _conditional(instruction) else [])
    if opcode in ("EXIT", "RET", "KILL", *INDIRECT):
        return following if instruction.guard not in _ALWAYS else []
    if opcode == "BSYNC":
        return following if instruction.guard not in _ALWAYS else []
    return following


def _meetings(function: Function, plain, position) -> dict[int, tuple[int, ...]]:
    """Where each BSYNC goes: the targets of the BSSY of its register that reach it along some path; of all,
    where none does (the register came from elsewhere)."""
    code = function.instructions
    targets = {
        at: (i.operands[0], tuple(_targets(i, function, position)))
        for at, i in enumerate(code)
        if i.opcode == "BSSY" and i.operands
    }
    reaching: list[frozenset[int]] = [frozenset() for _ in code]  # positions of BSSY
    seen, waiting = {0}, [0] if code else []
    while waiting:
        at = waiting.pop()
        leaving = reaching[at]
        if at in targets:
            name = targets[at][0]
            leaving = frozenset(other for other in leaving if targets[other][0] != name) | {at}
        for to in (*plain[at], *_met(code[at], reaching[at], targets)):
            if to not in seen or not leaving <= reaching[to]:
                seen.add(to)
                reaching[to] |= leaving
                waiting.append(to)
    found = {}
    for at, instruction in enumerate(code):
        if instruction.opcode == "BSYNC" and instruction.operands:
            met = _met(instruction, reaching[at], targets) or _met(instruction, targets, targets)
            found[at] = met or ((at + 1,) if at + 1 < len(code) else ())
    return found


def _met(instruction: Instruction, reaching, targets) -> tuple[int, ...]:
    if instruction.opcode != "BSYNC" or not instruction.operands:
        return ()
    return tuple(
        to for at in sorted(reaching) if targets[at][0] == instruction.operands[0] for to in targets[at][1]
    )


def _conditional(instruction: Instruction) -> bool:
    """`@P0 BRA L`, `BRA.U !UP0, L`, and divergence as in `BRA.DIV UR4, L`."""
    return instruction.guard not in _ALWAYS or len(instruction.operands) > 1


def _targets(instruction: Instruction, function: Function, position) -> list[int]:
    found = _TARGET.search(instruction.operands[-1]) if instruction.operands else None
    if found is None:
        return []
    address = function.labels.get(found[1]) if found[1] else int(found[2], 16)
    return [position[address]] if address in position else []


def _in_cycles(successors: tuple[tuple[int, ...], ...]) -> list[int]:
    """Members of strongly connected components with a cycle (Tarjan, without recursion). The endless branch
    to itself that ends a kernel is none: nothing reaches it."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[int] = []
    work = [(0, iter(successors[0]))] if successors else []
    if work:
        order[0] = low[0] = 0
        stack.append(0)
        on_stack.add(0)
    while work:
        node, rest = work[-1]
        child = next(rest, None)
        if child is None:
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == order[node]:
                component = _popped(stack, on_stack, node)
                if len(component) > 1 or node in successors[node]:
                    found += component
        elif child not in order:
            order[child] = low[child] = len(order)
            stack.append(child)
            on_stack.add(child)
            work.append((child, iter(successors[child])))
        elif child in on_stack:
            low[node] = min(low[node], order[child])
    return found


def _popped(stack: list[int], on_stack: set[int], node: int) -> list[int]:
    component = []
    while True:
        component.append(stack.pop())
        on_stack.discard(component[-1])
        if component[-1] == node:
            return component
