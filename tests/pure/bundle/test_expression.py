"""Size expressions and claims, against Python's own arithmetic."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdsl.bundle.errors import ExpressionError
from kdsl.bundle.expression import parse, parse_claim, parse_number

NAMES = ("T", "N", "HV", "_k1")
LIMIT = 2**63


def ceildiv(left, right):
    return -(-left // right)


def _numbers():
    leaf = st.one_of(st.integers(0, 40).map(str), st.sampled_from(NAMES))

    def grow(inner):
        sign = st.sampled_from(["+", "-", "*", "/", "//", "%", " + ", "  %  "])
        return st.one_of(
            st.tuples(inner, sign, inner).map("".join),
            st.tuples(inner, st.integers(0, 3)).map(lambda pair: f"({pair[0]})**{pair[1]}"),
            st.tuples(inner, st.integers(0, 3)).map(lambda pair: f"-{pair[0]}**{pair[1]}"),
            inner.map(lambda text: f"({text})"),
            inner.map(lambda text: f"-{text}"),
            st.tuples(st.sampled_from(["min", "max", "ceildiv"]), inner, inner).map(
                lambda parts: "{}({}, {})".format(*parts)
            ),
        )

    return st.recursive(leaf, grow, max_leaves=8)


def _claims():
    signs = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
    single = st.tuples(_numbers(), signs, _numbers()).map(" ".join)
    chain = st.tuples(_numbers(), signs, _numbers(), signs, _numbers()).map(" ".join)

    def grow(inner):
        return st.one_of(
            st.tuples(inner, st.sampled_from([" and ", " or "]), inner).map("".join),
            inner.map(lambda text: f"not {text}"),
            inner.map(lambda text: f"({text})"),
        )

    return st.recursive(st.one_of(single, chain), grow, max_leaves=4)


def python_value(text, sizes):
    """Python's value with floor division, or None where Python or 64 bits have none."""
    functions = {"min": min, "max": max, "ceildiv": ceildiv, "__builtins__": {}}
    try:
        return eval(text.replace("//", "/").replace("/", "//"), functions, dict(sizes))
    except (ZeroDivisionError, OverflowError):
        return None


def check_against_python(text, sizes):
    expected = python_value(text, sizes)
    try:
        value = parse(text).evaluate(sizes)
    except ExpressionError as failure:
        # Refused only where Python fails too, or where a value on the way leaves 64 bits.
        assert expected is None or "64 bits" in str(failure)
        return
    assert expected is not None
    assert value == expected and type(value) is type(expected)


SIZES = st.fixed_dictionaries({name: st.integers(-5, 70) for name in NAMES})


@settings(max_examples=300, deadline=None)
@given(_numbers(), SIZES)
def test_numbers_are_pythons(text, sizes):
    check_against_python(text, sizes)


@settings(max_examples=300, deadline=None)
@given(_claims(), SIZES)
def test_claims_are_pythons(text, sizes):
    check_against_python(text, sizes)


def test_the_comparison_with_python_sees_a_wrong_value():
    with pytest.raises(AssertionError):
        assert parse("7 / 2").evaluate({}) == 7 / 2


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="TN0129 +-*/%()<>=!,andortminx\n\t.@#", max_size=40))
def test_any_text_is_an_expression_or_an_error(text):
    try:
        parse(text)
    except ExpressionError as failure:
        assert failure.found and failure.needed and failure.remedy
        assert 0 <= failure.position <= len(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("N * HV * 4096", 2 * 32 * 4096),
        ("ceildiv(T, 64) * 64", 192),
        ("-2 ** 2", -4),
        ("2 ** 3 ** 2", 512),
        ("-7 / 2", -4),
        ("-7 % 3", 2),
        ("T % 16 == 0 or T < 16", False),
        ("HV != 0 and T / HV >= 4", True),
        ("0 < T <= 130", True),
        ("not T == 1", True),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_values(text, value):
    assert parse(text).evaluate({"N": 2, "HV": 32, "T": 130}) == value


def test_a_division_that_is_not_reached_is_not_made():
    assert parse("N == 0 or T / N > 1").evaluate({"N": 0, "T": 3}) is True
    with pytest.raises(ExpressionError, match="division by zero"):
        parse("T / N > 1 or N == 0").evaluate({"N": 0, "T": 3})


@pytest.mark.parametrize(
    ("text", "position", "found"),
    [
        ("", 0, "the end"),
        ("T %% 2", 3, "'%'"),
        ("(T", 2, "the end"),
        ("T)", 1, "')'"),
        ("T = 4", 2, "'='"),
        ("T @ 2", 2, "'@'"),
        ("1 + (T == 2)", 4, "a claim"),
        ("not T", 4, "a number"),
        ("T == 1 and N", 11, "a number"),
        ("abs(T)", 0, "'abs'"),
        ("min(T)", 0, "'min'"),
        ("ceildiv(1, 2, 3)", 0, "'ceildiv'"),
        ("007", 1, "'0'"),
        ("1.", 1, "'.'"),
        (".5", 0, "'.'"),
        ("T.real", 1, "'.'"),
        ("and", 0, "'and'"),
        ("9223372036854775808", 0, "'9223372036854775808'"),
        ("__import__('os')", 11, '"\'"'),
    ],
)
def test_errors_point_at_the_place(text, position, found):
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert caught.value.position == position
    assert caught.value.found.startswith(found)


@pytest.mark.parametrize(
    "text", ["2 ** 63", "4294967296 * 4294967296", "3 ** 4000000000000000000", "2 ** -1", "1 % 0"]
)
def test_values_that_do_not_exist(text):
    with pytest.raises(ExpressionError):
        parse(text).evaluate({})


@pytest.mark.parametrize(
    "text", ["(" * 60 + "1" + ")" * 60, "-" * 60 + "1", "2**" * 60 + "1", "1+" * 600 + "1"]
)
def test_too_deep_or_too_long_is_refused(text):
    with pytest.raises(ExpressionError):
        parse(text)
    assert parse("1 + " * 200 + "1").evaluate({}) == 201


def test_names_and_kinds():
    assert parse("N * HV + min(T, 3)").names == {"N", "HV", "T"}
    assert parse_number("T").kind == "number"
    assert parse_claim("T == 1").kind == "claim"
    with pytest.raises(ExpressionError, match="a claim"):
        parse_number("T == 1")
    with pytest.raises(ExpressionError, match="a number"):
        parse_claim("T")


def test_a_missing_name_is_named_with_those_there_are():
    with pytest.raises(ExpressionError, match=r"the name T; needed a size of the call: HV, N"):
        parse("T * N").evaluate({"N": 1, "HV": 2})


@pytest.mark.parametrize(("text", "bound", "holds"), [
    ("lower_bound >= -5.0", -5.0, True), ("lower_bound >= -5.0", -5.25, False),
    ("16 * lower_bound >= -80.0", -4.5, True),
    ("-lower_bound < 0.5 or lower_bound == -3.0", -3.0, True),
])  # fmt: skip
def test_decimals_in_claims(text, bound, holds):
    assert parse_claim(text).evaluate({"lower_bound": bound}) is holds


def test_decimals_count_neither_bytes_nor_blocks():
    with pytest.raises(ExpressionError, match="a decimal number"):
        parse_number("T * 0.5")
    with pytest.raises(ExpressionError, match="the exponent 0.5"):
        parse_claim("T ** 0.5 > 1").evaluate({"T": 4})
    with pytest.raises(ExpressionError, match="beyond its range"):
        parse_claim(f"T > {'9' * 20}.0 ** 40").evaluate({"T": 4})
