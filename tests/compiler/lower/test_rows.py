"""Rows over warps beside columns over lanes: sums in two stages, wide accesses, and what other threads have refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
from attrs import evolve

from kdsl.driver.emulation import LoweredProgram, Operands
from kdsl.emulate.launches import Buffer
from kdsl.emulate.run import emulate
from kdsl.lower.lowering import Lowering
from kdsl.plan.refusal import PlanRefused

from ..workshop import library_of, plan, shipped

TEXT = """
operator test.rows {
  sizes { N; K, V in 16..256 }
  inputs {
    x : [N, K, V] of f32
    w : [N, K] of f32
    c : [N, V] of f32
  }
  outputs {
    y : [N, V] of f32
    z : [N, K, V] of f32
  }
  indices { n in N parallel; d, p in K; e in V }
  views { xx[d, e] = x[n, d, e]; wx[d] = w[n, d]; cx[e] = c[n, e]; yx[e] = y[n, e]; zx[d, e] = z[n, d, e] }
  part whole {
    double : s[d, e] = 2.0 * xx[d, e]
    take   : t[e] = cx[e] - sum over d of s[d, e] * wx[d]
    most   : m[e] = maximum over d of abs(s[d, e])
    add    : r[d, e] = s[d, e] + t[e] * m[e]
    put    : yx[e] = t[e]
    put_z  : zx[d, e] = r[d, e]
  }
}
rule rows schedules test.rows on sm_90a {
  kernel all computes whole {
    grid { x : n; y : e by 64 }
    roles { all : 4 warps over d by 32 }
    place {
      s, r : f32 in registers lanes e by 2
      t    : f32 in registers lanes e by 2
      m    : f32 in shared
    }
  }
  ensure { spills == 0 }
}
"""
ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}


def made(folder, *changes: tuple[str, str]):
    text = TEXT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return plan(library_of(folder, text), "rows", target="sm_90a")


def ran(lowering: Lowering, sources=None, blocks: int = 2, rows: int = 2):
    """The emulator's result of the rule's kernel, with y and z and what they should be."""
    rng = np.random.default_rng(3)
    x, w, c = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, 128, 128), (rows, 128), (rows, 128)))
    y, z = np.full((rows, 128), np.nan, np.float32), np.full((rows, 128, 128), np.nan, np.float32)
    arrays = {"x": x, "w": w, "c": c, "y": y, "z": z}
    roles = {name: "output" if name in "yz" else "input" for name in arrays}
    operands = Operands(arrays, roles, {"N": rows, "K": 128, "V": 128}, {}, False)
    buffers = {name: Buffer(array, roles[name], name) for name, array in arrays.items()}
    (kernel,), (source,) = lowering.plan.kernels, sources or lowering.sources
    launch = LoweredProgram(lowering).launch(kernel, source, (rows, blocks, 1), buffers, {}, operands)
    result = emulate([launch], seed=2)
    t = c - np.einsum("nde,nd->ne", 2.0 * x, w, dtype=np.float64)
    return result, (y, t), (z, 2.0 * x + (t * np.abs(2.0 * x).max(axis=1))[:, None])


@pytest.mark.parametrize("change, blocks", [
    ((), 2), ((("t    : f32 in registers lanes e by 2", "t    : f32 in shared"),), 2),
    ((("m    : f32 in shared", "m    : f32 in registers lanes e by 2"),), 2),
    ((("by 64", "by 128"), ("lanes e by 2", "lanes e by 4")), 1),
    ((("4 warps over d by 32", "8 warps over d by 16"),), 2),
    ((("by 64", "by 16"),), 8),
], ids=["two columns", "sum in shared", "maximum in lanes", "four columns", "eight warps", "idle lanes"])  # fmt: skip
def test_sums_over_rows_of_all_warps(tmp_path, change, blocks):
    result, *outputs = ran(Lowering(made(tmp_path, *change)), blocks=blocks)
    assert result.verdict == "pass", result.explain()
    for found, right in outputs:
        np.testing.assert_allclose(found, right, rtol=2e-5, atol=2e-4)


def test_four_columns_of_a_lane_are_one_access(tmp_path):
    lowering = Lowering(made(tmp_path, ("by 64", "by 128"), ("lanes e by 2", "lanes e by 4")))
    (source,) = lowering.sources
    assert "*(float4*)(x_ptr" in source.source and "*(float4*)(z_ptr" in source.source
    assert lowering.plan.kernels[0].aligned["x"] == lowering.plan.kernels[0].aligned["z"] == 16


def test_each_warp_sums_its_own_rows(tmp_path):
    (kernel,) = made(tmp_path).kernels
    names = [stage.name for stage in kernel.body]
    assert names.index("take_part") + 1 == names.index("take") and names.index("most_part") + 1 == names.index("most")
    assert kernel.tensors["t_part"].shape == (4, 64) and kernel.tensors["t_part"].memory == "shared"
    assert {"take", "most"} <= set(kernel.barriers) and not {"take_part", "most_part"} & set(kernel.barriers)


def test_what_every_warp_has_is_written_by_one(tmp_path):
    (source,) = Lowering(made(tmp_path)).sources
    (store,) = [number for number, line in enumerate(source.source.splitlines()) if "y_ptr +" in line]
    before = source.source.splitlines()[store - 3 : store]
    assert any("threadIdx.y) < 1" in line for line in before), before


def test_a_missing_barrier_is_seen(tmp_path):
    """The parts of all warps must be there before they are added up."""
    lowering = Lowering(made(tmp_path))
    (source,) = lowering.sources
    places = [found.span() for found in re.finditer(r"__syncthreads\(\);", source.source)]
    assert len(places) == len(lowering.plan.kernels[0].barriers)
    for start, end in places:
        wrong = evolve(source, source=source.source[:start] + ";" + source.source[end:])
        result, *_ = ran(lowering, [wrong])
        assert {finding.kind for finding in result.findings} & {"race", "uninitialised"}, result.explain()


def test_a_pin_cannot_take_the_barrier_before_a_sum_of_parts_away(tmp_path):
    with pytest.raises(PlanRefused, match="without a barrier before it") as caught:
        made(tmp_path, ("      m    : f32 in shared\n    }", "      m    : f32 in shared\n    }\n"
                        "    pin { all.barriers_before = most }"))  # fmt: skip
    assert caught.value.code == "D139"


@pytest.mark.parametrize("change, said", [
    (("over d by 32", "over d by 16"), "4 warps have 64 rows `d` of `s`"),
    (("over d by 32", "over d"), "4 warps have 4 rows `d` of `s`"),
    (("4 warps over d by 32", "2 warps over d by 32"), "2 warps have 64 rows `d` of `s`"),
])  # fmt: skip
def test_rows_that_no_warp_has(tmp_path, change, said):
    with pytest.raises(PlanRefused) as caught:
        made(tmp_path, change)
    assert caught.value.code == "D360" and said in caught.value.message and "warps over d by" in caught.value.help[0]


@pytest.mark.parametrize("stage, said", [
    ("r[d, e] = s[d, e] + t[e] * sum over p < d of s[p, e]", "reads elements of `s` that other warps have"),
    ("r[d, e] = s[d, e] + t[e] * sum over p of s[p, e] * m[e]", "reads elements of `s` that other warps have"),
])  # fmt: skip
def test_rows_of_other_warps(tmp_path, stage, said):
    with pytest.raises(PlanRefused) as caught:
        made(tmp_path, ("r[d, e] = s[d, e] + t[e] * m[e]", stage.replace("s[d, e] + t[e] * ", "")))
    assert caught.value.code == "D361" and said in caught.value.message and "in shared" in caught.value.help[0]


def test_columns_of_other_lanes(tmp_path):
    """Lanes own e: the element beside it is another lane's."""
    with pytest.raises(PlanRefused, match="that other lanes have") as caught:
        made(tmp_path, ("add    : r[d, e] = s[d, e]", "add    : r[d, e] = s[d, 63 - e]"))
    assert caught.value.code == "D361"


def test_a_sum_below_a_bound_has_no_parts(tmp_path):
    with pytest.raises(PlanRefused) as caught:
        made(tmp_path, ("sum over d of s[d, e] * wx[d]", "sum over d < 5 of s[d, e] * wx[d]"))
    assert caught.value.code == "D361" and "below 5" in caught.value.message


def test_decode_moves_states_in_wide_accesses_and_fetches_its_inputs_first():
    lowering = Lowering(plan(shipped(), "lane_columns", {"columns": 128}, target="sm_90a", **ON))
    (source,) = lowering.sources
    text = source.source
    assert "*(float4*)(pool_ptr" in text and "*(float4*)(pool_updated_ptr" in text
    assert text.index("cp_async") < text.index("pool_ptr +") and lowering.plan.kernels[0].aligned["pool"] == 16


def test_states_with_keys_last_are_taken_one_by_one():
    kernel = plan(shipped(), "lane_columns", target="sm_90a", state_v_first=True, **ON).kernels[0]
    assert "pool" not in kernel.aligned
