"""`n, c packed`: what of an operator and of a line stands in the way of a grid of stored slots."""

from __future__ import annotations

import pytest

from kdsl.check import check_source
from kdsl.source import codes

TOY = codes.page("E127").fixed[0]
LINE = "grid { task : n, c packed }"
SLOT = "slot(n, c) of"


def only(*changes: tuple[str, str]):
    text = TOY
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    found = check_source(text, "rule.kds")
    assert len(found) == 1, [(d.code, d.message) for d in found]
    return found[0]


def test_slots_bound_a_launch_where_the_extent_cannot():
    """Nothing says how many chunks a sequence has at most, which each of the other grids needs."""
    assert check_source(TOY, "rule.kds") == ()
    found = only((LINE, "grid { task : n, c }"))
    assert found.code == "E125" and "no launch knows" in found.message


@pytest.mark.parametrize(("line", "reason", "remedy"), [
    ("c packed", "it stands first, and its slots are those of `n`", "write `n, c packed`, and `n` nowhere else"),
    ("n by 2, c packed", "`n by 2` stands before it", "write `n, c packed`"),
    ("n, c by 2 packed", "a slot holds one value of it", "write `c packed`"),
    ("n packed, c", "the operator stores it at no slots", "write `n`, which enumerates every value"),
    ("n, i packed", "the operator stores it at no slots", "write `i`"),
])  # fmt: skip
def test_lines_that_cannot_be_packed(line, reason, remedy):
    found = only((LINE, f"grid {{ task : {line} }}"))
    assert found.code == "E127" and reason in found.message
    assert found.help[0].startswith(remedy) and found.required and found.observed.endswith("packed")


@pytest.mark.parametrize(("slot", "reason"), [
    ("slot(n, 2 * c) of", "its steps are not stored one after the other"),
    ("slot(n, c) - 2 * c of", "its steps are not stored one after the other"),
    ("(if c > 3 then slot(n, c) else slot(n, c)) of", "its steps are not stored one after the other"),
    ("max(slot(n, c), 0) of", "its steps are not stored one after the other"),
    ("slot(n, 0) of", "its steps are not stored one after the other"),
    ("c of", "they are its own"),
])  # fmt: skip
def test_slots_that_cannot_be_searched(slot, reason):
    found = only((SLOT, slot))
    assert found.code == "E127" and reason in found.message
    assert found.labels[0].span.text == slot.removesuffix(" of")


@pytest.mark.parametrize("slot", [
    "(if N == 1 then c else slot(n, c)) of", "c + (start(n) / 16 + n) of", "(slot(n, c) - start(n) / 16) + n of",
])  # fmt: skip
def test_slots_that_can(slot):
    text = TOY.replace(SLOT, slot)
    assert text != TOY and check_source(text, "rule.kds") == ()


def test_slots_of_two_indices():
    text = TOY.replace("    n in N parallel\n", "    n in N parallel\n    h in 2 parallel\n")
    text = text.replace(SLOT, "slot(n, c) + h * (T / 16 + N) of")
    text = text.replace("of T / 16 + N\n", "of 2 * (T / 16 + N)\n")
    (found,) = check_source(text.replace(LINE, "grid { task : h, n, c packed }"), "rule.kds")
    assert found.code == "E127" and "they are those of" in found.message


def test_what_is_carried_over_chunks_is_not_packed():
    rule = """rule r schedules kda.chunk_forward on cpu {
  form { C = 16; decay = pairwise; chain = split }
  kernel all computes prepare, recur { grid { task : h, n, c packed } }
}
"""
    (found,) = check_source(rule, "rule.kds")
    assert found.code == "E125" and "is carried over it" in found.message
