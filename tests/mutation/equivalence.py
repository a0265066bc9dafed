"""Whether an accepted mutant is the same program, and why."""

from __future__ import annotations

import re
from functools import lru_cache

from attrs import evolve

from kdsl.lower.toolchain import nvcc
from kdsl.lower.toolchain.cc import CompilerFailed

from .barriers import keeps_nothing_apart, may_come_after
from .cuda_text import closing
from .mutant import Edit, Mutant, applied
from .verdict import Outcome

ARCH = "sm_90a"
_NAMES = re.compile(rb"_[0-9a-f]{8}_9_kernel_cu_[0-9a-f]{8}")


@lru_cache(maxsize=16)
def machine_code(text: str) -> bytes:
    """The cubin without what its source's text alone decides."""
    made = nvcc.compile(text, ARCH, nvcc.Options(line_info=False, fast_math=True))
    return _NAMES.sub(b"", made.cubin)


def same_code(text: str, changed: str) -> bool | None:
    """Whether both texts compile to the same bytes; None where nvcc refuses the changed one."""
    try:
        return machine_code(text) == machine_code(changed)
    except CompilerFailed:
        return None


def reason_of(mutant: Mutant, text: str, outcome: Outcome) -> str:
    """Why an accepted mutant is the same program, or an empty text."""
    if outcome.same_code:
        return "same machine code"
    if not outcome.same_output:
        return ""
    if "shared" in mutant.launch:
        return "bytes at the end of shared memory that no access reaches: padding of a last row"
    if mutant.operator in ("drop_barrier", "early_barrier"):
        start = mutant.edits[0].start
        end = text.index("\n", start)
        moved = mutant.operator == "early_barrier"
        shown = may_come_after(text, start, end) if moved else keeps_nothing_apart(text, start)
        return "a barrier that keeps no two threads apart, by the addresses on its sides" if shown else ""
    if mutant.operator == "drop_warp_sync" and same_in_orders(mutant, text):
        return "a rendezvous of a warp whose lanes touch what is their own: no race in eight orders of them"
    if mutant.operator == "shared_element" and "kdsl_wgmma" in text[: mutant.edits[0].start].rpartition("\n")[2]:
        return "the descriptor of an operand counts in 16 bytes: the same one"
    if mutant.operator == "ring_of_role":
        return "what one role alone uses, 16 bytes further on, where nothing else lies"
    if more_work(mutant) or returns_less(mutant, text):
        return "more work: in bounds, without a race, and nothing of it is read"
    if mutant.new in ("==", "!=") and same_without(mutant, text):
        return "a store of one value by any lane: without the condition nothing changes either"
    if mutant.operator == "loop_one_short" and adds_zero(text, mutant):
        return "a last turn whose condition never holds: it adds zero"
    return ""


def same_in_orders(mutant: Mutant, text: str, count: int = 8) -> bool:
    """Whether the first call has no finding and the same results in other orders of warps, lanes and copies."""
    from . import programs

    rule, kernel = mutant.subject.split(".")
    changed, wanted = applied(text, mutant.edits), programs.unchanged(rule, 0)
    runs = (programs.run(rule, 0, kernel, changed, seed=100 + number) for number in range(count))
    return all(ran.result.verdict == "pass" and ran.content == wanted for ran in runs)


def same_without(mutant: Mutant, text: str) -> bool:
    """Whether the results stay the same where the changed condition is always met."""
    from . import programs

    opening = text.rindex("if (", 0, mutant.edits[0].start) + 3
    always = Edit(opening, closing(text, opening) + 1, "(true)")
    outcome = programs.judge(evolve(mutant, edits=(always,)))
    return outcome.accepted and outcome.same_output is True


def more_work(mutant: Mutant) -> bool:
    """A loop, a condition or a grid that lets more happen than before, and nothing less."""
    relaxed = mutant.operator == "off_by_one" and (mutant.old, mutant.new) in (("<", "<="), (">", ">="))
    wider = mutant.operator in ("loop_one_long", "drop_condition", "warp_of_thread", "no_early_return", "role_border")
    return relaxed or wider or any(isinstance(v, int) and v > 0 for v in mutant.launch.values())


def returns_less(mutant: Mutant, text: str) -> bool:
    """`||` made `&&` in the condition of an early return."""
    line = text.index("\n", mutant.edits[0].start)
    return mutant.operator == "connective" and mutant.new == "&&" and text[line:].lstrip().startswith("return;")


def adds_zero(text: str, mutant: Mutant) -> bool:
    """`for p < N` around a value that is zero unless `p < i`, with `i` below N as well."""
    line = text.rindex("\n", 0, mutant.edits[0].start)
    head = re.match(r"\s*for \(int (\w+) = 0; \1 < (\d+);", text[line:])
    if head is None:
        return False
    body = text[mutant.edits[0].end : closing(text, text.index("{", mutant.edits[0].end))]
    inner = re.search(rf"if \({head[1]} < (\w+)\) \{{\s*(\w+) = [^\n]*\n\s*\}} else \{{\s*\2 = 0x0p", body)
    outer = inner and re.search(rf"for \(int {inner[1]} = 0; {inner[1]} < {head[2]};", text[:line])
    return bool(outer)
