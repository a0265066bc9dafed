"""The matrix loads of a product: every lane gets the elements that the instruction's declaration says it holds."""

from __future__ import annotations

import pytest

from kdsl.check.fragments import lane_maps
from kdsl.inspect.shared import MATRIX_ROWS
from kdsl.lower.intrinsics.matrix import LEFT_ROWS, RIGHT_ROWS, device_source
from kdsl.plan.cuda.products import intrinsic_name

from ..workshop import shipped

PITCH = 100


def held(row_of_lane: str, transposed: bool):
    """(lane, slot) to the element of the tile as it is stored, for ldmatrix.x4. Source: PTX ISA, ldmatrix."""
    found = {}
    for matrix in range(4):
        for row in range(8):
            at = eval(row_of_lane.format(ld=PITCH), {"lane": matrix * 8 + row})
            first, second = divmod(at, PITCH)
            for column in range(8):
                lane, half = (column * 4 + row // 2, row % 2) if transposed else (row * 4 + column // 2, column % 2)
                found[lane, matrix * 2 + half] = (first, second + column)
    return found


def wanted(operand: str, rows: int):
    """(lane, slot) to the element (m or n, k) of 16 x 16, from the instruction's own maps; B is two of 8 x 16."""
    instruction = shipped().instructions["mma.m16n8k16"]
    maps = lane_maps(instruction, operand)
    return {(lane, slot + 4 * part): (element[0] + 8 * part, element[1])
            for part in range(16 // rows) for element, (lane, slot) in maps.items()}  # fmt: skip


CASES = [(layout, rows, operand) for operand, known in (("A", LEFT_ROWS), ("B", RIGHT_ROWS))
         for layout, rows in known.items()]  # fmt: skip


@pytest.mark.parametrize("layout, rows, operand", CASES)
def test_lanes_hold_what_the_instruction_reads(layout, rows, operand):
    transposed = layout.startswith("k")
    loaded = held(rows, transposed)
    if transposed:
        loaded = {place: (second, first) for place, (first, second) in loaded.items()}
    assert loaded == wanted(operand, 16 if operand == "A" else 8)
    other = {"mk": "km", "km": "mk", "nk": "kn", "kn": "nk"}[layout]
    assert held({**LEFT_ROWS, **RIGHT_ROWS}[other], transposed) != held(rows, transposed), "layouts differ"


@pytest.mark.parametrize("layout", ["mk", "km", "nk", "kn"])
def test_the_bank_model_reads_the_same_rows(layout):
    text = {**LEFT_ROWS, **RIGHT_ROWS}[layout].format(ld=PITCH)
    assert all(eval(text, {"lane": lane}) == MATRIX_ROWS[layout](lane, PITCH) for lane in range(32))


def test_an_operand_in_shared_memory_has_its_own_pitch():
    source = device_source(intrinsic_name("mma.m16n8k16", "bf16", "nk", "mk"))
    assert "int lda, int ldb" in source and source.count("ldmatrix.sync") == 2
    assert device_source(intrinsic_name("mma.m16n8k16", "bf16", "nk")).count("ldmatrix.sync") == 1
