"""Tiles between fragments and shared memory: ldmatrix and stmatrix move what the descriptions say, and nothing else."""

from __future__ import annotations

import re

import numpy as np
import pytest
from attrs import evolve

from kdsl.driver import rehearsal
from kdsl.driver.emulation import LoweredProgram
from kdsl.driver.package import alignment
from kdsl.emulate.launches import Buffer
from kdsl.emulate.rehearsals import rehearsals
from kdsl.emulate.run import emulate
from kdsl.inspect.shared import shared_uses
from kdsl.inspect.stages import stage_names
from kdsl.lower.intrinsics.matrix import DTYPES
from kdsl.lower.intrinsics.tiles import device_source, swizzled_name
from kdsl.lower.lowering import Lowering
from kdsl.lower.swizzle import swizzle_of
from kdsl.plan.cuda.sharing import fits
from kdsl.plan.cuda.tiles import LOAD, STORE, tile_name
from kdsl.plan.refusal import PlanRefused

from ..workshop import library_of, plan, rehearsed_with, shipped, tactic_text

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}
HALVES = {"q": "f16", "k": "f16", "v": "f16", "g": "f16", "beta": "f16"}
STORED = ("mk", "km")
MOVES = [(LOAD, False), (LOAD, True), (STORE, False)]
ROUNDED = "o_sum for write_o                : f32 in shared pad 4"
TILED = "vx for residual : in registers as mma.m16n8k16.A\n    o_sum for write_o : in shared swizzle 128"


# ---- the device functions by themselves ----
KERNEL = """
extern "C" __global__ void __launch_bounds__(32) move(const float* __restrict__ X, float* __restrict__ Y) {{
  __shared__ alignas(128) {tile} tile[384];
  alignas(64) {held} f[8];
  int t = threadIdx.x;
  {moves}
}}
"""


def moved(direction: str, dtype: str, stored: str, swizzled: bool, wide: bool, change=lambda text: text):
    """What the emulator says, and the tile of numbers 0 to 255 after the move and plain accesses the other way."""
    name = tile_name(direction, dtype, stored, wide)
    name = swizzled_name(name) if swizzled else name
    pitch, numbers = (16, "0, 6, 1, ") if swizzled else (24, "")
    ctype = DTYPES[dtype][1]
    held = "float" if wide or direction == STORE else ctype
    row, column = ("i", "j") if stored == "mk" else ("j", "i")
    at = f"{row} * {pitch} + {column}"
    at = f"(({at}) ^ ((({at}) >> 6 & 1) << 3))" if swizzled else at
    element = "int i = t / 4 + (s & 3) / 2 * 8, j = s / 4 * 8 + t % 4 * 2 + (s & 1);"
    call = f"{name}(&f[0], &tile[0], {numbers}{pitch});"
    there = {
        LOAD: f"for (int s = 0; s < 8; ++s) {{ {element} tile[{at}] = X[i * 16 + j]; }}\n  __syncthreads();\n  {call}\n"
        f"  for (int s = 0; s < 8; ++s) {{ {element} Y[i * 16 + j] = (float)f[s]; }}",
        STORE: f"for (int s = 0; s < 8; ++s) {{ {element} f[s] = X[i * 16 + j]; }}\n  {call}\n  __syncthreads();\n"
        f"  for (int s = 0; s < 8; ++s) {{ {element} Y[i * 16 + j] = (float)tile[{at}]; }}",
    }[direction]
    text = change(device_source(name)) + KERNEL.format(tile=ctype, held=held, moves=there)
    source, found = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    result = emulate([(text, "move", (1, 1, 1), (32, 1, 1), 0, (Buffer(source, "input"), Buffer(found, "output")))])
    return result, found.tolist()


@pytest.mark.parametrize("swizzled", [False, True])
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("direction, wide", MOVES)
def test_a_tile_arrives_as_it_is(direction, wide, dtype, stored, swizzled):
    result, found = moved(direction, dtype, stored, swizzled, wide)
    assert result.verdict == "pass", result.explain()
    assert found == list(range(256))
    assert {use.conflict for use in result.shared if use.access == direction} == {1}


@pytest.mark.parametrize("direction, wide", MOVES)
@pytest.mark.parametrize("old, new", [
    (".trans", ""),
    ("((lane >> 3) & 1) * 8", "((lane >> 4) & 1) * 8"),  # the rows of another matrix: some go twice, some never
])  # fmt: skip
def test_another_tile_is_seen(direction, wide, old, new):
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    result, found = moved(direction, "bf16", "km", False, wide, change)
    assert result.verdict != "pass" or found != list(range(256))


# ---- in the shipped rules ----
@pytest.fixture(scope="module")
def fused():
    return Lowering(plan(shipped(), "wgmma_fused", target="sm_90a", **ON))


def test_a_step_has_one_load_and_one_store_of_a_tile(fused):
    (text,) = (made.source for made in fused.sources if made.kernel == "recurrence")
    for function in ("kdsl_ldmatrix_wide_bf16_km(", "kdsl_stmatrix_sw_bf16_km("):
        assert text.count(function) == 2  # itself, and a call
    assert not re.search(r"vx_for_residual_warp_ptr\[[^]]*\] =", text)  # nothing else fills it
    assert re.search(r"\*\(uint4\*\)\(o_ptr [^=]*= \*\(uint4\*\)\(", text)
    assert alignment(fused.plan)["o"] == 16


def test_the_bank_model_and_the_emulator_count_no_conflict(fused):
    recurrence, scheduled = fused.plan.kernels[1], fused.scheduled[1]
    uses = shared_uses(scheduled, fused.plan.target, stage_names(recurrence))
    found = {(u.kind, u.stage): u.wavefronts().degree for u in uses
             if u.buffer in ("vx", "o_sum_for_write_o") and u.kind != "cp.async"}  # fmt: skip
    assert found == {(LOAD, "vx_round_residual"): 1, (STORE, "o_sum_round_write_o"): 1, ("ld", "write_o"): 1}
    program = LoweredProgram(fused)
    call = rehearsals("kda.chunk_forward", program.settings)[0].call
    counted = emulate(program.bind(call).launches, target="sm_90a").shared
    assert {use.conflict for use in counted if use.access == STORE} == {1}


@pytest.mark.parametrize("old, new", [
    ("stmatrix.sync.aligned.m8n8.x4.trans", "stmatrix.sync.aligned.m8n8.x4"),
    ("ldmatrix.sync.aligned.m8n8.x4.trans", "ldmatrix.sync.aligned.m8n8.x4"),
    ("s_mask) << 3)", "s_mask >> 1) << 3)"),  # pieces not exchanged
    ('"f"(f[1]), "f"(f[0])', '"f"(f[0]), "f"(f[1])'),
    ("s[1] << 16", "s[2] << 16"),
])  # fmt: skip
def test_wrong_tiles_of_a_rule_are_seen(fused, monkeypatch, old, new):
    assert not rehearsed_with(monkeypatch, fused, "recurrence", old, new).holds


def test_of_f16_the_tiles_are_f16():
    """A rounding to bf16 on the way would be a second one."""
    made = plan(shipped(), "wgmma_fused", target="sm_90a", dtypes=HALVES, **ON)
    tensors = made.kernels[1].tensors
    assert tensors["vx"].dtype == tensors["o_sum_for_write_o"].dtype == "f16"
    lowering = Lowering(made)
    assert any("kdsl_stmatrix_sw_f16_km(" in made.source for made in lowering.sources)
    (verdict,) = rehearsal.rehearsed(lowering)
    assert verdict.holds, verdict


# ---- where they are not ----
def own(folder, target: str, new: str, **settings):
    """mma_bounded with its staging tile of o exchanged, which has all columns of the block."""
    tactic = tactic_text("mma_recurrence")
    assert ROUNDED in tactic
    tactic = tactic.replace(ROUNDED, new).replace("tactic mma_recurrence(", "tactic own_recurrence(")
    rule = re.sub(r" +bank_conflicts .*\n", "", shipped().rules["mma_bounded"].declaration.span.text)
    rule = rule.replace("apply mma_recurrence(", "apply own_recurrence(")
    return plan(library_of(folder, f"{rule}\n\n{tactic}"), "mma_bounded", target=target, **ON, **settings)


@pytest.mark.parametrize("target, stores", [("sm_80", False), ("sm_90a", True)])
def test_a_target_without_stmatrix_stores_elements(tmp_path, target, stores):
    lowering = Lowering(own(tmp_path, target, TILED))
    text = lowering.sources[1].source
    assert ("stmatrix.sync" in text) == stores and "kdsl_ldmatrix_bf16_km(" in text
    (verdict,) = rehearsal.rehearsed(lowering)
    assert verdict.holds, verdict


@pytest.mark.parametrize("new, code, said", [
    ("vx for residual : bf16 in registers as mma.m16n8k16.A\n    " + ROUNDED, "D347", "which is f16 in this call"),
    (TILED.replace("swizzle 128", "pad 4"), "D356", "the tiles of `o_sum_round_write_o` take 16 at once"),
])  # fmt: skip
def test_what_would_round_twice_or_lie_askew_is_refused(tmp_path, new, code, said):
    with pytest.raises((PlanRefused, AssertionError), match=said) as refused:
        own(tmp_path, "sm_90a", new, dtypes=HALVES)
    assert getattr(refused.value, "code", code) == code


def test_a_rounding_that_the_operator_does_not_offer_is_no_staging(tmp_path):
    """bf16 where o is f16 would round twice; the dtype of the port is the one that is not said."""
    with pytest.raises(AssertionError, match="`o_sum` may not be stored as bf16"):
        own(tmp_path, "sm_90a", "o_sum for write_o : bf16 in shared pad 8")


def test_a_swizzle_of_a_warps_panel_exchanges_pieces_within_its_rows(fused):
    swizzle = swizzle_of(fused.plan.kernels[1].tensors["o_sum_for_write_o"])
    assert [swizzle.of(16 * row) % 16 // 8 for row in range(16)] == [0, 0, 0, 0, 1, 1, 1, 1] * 2


def test_memory_is_not_shared_by_tensors_that_are_laid_out_differently(fused):
    tile = fused.plan.kernels[1].tensors["o_sum_for_write_o"]
    assert fits(tile, tile)
    assert not fits(tile, evolve(tile, swizzle=0)) and not fits(tile, evolve(tile, panel=0))
