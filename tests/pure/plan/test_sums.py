"""A condition that all terms of a sum share is asked once, of the sum."""

from __future__ import annotations

import pytest

from kdsl.check import check_paths
from kdsl.check.graph import build_graph
from kdsl.check.rules import rule_at
from kdsl.data import data_root
from kdsl.plan.derive import derive
from kdsl.plan.specialize import specialize
from kdsl.plan.stages import common_condition
from kdsl.syntax import nodes as n

OPERATOR = """
operator test.sums {{
  sizes {{ N; W in 1..64 }}
  inputs {{ x : [N, W] of f32 }}
  outputs {{ y : [N, W] of f32 }}
  indices {{ n in N parallel; i, j in W }}
  views {{ xx[i] = x[n, i]; yy[i] = y[n, i] }}
  part whole {{
    total : s[i] = sum over j of {body}
    write : yy[i] = s[i]
  }}
}}
"""


@pytest.mark.parametrize(("body", "condition"), [
    ("if i > 3 then xx[j] else 0.0", "i > 3"),
    ("(if i > 3 and W == 8 then xx[j] else 0.0)", "i > 3 and W == 8"),
    ("if j < i then xx[j] else 0.0", None),
    ("if i > 3 then xx[j] else 1.0", None),
    ("if i > 3 then xx[j] else xx[i]", None),
    ("xx[j] * xx[i]", None),
])  # fmt: skip
def test_only_a_condition_of_all_terms_moves(tmp_path, body, condition):
    file = tmp_path / "sums.kds"
    file.write_text(OPERATOR.format(body=body), encoding="utf-8")
    operator = check_paths([file]).library.operators["test.sums"]
    reduction = build_graph(operator, {"W": 8}).stages[0].reduction
    moved, summand = common_condition(reduction)
    assert (moved.span.text if moved is not None else None) == condition
    assert summand is reduction.body if condition is None else summand.span.text == "xx[j]"


def test_gram_matrices_of_pairs_ask_their_condition_outside_of_the_loop_over_channels():
    library = check_paths([data_root() / "rules"]).library
    rule = library.rules["mma_any_gate"]
    operator = library.operators[rule.operator]
    point = rule_at(rule, library.targets["sm_90a"], rule.defaults, library.tactics)
    plan = derive(point, operator, specialize(operator, rule, {}, {"gate": "softplus"}))
    stages = {stage.name: stage for stage in plan.kernels[0].body}
    for name, condition in (("gram_kk", "j < i"), ("gram_qk", "j <= i")):
        stage = stages[name]
        (total,) = stage.inner
        assert not isinstance(total.stage.reduction.body, n.Conditional)
        assert isinstance(stage.stage.initial, n.Conditional) and stage.stage.initial.condition.span.text == condition
