"""Names of instructions: what matches what, and the SASS of PTX names."""

from __future__ import annotations

import pytest

from kdsl.inspect import names
from kdsl.inspect.listing import Instruction
from kdsl.inspect.memory import Access, access


def instruction(name: str, *operands: str) -> Instruction:
    opcode, *modifiers = name.split(".")
    return Instruction(0, opcode, tuple(modifiers), operands)


@pytest.mark.parametrize(
    "asked, there, same",
    [
        ("shfl.sync", "shfl.sync.bfly.b32", True),
        ("shfl", "shfl.sync.idx.b32", True),
        ("mma.sync.m16n8k16.bf16", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", True),
        ("mma.sync.m16n8k8.bf16", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", False),
        ("mma.sync", "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16", False),
        ("cp.async", "cp.async.cg.shared.global", True),
        ("cp.async", "cp.async.bulk.shared::cluster.global", False),
        ("cp.async", "cp.async.wait_group", False),
        ("cp.async.bulk", "cp.async.bulk.tensor.2d.shared::cluster.global", False),
        ("cp.async.bulk.tensor", "cp.async.bulk.tensor.2d.shared::cluster.global", True),
        ("bar.sync", "barrier.sync.aligned", True),
        ("LDS.128", "LDS.U.128", True),
        ("LDS.128", "LDS.64", False),
        ("LDG", "LDGSTS.E.128", False),
        ("HMMA.16816.BF16", "HMMA.16816.F32.BF16", True),
    ],
)
def test_matching(asked, there, same):
    assert names.matches(instruction(there), asked) is same


@pytest.mark.parametrize(
    "asked, there, same",
    [
        ("mma.sync.m16n8k16.bf16", "HMMA.16816.F32.BF16", True),
        ("mma.sync.m16n8k16.f16", "HMMA.16816.F32.BF16", False),
        ("mma.sync.m16n8k16.f16", "HMMA.16816.F32", True),
        ("mma.sync.m16n8k8.tf32", "HMMA.1688.F32.TF32", True),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "QMMA.16832.F32.E4M3.E4M3", True),
        ("mma.sync.m8n8k4.f64", "DMMA.8x8x4", True),
        ("mma.sync", "HGMMA.64x16x16.F32", False),
        ("wgmma.mma_async.m64n16k16.bf16", "HGMMA.64x16x16.F32.BF16", True),
        ("wgmma.mma_async.m64n32k16.bf16", "HGMMA.64x16x16.F32.BF16", False),
        ("tcgen05.mma.cta_group::1.kind::f16", "UTCHMMA", True),
        ("tcgen05.mma.kind::f8f6f4", "UTCHMMA", False),
        ("tcgen05.mma", "UTCOMMA", True),
        ("shfl.sync.bfly.b32", "SHFL.BFLY", True),
        ("ld.shared.v4.f32", "LDS.128", True),
        ("ld.shared.v4.f32", "LDS.64", False),
        ("ld.shared", "LDS.U16", True),
        ("st.global.v2.b32", "STG.E.64", True),
        ("bar.sync", "BAR.SYNC.DEFER_BLOCKING", True),
        ("bar.sync", "BAR.ARV", False),
        ("barrier.arrive", "BAR.ARV", True),
        ("cp.async.cg.shared.global", "LDGSTS.E.BYPASS.128", True),
        ("cp.async.bulk.tensor.2d", "UTMALDG.2D", True),
        ("ldmatrix.sync.aligned.m8n8.x4", "LDSM.16.M88.4", True),
        ("ex2.approx.ftz.f32", "MUFU.EX2", True),
        ("ex2.approx.ftz.f32", "MUFU.RCP", False),
    ],
)
def test_sass_of_ptx_names(asked, there, same):
    assert any(pattern.matches(instruction(there)) for pattern in names.sass_patterns(asked)) is same


def test_names_without_fixed_sass_are_unknown():
    assert names.sass_patterns("add.s32") is None
    assert names.sass_patterns("mapa.shared::cluster.u32") is None


@pytest.mark.parametrize(
    "there, operands, known",
    [
        ("LDS", (), Access("shared", "load", 4)),
        ("LDG.E.ENL2.256", (), Access("global", "load", 32)),
        ("LDG.E.U16.CONSTANT", (), Access("global", "load", 2)),
        ("STS.U8", (), Access("shared", "store", 1)),
        ("STL.64", (), Access("local", "store", 8)),
        ("LDGSTS.E.BYPASS.128", (), Access("global to shared", "copy", 16)),
        ("LDSM.16.MT88.2", (), Access("shared", "load", 16)),
        ("ATOMG.E.ADD.F32.FTZ.RN.STRONG.GPU", (), Access("global", "atomic", 4)),
        ("ld.global.nc.v4.f32", (), Access("global", "load", 16)),
        ("ld.global.nc.L1::no_allocate.L2::128B.v2.u64", (), Access("global", "load", 16)),
        ("st.shared::cta.b16", (), Access("shared", "store", 2)),
        ("ld.volatile.shared.u8", (), Access("shared", "load", 1)),
        ("cp.async.ca.shared.global", ("[%r1]", "[%rd1]", "4"), Access("global to shared", "copy", 4)),
        ("cp.async.wait_group", ("0",), None),
        ("ld.param.u64", (), None),
        ("LDC.64", (), None),
    ],
)
def test_accesses(there, operands, known):
    assert access(instruction(there, *operands)) == known
