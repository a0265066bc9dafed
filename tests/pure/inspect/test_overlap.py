"""Overlap followed along the paths of small programs."""

from __future__ import annotations

import pytest

from kdsl.inspect import sass
from kdsl.inspect.flow import flow
from kdsl.inspect.overlap import overlapped


def program(text: str):
    """SASS of one instruction a line; a line that ends in a colon is a label."""
    lines, address = ["Function : f"], 0
    for line in text.strip().splitlines():
        if line.strip().endswith(":"):
            lines.append(line.strip())
        else:
            lines.append(f"/*{address:04x}*/ {line.strip()} ;")
            address += 16
    return sass.parse("\n".join(lines)).of("f")


def work(instruction) -> bool:
    return instruction.opcode in ("HMMA", "FADD")


def everything(_) -> bool:
    return True


DOUBLE_BUFFERED = """
  LDGSTS.E.128 [R1], [R2.64]
  LDGDEPBAR
.L_x_0:
  LDGSTS.E.128 [R1], [R2.64]
  LDGDEPBAR
  DEPBAR.LE SB0, {open}
  BAR.SYNC 0x0
  HMMA.16816.F32 R4, R8, R12, R4
  FADD R4, R5, R6
  @P0 BRA `(.L_x_0)
  DEPBAR.LE SB0, 0x0
  HMMA.16816.F32 R4, R8, R12, R4
  EXIT
"""


def test_a_ring_of_two_overlaps_its_loop():
    found = overlapped(program(DOUBLE_BUFFERED.format(open="0x1")), work, everything)
    assert (found.share, found.possible, found.instructions, found.issues) == (1, 1, 2, 2)


def test_waiting_for_everything_overlaps_nothing():
    found = overlapped(program(DOUBLE_BUFFERED.format(open="0x0")), work, everything)
    assert (found.share, found.possible) == (0, 0)


def test_the_wait_splits_the_stage():
    straight = """
      LDGSTS.E.128 [R1], [R2.64]
      LDGDEPBAR
      FADD R4, R5, R6
      DEPBAR.LE SB0, 0x0
      FADD R4, R5, R6
      FADD R4, R5, R6
      FADD R4, R5, R6
      EXIT
    """
    assert overlapped(program(straight), work, everything).share == 0.25


def test_a_skipped_issue_is_possible_and_not_certain():
    text = """
      LDGSTS.E.128 [R1], [R2.64]
      LDGDEPBAR
    .L_x_0:
      @P1 BRA `(.L_x_1)
      LDGSTS.E.128 [R1], [R2.64]
    .L_x_1:
      LDGDEPBAR
      DEPBAR.LE SB0, 0x1
      HMMA.16816.F32 R4, R8, R12, R4
      @P0 BRA `(.L_x_0)
      EXIT
    """
    found = overlapped(program(text), work, everything)
    assert (found.share, found.steady, found.possible) == (0, 1, 1)


def test_what_waits_for_everything_is_not_steady_either():
    text = """
    .L_x_0:
      @P1 BRA `(.L_x_1)
      LDGSTS.E.128 [R1], [R2.64]
    .L_x_1:
      LDGDEPBAR
      DEPBAR.LE SB0, 0x0
      HMMA.16816.F32 R4, R8, R12, R4
      @P0 BRA `(.L_x_0)
      EXIT
    """
    assert overlapped(program(text), work, everything).steady == 0


def test_only_the_copies_asked_for_count():
    text = """
      LDGSTS.E.128 [R1], [R2.64]
      LDGDEPBAR
      LDGSTS.E.64 [R1], [R2.64]
      LDGDEPBAR
      DEPBAR.LE SB0, 0x1
      FADD R4, R5, R6
      EXIT
    """
    code = program(text)
    assert overlapped(code, work, lambda i: "128" in i.modifiers).share == 0
    assert overlapped(code, work, lambda i: "64" in i.modifiers).share == 1


def test_wgmma_groups():
    text = """
      WARPGROUP.ARRIVE
      HGMMA.64x16x16.F32.BF16 R24, gdesc[UR12], R24
      HGMMA.64x16x16.F32.BF16 R24, gdesc[UR12], R24, gsb0
      FADD R4, R5, R6
      WARPGROUP.DEPBAR.LE gsb0, 0x0
      FADD R4, R5, R6
      EXIT
    """
    found = overlapped(program(text), work, everything)
    assert (found.share, found.issues) == (0.5, 2)


def test_what_never_runs_issues_nothing():
    text = "@!PT LDGSTS.E.128 [R1], [R2.64]\nFADD R4, R5, R6\nEXIT"
    found = overlapped(program(text), work, everything)
    assert (found.share, found.note) == (0, "nothing asynchronous is issued")


@pytest.mark.parametrize(
    "text, note",
    [
        ("UBLKCP.S.G [UR12], [UR14], UR8\nFADD R4, R5, R6\nEXIT", "UBLKCP"),
        ("UTCHMMA gdesc[UR12], tmem[UR4]\nFADD R4, R5, R6\nEXIT", "UTCHMMA"),
        ("LDGSTS.E.128 [R1], [R2.64]\nFADD R4, R5, R6\nBRX R2 -0x40\nEXIT", "computed"),
        ("LDGSTS.E.128 [R1], [R2.64]\nEXIT", "no instruction"),
    ],
)
def test_what_cannot_be_followed_is_unknown(text, note):
    found = overlapped(program(text), work, everything)
    assert found.share is None and note in found.note


def test_an_endless_issue_without_wait_is_unknown_or_full():
    text = ".L_x_0:\nLDGSTS.E.128 [R1], [R2.64]\nLDGDEPBAR\nFADD R4, R5, R6\n@P0 BRA `(.L_x_0)\nEXIT"
    assert overlapped(program(text), work, everything).share is None


def test_flow_of_branches_loops_and_convergence():
    text = """
      BSSY B0, `(.L_x_2)
      @P0 BRA `(.L_x_1)
      FADD R1, R2, R3
      BSYNC B0
    .L_x_1:
      BRA.U !UP0, `(.L_x_1)
      @P1 EXIT
      BSYNC B0
    .L_x_2:
      EXIT
    .L_x_3:
      BRA `(.L_x_3)
    """
    graph = flow(program(text))
    assert graph.successors == ((1,), (4, 2), (3,), (7,), (4, 5), (6,), (7,), (), (8,))
    assert graph.looping == {4}
    assert flow(program("BRA 0x20\nNOP\nEXIT")).successors == ((2,), (2,), ())


def test_one_barrier_register_meets_at_one_place_after_the_other():
    """The first BSYNC does not go where the second BSSY says."""
    text = """
      BSSY B0, `(.L_x_1)
      @P0 BRA `(.L_x_1)
      BSYNC B0
    .L_x_1:
      FADD R1, R2, R3
      BSSY B0, `(.L_x_2)
      @P1 BRA `(.L_x_2)
      BSYNC B0
    .L_x_2:
      EXIT
    """
    graph = flow(program(text))
    assert graph.successors == ((1,), (3, 2), (3,), (4,), (5,), (7, 6), (7,), ())
