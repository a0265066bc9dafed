"""Memory that nobody wrote: its bit reaches whatever is computed from it, and its number decides nothing."""

from __future__ import annotations

import numpy as np
import pytest

from kdsl.lower.tir.function import Argument
from kdsl.lower.tvm import T
from kdsl.prove.engine import Situation, run_field
from kdsl.prove.fields import TAINT, Tower
from kdsl.prove.layout import Layout
from kdsl.prove.program import Function, Program
from kdsl.prove.recurrence import Call

LANES = 8
OPERATIONS = {
    "itself": lambda x, a: x,
    "a sum": lambda x, a: a + x,
    "a difference": lambda x, a: a - x,
    "a product": lambda x, a: x * a,
    "a product with zero": lambda x, a: x * (a - a),
    "a quotient": lambda x, a: x / a,
    "a quotient by it": lambda x, a: a / x,
    "an exponential": lambda x, a: T.exp(x),
    "a power of two": lambda x, a: T.exp2(x),
    "a sigmoid": lambda x, a: T.sigmoid(x),
    "a hyperbolic tangent": lambda x, a: T.tanh(x),
    "a root": lambda x, a: T.sqrt(x),
    "one by a root": lambda x, a: T.rsqrt(x),
    "a logarithm": lambda x, a: T.log(x),
}


def program(operation, written: int, value=lambda a: a):
    """O = operation(X, A), where X holds `value(A)` in the lanes before `written`."""

    @T.prim_func(s_tir=True)
    def func(a: T.handle, o: T.handle):
        A = T.match_buffer(a, (LANES,), "float32")
        OUT = T.match_buffer(o, (LANES,), "float32")
        X = T.alloc_buffer((LANES,), "float32")
        for i in range(written):
            with T.sblock("laid"):
                vi = T.axis.remap("S", [i])
                given = T.meta_var(value(A[vi]))
                X[vi] = given
        for i in range(LANES):
            with T.sblock("left"):
                vi = T.axis.remap("S", [i])
                found = T.meta_var(operation(X[vi], A[vi]))
                OUT[vi] = found

    arguments = tuple(Argument("tensor", name) for name in ("A", "O"))
    return Program.of([Function("written", func, arguments)], {"O": 0})


def outcome(found: Program):
    rng = np.random.default_rng(1)
    tower = Tower.draw(rng, max(found.depth, 2))
    names = frozenset(("A", "O"))
    situation = Situation(Call("written", {}, {}, names), {n: Layout.of((LANES,)) for n in names}, ("O",))
    values = {"A": tower.elements(rng, (LANES,), found.levels["A"])}
    (result,) = run_field(found, [(tower, values)], situation)
    return result


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_comes_of_it_is_marked(name):
    found = outcome(program(OPERATIONS[name], 5))
    marked = (found.outputs["O"] & TAINT) != 0
    assert marked.tolist() == [lane >= 5 for lane in range(LANES)]
    assert found.fault is None and not found.division


def test_a_zero_that_was_written_divides():
    found = outcome(program(lambda x, a: a / x, LANES, lambda a: a - a))
    assert found.division and not (found.outputs["O"] & TAINT).any()
