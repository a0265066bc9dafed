"""Operators on generated CUDA: what happens and in which order (barriers, copies, loops, products)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .cuda_text import accesses, closing, dropped, in_body, in_helpers, statements
from .mutant import Edit, Edits, Operator, each, every_of

FETCH = r"^ *(ptx_cp_async_\w+)\([^\n]*\);$"
ZERO = re.compile(r"(?:0x0p\+0f(?:/\*\S*\*/)?|0\.0+e\+00f)")

STEP = r"(?:\bc|\(c \+ \d+\))"  # of a ring, whose slots are masked where they are a power of two


def drop_store(text: str) -> Iterator[Edits]:
    for statement in statements(text):
        if statement.stores and not ZERO.fullmatch(statement.value):
            yield (statement.replaced,)


def drop_initial_zero(text: str) -> Iterator[Edits]:
    for statement in statements(text):
        if statement.stores and ZERO.fullmatch(statement.value):
            yield (statement.replaced,)


def conditions(text: str) -> Iterator[tuple[int, int]]:
    """Places of the conditions of `if`."""
    for found in re.finditer(r"^ *if \(", text, re.MULTILINE):
        yield found.end() - 1, closing(text, found.end() - 1) + 1


def drop_condition(text: str) -> Iterator[Edits]:
    for start, end in conditions(text):
        yield (Edit(start, end, "(true)"),)


def never(text: str) -> Iterator[Edits]:
    for start, end in conditions(text):
        yield (Edit(start, end, "(false)"),)


COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}


def off_by_one(text: str) -> Iterator[Edits]:
    for start, end in conditions(text):
        for found in re.finditer(r" (<=|>=|==|!=|<|>) ", text[start:end]):
            yield (Edit(start + found.start(1), start + found.end(1), COMPARISONS[found[1]]),)


def connective(text: str) -> Iterator[Edits]:
    for start, end in conditions(text):
        for found in re.finditer(r" (&&|\|\|) ", text[start:end]):
            yield (Edit(start + found.start(1), start + found.end(1), {"&&": "||", "||": "&&"}[found[1]]),)


def loops(text: str) -> Iterator[tuple[re.Match, int, int]]:
    """Loop headers with the places of their bounds."""
    for found in re.finditer(
        r"^ *for \((int(?:64_t)?) (\w+) = [^;]*; \2 < ([^;]*); \+\+\2\) \{$", text, re.MULTILINE
    ):
        yield found, found.start(3), found.end(3)


def loop_one_short(text: str) -> Iterator[Edits]:
    for _, start, end in loops(text):
        yield (Edit(start, end, f"(({text[start:end]}) - 1)"),)


def loop_one_long(text: str) -> Iterator[Edits]:
    for _, start, end in loops(text):
        yield (Edit(start, end, f"(({text[start:end]}) + 1)"),)


def loop_from_one(text: str) -> Iterator[Edits]:
    for found, _, _ in loops(text):
        head = found[0]
        equals = head.index(" = ") + 3
        first = found.start() + equals
        yield (Edit(first, text.index(";", first), "1"),)


def one_lane_less(text: str) -> Iterator[Edits]:
    """A copy that the first lane, which takes part in each, leaves out."""
    for found in re.finditer(FETCH, text, re.MULTILINE):
        yield (Edit(found.start(1), found.start(1), "if (((int)threadIdx.x) != 0) "),)


def barrier_before_last(text: str) -> Iterator[Edits]:
    """A barrier one statement too early: the statement before it comes after it."""
    for found in re.finditer(
        r"^( *)(?!for|if|\}|#|\{)([^\n{}]*;)\n( *__syncthreads\(\);)\n", text, re.MULTILINE
    ):
        if any(a.start >= found.start(2) and a.end <= found.end(2) for a in accesses(text)):
            yield (Edit(found.start(), found.end(), f"{found[3]}\n{found[1]}{found[2]}\n"),)


STRUCTURE: dict[str, Operator] = {
    "drop_barrier": dropped(r"__syncthreads\(\);"),
    "drop_wait": dropped(r"tvm_builtin_ptx_cp_async_wait_group_\w+\(\);"),
    "wait_one_more": in_helpers(each(r"cp\.async\.wait_group (\d+)", lambda m: str(int(m[1]) + 1), 1)),
    "drop_commit": dropped(r"tvm_builtin_ptx_cp_async_commit_group_\w+\(\);"),
    "drop_fetch": dropped(r"\bptx_cp_async_\w+\([^\n]*\);"),
    "one_lane_less": in_body(one_lane_less),
    "narrow_copy": in_helpers(each(r'"n"\(16\)', '"n"(8)')),
    "slot_ahead": in_body(each(r"\(c & (\d)\)", r"((c + 1) & \1)")),
    "slot_behind": in_body(each(r"\(\(c \+ \d+\) & (\d)\)", r"(c & \1)")),
    "ring_modulus": in_body(
        every_of(
            each(rf"{STEP} & (\d)\)", lambda m: str(2 * int(m[1]) + 1), 1),
            each(rf"{STEP} & (\d)\)", lambda m: str(int(m[1]) // 2), 1),
        )
    ),
    "kept_number": in_body(
        every_of(
            each(r"(?:left|slot)_\d+_ptr\[0\] \+ (-?\d+)\);", lambda m: str(int(m[1]) + 1), 1),
            each(r"^ *if \(slot_\d+_ptr\[0\] == (\d+)\)", lambda m: str(int(m[1]) + 1), 1),
            each(r"^ *(?:left|slot)_\d+_ptr\[0\] = (\d+);", lambda m: str(int(m[1]) + 1), 1),
        )
    ),
    "off_by_one": in_body(off_by_one),
    "connective": in_body(connective),
    "drop_condition": in_body(drop_condition),
    "never": in_body(never),
    "loop_one_short": in_body(loop_one_short),
    "loop_one_long": in_body(loop_one_long),
    "loop_from_one": in_body(loop_from_one),
    "drop_product": every_of(
        dropped(r"kdsl_mma_\w+\([^\n]*\);"),
        in_helpers(each(r'^ *asm volatile\("mma\.sync(?:[^\n]*\n){2}[^\n]*\);$', "")),
    ),
    "drop_store": drop_store,
    "drop_initial_zero": drop_initial_zero,
    "early_barrier": in_body(barrier_before_last),
    "no_early_return": in_body(each(r"^ *return;", ";")),
}
