"""The segmented form: what a proof of it would miss if it were wrong, one edit of the operator at a time."""

from __future__ import annotations

import pytest

from kdsl.check import check_paths
from kdsl.check.library import load
from kdsl.data import data_root
from kdsl.lower.lowering import Lowering
from kdsl.prove.forms import Form, plan_of_form
from kdsl.prove.lowered import prove

SOURCE = data_root() / "stdlib" / "operators" / "kda.chunk_forward.kds"
OPTIONS = {"gate": "bounded", "use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True,
           "allow_neg_eigval": False, "state_v_first": False}  # fmt: skip


def proof(library, operator: str, runs: int, chain: str = "split"):
    form = {"C": 16, "S": runs, "decay": "factored", "chain": chain, "span": "segmented"}
    return prove(Lowering(plan_of_form(library, Form(operator, form, OPTIONS))), scheduled=False)


@pytest.mark.parametrize("runs", [2, 3, 7])
def test_any_number_of_runs(runs):
    found = proof(load(), "kda.chunk_forward", runs)
    assert found.proved, found.found
    longest = max(case.sizes["T"] for case in found.cases)
    assert longest > (2 * runs - 2) * 16  # more than one chunk in a run, and all of the runs


@pytest.mark.parametrize(("old", "new"), [
    ("if f == d then 1.0 else 0.0", "if f == d then 1.0 else 1.0"),
    ("if f == d then 1.0 else 0.0", "if f <= d then 1.0 else 0.0"),
    ("over c in s from 0.0 to left[d, e]", "over c in s from s0[d, e] to left[d, e]"),
    ("passed[f, d] - passed_high[f, d]", "passed[d, f] - passed_high[f, d]"),
    ("upper[d, e] = left[d, e] + sum", "upper[d, e] = 2.0 * left[d, e] + sum"),
    ("entry[d, e] - entry_high[d, e]", "entry[d, e] + entry_high[d, e]"),
    ("through_r[j, f] = -b[j] * through_w[j, f]", "through_r[j, f] = b[j] * through_w[j, f]"),
    ("entered[d, e] = entry[d, e]", "entered[d, e] = s0[d, e]"),
    ("local_r[j, e] = b[j] * (vx[j, e] - local_w[j, e])", "local_r[j, e] = b[j] * (vx[j, e] + local_w[j, e])"),
    ("C + S - 1) / S, 1)", "C) / S, 1)"),  # more runs than there are places for
])  # fmt: skip
def test_an_operator_that_is_wrong_is_rejected(old, new, tmp_path):
    text = SOURCE.read_text(encoding="utf-8")
    assert old in text
    text = text.replace(old, new, 1).replace("kda.chunk_forward", "test.chunk_forward").replace(
        "kda.acceptance", "test.acceptance")  # fmt: skip
    file = tmp_path / "wrong.kds"
    file.write_text(text, encoding="utf-8")
    result = check_paths([file])
    assert result.ok, [d.message for d in result.diagnostics]
    found = proof(result.library, "test.chunk_forward", 3)
    assert found.verdict == "rejected", found.found
