"""What a chunk's kernel is made of when lanes own columns of it: rows in registers, guards outside of loops."""

from __future__ import annotations

import re

import pytest

from kdsl.lower.guards import guards, joined
from kdsl.lower.lowering import Lowering
from kdsl.lower.tvm import BufferLoad, BufferStore, For, ForKind, SeqStmt, Var, decl_buffer, tirx
from kdsl.plan.refusal import PlanRefused

from ..workshop import chunk_operands, library_of, plan, shipped, tactic_body

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}
TEXT = shipped().rules["mma_bounded"].declaration.span.text.replace(
    "apply chunk_operands(prepare)", chunk_operands()
)
PIN = "    prepare.blocks_per_sm = if g is bf16 then 14 else 10\n"


@pytest.fixture(scope="module")
def prepare():
    lowering = Lowering(plan(shipped(), "mma_bounded", target="sm_90a", **ON))
    return next(source for source in lowering.sources if source.kernel == "prepare")


def edited(folder, old: str, new: str):
    assert old in TEXT
    return plan(library_of(folder, TEXT.replace(old, new)), "mma_bounded", target="sm_90a", **ON)


def lines_of(source, *stages: str) -> list[str]:
    text = source.source.splitlines()
    return [text[line - 1] for line in sorted(source.lines.lines(*stages))]


def test_every_input_is_read_once(prepare):
    for name in ("q", "k", "g"):
        reads = [x for x in prepare.source.splitlines() if re.search(rf"\b{name}_ptr\b", x) and "__global__" not in x]
        assert len(reads) == 1 and "cp_async" in reads[0], name


def test_rows_of_columns_are_registers_of_a_lane(prepare):
    assert "float gc_local_ptr[32]" in prepare.source, "16 rows of two neighbouring columns"
    assert "float inv_local_ptr[16]" in prepare.source, "a column of the inverse"
    scan = lines_of(prepare, "decay_sum")
    assert scan and not any("buf_dyn_shmem" in line for line in scan)


def test_a_guard_on_the_thread_stands_outside_of_the_loops(prepare):
    """The 16 columns of the inverse are on half a warp: one condition, not one for each of 120 multiply-adds."""
    inside = sorted(prepare.lines.lines("inverse", "inverse_sum"))
    part = prepare.source.splitlines()[inside[0] - 4 : inside[-1]]
    assert sum("if (" in line and "threadIdx" in line and "==" not in line for line in part) == 1


def test_a_step_computes_its_place_once(prepare):
    assert prepare.source.count("place_ptr[0] =") == 1 and prepare.source.count("place_ptr[0] *") > 5
    assert "start / " not in prepare.source[prepare.source.index("place_ptr[0] *") :]


def test_rows_are_compared_in_32_bits(prepare):
    assert re.search(r"if \(.*threadIdx\.x\)\) < \(\(int\)min\(max\(", "\n".join(lines_of(prepare, "gate_least")))


def test_a_pin_cannot_take_the_barrier_before_matrix_loads_away(tmp_path):
    """Columns are written by the lanes that own them, and read by matrix loads of all lanes and by the copies to the
    workspace, the first of which has the barrier. The buffer is that of g, which nobody reads any more."""
    kernels = plan(shipped(), "mma_bounded", target="sm_90a", **ON).kernels
    fences = next(kernel.barriers for kernel in kernels if kernel.name == "prepare")
    assert "gram_kk" not in fences
    kept = ", ".join(name for name in fences if name != "k_decayed_round_recurrence")
    pins = f"{PIN}      prepare.barriers_before = {kept}\n"
    with pytest.raises(PlanRefused, match="of `gx` without a barrier before it") as caught:
        edited(tmp_path, PIN, pins)
    assert caught.value.code == "D139"


def test_one_stage_has_one_owner(tmp_path):
    """The gates by lanes of i, of which each lane of d makes a running sum: no lane owns both."""
    body = tactic_body("chunk_columns")
    body = body.replace("warps warps", "2 warps").replace("by width", "by 2").replace("shift, lg, gc", "shift, gc")
    body = body.replace("  place {", "  place {\n    lg : f32 in registers lanes i by 1")
    with pytest.raises(PlanRefused, match="lanes that own") as caught:
        edited(tmp_path, "apply chunk_columns(2, 2)", body)
    assert caught.value.code == "D351"


def test_a_step_with_a_late_barrier_starts_without_one():
    """The barrier before the stores of o stands after the last use of the rings' slots."""
    recurrence = plan(shipped(), "mma_bounded", target="sm_90a", **ON).kernels[1]
    assert recurrence.settled and recurrence.barriers == ("write_o",)


class TestGuards:
    """The pass alone: what it joins, and what it must leave."""

    def setup_method(self):
        self.lane, self.other, self.index = Var("threadIdx_y", "int32"), Var("n", "int32"), Var("i", "int32")
        self.memory = decl_buffer((8,), "float32", "x", layout=None)

    def store(self, at: int, condition):
        return tirx.IfThenElse(condition, BufferStore(self.memory, tirx.const(1.0, "float32"), [at]), None)

    def loop(self, body):
        return For(self.index, tirx.const(0, "int32"), tirx.const(4, "int32"), ForKind.SERIAL, body)

    def test_neighbours_with_one_condition_are_one(self):
        both = joined(SeqStmt([self.store(0, self.lane < 1), self.store(1, self.lane < 1)]), [self.lane])
        assert isinstance(both, tirx.IfThenElse) and len(both.then_case.seq) == 2

    def test_a_condition_leaves_its_loop(self):
        out = joined(self.loop(self.store(0, self.lane < 1)), [self.lane])
        assert isinstance(out, tirx.IfThenElse) and isinstance(out.then_case, For)

    def test_other_conditions_stay(self):
        two = joined(SeqStmt([self.store(0, self.lane < 1), self.store(1, self.lane < 2)]), [self.lane])
        assert isinstance(two, SeqStmt) and len(two.seq) == 2
        assert isinstance(joined(self.loop(self.store(0, self.index < 2)), [self.lane]), For)

    def test_what_may_change_is_no_guard(self):
        assert guards(self.store(0, self.lane < 1), [self.lane])
        assert not guards(self.store(0, self.other < 1), [self.lane])
        assert not guards(self.store(0, BufferLoad(self.memory, [0]) < tirx.const(1.0, "float32")), [self.lane])
