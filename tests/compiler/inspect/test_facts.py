"""Facts of real machine code, and controls that must be seen: spills, no product, waits, conflicts."""

from __future__ import annotations

import pytest

from kdsl.inspect import counts, locate, ptx, sass
from kdsl.inspect import facts as reading
from kdsl.inspect.access import SharedAccess, index, judge
from kdsl.inspect.listing import Place, on_lines
from kdsl.inspect.overlap import overlapped
from kdsl.inspect.resources import resources, use_of_cubin
from kdsl.source.diagnostic import Evidence

ARCHES = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a")
RING_BYTES = 2 * 16 * 24 * 2
MMA = "mma.sync.m16n8k16.bf16"


def everything(_) -> bool:
    return True


@pytest.mark.parametrize("arch", ARCHES)
def test_facts_of_a_pipelined_product(compiled, targets, arch):
    found = reading.facts(
        compiled("pipeline", arch), targets[arch], RING_BYTES, 32,
        counted=[(name, level) for name in (MMA, "shfl.sync", "add.s32") for level in ("ptx", "sass")],
        used={MMA: None, "wgmma.mma_async": None},
    )  # fmt: skip
    values = {name: fact.value for name, fact in found.items()}
    assert values["spills"] == 0 and values["injected_waits"] == 0
    assert values["shared_bytes"] == RING_BYTES
    assert values["blocks_per_sm"] == values["occupancy"] == targets[arch].fields["blocks_per_sm"]
    assert values[f"count({MMA}) at ptx"] == 2 and values[f"count({MMA}) at sass"] == 2
    assert values["count(shfl.sync) at ptx"] == values["count(shfl.sync) at sass"] == 0
    assert values[f"uses {MMA}"] is True and values["uses wgmma.mma_async"] is False
    assert all(fact.tool and fact.tool[-1].isdigit() for fact in found.values())
    unknown = found.pop("count(add.s32) at sass")
    assert unknown.value is None and unknown.evidence is Evidence.UNKNOWN
    assert all(fact.evidence is Evidence.BINARY for fact in found.values())


@pytest.mark.parametrize("arch", ARCHES)
def test_the_ring_overlaps_its_loop_and_not_its_end(compiled, line_of, arch):
    code = sass.disassemble(compiled("pipeline", arch).cubin).of()
    steady, last = (on_lines([line_of("pipeline", mark)], "kernel.cu") for mark in ("// STEADY", "// LAST"))
    assert overlapped(code, lambda i: steady(i) and i.opcode in ("HMMA", "LDSM"), everything).share == 1
    assert overlapped(code, lambda i: last(i) and i.opcode in ("HMMA", "LDSM"), everything).share == 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120a"])
def test_control_a_kernel_that_spills(compiled, targets, arch):
    made = compiled("spill", arch, max_registers=32)
    code = reading.read(made, targets[arch], 0, 32)
    assert code.use.spill_stores > 0 and code.use.spill_loads > 0 and code.use.registers <= 32
    assert reading.resource_facts(code.use, made.version)["spills"].value == code.use.spills > 0
    listed = locate.costly(code.sass.of(), spills=True)
    assert any(item.kind == locate.SPILL and item.count for item in listed)
    assert compiled("spill", arch).log.of("spill").spill_stores == 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a", "sm_120a"])
def test_control_a_kernel_without_a_product(compiled, targets, arch):
    code = reading.read(compiled("reduce", arch), targets[arch], 0, 64)
    for name in (MMA, "mma.sync", "wgmma.mma_async", "tcgen05.mma", "HMMA"):
        assert reading.uses_fact(code, name).value is False
    assert reading.count_fact(code, "shfl.sync", "ptx").value == 5
    assert reading.count_fact(code, "shfl.sync", "sass").value == 5
    assert code.use.static_shared == 400 and code.use.barriers == 4
    assert code.use.spills == 0
    assert {item.kind for item in locate.costly(code.sass.of(), spills=False)} >= {locate.NARROW}


def test_wgmma_overlaps_what_leaves_its_accumulators_alone(compiled, targets, line_of):
    code = reading.read(compiled("wgmma", "sm_90a"), targets["sm_90a"], 0, 128, "overlapping")
    beside = on_lines([line_of("wgmma", "// BESIDE")])
    listed = code.sass.of("overlapping").instructions
    work = [i for i in listed if beside(i) and i.opcode in ("STG", "FMUL")]
    found = reading.overlap_fact(code, work.__contains__, everything)
    # ptxas may move the stage out of the window: the share is what the code has, here one straight loop.
    flying = [
        i.address for i in code.sass.of("overlapping").instructions if i.opcode in ("HGMMA", "WARPGROUP")
    ]
    inside = [i for i in work if flying[1] < i.address < flying[-1]]
    assert found.value == len(inside) / len(work) > 0 and found.evidence is Evidence.BINARY
    assert reading.injected_fact(code).value == 0
    assert counts.count(code.sass, "wgmma.mma_async.m64n16k16.bf16", "overlapping") == 2


def test_control_ptxas_serialises_wgmma(compiled, targets):
    code = reading.read(compiled("wgmma", "sm_90a"), targets["sm_90a"], 0, 128, "serial")
    assert reading.injected_fact(code).value >= 1
    codes = {message.code for message in code.objects.warnings}
    assert codes & {"C7514", "C7515"} and "C7517" in codes


def test_tcgen05_is_counted_and_its_overlap_unknown(compiled, targets):
    code = reading.read(compiled("tcgen05", "sm_100a"), targets["sm_100a"], 1024, 128)
    assert reading.count_fact(code, "tcgen05.mma.kind::f16", "sass").value == 1
    assert counts.counts(code.sass).matrix == {"UTCHMMA": 1}
    fact = reading.overlap_fact(code, lambda i: i.opcode == "STG", everything)
    assert fact.value is None and fact.evidence is Evidence.UNKNOWN


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120a"])
def test_the_cubin_alone_agrees_with_ptxas(compiled, targets, arch):
    for name, threads in (("reduce", 64), ("pipeline", 32)):
        made = compiled(name, arch)
        code = sass.disassemble(made.cubin).of(name)
        told = resources(made.log.of(name), targets[arch], 512, threads)
        read = resources(use_of_cubin(made.cubin, targets[arch], name, code), targets[arch], 512, threads)
        assert read.spills is None
        assert (read.registers, read.static_shared, read.barriers) == (
            told.registers, told.static_shared, told.barriers,
        )  # fmt: skip
        assert read.occupancy == told.occupancy


KERNEL = """extern "C" __global__ void column(float* out, int n) {{
  __shared__ float tile[32 * {row}];
  tile[threadIdx.x] = out[threadIdx.x];
  __syncthreads();
#line 7 "rules/conflict.kds"
  out[threadIdx.x] = tile[threadIdx.x * {row}];
}}
"""


@pytest.mark.parametrize("row, degree", [(1, 1), (2, 2), (4, 4), (8, 8), (33, 1)])
def test_control_conflicts_lead_back_to_the_rule(compiler, row, degree):
    found = judge(SharedAccess("tile", "ld", index(f"lane * {row} * 4")))
    assert found.degree == degree
    code = sass.disassemble(compiler.compile(KERNEL.format(row=row), "sm_90a").cubin).of()
    place = Place("rules/conflict.kds", 7)
    listed = locate.costly(code, False, {place: found}, files=("rules/conflict.kds",))
    conflicts = [item for item in listed if item.kind == locate.CONFLICT]
    assert [item.places for item in conflicts] == ([(place,)] if degree > 1 else [])
    loads = [i for i in code.instructions if i.executes and i.opcode == "LDS"]
    assert [locate.place(i, ("rules/conflict.kds",)) for i in loads] == [place]
    assert locate.at_address(code, loads[0].address) is loads[0]
    assert locate.lines(code)[place]["shared"] == 1


def test_accesses_by_width(compiled):
    code = sass.disassemble(compiled("pipeline", "sm_90a").cubin)
    found = {str(known): number for known, number in counts.counts(code).accesses.items()}
    assert found["shared load of 16 bytes"] == 2 and found["global to shared copy of 16 bytes"] == 2
    assert found["global store of 4 bytes"] == 4 and found["global load of 4 bytes"] == 4
    text = ptx.parse(compiled("pipeline", "sm_90a").ptx)
    assert counts.count(text, "cp.async") == 2 and counts.count(text, "cp.async.commit_group") == 2
    assert counts.instruction_mix(text.of())["bar.sync"] == 3
