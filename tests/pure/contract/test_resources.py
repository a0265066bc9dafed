"""Bytes of memories and conflicts of banks, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from kdsl.check.blueprint import blueprint
from kdsl.check.library import load
from kdsl.check.rules import rule_at
from kdsl.contract.banks import ldmatrix_degree
from kdsl.contract.facts import plan_facts
from kdsl.contract.resources import Setting, memory_use
from kdsl.data import data_root


@pytest.mark.parametrize(
    ("row", "pad", "swizzle", "degree"),
    [(256, 0, 0, 8), (256, 16, 0, 1), (128, 0, 0, 8), (128, 16, 0, 1), (128, 0, 128, 1), (32, 16, 0, 1),
     (64, 0, 64, 1), (256, 0, 128, 1), (256, 0, 64, 2), (256, 0, 32, 4),
     (32, 0, 32, 1), (32, 0, 0, 2), (64, 0, 0, 4), (16, 0, 0, 1)],
)  # fmt: skip
def test_ldmatrix(row, pad, swizzle, degree):
    assert ldmatrix_degree(row, pad, swizzle) == degree


@pytest.fixture(scope="module")
def cpu():
    library = load(sorted((data_root() / "rules").rglob("*.kds")))
    rule = library.rules["cpu_split"]
    return library, rule_at(rule, library.targets["cpu"], rule.defaults, library.tactics)


def test_stack_of_the_state(cpu):
    library, point = cpu
    operator = library.operators["kda.chunk_forward"]
    setting = Setting(
        operator, blueprint(operator).under(point.form), {**point.form, "K": 128, "V": 64}, {}, "cpu"
    )
    use = memory_use(setting, point.kernels[0], ("stack",))["stack"]
    buffers = {b.tensor: b.bytes for b in use.buffers}
    assert buffers["state"] == 128 * 64 * 4 and buffers["gc"] == 16 * 128 * 4 and buffers["b"] == 16 * 4
    assert use.bytes == sum(buffers.values()) and use.buffers[0].bytes == max(buffers.values())


def test_facts_that_a_call_decides_are_left_out(cpu):
    library, point = cpu
    operator = library.operators["kda.chunk_forward"]
    graph = blueprint(operator).under(point.form)
    facts, _ = plan_facts(Setting(operator, graph, {**point.form}, {}, "cpu"), point.kernels)
    assert "all/stack_bytes" not in facts and "all/grid_tasks" not in facts
    sizes = {"N": 3, "HV": 4, "K": 16, "V": 16}
    facts, _ = plan_facts(Setting(operator, graph, {**point.form, **sizes}, {}, "cpu"), point.kernels)
    assert facts["all/grid_tasks"].value == 12 and "all/stack_bytes" in facts
