"""Device code that waits, copies by itself or calls what nobody described has no meaning here: `unknown`, with the
reason, and never a proof."""

from __future__ import annotations

import pytest
from attrs import evolve

from kdsl.check.library import load
from kdsl.lower.lowering import Lowering
from kdsl.lower.tvm import Evaluate, PrimFunc, SeqStmt, T, tirx
from kdsl.prove.cases import cases_of
from kdsl.prove.forms import Form, form_settings, option_settings, plan_of_form
from kdsl.prove.lowered import plain_functions, prove_functions

DECODE = "kda.decode"


@pytest.fixture(scope="module")
def decode():
    library = load()
    operator = library.operators[DECODE]
    plan = plan_of_form(library, Form(DECODE, form_settings(operator)[0], option_settings(operator)[0]))
    return plan, plain_functions(Lowering(plan))[0]


def verdict_with(decode, statement):
    plan, function = decode
    func = function.func
    body = func.body if statement is None else SeqStmt([statement, func.body])
    changed = evolve(function, func=PrimFunc(func.params, body).with_attrs(func.attrs))
    return prove_functions(plan, [changed], cases_of(plan.operator, plan.settings), trials=1, fresh=True)


def calls():
    wait = tirx.call_extern("int32", "mbarrier_try_wait", 0, 1)
    return {
        "mbarrier_try_wait": Evaluate(wait),
        "store_by_itself": Evaluate(T.cuda.func_call("store_by_itself", source_code="void store_by_itself() {}")),
    }


def test_the_program_without_them(decode):
    assert verdict_with(decode, None).proved


@pytest.mark.parametrize("name", ["mbarrier_try_wait", "store_by_itself"])
def test_a_call_for_its_effect(decode, name):
    proof = verdict_with(decode, calls()[name])
    assert proof.verdict == "unknown" and not proof.proved
    assert "a call for its effect" in proof.obstacle and name in proof.obstacle
    assert "tensor intrinsic with a description" in proof.remedy
