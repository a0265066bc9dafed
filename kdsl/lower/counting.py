"""Steps are counted in 32 bits, and so is what depends on their number: slots of rings, rows that are left.

The language counts steps in 64 bits, as offsets into tensors need. A loop that compares, divides and subtracts such
numbers issues some fifty instructions a step for them. No size of a call passes 2^31 - 1 (a launch refuses it), so the
number of a step fits 32 bits, and here the loop counts in them:

    (int)(c + 2)                           c + 2
    c % 4, c / 4                           c & 3, c >> 2          no step is negative
    c % 3                                  a number that starts anew at 3
    c + 2 < trips                          in 32 bits
    (int)min(max(length - c * 16, 0), M)   a number that is 16 less in every step
"""

from __future__ import annotations

from attrs import define, field

from kdsl.lower.kept import Numbers
from kdsl.lower.sourcemap import rebuilt, with_bodies
from kdsl.lower.strides import Steps, inner_names, over_steps, stored, wide
from kdsl.lower.tvm import Cast, For, Var, is_integer, op, sequence, structural_equal, structural_map, tirx

NARROW, WIDE = "int32", "int64"
MOST = 2**31 - 1


def with_narrow_steps(module):
    """The module with its loops over steps counted in 32 bits."""
    return with_bodies(module, changed)


def changed(statement):
    statement = rebuilt(statement, changed)
    if not isinstance(statement, For) or not over_steps(statement):
        return statement
    counting = Counting(Var(str(statement.loop_var.name), NARROW), statement.extent,
                        Steps(statement.loop_var, inner_names(statement.body), stored(statement.body)))  # fmt: skip
    body = structural_map(statement.body, (tirx.LT, counting.compared))
    body = structural_map(body, (Cast, counting.narrowed))
    body = structural_map(body, (Var, counting.widened))
    body = structural_map(body, ((tirx.Mod, tirx.Div), counting.divided))
    step = sequence([body, *counting.numbers.increased])
    loop = For(counting.number, 0, narrow(statement.extent), statement.kind, step, statement.thread_binding,
               statement.annotations)  # fmt: skip
    return sequence([*counting.numbers.started, loop])


def narrow(value):
    return tirx.IntImm(NARROW, int(value.value)) if isinstance(value, tirx.IntImm) else Cast(NARROW, value)


@define
class Counting:
    """A loop of `extent` steps whose number is `number` in 32 bits; `steps` knows it in 64, as the loop was written."""

    number: object
    extent: object
    steps: Steps
    numbers: Numbers = field(factory=lambda: Numbers(NARROW))

    def compared(self, node):
        """`c + 2 < extent` in 32 bits."""
        more = self.beyond(node.a) if wide(node.a) else None
        if more is None or not structural_equal(node.b, self.extent):
            return node
        return tirx.LT(plus(self.number, more), narrow(self.extent))

    def narrowed(self, node):
        """The number of a step as 32 bits, and how many rows are left."""
        if str(node.ty.dtype) != NARROW or not wide(node.value):
            return node
        more = self.beyond(node.value)
        if more is not None:
            return plus(self.number, more)
        left = bounded(node.value)
        found = self.steps.affine(left) if left is not None else None
        if found is None or len(found.factors) != 1:
            return node
        ((variable, factor),) = found.factors.items()
        if not variable.same_as(self.steps.variable) or not isinstance(factor, tirx.IntImm):
            return node
        base, more = parted(found.base)
        start = Cast(NARROW, op.min(base, tirx.IntImm(WIDE, MOST)))
        return plus(self.numbers.keep("left", start, tirx.IntImm(NARROW, int(factor.value))), more)

    def widened(self, var):
        return Cast(WIDE, self.number) if var.same_as(self.steps.variable) else var

    def divided(self, node):
        """Slots and turns of a ring."""
        more = self.after(node.a)
        count = int(node.b.value) if isinstance(node.b, tirx.IntImm) else 0
        if more is None or count < 2:
            return node
        if count & (count - 1) == 0:
            bits = tirx.IntImm(NARROW, count - 1 if isinstance(node, tirx.Mod) else count.bit_length() - 1)
            return op.bitwise_and(node.a, bits) if isinstance(node, tirx.Mod) else op.shift_right(node.a, bits)
        if isinstance(node, tirx.Div):
            return node
        return self.numbers.keep("slot", tirx.IntImm(NARROW, more % count), tirx.IntImm(NARROW, 1), count)

    def beyond(self, e) -> int | None:
        """How many steps behind this one the expression speaks of; None of another expression."""
        return offset(e, self.steps.variable)

    def after(self, e) -> int | None:
        """The same of an expression in 32 bits."""
        return offset(e, self.number)


def offset(e, variable) -> int | None:
    if isinstance(e, tirx.Add) and isinstance(e.b, tirx.IntImm) and int(e.b.value) >= 0:
        return int(e.b.value) if e.a.same_as(variable) else None
    return 0 if e.same_as(variable) else None


def plus(number, more: int):
    return number + tirx.IntImm(NARROW, more) if more else number


def parted(e) -> tuple:
    """A sum in 64 bits without the number at its end, and that number."""
    more = 0
    while isinstance(e, tirx.Add | tirx.Sub) and isinstance(e.b, tirx.IntImm):
        more += int(e.b.value) if isinstance(e, tirx.Add) else -int(e.b.value)
        e = e.a
    return e, more


def bounded(e):
    """The number that `min(max(number, 0), 2^31 - 1)` bounds, or None."""
    if not isinstance(e, tirx.Min) or not is_integer(e.b, MOST) or not isinstance(e.a, tirx.Max):
        return None
    return e.a.a if is_integer(e.a.b, 0) else None
