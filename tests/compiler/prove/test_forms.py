"""Every form of every operator equals the recurrence, on its graph alone."""

from __future__ import annotations

import pytest

from kdsl.check.library import load
from kdsl.lower.lowering import Lowering
from kdsl.prove.forms import covering, every, form_settings, option_settings, plan_of_form
from kdsl.prove.lowered import prove
from kdsl.prove.proof import BOUND
from kdsl.prove.recurrence import MEANINGS

LIBRARY = load()
OPERATORS = [op for op in LIBRARY.operators.values() if op.name in MEANINGS]
COVERING = [form for operator in OPERATORS for form in covering(operator)]
ALL = [form for operator in OPERATORS for form in every(operator)]


def check(form):
    proof = prove(Lowering(plan_of_form(LIBRARY, form)), scheduled=False)
    assert proof.proved, proof.found
    assert proof.bound <= BOUND and proof.cases and proof.assumptions


def test_every_operator_of_the_library_has_a_meaning():
    assert set(LIBRARY.operators) <= set(MEANINGS)


@pytest.mark.parametrize("form", COVERING, ids=[form.label for form in COVERING])
def test_form(form):
    check(form)


@pytest.mark.slow
@pytest.mark.parametrize("form", ALL, ids=[form.label for form in ALL])
def test_form_under_every_option(form):
    check(form)


@pytest.mark.parametrize("operator", OPERATORS, ids=[op.name for op in OPERATORS])
def test_the_covering_meets_every_value_with_every_form(operator):
    wanted = {
        (str(form), item)
        for form in form_settings(operator)
        for o in option_settings(operator)
        for item in o.items()
    }
    assert wanted == {(str(f.form), item) for f in covering(operator) for item in f.options.items()}
