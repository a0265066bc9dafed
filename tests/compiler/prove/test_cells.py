"""What the cells of a device text can express, and what they refuse: levels, constants, memory that nobody wrote."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from kdsl.prove.proof import FIELD, REJECTED, UNKNOWN
from kdsl.prove.tirx import prove_tirx
from tests.compiler.prove.programs import small


def prove(func, meaning, **levels):
    return prove_tirx(func, meaning, written=("C",), levels=levels, seed=5)


def same(a, call):
    return {"C": a["A"] * 1}


def exponential(a, call):
    return {"C": a["A"].exp()}


def test_log2_e_is_what_is_meant():
    assert prove(small.exponential(math.log2(math.e)), exponential, A=1).verdict == FIELD


@pytest.mark.parametrize("factor", [1.4426, -math.log2(math.e), 1.0])
def test_another_base_differs(factor):
    proof = prove(small.exponential(factor), exponential, A=1)
    assert (proof.verdict, proof.difference.tensor) == (REJECTED, "C")


def test_an_exponent_that_meets_a_value_is_unknown():
    proof = prove(small.mixed(), exponential, A=1)
    assert proof.verdict == UNKNOWN
    assert "an exponent meets a value" in proof.obstacle


def test_a_half_is_exact():
    assert prove(small.halved(packed=False), lambda a, call: {"C": a["A"] * Fraction(1, 2)}).verdict == FIELD
    assert prove(small.halved(packed=False), lambda a, call: {"C": a["A"] * Fraction(1, 3)}).verdict == REJECTED


def test_bits_of_a_value_are_unknown():
    proof = prove(small.halved(packed=True), lambda a, call: {"C": a["A"] * Fraction(1, 2)})
    assert proof.verdict == UNKNOWN
    assert "a value becomes an integer" in proof.obstacle


def test_an_element_that_is_not_written_is_told():
    assert prove(small.kept(32), same).verdict == FIELD
    proof = prove(small.kept(31), same)
    found = proof.difference
    assert (proof.verdict, found.at, found.found) == (REJECTED, {"axis 0": 31}, "unwritten")
    assert found.expected.isdigit()


def test_a_wrong_element_is_told_with_both_values():
    assert prove(small.shifted(0), same).verdict == FIELD
    found = prove(small.shifted(1), same).difference
    assert (found.tensor, found.at) == ("C", {"axis 0": 0})
    assert found.expected.isdigit() and found.found.isdigit() and found.expected != found.found


def test_an_index_outside_is_a_finding():
    proof = prove(small.shifted(1, last=32), same)
    assert (proof.verdict, proof.difference.what.partition(":")[0]) == (REJECTED, "out_of_bounds")


def test_a_written_input_is_a_finding():
    proof = prove(small.written_back(), same)
    assert (proof.verdict, proof.difference.what.partition(":")[0]) == (REJECTED, "changed_input")
