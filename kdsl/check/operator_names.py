"""What the names of an operator mean, for its own lines and for the rules that schedule it."""

from __future__ import annotations

from attrs import define, field

from kdsl.check.scope import (
    GIVEN,
    INTEGER_FUNCTIONS,
    MATHEMATICS,
    STATIC_FUNCTIONS,
    Scope,
    Signature,
    Symbol,
    TensorSymbol,
)
from kdsl.source.span import Span
from kdsl.syntax import nodes as n

FUNCTIONS = {**MATHEMATICS, **INTEGER_FUNCTIONS, **GIVEN}
CALL_FUNCTIONS = {**STATIC_FUNCTIONS, **GIVEN}


@define
class OperatorNames:
    """What the names of an operator mean, kind by kind. `first` is where each was declared."""

    declaration: n.Operator
    first: dict[str, tuple[str, Span]] = field(factory=dict)
    values: dict[str, Symbol] = field(factory=dict)  # sizes, parameters, options
    indices: dict[str, Symbol] = field(factory=dict)
    modes: dict[str, str] = field(factory=dict)
    inputs: dict[str, TensorSymbol] = field(factory=dict)
    outputs: dict[str, TensorSymbol] = field(factory=dict)
    updated: set[str] = field(factory=set)
    views: dict[str, TensorSymbol] = field(factory=dict)
    tensors: dict[str, TensorSymbol] = field(factory=dict)
    functions: dict[str, Signature] = field(factory=lambda: dict(FUNCTIONS))
    stages: dict[str, Span] = field(factory=dict)
    eithers: dict[str, tuple[str, ...]] = field(factory=dict)

    @property
    def outer(self) -> dict[str, Symbol]:
        """Indices that every stage sees: those of the loops around the graph, without those that only cut one."""
        return {name: s for name, s in self.indices.items() if self.modes[name] != "local" and name not in self.runs}

    @property
    def runs(self) -> set[str]:
        """Indices that cut the steps of another into runs."""
        return {
            name.text for item in self.declaration.items if isinstance(item, n.Block) and item.kind == "indices"
            for line in item.items if line.by is not None for name in line.names
        }  # fmt: skip

    @property
    def given(self) -> dict[str, Span]:
        return {name: symbol.span for name, symbol in {**self.inputs, **self.outputs}.items()}

    def call_scope(self, where: str) -> Scope:
        """What a law or a requirement may say of a call."""
        absent = {name: "it is an index, which has no one value" for name in self.indices}
        absent |= {
            name: "it is a tensor; only `given(...)` asks for one" for name in (*self.inputs, *self.outputs)
        }
        return Scope(where, dict(self.values), CALL_FUNCTIONS, {}, absent, self.given)
