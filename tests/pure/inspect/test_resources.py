"""Occupancy against values of NVIDIA's calculator and published limits; use read from cuobjdump."""

from __future__ import annotations

import pytest

from kdsl.check.library import load
from kdsl.inspect import sass
from kdsl.inspect.resources import capability, named_barriers, occupancy, parse_usage, resources
from kdsl.lower.toolchain.ptxas import FunctionUse

TARGETS = load().targets


@pytest.mark.parametrize(
    "target, registers, threads, shared, blocks, limited",
    [
        ("sm_80", 32, 256, 0, 8, ("registers", "warps")),
        ("sm_80", 33, 256, 0, 6, ("registers",)),
        ("sm_80", 64, 128, 40_960, 4, ("shared",)),
        ("sm_80", 64, 128, 40_961, 3, ("shared",)),
        ("sm_80", 128, 128, 0, 4, ("registers",)),
        ("sm_80", 16, 32, 0, 32, ("blocks",)),
        ("sm_80", 255, 256, 0, 1, ("registers",)),
        ("sm_86", 32, 1024, 0, 1, ("warps",)),
        ("sm_86", 40, 128, 50_177, 1, ("shared",)),
        ("sm_86", 40, 128, 50_176, 2, ("shared",)),
        ("sm_89", 16, 32, 0, 24, ("blocks",)),
        ("sm_90a", 168, 384, 232_448, 1, ("registers", "shared")),
        ("sm_90a", 128, 256, 115_712, 2, ("registers", "shared")),
        ("sm_90a", 128, 256, 115_713, 1, ("shared",)),
        ("sm_90a", 128, 256, 232_449, 0, ("shared",)),
        ("sm_120a", 64, 128, 32_000, 3, ("shared",)),
    ],
)
def test_known_occupancies(target, registers, threads, shared, blocks, limited):
    found = occupancy(TARGETS[target], registers, threads, shared)
    assert (found.blocks, found.limited_by[: len(limited)]) == (blocks, limited)


def test_what_a_launch_cannot_have_fits_nowhere():
    assert occupancy(TARGETS["sm_90a"], 255, 512, 0).limits["registers"] == 0
    assert occupancy(TARGETS["sm_90a"], 32, 1025, 0).limits["warps"] == 0
    # Registers of five warps are checked as if eight took them.
    assert occupancy(TARGETS["sm_80"], 255, 32 * 9, 0).limits["registers"] == 0


def test_named_barriers_limit():
    assert "barriers" not in occupancy(TARGETS["sm_86"], 32, 32, 0, 16).limits
    assert occupancy(TARGETS["sm_120a"], 32, 32, 0, 16).blocks == 1
    assert occupancy(TARGETS["sm_90a"], 32, 32, 0, 16).limits["barriers"] == 4
    assert occupancy(TARGETS["sm_90a"], 32, 32, 0, 0).blocks == 32


def test_the_reserve_is_part_of_the_block_and_not_of_the_kernel():
    use = resources(FunctionUse("k", registers=64, static_shared=400), TARGETS["sm_90a"], 1000, 128)
    assert (use.shared, use.reserved, use.occupancy.shared_per_block) == (1400, 1024, 2432)
    assert use.spills == 0


@pytest.mark.parametrize(
    "target, known", [("sm_80", (8, 0)), ("sm_90a", (9, 0)), ("sm_103a", (10, 3)), ("sm_120a", (12, 0))]
)
def test_capability(target, known):
    assert capability(TARGETS[target]) == known


def test_a_target_without_an_architecture_is_refused():
    with pytest.raises(ValueError, match="cpu"):
        capability(TARGETS["cpu"])


USAGE = """
Resource usage:
 Common:
  GLOBAL:0
 Function s:
  REG:11 STACK:8 SHARED:1424 LOCAL:0 CONSTANT[0]:536 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


def test_use_from_the_cubin_alone():
    found = parse_usage(USAGE, "s", 1024)
    assert (found.registers, found.stack, found.static_shared) == (11, 8, 400)
    assert found.constant == ((0, 536),)
    assert resources(found, TARGETS["sm_90a"], 0, 32).spills is None
    assert parse_usage(USAGE, "s").static_shared == 1424
    with pytest.raises(KeyError, match="has: s"):
        parse_usage(USAGE, "t")


def test_barriers_from_sass():
    text = "Function : f\n/*0000*/ BAR.SYNC.DEFER_BLOCKING 0x0 ;\n/*0010*/ BAR.ARV 0x3, 0x40 ;\n"
    assert named_barriers(sass.parse(text).of("f")) == 4
    assert named_barriers(sass.parse(text.replace("0x3", "R4")).of("f")) == 16
    assert named_barriers(sass.parse("Function : f\n/*0000*/ EXIT ;\n").of("f")) == 0
