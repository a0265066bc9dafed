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
    """The graph of a function. A call is taken to return; BSYNC goes where its BSSY says threads meet."""
    code = function.instructions
    position = {instruction.address: at for at, instruction in enumerate(code)}
    meeting: dict[str, list[int]] = {}
    for instruction in code:
        if instruction.opcode == "BSSY" and instruction.operands:
            meeting.setdefault(instruction.operands[0], []).extend(_targets(instruction, function, position))
    successors, resolved = [], True
    for at, instruction in enumerate(code):
        following = [at + 1] if at + 1 < len(code) else []
        if instruction.opcode in INDIRECT:
            resolved = False
        successors.append(tuple(dict.fromkeys(_next(instruction, following, meeting, function, position))))
    return Flow(function, tuple(successors), resolved)


def _next(instruction: Instruction, following, meeting, function: Function, position) -> list[int]:
    opcode = instruction.opcode
    if opcode in ("BRA", "JMP"):
        targets = _targets(instruction, function, position)
        return targets + (following if _conditional(instruction) else [])
    if opcode in ("EXIT", "RET", "KILL", *INDIRECT):
        return following if instruction.guard not in _ALWAYS else []
    if opcode == "BSYNC" and instruction.operands and instruction.operands[0] in meeting:
        return meeting[instruction.operands[0]] + (following if instruction.guard not in _ALWAYS else [])
    return following


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
