"""The PTX parser on fixed text."""

from __future__ import annotations

from kdsl.inspect import counts, ptx
from kdsl.inspect.listing import Place

TEXT = """
.version 9.0
.target sm_90a, debug
.address_size 64
.extern .func  (.param .b32 func_retval0) vprintf
(
    .param .b64 vprintf_param_0
)
;
.global .align 4 .b8 table[8] = {1, 2, 3};
.func  (.param .b32 r) twice(.param .b32 x)
{
    .reg .b32 %r<3>;
    add.s32 %r1, %r2, %r2; // mul.lo.s32 is not here
    ret;
}
.visible .entry k2(
    .param .u64 k2_param_0
)
.maxntid 128, 1, 1
{
    .reg .pred     %p<2>;
    .shared .align 4 .b8 tile[512];
    .loc    1 20 3
    ld.param.u64     %rd1, [k2_param_0];
$L__BB0_1:
    .loc    2 151 9, function_name $L__info_string1, inlined_at 1 31 7
    // begin inline asm
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4},
      {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};
    // end inline asm
    { .reg .pred p; setp.ne.b32 p, 1, 0; @p ld.shared.v4.b32 {%r1,%r2,%r3,%r4}, [%r9]; }
    cp.async.cg.shared.global [%r9], [%rd1], 16;
    cp.async.commit_group;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r9], [%rd1], 64, [%r8];
    /* block
       comment; shfl.sync.bfly.b32 */
    @!%p1 bra     $L__BB0_1;
    ret;
}
    .file    1 "kernel.cu"
    .file    2 "cuda/include/cuda_fp16.hpp", 17, 42
"""


def test_functions_and_instructions():
    found = ptx.parse(TEXT)
    assert found.arch == "sm_90a"
    assert [(f.name, f.entry) for f in found.functions] == [("twice", False), ("k2", True)]
    kernel = found.of()
    assert [i.opcode for i in kernel.instructions] == [
        "ld", "mma", "setp", "ld", "cp", "cp", "cp", "bra", "ret",
    ]  # fmt: skip
    assert kernel.instructions[1].operands == (
        "{%f1,%f2,%f3,%f4}",
        "{%r1,%r2,%r3,%r4}",
        "{%r5,%r6}",
        "{%f1,%f2,%f3,%f4}",
    )
    assert kernel.instructions[3].guard == "p" and kernel.instructions[7].guard == "!p1"
    assert kernel.labels["$L__BB0_1"] == kernel.instructions[1].address


def test_places():
    kernel = ptx.parse(TEXT).of("k2")
    assert kernel.instructions[0].places == (Place("kernel.cu", 20),)
    assert kernel.instructions[1].places == (Place("cuda/include/cuda_fp16.hpp", 151), Place("kernel.cu", 31))


def test_counts_of_what_runs_and_not_of_comments():
    found = ptx.parse(TEXT)
    assert counts.count(found, "shfl.sync") == 0
    assert counts.count(found, "mma.sync.m16n8k16.bf16") == 1
    assert counts.count(found, "mma.sync.m16n8k16.f16") == 0
    assert counts.count(found, "cp.async") == 1
    assert counts.count(found, "cp.async.bulk") == 1
    assert counts.count(found, "ld.shared.v4") == 1
    assert counts.count(found, "mul.lo", "twice") == 0
    assert counts.count(found, "LDS.128") is None
    known = counts.counts(found)
    assert {str(k): v for k, v in known.accesses.items()} == {
        "global to shared copy of 16 bytes": 1, "shared load of 16 bytes": 1,
    }  # fmt: skip
