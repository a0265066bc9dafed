"""One mistake, one finding: nothing that follows from another error is reported, and independent errors all are."""

from __future__ import annotations

import pytest
from texts import CPU, RULES, STANDARD

from kdsl.check import check_source

BOUNDED = (RULES / "kda.chunk_forward" / "mma_bounded.kds").read_text("utf-8")
OPERATOR = (STANDARD / "operators" / "kda.chunk_forward.kds").read_text("utf-8").replace(
    "operator kda.chunk_forward", "operator mine"
)  # fmt: skip


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


def cut(text: str, first: str, last: str) -> str:
    start = text.index(first)
    return text[:start] + text[text.index(last, start) :]


CASES = {
    "a header that breaks off": ("rule {\n  require { K == 1 }\n}\n", ["E001"]),
    "a header without an operator": ("rule x schedules {\n  require { K == 1 }\n}\n", ["E001"]),
    "no such target": (replaced(CPU, " on cpu {", " on cpux {"), ["E101"]),
    "no such field of a target": (replaced(CPU, "target.stack_bytes_per", "target.stack_byte_per"), ["E101"]),
    "a share of nothing before a brace": (replaced(BOUNDED, " of target.shared_bytes_per_block", ""), ["E020"]),
    "a share of nothing before a claim": (replaced(CPU, "target.stack_bytes_per_task", "95%"), ["E020"]),
    "the only kernel missing": (cut(CPU, "  kernel all", "  ensure {"), ["E401", "E401"]),
    "one of two kernels missing": (cut(BOUNDED, "  kernel recurrence", "  ensure {\n    spills"), ["E401"]),
    "a reader misspelt": (BOUNDED.replace("inv for recurrence ", "inv for recurrenc "), ["E101"]),
    "a home given twice": (replaced(BOUNDED, "gamma, b for recurrence                  :", "rate :"), ["E102"]),
    "a requirement that nothing meets": (replaced(BOUNDED, "K == 128 and", "K == 16 / 0 and"), ["E503"]),
    "a comma before a colon": (replaced(CPU, "l, m, inv            :", "l, m, inv, :"), ["E016"]),
    "a bound that is a sum": (replaced(OPERATOR, "sum over p < i of", "sum over p < i + 1 of"), ["E206"]),
    "two errors on different lines": (CPU.replace("C = chunk", "C = ").replace("task : n, h", "task : n, q"),
                                      ["E020", "E101"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_nothing_follows(name):
    text, codes = CASES[name]
    assert [d.code for d in check_source(text, "rule.kds")] == codes


def test_a_header_says_how_one_begins():
    (found,) = check_source("rule x {\n}\n")
    assert found.help == ("write `rule NAME schedules OPERATOR on TARGET {`",)


def test_a_number_before_of_ends_a_bound():
    """`1 of x` is a share of x everywhere else."""
    text = replaced(OPERATOR, "sum over p < i of", "sum over p < 2 * i - 1 of")
    text = replaced(text, "stored at slot(n, c) of", "stored at slot(n, c) + 1 of")
    assert [d.code for d in check_source(text)] == ["E206"]
