"""Integer expressions of lowered TIR, for all lanes of a warp and all values of their loops at once.

Every variable is an array: the lane along the last axis, every loop and the warp along an axis of its own.
What only a call decides (a length, the number of a sequence) is `Open`: a condition on it is taken to hold,
which is a full tile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from attrs import frozen

from kdsl.inspect import banks
from kdsl.lower.swizzle import EXCHANGED

MOST_POINTS = 1 << 17
SELECTS = ("prim.if_then_else", "tirx.if_then_else")
BINARY: Mapping[str, Callable] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Min": np.minimum, "Max": np.maximum,
    "FloorDiv": np.floor_divide, "FloorMod": np.mod, "LT": np.less, "LE": np.less_equal, "GT": np.greater,
    "GE": np.greater_equal, "EQ": np.equal, "NE": np.not_equal, "And": np.logical_and, "Or": np.logical_or,
    "BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor,
    "LShift": np.left_shift, "RShift": np.right_shift,
}  # fmt: skip
CALLS: Mapping[str, Callable] = {
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "shift_left": np.left_shift, "shift_right": np.right_shift, "truncmod": np.fmod,
}  # fmt: skip


@frozen
class Open(Exception):
    """The expression depends on something that only a call decides."""

    what: str

    def __str__(self) -> str:
        return f"it depends on {self.what}, which a call decides"


def kind(node) -> str:
    return type(node).__name__


class Assumed(dict):
    """Values in which whatever a call decides is `value`: for distances between lanes, which no common offset
    changes. A stride of the call is then `value` elements, or 1 if `units` names it."""

    def __init__(self, known: Mapping[int, np.ndarray], value: int, units: frozenset[str] = frozenset()):
        super().__init__(known)
        self.value = np.asarray(value)
        self.units = units

    def __missing__(self, key: int) -> np.ndarray:
        return self.value


def evaluate(e, values: Mapping[int, np.ndarray]) -> np.ndarray:
    """The value of an integer expression or condition; `values` by hash of the variable. Raises Open."""
    k = kind(e)
    if k == "IntImm":
        return np.asarray(int(e.value))
    if k == "Var":
        if isinstance(values, Assumed) and str(e.name) in values.units:
            return np.asarray(1)
        try:
            return values[hash(e)]
        except KeyError:
            raise Open(str(e.name)) from None
    if k == "Cast":
        return evaluate(e.value, values)
    if k in BINARY:
        return BINARY[k](evaluate(e.a, values), evaluate(e.b, values))
    if k in ("Div", "Mod"):  # C's, on what is not negative where the language divides
        left, right = evaluate(e.a, values), evaluate(e.b, values)
        return left // right if k == "Div" else np.fmod(left, right)
    if k == "Not":
        return np.logical_not(evaluate(e.a, values))
    if k == "Select":
        return _chosen(e.condition, e.true_value, e.false_value, values)
    if k == "Call":
        return _call(e, values)
    if k in ("BufferLoad", "TensorLoad"):
        if isinstance(values, Assumed):
            return values.value
        raise Open("a value in memory")
    raise Open(f"a {k}")


def condition(e, values: Mapping[int, np.ndarray]) -> np.ndarray:
    """As `evaluate`, with every part that a call decides taken to hold."""
    if kind(e) == "And":
        return np.logical_and(condition(e.a, values), condition(e.b, values))
    try:
        return evaluate(e, values).astype(bool)
    except Open:
        return np.asarray(True)


def negated(e, values: Mapping[int, np.ndarray]) -> np.ndarray:
    """Where a condition does not hold; everywhere, where a call decides it: either side may run."""
    try:
        return np.logical_not(evaluate(e, values).astype(bool))
    except Open:
        return np.asarray(True)


def _chosen(chooses, yes, no, values) -> np.ndarray:
    return np.where(evaluate(chooses, values).astype(bool), evaluate(yes, values), evaluate(no, values))


def _call(e, values) -> np.ndarray:
    name, args = e.op.name, list(e.args)
    if name in SELECTS:
        return _chosen(*args[:3], values)
    if name.endswith("likely"):
        return evaluate(args[0], values)
    if name == "tirx.cuda.func_call" and str(args[0].value) == EXCHANGED:
        return evaluate(args[1], values) ^ evaluate(args[2], values)
    operation = CALLS.get(name.rpartition(".")[2])
    if operation is None:
        raise Open(f"`{name}`")
    return operation(evaluate(args[0], values), evaluate(args[1], values))


@frozen
class Pattern:
    """Byte addresses of the lanes, counted from a multiple of 16 bytes, and which of them take part."""

    addresses: tuple[int, ...]
    active: int


@frozen
class TooMany(Exception):
    points: int

    def __str__(self) -> str:
        return f"{self.points} values of its loops are too many to try"


def mask(guards, ranges) -> np.ndarray:
    """Where all conditions around an access hold."""
    found = np.asarray(True)
    for guard, holds in guards:
        found = np.logical_and(found, (condition if holds else negated)(guard, ranges))
    return found


def patterns(offset: np.ndarray, active: np.ndarray) -> tuple[Pattern, ...]:
    """The different sets of addresses that a warp accesses; where a set lies in memory is left out."""
    offset, active = np.broadcast_arrays(offset, active, np.zeros(banks.LANES, int))[:2]
    rows, masks = offset.reshape(-1, banks.LANES), active.reshape(-1, banks.LANES)
    if len(rows) > MOST_POINTS:
        raise TooMany(len(rows))
    runs = masks.any(axis=1)
    rows, masks = rows[runs], masks[runs]
    if not len(rows):
        return ()
    rows = np.where(masks, rows, np.iinfo(np.int64).max)
    rows = np.where(masks, rows - rows.min(axis=1, keepdims=True) // 16 * 16, 0)
    bits = (masks.astype(np.int64) << np.arange(banks.LANES)).sum(axis=1)
    table = np.unique(np.concatenate([rows, bits[:, None]], axis=1), axis=0)
    return tuple(Pattern(tuple(map(int, row[:-1])), int(row[-1])) for row in table)
