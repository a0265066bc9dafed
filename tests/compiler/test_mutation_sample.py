"""A part of the mutation suite, the same one every time: what is wrong is rejected, what is not is accepted.

Only operators whose every place is wrong take part, so the sample needs no list of equivalent mutants. The
figures of the whole suite are in docs/mutation.md.
"""

from __future__ import annotations

import pytest

pytest.importorskip("tvm_ffi", reason="mutants are lowered")

from tests.mutation.levels import level
from tests.mutation.run import outcome_of
from tests.mutation.sample import rank

WRONG = {
    "program": (
        "drop_wait",
        "wait_one_more",
        "drop_product",
        "slot_ahead",
        "drop_fetch",
        "transposed_load",
        "fetched_to",
        "product_stride",
        "drop_slot_wait",
        "drop_proxy_fence",
        "drop_group_wait",
    ),
    "mathematics": ("drop_scan", "drop_stage", "swapped_operands", "other_option", "bound_off_by_one"),
    "contract": ("promise",),
    "rule": ("misspelt", "drop_kernel", "part", "swapped_arguments"),
}
HARMLESS = ("claim_commuted", "layout", "operands_commuted", "condition_negated", "line_split")
SEED = 7


def first(name: str, operators) -> list:
    """The place of each operator that the seed puts first."""
    groups: dict[str, list] = {}
    for mutant in level(name).mutants():
        if mutant.operator in operators:
            groups.setdefault(mutant.operator, []).append(mutant)
    return [min(group, key=lambda m: rank(m, SEED)) for group in groups.values()]


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_rejected(name):
    chosen = first(name, WRONG[name])
    assert len(chosen) == len(WRONG[name])
    outcomes = {mutant.name: outcome_of(mutant) for mutant in chosen}
    assert not [name for name, outcome in outcomes.items() if outcome.accepted]
    assert not [name for name, outcome in outcomes.items() if outcome.stage in ("internal", "compiler")]


def test_what_is_not_wrong_is_accepted():
    chosen = first("harmless", HARMLESS)
    assert len(chosen) == len(HARMLESS)
    outcomes = {mutant.name: outcome_of(mutant) for mutant in chosen}
    assert not {name: outcome.detail for name, outcome in outcomes.items() if not outcome.accepted}


def test_the_list_is_long_and_names_are_unique():
    names = [mutant.name for part in ("rule", "mathematics", "program") for mutant in level(part).mutants()]
    assert len(names) == len(set(names)) >= 300
