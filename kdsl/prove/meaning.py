"""What TIR expressions mean in a tower of fields: one table for the inference of levels and for the code.

`KEEP` functions stay on their level, `DOWN` functions map level n + 1 to n, `FREE` functions are random
functions between any two levels; the names without a dot are functions of C and CUDA, with the name of
their C text here. What is in no table has no meaning: comparisons of floats, clamps, conversions to
integers.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from attrs import frozen

from kdsl.lower.tvm import assert_structural_equal
from kdsl.prove.refusal import NoMeaning, shortened

KEEP = {"tirx.sqrt": "sqrt_", "tirx.rsqrt": "rsqrt_", "sqrtf": "sqrt_", "rsqrtf": "rsqrt_"}
DOWN = {
    "tirx.exp": "exp_",
    "tirx.exp2": "exp2_",
    "tirx.sigmoid": "sigmoid_",
    "tirx.tanh": "tanh_",
    "__expf": "exp_",
    "expf": "exp_",
    "exp2f": "exp2_",
    "tanhf": "tanh_",
}
QUOTIENTS = {"__fdividef", "__fdiv_rn"}
POWER = "tirx.pow"
FREE = {"tirx.log", "tirx.log2", "tirx.log1p"}
ARITHMETIC = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "divide"}
COMPARISONS = {"LT": "<", "LE": "<=", "GT": ">", "GE": ">=", "EQ": "==", "NE": "!="}
SELECTS = {"prim.if_then_else", "tirx.if_then_else"}
LIKELY = {"prim.likely", "tirx.likely"}
INTEGER_CALLS = {
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "shift_left": "<<",
    "shift_right": ">>",
}
LEAVE = "tirx.thread_return"
BARRIERS = {"tirx.tvm_storage_sync", "tirx.cuda.syncthreads", "tirx.cuda.syncwarp"}
LOG2E, LN2 = float(np.float32(math.log2(math.e))), float(np.float32(math.log(2)))
POWERS = {2.0: "square", 0.5: "sqrt_", -0.5: "rsqrt_"}

REMEDY_SIZE = (
    "a finite field has no order: write it without comparing or clamping values, or let indices decide"
)
REMEDY_TABLE = (
    "use functions with a meaning in a field: + - * /, exp, exp2, sigmoid, tanh, softplus, sqrt, rsqrt, log"
)


def kind(node) -> str:
    return type(node).__name__


def dtype_of(e) -> str:
    return str(e.ty.dtype) if hasattr(e.ty, "dtype") else str(e.ty)


def is_float(dtype) -> bool:
    return str(dtype).startswith(("float", "bfloat"))


def called(e) -> tuple[str, list]:
    """Name and arguments of a call; an extern call goes by the name of its function."""
    name, args = e.op.name, list(e.args)
    if name in ("tirx.call_pure_extern", "tirx.call_extern"):
        return str(args[0].value), args[1:]
    return name, args


@frozen
class Literal:
    """A float literal: an exact rational, or `symbol` ("log2e", "ln2") with a sign."""

    value: Fraction
    symbol: str | None = None
    negative: bool = False


def literal(e) -> Literal:
    """A float literal as the float32 it becomes. log2 e and ln 2 are symbols: their digits are never what
    is meant."""
    value = float(e.value)
    if not math.isfinite(value):
        raise NoMeaning(
            "an infinity or NaN", shortened(e), None, "a field has no infinities: select by an index instead"
        )
    value = float(np.float32(value))
    for symbol, number in (("log2e", LOG2E), ("ln2", LN2)):
        if abs(value) == number:
            return Literal(Fraction(0), symbol, value < 0)
    return Literal(Fraction(value))


def softplus_argument(e):
    """x where `e` is max(x, 0) + log1p(exp(-|x|)), the form of log(1 + exp(x)) that cannot overflow; else
    None."""
    if kind(e) != "Add":
        return None
    for clamp, tail in ((e.a, e.b), (e.b, e.a)):
        if kind(clamp) == "Max" and kind(tail) == "Call" and tail.op.name == "tirx.log1p":
            x = clamp.a if _is_number(clamp.b, 0.0) else clamp.b if _is_number(clamp.a, 0.0) else None
            magnitude = _negated(_argument(tail.args[0], "tirx.exp"))
            inner = _magnitude_of(magnitude)
            if x is not None and inner is not None and same_structure(x, inner):
                return x
    return None


def _magnitude_of(e):
    """x where `e` is |x|: fabs(x), or max(x, -x)."""
    if e is not None and kind(e) == "Max":
        for x, other in ((e.a, e.b), (e.b, e.a)):
            opposite = _negated(other)
            if opposite is not None and same_structure(x, opposite):
                return x
    return _argument(e, "tirx.fabs")


def _is_number(e, value: float) -> bool:
    return kind(e) == "FloatImm" and float(e.value) == value


def _argument(e, function: str):
    return e.args[0] if e is not None and kind(e) == "Call" and e.op.name == function else None


def _negated(e):
    """x where `e` is -x in one of its spellings."""
    if e is None:
        return None
    if kind(e) == "Mul":
        return e.a if _is_number(e.b, -1.0) else e.b if _is_number(e.a, -1.0) else None
    return e.b if kind(e) == "Sub" and _is_number(e.a, 0.0) else None


def same_structure(a, b, free_variables: bool = False) -> bool:
    """Whether two TIR nodes are equal; `free_variables` lets unbound variables stand for each other."""
    try:
        assert_structural_equal(a, b, map_free_vars=free_variables)
    except ValueError:
        return False
    return True
