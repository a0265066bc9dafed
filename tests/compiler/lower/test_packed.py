"""Grids of stored slots: every step of every row of pages is computed once, whatever the lengths and the names."""

from __future__ import annotations

import numpy as np
import pytest

from kdsl.bundle.expression import parse_number
from kdsl.driver.emulation import LoweredProgram, Operands
from kdsl.driver.package import grid_blocks
from kdsl.driver.trial import view
from kdsl.emulate.launches import Buffer, Launch
from kdsl.emulate.run import emulate
from kdsl.lower.lowering import Lowering
from kdsl.runtime.launch import launch

from ..workshop import library_of, plan, program

PAGE, WIDTH = 8, 32
TEXT = """
operator test.ragged {
  sizes { S, R, G; W in 32..64 }
  inputs {
    x      : [G, R, W] of f32
    bounds : [S + 1] of i64 optional
  }
  outputs { y : [G, R, W] of like x }
  laws { given(bounds) or S == 1 else "without bounds there is one row of pages" }
  define {
    first(s)   = if given(bounds) then min(max(bounds[s], 0), R) else 0
    rows(s)    = if given(bounds) then max(min(bounds[s + 1], R) - first(s), 0) else R
    page(s, p) = if given(bounds) then first(s) / 8 + s + p else p
  }
  indices {
    g in G parallel
    s in S parallel
    p in (rows(s) + 7) / 8 sequential stored at page(s, p) of R / 8 + S
    r in 8
    w in W
  }
  views {
    xx[r, w] = x[g, first(s) + p * 8 + r, w] where p * 8 + r < rows(s) else 0.0
    yy[r, w] = y[g, first(s) + p * 8 + r, w] where p * 8 + r < rows(s)
  }
  part summing { size : norm[r] = sum over w of xx[r, w] * xx[r, w] }
  part scaling { scale : yy[r, w] = xx[r, w] * rsqrt(norm[r] + 1.0) + (if p == 0 then 1.0 else 0.0) }
}
rule on_cpu schedules test.ragged on cpu {
  kernel one computes summing {
    grid { task : g, s, p packed }
    place { norm for two : f32 in workspace }
  }
  kernel two computes scaling { grid { task : s, p packed, g } }
}
rule on_gpu schedules test.ragged on sm_90a {
  kernel one computes summing {
    grid { x : s, p packed; y : g }
    roles { all : 1 warp }
    place { norm for two : f32 in workspace }
  }
  kernel two computes scaling {
    grid { x : g, s, p packed }
    roles { all : 2 warps }
  }
}
"""
LENGTHS = {
    "one": (37,),
    "nothing": (0,),
    "some are empty": (0, 9, 0, 0, 8, 1, 0, 7, 16, 0),
    "all of one length": (16,) * 5,
    "many short": tuple((5 * s) % 11 for s in range(300)),
}  # fmt: skip


@pytest.fixture(scope="module")
def ragged(tmp_path_factory):
    return library_of(tmp_path_factory.mktemp("ragged"), TEXT)


def expected(x: np.ndarray, bounds: np.ndarray | None) -> np.ndarray:
    tokens = x.shape[1]
    y = x / np.sqrt((x.astype(np.float64) ** 2).sum(-1, keepdims=True) + 1)
    bounds = np.array([0, tokens]) if bounds is None else np.clip(bounds, 0, tokens)
    for begin, end in zip(bounds, bounds[1:], strict=False):
        y[:, begin : min(end, begin + PAGE)] += 1
    return y


def drawn(lengths, heads: int = 2) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    rng, rows = np.random.default_rng(3), sum(lengths)
    x = rng.standard_normal((heads, rows, WIDTH)).astype(np.float32)
    bounds = np.cumsum((0, *lengths)).astype(np.int64)
    return {"x": x, "bounds": bounds, "y": np.full_like(x, np.nan)}, {"S": len(lengths), "R": rows, "G": heads}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_every_step_on_a_cpu(ragged, lengths):
    arrays, sizes = drawn(lengths)
    launch(program(plan(ragged, "on_cpu", sizes={"W": WIDTH})), {n: view(a) for n, a in arrays.items()},
           {**sizes, "W": WIDTH}, {})  # fmt: skip
    np.testing.assert_allclose(arrays["y"], expected(arrays["x"], arrays["bounds"]), rtol=2e-6, atol=2e-6)


def test_without_bounds_there_is_nothing_to_search(ragged):
    arrays, sizes = drawn((21,))
    del arrays["bounds"]
    launch(program(plan(ragged, "on_cpu", sizes={"W": WIDTH})), {n: view(a) for n, a in arrays.items()},
           {**sizes, "W": WIDTH}, {})  # fmt: skip
    np.testing.assert_allclose(arrays["y"], expected(arrays["x"], None), rtol=2e-6, atol=2e-6)


# ---- on a GPU, emulated


@pytest.fixture(scope="module")
def on_gpu(ragged):
    return LoweredProgram(Lowering(plan(ragged, "on_gpu", sizes={"W": WIDTH}, target="sm_90a")))


def launches(made: LoweredProgram, arrays, sizes) -> list[Launch]:
    sizes = {**sizes, "W": WIDTH}
    roles = {name: "output" if name == "y" else "input" for name in arrays}
    buffers = {name: Buffer(array, roles[name], name) for name, array in arrays.items()}
    operands, spaces, found = Operands(arrays, roles, sizes, {}, False), made.workspaces(sizes), []
    for kernel, source in zip(made.lowering.plan.kernels, made.lowering.sources, strict=True):
        blocks = grid_blocks(made.lowering.plan, kernel)
        extents = tuple(int(parse_number(blocks[axis]).evaluate(sizes)) for axis in ("x", "y", "z"))
        if 0 not in extents:
            found.append(made.launch(kernel, source, extents, buffers, spaces, operands))
    return found


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_every_step_on_a_gpu(on_gpu, lengths):
    arrays, sizes = drawn(lengths)
    given = launches(on_gpu, arrays, sizes)
    assert given[0].grid == (sizes["R"] // PAGE + sizes["S"], sizes["G"], 1)
    seen = emulate(given, target="sm_90a", seed=2)
    assert seen.verdict == "pass", seen.explain()
    np.testing.assert_allclose(arrays["y"], expected(arrays["x"], arrays["bounds"]), rtol=1e-5, atol=1e-5)


def test_no_row_of_pages_is_no_block(on_gpu):
    arrays, sizes = drawn((24,))
    assert launches(on_gpu, {**arrays, "bounds": np.zeros(1, np.int64)}, {**sizes, "S": 0}) == []


@pytest.mark.parametrize("bounds", [
    (-7, 4, 30, 99),  # below and beyond all rows: the operator brings them into range
    (-(2**62), 3, 3, 2**62),
], ids=str)  # fmt: skip
def test_bounds_that_the_operator_brings_into_range(on_gpu, bounds):
    arrays, sizes = drawn((40,))
    arrays["bounds"] = np.array(bounds, np.int64)
    seen = emulate(launches(on_gpu, arrays, {**sizes, "S": len(bounds) - 1}), target="sm_90a", seed=2)
    assert seen.verdict == "pass", seen.explain()
    np.testing.assert_allclose(arrays["y"], expected(arrays["x"], arrays["bounds"]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bounds", [
    (20, 10, 35, 5), (40, 0, 40, 0), (17, 17, 17, 23), (2**62, -(2**62), 2**62, 40), (-1, -1, -1, -1),
], ids=str)  # fmt: skip
def test_bounds_that_are_no_bounds_touch_nothing_outside(on_gpu, bounds):
    """Rows that belong to nobody stay unwritten, and rows that belong to two are a race: nothing else is wrong."""
    arrays, sizes = drawn((40,))
    arrays["bounds"] = np.array(bounds, np.int64)
    seen = emulate(launches(on_gpu, arrays, {**sizes, "S": len(bounds) - 1}), target="sm_90a", seed=2)
    assert seen.refusal is None
    assert {finding.kind for finding in seen.findings} <= {"unwritten", "race", "uninitialised"}, seen.explain()


def test_a_search_that_stops_too_early_is_noticed(on_gpu):
    arrays, sizes = drawn(LENGTHS["some are empty"])
    (given, *rest) = launches(on_gpu, arrays, sizes)
    text = given.source.replace("if (!((1 < (", "if (!((2 < (", 1)
    assert text != given.source
    wrong = Launch(text, given.symbol, given.grid, given.block, given.dynamic_shared_bytes, given.arguments)
    seen = emulate([wrong, *rest], target="sm_90a", seed=2)
    assert "uninitialised" in {finding.kind for finding in seen.findings}, seen.explain()
