"""Integer expressions of lowered TIR, for all lanes of a warp and all values of their loops at once.

Every variable is an array: the lane along the last axis, every loop and the warp along an axis of its own.
What only a call decides (a length, the number of a sequence) is `Open`: a condition on it is taken to hold,
which is a full tile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from attrs import frozen

SELECTS = ("prim.if_then_else", "tirx.if_then_else")
BINARY: Mapping[str, Callable] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Min": np.minimum, "Max": np.maximum,
    "FloorDiv": np.floor_divide, "FloorMod": np.mod, "LT": np.less, "LE": np.less_equal, "GT": np.greater,
    "GE": np.greater_equal, "EQ": np.equal, "NE": np.not_equal, "And": np.logical_and, "Or": np.logical_or,
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


def evaluate(e, values: Mapping[int, np.ndarray]) -> np.ndarray:
    """The value of an integer expression or condition; `values` by hash of the variable. Raises Open."""
    k = kind(e)
    if k == "IntImm":
        return np.asarray(int(e.value))
    if k == "Var":
        if hash(e) not in values:
            raise Open(str(e.name))
        return values[hash(e)]
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
    raise Open("a value in memory" if k in ("BufferLoad", "TensorLoad") else f"a {k}")


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
    operation = CALLS.get(name.rpartition(".")[2])
    if operation is None:
        raise Open(f"`{name}`")
    return operation(evaluate(args[0], values), evaluate(args[1], values))
