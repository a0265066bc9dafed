"""Sizes that a program tells apart: constants that its conditions and quotients hold against sizes of the call.

A verdict holds for the calls that were tried. A program that does something else from 200 tokens on would pass calls of
40, and so would a ring of three slots that is wrong once it is full: so every such constant asks for a call that goes
past it. Sizes are followed through the variables and the memory that hold what is computed from them, and through the
loops that they bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil

from attrs import define, field, frozen

from kdsl.prove import meaning as m
from kdsl.prove.refusal import shortened

LENGTHS = "cu_seqlens"  # its elements count T
LIMIT = (1 << 31) - 1  # of an integer type: no call reaches it
QUOTIENTS = ("FloorDiv", "Div")
DIVISIONS = (*QUOTIENTS, "FloorMod", "Mod")
ORDERED = (*m.COMPARISONS, "Min", "Max")
OPERANDS = ("a", "b", "value", "condition", "true_value", "false_value")
PARTS = (*OPERANDS, "min", "extent", "predicate", "indices", "args", "iter_values", "then_case", "else_case", "init",
         "body", "block", "seq")  # fmt: skip

Sizes = Mapping[str, Fraction]  # the sizes that a number comes from, each with what it was divided by


@frozen
class Threshold:
    """A program that may do something else where `size` of the call is `value` or more; `where` says so."""

    size: str
    value: int
    where: str = field(eq=False)


def merged(found: Iterable[Sizes]) -> dict[str, Fraction]:
    whole: dict[str, Fraction] = {}
    for sizes in found:
        for name, scale in sizes.items():
            whole[name] = max(scale, whole.get(name, scale))
    return whole


def magnitude(e) -> int:
    """How large constants make an integer expression where sizes are nothing in sums, and one in products."""
    k = m.kind(e)
    if k == "IntImm":
        return abs(int(e.value))
    if k == "Cast":
        inside = saturated(e)
        return magnitude(e.value if inside is None else inside)
    if k == "Mul":
        a, b = magnitude(e.a), magnitude(e.b)
        return max(a, 1) * max(b, 1) if a or b else 0
    if k in QUOTIENTS and m.kind(e.b) == "IntImm":
        return magnitude(e.a) // max(1, magnitude(e.b))
    if k in ("Add", "Sub"):
        return magnitude(e.a) + magnitude(e.b)
    if k in ("Min", "Max"):
        return max(magnitude(e.a), magnitude(e.b))
    return 0


def saturated(e):
    """The x of `x` brought into the positive half of int32, which tells apart only what no call reaches; else None."""
    if m.kind(e) != "Cast" or m.kind(e.value) != "Min" or m.kind(e.value.a) != "Max":
        return None
    low, high = e.value.a.b, e.value.b
    limits = m.kind(low) == m.kind(high) == "IntImm" and (int(low.value), int(high.value)) == (0, LIMIT)
    return e.value.a.a if limits and str(m.dtype_of(e)) == "int32" else None


@define
class _Walk:
    sizes: dict[int, Sizes]  # of variables and of memory that numbers are kept in, by identity
    lengths: set[int]  # buffers of lengths, by identity
    found: dict[Threshold, None] = field(factory=dict)

    def visit(self, node) -> None:
        k = m.kind(node)
        if k == "Bind":
            self.sizes[hash(node.var)] = self.of(node.value)
        elif k == "While":
            self.visit(node.body)  # what a turn of the loop leaves is there in the next one
        elif k == "BufferStore" and not m.is_float(node.buffer.dtype):
            kept = hash(node.buffer)
            self.sizes[kept] = merged((self.sizes.get(kept, {}), self.of(node.value)))
        elif k == "For":
            self.sizes[hash(node.loop_var)] = merged((self.of(node.min), self.of(node.extent)))
        elif k == "AttrStmt" and node.attr_key == "thread_extent":
            self.sizes[hash(node.node.var)] = self.of(node.value)
        elif k == "SBlockRealize":
            for variable, value in zip(node.block.iter_vars, node.iter_values, strict=False):
                self.sizes[hash(variable.var)] = self.of(value)
        elif k in DIVISIONS and m.kind(node.b) == "IntImm":
            self.tell(self.of(node.a), magnitude(node.b), node)
        elif k in ORDERED:
            self.tell(merged((self.of(node.a), self.of(node.b))), magnitude(node.a) + magnitude(node.b), node)
        inside = saturated(node)
        for part in (inside,) if inside is not None else (getattr(node, name, None) for name in PARTS):
            self.inside(part)

    def inside(self, part) -> None:
        if m.kind(part) == "Array":
            for one in part:
                self.visit(one)
        elif part is not None and not isinstance(part, (int, float, str, bool)):
            self.visit(part)

    def tell(self, sizes: Sizes, constant: int, e) -> None:
        if constant > 1:
            for size, scale in sorted(sizes.items()):
                self.found.setdefault(Threshold(size, min(ceil(constant * scale), LIMIT), shortened(e, 100)))

    def of(self, e) -> Sizes:
        k = m.kind(e)
        if k == "Var":
            return self.sizes.get(hash(e), {})
        if k in ("TensorLoad", "BufferLoad"):
            return {"T": Fraction(1)} if hash(e.source) in self.lengths else self.sizes.get(hash(e.source), {})
        parts = [getattr(e, name) for name in OPERANDS if hasattr(getattr(e, name, None), "ty")]
        parts += [x for x in e.args if hasattr(x, "ty")] if k == "Call" else []
        found = merged(map(self.of, parts))
        if k in QUOTIENTS and m.kind(e.b) == "IntImm":
            return {name: scale * abs(int(e.b.value)) for name, scale in found.items()}
        if k == "Mul" and "IntImm" in (m.kind(e.a), m.kind(e.b)):
            factor = max(magnitude(e.a) if m.kind(e.a) == "IntImm" else magnitude(e.b), 1)
            return {name: scale / factor for name, scale in found.items()}
        return found


def thresholds(functions: Iterable, sizes: Iterable[str]) -> tuple[Threshold, ...]:
    """Of a program's functions (`kdsl.prove.program.Function`), for these sizes of its operator."""
    found: dict[Threshold, None] = {}
    known = set(sizes)
    for f in functions:
        pairs = list(zip(f.func.params, f.arguments, strict=True))
        scalars = {hash(p): {a.name: Fraction(1)} for p, a in pairs if a.kind == "size" and a.name in known}
        lengths = {hash(p) for p, a in pairs if a.kind == "tensor" and a.name == LENGTHS}
        walk = _Walk(scalars, lengths)
        walk.visit(f.func.body)
        found |= walk.found
    return tuple(found)


def beyond(found: Iterable[Threshold], tried: Mapping[str, int]) -> dict[str, Threshold]:
    """By size, the largest of those that no call goes past; `tried` is the largest of each size. Limits of integer
    types are left out."""
    largest: dict[str, Threshold] = {}
    for one in found:
        if tried.get(one.size, 0) <= one.value < LIMIT:
            best = largest.get(one.size)
            largest[one.size] = one if best is None or one.value > best.value else best
    return largest
