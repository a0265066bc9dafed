"""The picture holds what the plan says, and nothing that a browser would have to fetch."""

from __future__ import annotations

import xml.etree.ElementTree as xml

import pytest
from click.testing import CliRunner

from kdsl.cli.main import cli
from kdsl.plan import steps as s
from kdsl.review.drawing import Nest, drawing
from kdsl.review.subject import subject
from kdsl.review.svg import svg

from ..inspect.rules import RULES, file_of

SPACE = "{http://www.w3.org/2000/svg}"


def drawn(rule: str, target: str = "sm_90a"):
    return drawing(subject(str(file_of(rule))).lowering(target).plan)


@pytest.mark.parametrize("rule, target", [*((rule, "sm_90a") for rule in RULES), ("cpu_split", "cpu")])
def test_every_stage_and_buffer_of_the_plan_is_in_the_picture(rule, target):
    plan = subject(str(file_of(rule))).lowering(target).plan
    picture = drawing(plan)
    root = xml.fromstring(svg(picture))
    words = " ".join(element.text or "" for element in root.iter(f"{SPACE}text"))
    for kernel, panel in zip(plan.kernels, picture.panels, strict=True):
        assert {row.stage for row in panel.rows} == {stage.name for stage in kernel.stages}
        assert f"kernel {kernel.name}" in words
        for column in panel.columns:
            assert f"{', '.join(column.tensors)}  {column.label}" in words
            assert column.first <= min(column.writes, default=column.first)
            assert max((*column.reads, *column.writes)) <= column.last < len(panel.rows)


def test_lives_of_the_recurrence():
    recurrence = next(panel for panel in drawn("mma_bounded").panels if panel.name == "recurrence")
    at = {row.stage: number for number, row in enumerate(recurrence.rows)}
    (frame,) = recurrence.frames
    ring = next(column for column in recurrence.columns if column.tensors[0] == "k_decayed")
    assert "ring 4" in ring.label and ring.memory == "shared" and at["state_key"] in ring.reads
    assert ring.first <= frame.first and ring.last == frame.last  # the next step's copy lies there
    short = next(column for column in recurrence.columns if column.tensors[0] == "sw")
    assert (short.memory, short.first, short.last) == ("registers", at["state_key"], at["residual"])
    row = recurrence.rows[at["state_key"]]
    assert "4 tiles of e over warps" in row.loops and row.instruction.startswith("mma.m16n8k16")


def test_nothing_is_fetched_and_names_are_escaped():
    text = svg(drawn("lane_columns"))
    assert "href" not in text and "@import" not in text and "url(" not in text
    assert text.count("http") == 1  # the name space


def test_loops_after_their_steps():
    nest = Nest({"i": 16, "d": 128}, ["i", "d"])
    nest.make(s.Fuse("x", None, "", ("i", "d"), "element"))
    nest.make(s.Split("x", None, "", "element", (None, 4, 32), ("element.turn", "element.warp", "element.lane")))
    nest.make(s.Bind("x", None, "", "element.warp", "threadIdx.y"))
    nest.make(s.Bind("x", None, "", "element.lane", "threadIdx.x"))
    assert nest.text == "i x d: 16 turns, 4 warps, 32 lanes"
    assert Nest({"d": 1}, ["d"]).text == ""


def test_the_command(tmp_path):
    file = tmp_path / "picture.svg"
    done = CliRunner().invoke(cli, ["viz", str(file_of("mma_bounded")), "--target", "sm_80", "--output", str(file)])
    assert done.exit_code == 0 and xml.fromstring(file.read_text(encoding="utf-8")).tag == f"{SPACE}svg"
    done = CliRunner().invoke(cli, ["viz", str(file_of("mma_bounded")), "--target", "cpu"])
    assert done.exit_code == 2 and "is for sm_80" in done.output


def test_kernels_of_one_launch():
    prepare, recurrence = drawn("mma_beside").panels
    assert prepare.title == "computes prepare; 64 threads a group, 2 warps, 4 such groups in the blocks of recurrence"
    assert recurrence.title == "computes recur; 256 threads a block, 8 warps, beside those of prepare"
    assert (prepare.keeper, recurrence.keeper) == ("a group", "a block")
    assert any(line.startswith("k_decayed bf16 ") for line in prepare.passes_on) and not recurrence.passes_on
    slot = next(column for column in prepare.columns if column.tensors[0] == "k_decayed")
    assert "in a slot" in slot.label
    assert "in slots of shared memory for the next kernel, a step: " in svg(drawn("mma_beside"))
