"""What names mean where an expression stands."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve, field, frozen

from kdsl.check.types import ANY, BOOL, FLOAT, INT, Type
from kdsl.source.span import Span


@frozen
class Symbol:
    """A name with a value: a size, parameter, option, index, choice or target field."""

    kind: str
    type: Type
    span: Span | None = None


@frozen
class TensorSymbol:
    """A name that is read at indices."""

    kind: str  # input, output, view, tensor
    rank: int
    type: Type
    span: Span | None = None


@frozen
class Signature:
    """A function: `least`..`most` arguments, and how its result follows from theirs."""

    least: int
    most: int | None
    result: str  # number (as the arguments), float, int, list, bool
    arguments: str = "number"  # number, int, port
    span: Span | None = None
    type: Type = ANY  # the result, where it is fixed (a definition)


MATHEMATICS = {
    **{name: Signature(1, 1, "float") for name in
       ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sigmoid", "softplus", "tanh")},
    "abs": Signature(1, 1, "number"),
    "min": Signature(2, None, "number"),
    "max": Signature(2, None, "number"),
}  # fmt: skip
INTEGER_FUNCTIONS = {"ceildiv": Signature(2, 2, "int", "int"), "span": Signature(3, 3, "list", "int")}
# `given(x)`: the optional tensor is there. `unit_stride(x)`: its last axis is contiguous; `dense(x)`: its
# last two are, in the layout of the call. The launcher decides these two, by name, at every call.
PORT_CLAIMS = ("given", "unit_stride", "dense")
GIVEN = {
    name: Signature(1, 1 if name == "given" else None, "bool", "port", type=BOOL) for name in PORT_CLAIMS
}
STATIC_FUNCTIONS = {**INTEGER_FUNCTIONS, "min": MATHEMATICS["min"], "max": MATHEMATICS["max"],
                    "abs": MATHEMATICS["abs"]}  # fmt: skip


@frozen
class Scope:
    """`where` completes "... in {where}"; `absent` says why a known name has no meaning here."""

    where: str
    names: Mapping[str, Symbol] = field(factory=dict)
    functions: Mapping[str, Signature] = field(factory=lambda: STATIC_FUNCTIONS)
    tensors: Mapping[str, TensorSymbol] = field(factory=dict)
    absent: Mapping[str, str] = field(factory=dict)
    inputs: Mapping[str, Span] = field(factory=dict)  # what `given` may ask for
    bindable: Mapping[str, Symbol] | None = None  # what a reduction may run over; None: no reductions here

    def at(self, where: str) -> Scope:
        return evolve(self, where=where)

    def with_names(self, names: Mapping[str, Symbol]) -> Scope:
        return evolve(self, names={**self.names, **names})


def index_symbol(span: Span | None) -> Symbol:
    return Symbol("index", INT, span)


def tensor_value(dtypes: tuple[str, ...]) -> Type:
    """What a tensor holds: integers only if every dtype is one."""
    return INT if dtypes and all(d.startswith("i") for d in dtypes) else FLOAT
