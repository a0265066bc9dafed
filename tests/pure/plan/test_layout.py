"""What a rule requires of strides: only where its claim holds in no other way."""

from __future__ import annotations

import pytest

from kdsl.check.rules import resolve_rule
from kdsl.plan.layout import required_layouts
from kdsl.source.span import SourceFile
from kdsl.syntax.parse import parse

RULE = """rule r schedules kda.decode on cpu {{
  require {{ {claim} }}
  kernel step computes step {{ grid {{ task : n, h }} }}
}}
"""
CLAIMS = {
    "unit_stride(q, k) and dense(pool)": {"q": "unit_stride", "k": "unit_stride", "pool": "dense"},
    "(dense(pool)) and (K == 128 and unit_stride(q))": {"pool": "dense", "q": "unit_stride"},
    "dense(pool) or K == 64": {},
    "K == 128 and (unit_stride(q) or dense(pool))": {},
    "not dense(pool)": {},
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_only_what_holds_in_any_case_is_required(claim):
    (declaration,) = parse(SourceFile("r.kds", RULE.format(claim=claim))).declarations
    assert required_layouts(resolve_rule(declaration)) == CLAIMS[claim]
