"""Addresses of global memory that grow evenly from step to step are kept, and grow.

A row of a chunk lies at `(start + c * 16 + i) * stride` elements. Compilers keep that product of 64-bit numbers in the
loop, some ten instructions for each access. Here a number starts before the steps at what it is in step 0, and is
increased once a step.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field, frozen

from kdsl.lower.kept import Numbers
from kdsl.lower.sourcemap import rebuilt, with_bodies
from kdsl.lower.tvm import (
    Bind,
    BufferLoad,
    BufferStore,
    Call,
    Cast,
    For,
    ForKind,
    SeqStmt,
    TensorLoad,
    Var,
    same_memory,
    structural_equal,
    structural_map,
    structural_walk,
    tirx,
)  # fmt: skip

WIDE = "int64"


def with_strides(module):
    """The module with such addresses of the loops over steps taken apart."""
    return with_bodies(module, changed)


def changed(statement):
    statement = rebuilt(statement, changed)
    if not isinstance(statement, For) or not over_steps(statement):
        return statement
    steps = Steps(statement.loop_var, inner_names(statement.body), stored(statement.body))
    body = structural_map(statement.body, ((TensorLoad, BufferStore, Call), steps.taken_apart))
    if not steps.numbers.kept:
        return statement
    loop = rebuilt(statement, lambda _: SeqStmt([body, *steps.numbers.increased]))
    return SeqStmt([*steps.numbers.started, *steps.before, loop])


def over_steps(loop) -> bool:
    return loop.kind == ForKind.SERIAL and wide(loop.loop_var) and not isinstance(loop.extent, tirx.IntImm)


def wide(value) -> bool:
    return str(getattr(value.ty, "dtype", "")) == WIDE


def inner_names(body) -> list:
    """Variables that the body of a loop defines."""
    found: list = []
    structural_walk(body, ((For, Bind), lambda s: found.append(s.loop_var if isinstance(s, For) else s.var)))
    return found


def stored(body) -> list:
    """The buffers that the body writes."""
    found: list = []
    structural_walk(body, (BufferStore, lambda s: found.append(s.buffer)))
    return found


@frozen
class Affine:
    """`base`, and what every variable of the loops is multiplied by."""

    base: object
    factors: Mapping[object, object]  # by the variable


@define
class Steps:
    """A loop over steps, what is kept from one to the next, and distances that are computed before it."""

    variable: object
    inner: list
    written: list
    numbers: Numbers = field(factory=lambda: Numbers(WIDE))
    before: list = field(factory=list)
    known: dict = field(factory=dict)  # by the hash of an expression: whether it is the same in all steps

    def taken_apart(self, node):
        """A load, a store or a call with every wide index in it as start and distances."""
        if isinstance(node, Call):
            args = [self.index(arg) for arg in node.args]
            same = all(one.same_as(other) for one, other in zip(args, node.args, strict=True))
            return node if same else Call(node.op, args, node.attrs, node.ty_args, node.span, node.ty)
        (index,) = node.indices if len(node.indices) == 1 else (None,)
        new = self.index(index) if index is not None else None
        if new is None or new.same_as(index):
            return node
        if isinstance(node, TensorLoad):
            return BufferLoad(node.source, [new])
        return BufferStore(node.buffer, node.value, [new])

    def index(self, index):
        if isinstance(index, tirx.Ramp):
            base = self.index(index.base)
            return index if base.same_as(index.base) else tirx.Ramp(base, index.stride, index.lanes)
        if not isinstance(index, tirx.Add | tirx.Sub | tirx.Mul) or not wide(index):
            return index
        found = self.affine(index)
        factors = found.factors if found is not None else {}
        growth = next((factor for v, factor in factors.items() if v.same_as(self.variable)), None)
        if growth is None or isinstance(growth, tirx.IntImm):  # no step is in it, or nothing is multiplied
            return index
        total = self.numbers.keep("at", found.base, growth)
        for variable, factor in found.factors.items():
            if not variable.same_as(self.variable):
                total = total + self.number(variable) * self.held(factor)
        return total

    @staticmethod
    def number(variable):
        return variable if wide(variable) else Cast(WIDE, variable)

    def held(self, value):
        """The variable that holds the value before the loop."""
        if isinstance(value, tirx.IntImm | Var):
            return value
        known = next((s.var for s in self.before if structural_equal(s.value, value)), None)
        if known is None:
            known = Var(f"distance_{len(self.before)}", WIDE)
            self.before.append(Bind(known, value))
        return known

    def affine(self, e) -> Affine | None:
        """The expression as a start and distances; None where it is not of that form."""
        if self.free(e):
            return Affine(e, {})
        if isinstance(e, Var):
            return Affine(tirx.IntImm(str(e.ty.dtype), 0), {e: tirx.IntImm(str(e.ty.dtype), 1)})
        if isinstance(e, Cast) and wide(e):
            found = self.affine(e.value)
            return found and Affine(widened(found.base), {v: widened(f) for v, f in found.factors.items()})
        if isinstance(e, tirx.Add | tirx.Sub):
            left, right = self.affine(e.a), self.affine(e.b)
            return left and right and joined(left, right, isinstance(e, tirx.Sub))
        if isinstance(e, tirx.Mul):
            left, right = (self.affine(e.a), e.b) if self.free(e.b) else (self.affine(e.b), e.a)
            if left is not None and self.free(right):
                return Affine(left.base * right, {v: f * right for v, f in left.factors.items()})
        return None

    def free(self, e) -> bool:
        """Whether the expression is the same in all steps."""
        if hash(e) not in self.known:
            varying: list = []

            def look(node) -> None:
                if isinstance(node, Var):
                    varying.extend(v for v in (self.variable, *self.inner) if node.same_as(v))
                else:
                    varying.extend(buffer for buffer in self.written if same_memory(node.source, buffer))

            structural_walk(e, ((Var, TensorLoad), look))
            self.known[hash(e)] = e, not varying
        return self.known[hash(e)][1]


def widened(value):
    return tirx.IntImm(WIDE, int(value.value)) if isinstance(value, tirx.IntImm) else Cast(WIDE, value)


def joined(left: Affine, right: Affine, less: bool) -> Affine:
    factors = dict(left.factors)
    for variable, factor in right.factors.items():
        known = next((v for v in factors if v.same_as(variable)), None)
        signed = -factor if less else factor
        factors[known if known is not None else variable] = factors[known] + signed if known is not None else signed
    return Affine(left.base - right.base if less else left.base + right.base, factors)
