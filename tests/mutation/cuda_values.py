"""Operators on generated CUDA: which element and which value (offsets, fragments, lanes, arithmetic)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .cuda_structure import FETCH
from .cuda_text import Access, accesses, body_start, closing, in_body, in_helpers, operands, statements
from .mutant import Edit, Edits, Operator, each, every_of


def moved(kind: str, change: str, written: bool | None = None) -> Operator:
    """Accesses of a kind of memory with their index changed; `{}` stands for it."""

    def operator(text: str) -> Iterator[Edits]:
        for access in accesses(text):
            index = access.index(text)
            if access.kind == kind and written in (None, is_target(text, access)) and simple(text, access):
                yield (Edit(access.index_start, access.end - 1, change.format(index)),)

    return operator


def is_target(text: str, access: Access) -> bool:
    return text[access.end :].startswith(" = ")


def simple(text: str, access: Access) -> bool:
    """Whether no access lies inside its index: that one is a place of its own."""
    return "_ptr" not in access.index(text)


def fetched_to(text: str) -> Iterator[Edits]:
    """The second argument of a copy: where it goes in shared memory."""
    yield from argument_of_fetch(text, 1, "({}) + 8")


def fetched_from(text: str) -> Iterator[Edits]:
    yield from argument_of_fetch(text, 3, "({}) + (int64_t)8")


def argument_of_fetch(text: str, number: int, change: str) -> Iterator[Edits]:
    for found in re.finditer(FETCH, text, re.MULTILINE):
        start, end = arguments(text, found.end(1))[number]
        yield (Edit(start, end, change.format(text[start:end].strip())),)


def arguments(text: str, opening: int) -> list[tuple[int, int]]:
    """Places of the arguments of a call whose bracket opens at `opening`."""
    end, place, start, found = closing(text, opening), opening + 1, opening + 1, []
    while place < end:
        if text[place] in "([{":
            place = closing(text, place)
        elif text[place] == ",":
            found.append((start, place))
            start = place + 1
        place += 1
    return [*found, (start, end)]


def product_stride(text: str) -> Iterator[Edits]:
    """The row stride that a product reads its operand with: without its pad, and with one more row piece."""
    for found in re.finditer(r"kdsl_mma_\w+(\()[^\n]*", text[body_start(text) :]):
        start, end = arguments(text, body_start(text) + found.start(1))[-1]
        stride = int(text[start:end])
        for other in (stride - 8, stride + 8):
            yield (Edit(start, end, f" {other}"),)


def lane_formula(text: str) -> Iterator[Edits]:
    """Each number of the address that a lane gives to ldmatrix: the next smaller and the next greater one."""
    for line in re.finditer(r"^.*__cvta_generic_to_shared\(b_ .*$", text, re.MULTILINE):
        for found in re.finditer(r"\b\d+\b", line[0]):
            at = line.start() + found.start()
            for other in (int(found[0]) - 1, int(found[0]) + 1):
                yield (Edit(at, at + len(found[0]), str(other)),)


def operand_pairs(text: str) -> Iterator[Edits]:
    """Two neighbouring registers of an mma or an ldmatrix exchanged."""
    for line in re.finditer(r'^ *: ["=+].*$', text, re.MULTILINE):
        items = list(re.finditer(r'"[=+]?[rf]"\((?:\w+\[\d\]|b\d)\)', line[0]))
        for first, second in zip(items, items[1:], strict=False):
            start = line.start()
            yield (
                Edit(start + first.start(), start + first.end(), second[0]),
                Edit(start + second.start(), start + second.end(), first[0]),
            )


def arithmetic(text: str) -> Iterator[tuple[int, str, int, int]]:
    """`(a op b)` of floats in values: place of the operator, the operator, places of both brackets."""
    for statement in statements(text):
        for found in re.finditer(r"\(", statement.value):
            start = statement.value_start + found.start()
            parts = operands(text, start)
            if parts is None or inside_index(text, statement.value_start, start):
                continue
            place, sign, end = parts
            if text[start:place].rstrip().endswith("buf_dyn_shmem_ptr)"):
                continue  # an address
            if "int64_t" not in without_indices(text[start:end]) and "_ptr" in text[start:end]:
                yield place, sign, start, end


def inside_index(text: str, begin: int, place: int) -> bool:
    return any(a.index_start <= place < a.end for a in accesses_of_line(text, begin))


def accesses_of_line(text: str, begin: int) -> list[Access]:
    end = text.index("\n", begin)
    found = []
    for match in re.finditer(r"_ptr\)?\[", text[begin:end]):
        opening = begin + match.end() - 1
        found.append(Access("", begin + match.start(), closing(text, opening) + 1, opening + 1))
    return found


def without_indices(text: str) -> str:
    """The text with what stands in index brackets left out."""
    kept, place = [], 0
    while place < len(text):
        if text[place] == "[":
            place = closing(text + "]" * 8, place)
        kept.append(text[place])
        place += 1
    return "".join(kept)


def swapped_difference(text: str) -> Iterator[Edits]:
    for place, sign, start, end in arithmetic(text):
        if sign == "-":
            left, right = text[start + 1 : place].strip(), text[place + 1 : end].strip()
            yield (Edit(start, end + 1, f"({right} - {left})"),)


def other_sign(text: str) -> Iterator[Edits]:
    for place, sign, _, _ in arithmetic(text):
        if sign in "+-":
            yield (Edit(place, place + 1, {"+": "-", "-": "+"}[sign]),)


def one_operand(first: bool) -> Operator:
    def operator(text: str) -> Iterator[Edits]:
        for place, _, start, end in arithmetic(text):
            kept = text[start + 1 : place] if first else text[place + 1 : end]
            yield (Edit(start, end + 1, f"({kept.strip()})"),)

    return operator


def halved(text: str) -> Iterator[Edits]:
    for found in re.finditer(r"\b0x1p\+0f(?:/\*\S*\*/)?", text[body_start(text) :]):
        start = body_start(text) + found.start()
        yield (Edit(start, start + len(found[0]), "2.0f"),)


VALUES: dict[str, Operator] = {
    "shared_element": moved("shared", "({}) + 1"),
    "shared_vector": in_body(each(r"\(\(\w+\*\)buf_dyn_shmem_ptr\) \+ ", r"\g<0>4 + ")),
    "register_slot": moved("registers", "({}) ^ 1"),
    "global_element": every_of(moved("global", "({}) + (int64_t)1"), moved("global", "({}) - (int64_t)1")),
    "fetched_to": fetched_to,
    "fetched_from": fetched_from,
    "product_stride": product_stride,
    "lane_formula": in_helpers(lane_formula),
    "transposed_load": in_helpers(
        every_of(each(r"\.x4\.trans", ".x4"), each(r"\.x4(?=\.shared)", ".x4.trans"))
    ),
    "operand_pairs": in_helpers(operand_pairs),
    "swapped_difference": swapped_difference,
    "other_sign": other_sign,
    "drop_right_operand": one_operand(True),
    "drop_left_operand": one_operand(False),
    "exponential_dropped": in_body(each(r"\bexpf\(", "(")),
    "exponential_negated": in_body(each(r"\bexpf\(", "expf(-1.0f * ")),
    "literal": halved,
    "warp_of_thread": in_body(each(r"\(\(int\)threadIdx\.y\)(?= \* 2\))", "0")),
    "clamp_dropped": in_body(each(r"\b(min|max)\(", lambda m: {"min": "max", "max": "min"}[m[1]], 1)),
}
