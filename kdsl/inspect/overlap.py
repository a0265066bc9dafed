"""How much of one stage's code runs while another stage's asynchronous work is in flight.

Followed in SASS along every path: copies of cp.async (LDGSTS issues, LDGDEPBAR closes a group,
`DEPBAR.LE SB0, n` waits until at most n groups are open) and wgmma (HGMMA issues, the one with `gsb0` closes
its group, `WARPGROUP.DEPBAR.LE gsb0, n` waits). Bulk copies, TMA and tcgen05 signal an mbarrier whose waits
the code does not name: they are unknown here. An issue under a predicate counts as issued: it is a tail, or a
part of the threads. `steady` is the share in steps that issue: paths that branch over an issue, as the last
steps of a ring do, which have nothing left to fetch, are left out.
"""

from __future__ import annotations

from collections import deque

from attrs import frozen

from kdsl.inspect.flow import flow
from kdsl.inspect.listing import Function, Instruction, Selection
from kdsl.inspect.names import TENSOR_MEMORY_MATRIX, WARPGROUP_MATRIX
from kdsl.lower.toolchain.ptxas import PtxasLog, PtxasMessage

COPIES, PRODUCTS = "cp.async", "wgmma"
BY_MBARRIER = ("UBLKCP", "UTMALDG", "UTMASTG", "UTCCP", *TENSOR_MEMORY_MATRIX)
BOOKKEEPING = ("NOP", "LDGDEPBAR", "DEPBAR", "WARPGROUP", "LDGSTS", "BRA", "BSSY", "BSYNC", "EXIT")
MOST_STATES = 200_000
MOST_GROUPS = 64

# Groups in flight, oldest first, each with whether it holds the work looked for; and the group still open.
State = tuple[tuple[bool, ...], bool]


@frozen
class Overlap:
    """`share` of `instructions` that run with the work in flight on every path to them, `steady` on every
    path that issues it, `possible` on some. Of a stage with code in a loop only that code counts. All are
    None where unknown: see `note`."""

    share: float | None
    possible: float | None
    instructions: int
    issues: int
    note: str = ""
    steady: float | None = None


def overlapped(function: Function, work: Selection, issued: Selection) -> Overlap:
    """The instructions of `work` against the asynchronous instructions of `issued`."""
    code = function.instructions
    unseen = sorted({i.opcode for i in code if i.executes and issued(i) and i.opcode in BY_MBARRIER})
    if unseen:
        return _unknown(f"{', '.join(unseen)} signal an mbarrier; which wait is theirs is not in the code")
    kinds = {kind for i in code if i.executes and issued(i) and (kind := _issue(i)) is not None}
    issues = sum(1 for i in code if i.executes and issued(i) and _issue(i) is not None)
    graph = flow(function)
    chosen = [at for at, i in enumerate(code) if i.executes and work(i) and i.opcode not in BOOKKEEPING]
    looping = graph.looping
    chosen = [at for at in chosen if at in looping] or chosen
    if not chosen:
        return _unknown("the stage has no instruction of its own")
    if not kinds:
        return Overlap(0.0, 0.0, len(chosen), 0, "nothing asynchronous is issued", 0.0)
    if not graph.resolved:
        return _unknown("the code branches to computed addresses")
    always, steady, sometimes = set(chosen), set(chosen), set()
    starts = [at for at, i in enumerate(code) if i.executes and issued(i) and _issue(i) is not None]
    issuing = _without_skips(graph.successors, starts)
    for kind in sorted(kinds):
        flying = _in_flight(graph.successors, code, issued, kind)
        in_steps = _in_flight(issuing, code, issued, kind)
        if flying is None or in_steps is None:
            return _unknown("too many groups are in flight to follow")
        always &= {at for at in chosen if flying[at] and all(flying[at])}
        steady &= {at for at in chosen if in_steps[at] and all(in_steps[at])}
        sometimes |= {at for at in chosen if any(flying[at])}
    count = len(chosen)
    return Overlap(len(always) / count, len(sometimes) / count, count, issues, "", len(steady) / count)


def _without_skips(successors, issues: list[int]):
    """The graph without branches forward over an issue: they are taken where there is nothing to issue."""

    def skips(at: int, to: int) -> bool:
        return any(at < issue < to for issue in issues)

    return tuple(
        tuple(to for to in following if len(following) == 1 or not skips(at, to))
        for at, following in enumerate(successors)
    )


def injected_waits(log: PtxasLog, kernel: str) -> tuple[PtxasMessage, ...]:
    """What ptxas says of waits that it put into the kernel's wgmma pipeline: C7510 and its like, C7517."""
    return tuple(m for m in log.messages if m.waits and m.function in (None, kernel))


def _in_flight(successors, code, issued: Selection, kind: str) -> list[set[bool]] | None:
    """For each position, whether the work is in flight when control arrives there: by path, so a set."""
    start: State = ((), False)
    seen: list[set[State]] = [set() for _ in code]
    seen[0].add(start)
    waiting, states = deque([(0, start)]), 1
    while waiting:
        at, state = waiting.popleft()
        after = _after(code[at], state, issued, kind)
        if len(after[0]) > MOST_GROUPS or states > MOST_STATES:
            return None
        for following in successors[at]:
            if after not in seen[following]:
                seen[following].add(after)
                states += 1
                waiting.append((following, after))
    return [{opened or any(groups) for groups, opened in states} for states in seen]


def _after(instruction: Instruction, state: State, issued: Selection, kind: str) -> State:
    if not instruction.executes:
        return state
    groups, opened = state
    if _issue(instruction) == kind:
        opened = opened or issued(instruction)
    if _closes(instruction, kind):
        groups, opened = (*groups, opened), False
    kept = _waits(instruction, kind)
    if kept is not None:
        groups = groups[len(groups) - kept :] if kept < len(groups) else groups
    while groups and not groups[0]:
        groups = groups[1:]  # the oldest hold nothing that is looked for
    return groups, opened


def _issue(instruction: Instruction) -> str | None:
    if instruction.opcode == "LDGSTS":
        return COPIES
    return PRODUCTS if instruction.opcode in WARPGROUP_MATRIX else None


def _closes(instruction: Instruction, kind: str) -> bool:
    if kind == COPIES:
        return instruction.opcode == "LDGDEPBAR"
    return instruction.opcode in WARPGROUP_MATRIX and any(o.startswith("gsb") for o in instruction.operands)


def _waits(instruction: Instruction, kind: str) -> int | None:
    """How many groups may stay open after it; None if it is no wait of that kind."""
    operands = instruction.operands
    if len(operands) < 2 or "LE" not in instruction.modifiers:
        return None
    if kind == COPIES:
        waits = instruction.opcode == "DEPBAR" and operands[0] == "SB0"
    else:
        waits = instruction.opcode == "WARPGROUP" and instruction.modifiers[0] == "DEPBAR"
    return int(operands[1], 0) if waits else None


def _unknown(note: str) -> Overlap:
    return Overlap(None, None, 0, 0, note)
