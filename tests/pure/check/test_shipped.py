"""What is shipped is right, at every point of its choices, and checking it is quick and light."""

from __future__ import annotations

import subprocess
import sys

import pytest
from texts import RULES, STANDARD

from kdsl.check import check_paths
from kdsl.check.library import load
from kdsl.check.rules import points, rule_at

from ..pace import Paced

SHIPPED = sorted(RULES.rglob("*.kds"))


def test_no_findings():
    result = check_paths([RULES, STANDARD])
    assert result.diagnostics == ()
    assert result.ok and len(result.files) == len(list(STANDARD.rglob("*.kds"))) + len(SHIPPED)


@pytest.mark.parametrize("path", SHIPPED, ids=[p.stem for p in SHIPPED])
def test_each_rule_alone(path):
    assert check_paths([path]).diagnostics == ()


def test_every_point_resolves():
    library = load(SHIPPED)
    for rule in library.rules.values():
        for target in rule.targets:
            for choices in points(rule):
                point = rule_at(rule, library.targets[target], choices, library.tactics)
                assert point.kernels and set(choices) == set(rule.choices)


def test_the_library_of_a_check_is_that_of_a_load():
    checked, loaded = check_paths([RULES]).library, load(SHIPPED)
    for kind in ("operators", "targets", "instructions", "tactics", "rules"):
        assert set(getattr(checked, kind)) == set(getattr(loaded, kind)), kind


def test_neither_numpy_nor_tvm_nor_torch():
    code = (
        "import sys; from kdsl.check import check_paths; import kdsl.contract.select; "
        f"assert check_paths([{str(RULES)!r}]).ok; "
        "assert not {'numpy', 'tvm', 'torch', 'lark'} & set(sys.modules), sorted(sys.modules)"
    )
    check_paths([RULES])  # the tables of the grammar are made once, by Lark, and kept
    subprocess.run([sys.executable, "-c", code], check=True)


def test_quick():
    """A second run in this process; the cold process takes half a second."""
    check_paths([RULES, STANDARD])
    with Paced() as took:
        check_paths([RULES, STANDARD])
    assert took.seconds < 1.0
