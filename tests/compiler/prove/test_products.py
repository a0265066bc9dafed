"""Nests of products are multiplied side by side: with the numbers, taints, degrees and faults of their loops."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from kdsl.lower.tir.function import Argument
from kdsl.lower.tvm import T
from kdsl.prove import emit, objects
from kdsl.prove.engine import WIDTH, Situation, run_degree, run_field
from kdsl.prove.fields import TAINT, Tower
from kdsl.prove.layout import Layout
from kdsl.prove.program import HEADERS, Function, Program, runtime
from kdsl.prove.recurrence import Call

SHAPES = [(4, 4, 1), (5, 7, 3), (16, 16, 16), (6, 9, 33)]
SAME = lambda i, j, k: (i, j)  # noqa: E731
FULL = 10**6


def nest(rows, columns, summed, *, place=SAME, written=FULL, kept=FULL, further=0, before=0.0, own=False):
    """O = C + A B. `place` of the sums in C; row `written` of A and those behind it are never written, columns `kept`
    and those behind it are zero; A is read `further` on, C begins as `before`; `own`: C times B is added."""

    @T.prim_func(s_tir=True)
    def func(a: T.handle, b: T.handle, o: T.handle):
        A = T.match_buffer(a, (rows, summed), "float32")
        B = T.match_buffer(b, (summed, columns), "float32")
        OUT = T.match_buffer(o, (rows, columns), "float32")
        C = T.alloc_buffer((max(rows, summed), max(columns, summed)), "float32")
        X = T.alloc_buffer((rows, summed), "float32")
        for i, k in T.grid(T.min(rows, written), summed):
            with T.sblock("laid"):
                vi, vk = T.axis.remap("SS", [i, k])
                X[vi, vk] = T.if_then_else(vk < kept, A[vi, vk], T.float32(0))
        for i, j in T.grid(max(rows, summed), max(columns, summed)):
            with T.sblock("begun"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.float32(before)
        for i, j, k in T.grid(rows, columns, summed):
            with T.sblock("product"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                c0, c1 = T.meta_var(place(vi, vj, vk))
                if own:
                    C[c0, c1] = C[c0, c1] + C[vi, vk] * B[vk, vj]
                else:
                    C[c0, c1] = C[c0, c1] + X[vi, vk + further] * B[vk, vj]
        for i, j in T.grid(rows, columns):
            with T.sblock("left"):
                vi, vj = T.axis.remap("SS", [i, j])
                OUT[vi, vj] = C[vi, vj]

    arguments = tuple(Argument("tensor", name) for name in ("A", "B", "O"))
    return Program.of([Function("nest", func, arguments)], dict.fromkeys(("A", "B", "O"), 0))


def situation(rows, columns, summed):
    shapes = {"A": (rows, summed), "B": (summed, columns), "O": (rows, columns)}
    return Situation(Call("nest", {}, {}, frozenset(shapes)), {n: Layout.of(s) for n, s in shapes.items()}, ("O",))


def draws(shape, largest=False):
    rows, columns, summed = shape
    for seed in range(WIDTH):
        rng = np.random.default_rng(seed)
        tower = Tower.draw(rng, 1)
        values = {"A": tower.elements(rng, (rows, summed), 0), "B": tower.elements(rng, (summed, columns), 0)}
        if largest:
            values = {name: np.full_like(array, tower.primes[0] - 1) for name, array in values.items()}
        yield tower, values


def in_loops(monkeypatch, *shape, **how):
    with monkeypatch.context() as patch:
        patch.setattr(emit, "product_of", lambda *_: None)
        return nest(*shape, **how)


@pytest.fixture(params=["as the processor can", "without vectors of 256 bits", "without vectors"])
def routine(request, monkeypatch):
    """The runtime's text, as other processors compile or run it."""
    edits = {"without vectors of 256 bits": ("#define AVX2", ""), "without vectors": ("__SSE2__", "NONE")}
    text = runtime()
    if request.param in edits:
        old, new = edits[request.param]
        assert old in text
        text = text.replace(old, new)
    monkeypatch.setattr("kdsl.prove.engine.runtime", lambda: text)


@pytest.mark.parametrize("largest", [False, True], ids=["random", "largest"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_numbers(shape, largest, routine):
    program, tried = nest(*shape), list(draws(shape, largest))
    assert "multiply(" in program.body
    for (tower, values), outcome in zip(tried, run_field(program, tried, situation(*shape)), strict=True):
        expected = values["A"].astype(object) @ values["B"].astype(object) % tower.primes[0]
        assert outcome.fault is None and (outcome.outputs["O"] == expected).all()


@pytest.mark.parametrize("how", [
    {"place": lambda i, j, k: (i // 2, j)},  # rows that share their sums
    {"place": lambda i, j, k: (i // 8, j // 8)},  # all share one
    {"written": 3},
    {"kept": 2},
    {"kept": 0},
    {"before": 1.5},
    {"further": 1},  # past the last column
    {"place": lambda i, j, k: (i + 3, j)},
])  # fmt: skip
def test_what_its_loops_leave(how, routine, monkeypatch):
    shape = (6, 5, 3)
    ours, loops = nest(*shape, **how), in_loops(monkeypatch, *shape, **how)
    assert "multiply(" in ours.body and "multiply(" not in loops.body
    place, tried = situation(*shape), list(draws(shape))
    for found, wanted in zip(run_field(ours, tried, place), run_field(loops, tried, place), strict=True):
        assert (found.outputs["O"] == wanted.outputs["O"]).all() or found.fault
        assert (found.fault or "").partition(":")[0] == (wanted.fault or "").partition(":")[0]
    assert run_degree(ours, place) == run_degree(loops, place)
    if "written" in how:
        assert (found.outputs["O"][3:] & TAINT).all() and not (found.outputs["O"][:3] & TAINT).any()
    if how.keys() & {"further"}:
        assert "outside its shape in stage `product`" in found.fault


@pytest.mark.parametrize(("shape", "how"), [
    ((3, 16, 16), {}),  # too few rows
    ((16, 16, 16), {"own": True}),  # a factor reads what the nest writes
    ((16, 16, 16), {"place": lambda i, j, k: (i, k)}),  # each element of C its own product, for every j
    ((16, 16, 16), {"place": lambda i, j, k: (i, (j + k) % 16)}),
], ids=["few rows", "own factor", "no sum", "turned"])  # fmt: skip
def test_other_nests_stay_loops(shape, how, monkeypatch):
    program, tried = nest(*shape, **how), list(draws(shape))
    assert "multiply(" not in program.body
    loops = in_loops(monkeypatch, *shape, **how)
    place = situation(*shape)
    for found, wanted in zip(run_field(program, tried, place), run_field(loops, tried, place), strict=True):
        assert (found.outputs["O"] == wanted.outputs["O"]).all()


def test_a_sum_that_is_wrong_is_seen(monkeypatch):
    """A routine that takes 2^32 p off too late overflows, and these tests show it."""
    text = runtime()
    for old, new in (("__SSE2__", "NONE"), ("#define AVX2", ""), ("sum.of[t] >= p.of[t] ? p.of[t] : 0", "0")):
        assert old in text
        text = text.replace(old, new)
    monkeypatch.setattr("kdsl.prove.engine.runtime", lambda: text)
    shape = (6, 9, 33)
    tried = list(draws(shape, largest=True))
    (tower, values), *_ = tried
    outcome, *_ = run_field(nest(*shape), tried, situation(*shape))
    assert not (outcome.outputs["O"] == values["A"].astype(object) @ values["B"].astype(object) % tower.primes[0]).all()


DEGREES = """
EXPORT void both(i64 m, i64 n, i64 k, const val *x, const val *y, val *sums, val *loops) {
  degrees = 1;
  multiply(0, m, n, k, x, y, sums);
  for (i64 i = 0; i < m; i++)
    for (i64 j = 0; j < n; j++) {
      val sum = of_word(LITERAL);
      for (i64 t = 0; t < k; t++) sum = add(0, sum, mul(0, x[i * k + t], y[t * n + j]));
      loops[i * n + j] = sum;
    }
}
void kernels(void ***a, const i64 **l) {}
"""


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_degrees_with_constants_among_them(shape):
    """Every kind of word in every place: degrees and coefficients up to the largest, constants, zeros."""
    rows, columns, summed = shape
    library = objects.load((), runtime() + DEGREES)
    rng, literal, most = np.random.default_rng(3), 1 << 30, (1 << 30) - 1
    words = [0, 1 << 32 | 1, literal, literal | 1, literal | most, most << 32 | 1, 7 << 32 | most, 3 << 32 | 5]
    for constants in (0.0, 0.05, 0.5):

        def operand(*shape, constants=constants):
            other = rng.choice([0, 1, 5, 6, 7], shape)
            chosen = np.where(rng.random(shape) < constants, rng.integers(2, 5, shape), other)
            found = np.zeros((*shape, 2), np.uint64)
            found[..., 0] = np.array(words, np.uint64)[chosen]
            return found

        x, y = operand(rows, summed), operand(summed, columns)
        sums, loops = (np.zeros((rows, columns, 2), np.uint64) for _ in range(2))
        library.both(
            *(ctypes.c_int64(n) for n in shape), *(ctypes.c_void_p(a.ctypes.data) for a in (x, y, sums, loops))
        )
        assert (sums == loops).all() and sums.any()


def test_both_algebras_are_one_text():
    assert all((HEADERS / f"{name}.h").exists() for name in ("field", "degree", "values"))
    assert "field_multiply" in runtime() and "degree_multiply" in runtime()
