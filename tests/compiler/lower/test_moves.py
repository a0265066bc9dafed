"""Copies that move numbers as they are, and asynchronous copies that fill what they leave out with zeros."""

from __future__ import annotations

import re
from functools import lru_cache

import pytest

from kdsl.driver import rehearsal
from kdsl.lower.copies import filling
from kdsl.lower.lowering import Lowering

from ..workshop import plan, rehearsed_with, shipped

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}
CONVERSION = re.compile(r"\(float\)|\(nv_bfloat16\)\w|float2|bfloat162float")


@lru_cache(maxsize=1)
def lowering() -> Lowering:
    return Lowering(plan(shipped(), "mma_bounded", target="sm_90a", **ON))


def lines_of(made: Lowering, kernel: str, *stages: str) -> str:
    (source,) = (source for source in made.sources if source.kernel == kernel)
    text = source.source.splitlines()
    return "\n".join(text[line - 1] for line in sorted(source.lines.lines(*stages)))


@pytest.mark.parametrize("name", ["k_decayed", "q_decayed"])
def test_copies_to_the_workspace_move_16_bytes_as_they_are(name):
    copy = lines_of(lowering(), "prepare", f"{name}_round_recurrence")
    assert re.search(rf"\*\(uint4\*\)\({name}_for_recurrence_ptr .* = \*\(uint4\*\)\(.*buf_dyn_shmem", copy)
    assert not CONVERSION.search(copy), copy


@pytest.mark.parametrize("dtype", ["nv_bfloat16", "half"])
def test_what_a_port_takes_leaves_as_it_is(dtype):
    dtypes = dict.fromkeys("qkvg", "f16") if dtype == "half" else {}
    made = plan(shipped(), "wgmma_fused", dtypes=dtypes, target="sm_90a", **ON)
    store = lines_of(Lowering(made), "recurrence", "write_o")
    assert re.search(rf"\*\(uint4\*\)\(o_ptr .* = \*\(uint4\*\)\(\(\({dtype}\*\)buf_dyn_shmem", store), store


def test_a_copy_that_rounds_converts():
    """The inverse is computed in f32 and stored as bf16; what the other copies have none of is seen here."""
    assert CONVERSION.search(lines_of(lowering(), "prepare", "inv_round_recurrence"))


def order(kernel: int = 0) -> list[str]:
    return [stage.name for stage in lowering().plan.kernels[kernel].body]


def test_copies_from_shared_memory_stand_before_the_first_reader_of_their_tensor():
    """One barrier serves both; copies from registers stand where the tensor is there."""
    names = order()
    assert names.index("k_decayed_round_recurrence") + 1 == names.index("gram_kk")
    assert names.index("q_decayed_round_recurrence") + 1 == names.index("gram_qk")
    assert names.index("gamma_round_recurrence") == names.index("step_decay") + 1
    assert names.index("inv_round_recurrence") > names.index("inverse")


def test_barriers_of_the_preparation():
    """One behind what was fetched, and one for each thing that other warps wrote since. A warp that reads what it wrote
    itself waits for its own lanes alone."""
    (kernel,) = (kernel for kernel in lowering().plan.kernels if kernel.name == "prepare")
    assert kernel.barriers == ("log_gate", "write_gate", "k_decayed_round_recurrence")
    assert kernel.syncs == ("norm_q", "inverse")
    (source,) = (source for source in lowering().sources if source.kernel == "prepare")
    text = source.source[source.source.index("__global__") :]
    assert (text.count("__syncthreads();"), text.count("kdsl_warp_sync();")) == (4, 2)


class TestZeros:
    """Tokens that a chunk lacks: calls of the rehearsal have chunks with tails."""

    def helper(self) -> str:
        (source,) = (source for source in lowering().sources if source.kernel == "prepare")
        (found,) = re.findall(r"ptx_cp_async\w*_pred_\w*\(void.*?^\}", source.source, re.MULTILINE | re.DOTALL)
        return found

    def test_the_helper_has_no_branch(self):
        assert '[%0], [%1], %2, %3;' in self.helper() and '"r"(predicate ? 16 : 0)' in self.helper()
        assert "@p" not in self.helper() and "@!p" not in self.helper()

    def test_results_are_right(self):
        (verdict,) = rehearsal.rehearsed(lowering())
        assert verdict.holds, verdict.found

    def test_what_is_read_in_their_place_is_seen(self, monkeypatch):
        verdict = rehearsed_with(monkeypatch, lowering(), "prepare", "predicate ? 16 : 0", "16")
        assert not verdict.holds

    def test_what_is_left_as_it_was_is_seen(self, monkeypatch):
        (source,) = (source for source in lowering().sources if source.kernel == "prepare")
        pattern = r"(ptx_cp_async\w*_pred_.*\bk_ptr\b.*\), (\(\(+i_d_fused.*\)))\);$"
        found = re.search(pattern, source.source, re.MULTILINE)
        call, condition = found.groups()
        verdict = rehearsed_with(monkeypatch, lowering(), "prepare", call, f"if ({condition}) {call}")
        assert not verdict.holds


HELPER = '''\
__forceinline__ __device__ void ptx_cp_async_legacy_pred_cg_16_2_2(void* dst, int predicate) {
  __asm__ __volatile__(
    "{\\n"
    " .reg .pred p;\\n"
    " setp.eq.u32 p, %3, 1;\\n"
    " @p cp.async.cg.shared.global [%0], [%1], %2;\\n"
    " @!p st.shared.v4.u32 [%0], {%4, %4, %4, %4};\\n"
    "}\\n"
    :: "r"(dst_addr), "l"(src_p), "n"(16), "r"(predicate), "r"(0)
  );
}
'''


def test_a_helper_in_words_that_are_not_known_is_no_silent_slow_copy():
    assert "predicate ? 16 : 0" in filling(HELPER) and "@p" not in filling(HELPER)
    plain = HELPER.replace("_pred_", "_")
    assert filling(plain) == plain
    for old, new in ((" .reg .pred p", " .reg .pred q"), ("setp.eq.u32", "setp.ne.u32"), ('"n"(16)', '"n"(SIZE)')):
        assert old in HELPER
        with pytest.raises(ValueError, match="another text than expected"):
            filling(HELPER.replace(old, new))
