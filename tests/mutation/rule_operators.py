"""Operators on the text of a rule: placements, tiles, dtypes, instructions, requirements, promises."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .cuda_text import closing
from .mutant import Edit, Edits, Operator, each, every_of

BLOCKS = ("require", "choose", "form", "grid", "place", "compute", "roles", "ensure", "measure")
DTYPES = {"bf16": ("f16", "f32", "i64"), "f32": ("bf16", "f16"), "f16": ("bf16",)}
MEMORIES = ("shared", "registers", "workspace", "stack", "tensor_memory")
INSTRUCTIONS = ("fma.f32", "mma.m16n8k16", "wgmma.m64k16", "tcgen05.m128k16")
ATTRIBUTES = (
    r"pad \d+|ring \w+|via cp\.async of \d+ bytes|via shuffle|lanes \w by \d+|vector \w by \w+|as [\w.]+|"
    r"over \w+ by \d+"
)


def strings(text: str) -> list[tuple[int, int]]:
    """Places of documentation and messages."""
    return [(m.start(), m.end()) for m in re.finditer(r'"""[\s\S]*?"""|"[^"\n]*"', text)]


def outside_strings(operator: Operator) -> Operator:
    def outside(text: str) -> Iterator[Edits]:
        hidden = strings(text)
        for edits in operator(text):
            if not any(first <= edits[0].start < last for first, last in hidden):
                yield edits

    return outside


def block_places(text: str, kinds=BLOCKS) -> Iterator[tuple[str, int, int]]:
    """(kind, first and last place of the content) of every block."""
    for found in re.finditer(rf"\b({'|'.join(kinds)}) \{{", text):
        yield found[1], found.end(), closing(text, found.end() - 1)


def items(text: str) -> Iterator[tuple[str, int, int]]:
    """(kind, place) of every line of every block, `;` counting as an end of line."""
    for kind, start, stop in block_places(text):
        for found in re.finditer(r"[^;\n]*\S[^;\n]*", text[start:stop]):
            yield kind, start + found.start(), start + found.end()


def drop_line(text: str) -> Iterator[Edits]:
    for _, start, end in items(text):
        yield (Edit(start, end, ""),)


def repeat_line(text: str) -> Iterator[Edits]:
    for _, start, end in items(text):
        yield (Edit(end, end, f"\n{text[start:end]}"),)


def drop_name(text: str) -> Iterator[Edits]:
    """One name of a list before a colon."""
    for kind, start, end in items(text):
        if kind in ("place", "compute") and ":" in text[start:end]:
            for found in re.finditer(
                r"(\w+), |, (\w+)(?= *(?:for [^:]*)?:)", text[start : text.index(":", start) + 1]
            ):
                yield (Edit(start + found.start(), start + found.end(), ""),)


def misspelt(text: str) -> Iterator[Edits]:
    """The first name of every line."""
    for _, start, end in items(text):
        found = re.search(r"\b[a-z]\w*\b", text[start:end])
        if found:
            yield (Edit(start + found.start(), start + found.end(), f"{found[0]}x"),)


def numbers(text: str) -> Iterator[Edits]:
    """Every number one more, one less, doubled and halved."""
    for found in re.finditer(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.]*[a-z])", text):
        value = float(found[0]) if "." in found[0] else int(found[0])
        for other in dict.fromkeys((value + 1, value - 1, value * 2, value // 2)):
            if other != value and other >= 0:
                yield (Edit(found.start(), found.end(), str(other)),)


def one_of(values, pattern: str) -> Operator:
    """Every match of the pattern replaced by each of the other values."""

    def operator(text: str) -> Iterator[Edits]:
        for found in re.finditer(pattern, text):
            for other in values[found[1]] if isinstance(values, dict) else values:
                if other != found[1]:
                    yield (Edit(found.start(1), found.end(1), other),)

    return operator


def drop_block(text: str) -> Iterator[Edits]:
    for kind, start, stop in block_places(text):
        yield (Edit(text.rindex(kind, 0, start), stop + 1, ""),)


def drop_kernel(text: str) -> Iterator[Edits]:
    for found in re.finditer(r"\bkernel \w+ computes [^{]*\{", text):
        yield (Edit(found.start(), closing(text, found.end() - 1) + 1, ""),)


def grid_lines(text: str) -> Iterator[Edits]:
    """An index left out, dealt twice, or in place of another one."""
    for kind, start, stop in block_places(text, ("grid",)):
        assert kind == "grid"
        names = list(re.finditer(r"(?<=[:,] )(\w)\b", text[start:stop]))
        for found in names:
            for other in "nhced":
                if other != found[0]:
                    yield (Edit(start + found.start(), start + found.end(), other),)
            yield (Edit(start + found.end(), start + found.end(), f", {found[0]}"),)


def comparisons(text: str) -> Iterator[Edits]:
    swap = {"==": "!=", ">=": ">", "<=": "<"}
    for found in re.finditer(r" (==|>=|<=) ", text):
        yield (Edit(found.start(1), found.end(1), swap[found[1]]),)


def contradiction(text: str) -> Iterator[Edits]:
    for claim in ("K == 64", "H > 8 and H < 4", "gate is precomputed", "q : f32", "T % 128 == 0"):
        for _, start, _ in block_places(text, ("require",)):
            yield (Edit(start, start, f"\n    {claim}"),)


def swapped_arguments(text: str) -> Iterator[Edits]:
    for found in re.finditer(r"apply \w+\((\w+), (\w+)\)", text):
        yield (Edit(found.start(1), found.end(2), f"{found[2]}, {found[1]}"),)


def added(text: str) -> Iterator[Edits]:
    """An attribute more on a placement: a pad, a ring, a swizzle."""
    for kind, start, end in items(text):
        if kind == "place" and ":" in text[start:end]:
            for attribute in ("pad 3", "ring 2", "swizzle 128"):
                if attribute.split()[0] not in text[start:end]:
                    yield (Edit(end, end, f" {attribute}"),)


RULES: dict[str, Operator] = {
    name: outside_strings(operator)
    for name, operator in {
        "number": numbers,
        "drop_line": drop_line,
        "repeat_line": repeat_line,
        "drop_name": drop_name,
        "misspelt": misspelt,
        "dtype": one_of(DTYPES, r"(?<=[:,] )(bf16|f16|f32)\b"),
        "memory": one_of(MEMORIES, rf"\bin ({'|'.join(MEMORIES)})\b"),
        "instruction": one_of(INSTRUCTIONS, rf"\b({'|'.join(map(re.escape, INSTRUCTIONS))})(?=[\s.]|$)"),
        "operand": one_of("ABC", r"mma\.m16n8k16\.([ABC])\b"),
        "drop_attribute": each(rf" (?:{ATTRIBUTES})\b", ""),
        "add_attribute": added,
        "drop_reader": each(r" for [a-z_, ]+(?=\s*:)", ""),
        "drop_block": drop_block,
        "drop_kernel": drop_kernel,
        "part": each(
            r"computes (prepare, recur|prepare|recur|step)",
            lambda m: {"prepare, recur": "prepare", "prepare": "recur", "recur": "prepare", "step": "recur"}[
                m[1]
            ],
            1,
        ),
        "form": one_of(
            ("factored", "centred", "pairwise", "split", "folded"),
            r"= (factored|centred|pairwise|split|folded)\b",
        ),
        "grid": grid_lines,
        "target": every_of(
            each(r" on (\w+)", "cpu", 1),
            each(r"(, sm_\w+)(?=[ ,])", "", 1),
            each(r" on ([\w, ]+) \{", r"\1, cpu", 1),
        ),
        "comparison": comparisons,
        "connective": each(r" (and|or) ", lambda m: {"and": "or", "or": "and"}[m[1]], 1),
        "contradiction": contradiction,
        "swapped_arguments": swapped_arguments,
        "choice": each(r"default (\w+)", lambda m: str(int(m[1]) + 7), 1),
    }.items()
}
