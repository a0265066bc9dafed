"""Lines of the CUDA by stage: no line changes for it, and instructions come home to their stage."""

from __future__ import annotations

import pytest

from kdsl.check.graph import strip
from kdsl.inspect.counts import is_matrix
from kdsl.inspect.listing import executing
from kdsl.inspect.stages import stage_names
from kdsl.lower.cuda import lower_cuda
from kdsl.lower.link import as_role
from kdsl.lower.sourcemap import stage_of, unmarked
from kdsl.lower.toolchain import nvcc
from kdsl.syntax import nodes as n

from .rules import RULES, lowering_of, staged

PRODUCTS = ("state_key", "solve_apply", "state_query", "within", "state_update")


@pytest.mark.parametrize("rule", RULES)
def test_marks_leave_no_trace_in_the_text(rule):
    lowering = lowering_of(rule, "sm_90a")
    kernels = zip(lowering.plan.kernels, lowering.alone, lowering.scheduled, strict=True)
    for kernel, source, scheduled in kernels:
        if kernel.turns:  # stages that other warps compute are found by their marks
            source = lower_cuda(scheduled, "sm_90a", kernel.threads, stage_names(kernel), kernel.resident)
        without = lower_cuda(scheduled, "sm_90a", kernel.threads, (), kernel.resident)
        assert source.source == without.source
        assert source.lines.stages and not without.lines.stages


def test_lines_of_kernels_of_one_launch_are_those_of_each():
    """Letter for letter, but for the names of a warp and of its barrier."""
    lowering = lowering_of("mma_beside", "sm_90a")
    (launch,) = lowering.sources
    text = launch.source.split("\n")
    assert set(launch.lines.stages) == {stage for source in lowering.alone for stage in source.lines.stages}
    for kernel, source in zip(lowering.plan.kernels, lowering.alone, strict=True):
        own = source.source.split("\n")
        for stage in source.lines.stages:
            lines = [as_role(own[number - 1], kernel.threads[1]) for number in sorted(source.lines.lines(stage))]
            assert lines == [text[number - 1] for number in sorted(launch.lines.lines(stage))], stage


def test_machine_code_is_the_same_with_and_without(compiler):
    lowering = lowering_of("lane_columns", "sm_90a")
    (kernel,), (source,), (scheduled,) = lowering.plan.kernels, lowering.sources, lowering.scheduled
    plain = lower_cuda(scheduled, "sm_90a", source.threads, (), kernel.resident).source
    options = nvcc.Options(fast_math=True)
    made = [compiler.compile(text, "sm_90a", options).cubin for text in (source.source, plain)]
    assert made[0] == made[1]


@pytest.mark.parametrize("rule", RULES)
def test_every_stage_with_work_has_lines_and_no_line_has_two(rule):
    lowering = lowering_of(rule, "sm_90a")
    for kernel, source in zip(lowering.plan.launches, lowering.sources, strict=True):
        lines = [line for found in source.lines.stages.values() for line in found]
        assert len(lines) == len(set(lines))
        stages = [stage for part in lowering.plan.launched_with(kernel) for stage in part.stages]
        missing = {stage.name for stage in stages} - set(source.lines.stages)
        for stage in stages:  # x = x, in one buffer: no instruction, no line
            if stage.name in missing:
                assert isinstance(strip(stage.stage.initial), n.Reference)


def test_matrix_instructions_come_from_the_products_alone(compiler):
    recurrence = staged("mma_bounded", "sm_90a")["recurrence"]
    function = recurrence.code.sass.of(recurrence.code.kernel)
    homes = [recurrence.stage_of(i) for i in executing(function) if is_matrix(i)]
    assert len(homes) == 52 and set(homes) == set(PRODUCTS)
    assert homes.count("state_key") in (15, 16, 17), "ptxas may give one the line of the product beside it"
    assert homes.count("state_key") + homes.count("state_query") == 32
    assert homes.count("solve_apply") in (1, 2), "ptxas may leave one of a pair without a line of its own"


def test_copies_come_from_their_fetches(compiler):
    recurrence = staged("mma_bounded", "sm_90a")["recurrence"]
    function = recurrence.code.sass.of(recurrence.code.kernel)
    homes = {recurrence.stage_of(i) for i in executing(function) if i.opcode == "LDGSTS"}
    fetches = {stage.name for stage in recurrence.plan.stages if stage.kind == "copy"}
    assert homes and homes <= fetches


def test_names_that_primitives_derive():
    stages = ("within", "write_o", "k_decayed_copy", "k_decayed_copy_first")
    assert stage_of("within_update_o", stages) == "within"
    assert stage_of("write_o", stages) == "write_o"
    assert stage_of("k_decayed_copy_first_0", stages) == "k_decayed_copy_first"
    assert stage_of("root", stages) is None and stage_of("within_row", stages) is None


def test_text_between_marks():
    text = "a;\n  kdsl_stage_begins(1);\n  b;\n  c;\n  kdsl_stage_ends(1);\nd;"
    plain, found = unmarked(text, ("x", "y"))
    assert plain == "a;\n  b;\n  c;\nd;"
    assert found.lines("y") == {2, 3} and found.stage_of(2) == "y" and found.stage_of(1) is None
