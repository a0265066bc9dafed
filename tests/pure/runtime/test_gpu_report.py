"""The report of a run on a GPU: what counts as passed, the tables, the document."""

import json
import math

import numpy as np
import pytest

from kdsl.validate.acceptance import acceptance
from kdsl.validate.gpu_report import (
    Check,
    document,
    error_numbers,
    rows,
    table,
    timing_numbers,
    verdict,
)
from kdsl.validate.latency import Samples, Timing


def check(name="one", status="passed", bundle="a", section="cases", **more):
    return Check(section, bundle, name, status, **more)


ERRORS = {"o_rms": 0.004, "o_element": 0.4, "state_rms": 0.002, "state_element": 0.1}
TIMES = timing_numbers(Timing("H = 96", "kdsl", Samples((300.0, 200.0), 40.0, 2), 430_000_000, 4.3e12))


@pytest.mark.parametrize(
    ("statuses", "whole"),
    [
        (["passed", "refused", "skipped"], "passed"),
        (["passed", "failed"], "failed"),
        (["passed", "unknown"], "unknown"),
        (["failed", "unknown"], "failed"),
        (["refused", "refused"], "failed"),
        (["skipped"], "unknown"),
        ([], "unknown"),
    ],
)
def test_the_verdict(statuses, whole):
    assert verdict([check(str(number), status) for number, status in enumerate(statuses)]) == whole


def test_a_bundle_that_takes_nothing_fails_beside_one_that_passes():
    checks = [check(), check(status="refused", bundle="b", detail="q is bf16")]
    assert verdict(checks) == "failed" and "no check was passed by b" in table(checks)


def test_the_table():
    checks = [
        check(detail="fine", seconds=1.25),
        check("K03", "refused", detail="gate is 'softplus'"),
        check("P4", "failed", section="probes", detail="o is rejected", numbers=ERRORS | {"o_rms": math.nan}),
        check("P5", "passed", section="probes", numbers=ERRORS),
        check("layer0", section="traces", numbers=ERRORS),
        check("H = 96", section="times", numbers=TIMES),
    ]
    text = table(checks)
    assert "FAILED: 4 passed, 1 failed, 1 refused" in text
    assert "failed: probes a P4: o is rejected" in text and "refused: cases a K03: gate is 'softplus'" in text
    line = next(line for line in text.splitlines() if line.startswith("H = 96"))
    assert line.split() == ["H", "=", "96", "a", "kdsl", "200.0", "300.0", "100.0", "50%", "40.0", "passed"]
    assert "P5" in text and "0.004" in text and "nan" in text
    brief = table(checks, brief=True)
    assert "the largest" in brief and "P5  " not in brief and "layer0" in brief
    assert "nan" in next(line for line in brief.splitlines() if "the largest" in line)


def test_rows_align_numbers_to_the_right():
    text = rows(["name", "us"], [["a", "5.0"], ["long name", "100.0"]])
    assert text.splitlines() == ["name          us", "a            5.0", "long name  100.0"]


def test_the_document_is_json_whatever_the_numbers():
    odd = {"x": math.nan, "y": (1.0, math.inf)}
    checks = [check(numbers=odd, traceback="Traceback"), check("t", numbers=TIMES)]
    found = json.loads(document({"gpu": "H200"}, checks, seed=3))
    assert found["schema"] == 1 and found["verdict"] == "passed" and found["seed"] == 3
    assert found["count"] == {"passed": 2, "failed": 0, "refused": 0, "unknown": 0, "skipped": 0}
    assert found["checks"][0]["numbers"] == {"x": None, "y": [1.0, None]}
    assert found["checks"][1]["numbers"]["samples_us"] == [300.0, 200.0]
    assert found["environment"]["gpu"] == "H200" and found["checks"][0]["traceback"] == "Traceback"


def test_error_numbers_are_those_of_an_acceptance():
    reference = np.ones((1, 4, 2, 8))
    numbers = error_numbers(acceptance(reference * 1.005, reference, reference, reference))
    assert numbers["o_rms"] == pytest.approx(0.005) and numbers["o_element"] == pytest.approx(0.02)
    assert numbers["state_rms"] == numbers["state_element"] == 0
