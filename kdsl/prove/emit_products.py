"""Nests of products as C: both operands side by side, one call that multiplies them, and the sums where they go."""

from __future__ import annotations

import re
from collections.abc import Callable

from attrs import define, field

from kdsl.prove.emit_values import ValueText
from kdsl.prove.products import Product, variables


@define
class ProductText(ValueText):
    """The lines of a C function so far, and how a nest of products is written."""

    lines: list[str] = field(factory=list)
    depth: int = 1

    def put(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def scoped(self, head: str, body: Callable[[], None], tail: str = "}") -> None:
        around = dict(self.names), dict(self.known)
        self.put(head)
        self.depth += 1
        body()
        self.depth -= 1
        self.put(tail)
        self.names, self.known = around

    def define(self, variable, value) -> str:
        """The C name of an integer that is defined here: that of another or a number, where it is just that."""
        text, found = self.bounded(value)
        self.learn(variable, found)
        if re.fullmatch(r"\w+", text):
            self.names[hash(variable)] = text
        else:
            self.put(f"i64 {self.name(variable)} = {text};")
        return self.names[hash(variable)]

    def product(self, p: Product) -> None:
        stage, self.stage = self.stage, str(p.block.name_hint)
        after = next(self.events)
        level = self.inference.levels.level(after)
        rows, columns, summed = p.extents
        self.named += 1
        x, y, sums = (f"{name}_{self.named}" for name in ("x", "y", "sums"))

        def body():
            for number, (name, count) in enumerate(((x, rows * summed), (y, summed * columns), (sums, rows * columns))):
                self.put(f"val *{name} = tile({number}, {count});")
            self._laid(p, level, x, p.rows, p.summed, p.left)
            self._laid(p, level, y, p.summed, p.columns, p.right)
            self.put(f"multiply({level}, {rows}, {columns}, {summed}, {x}, {y}, {sums});")
            self._over(p, (*p.rows, *p.columns), lambda number: self._added(p, level, f"{sums}[{number}]"))

        self.scoped("{", body)
        self.wrote(p.store.buffer, after)
        self.stage = stage

    def _laid(self, p: Product, level: int, into: str, first, second, e) -> None:
        """An operand, element by element in the order of two groups of loops."""
        self._over(p, (*first, *second), lambda number: self.put(f"{into}[{number}] = {self.value(e, level)};"))

    def _added(self, p: Product, level: int, sum_: str) -> None:
        self.value(p.before, level)  # what C holds is of this level
        self.put(f"val *c = &{self.place(p.store.buffer, p.store.indices)}; *c = add({level}, *c, {sum_});")

    def _over(self, p: Product, loops, leaf: Callable[[str], None], number: str = "") -> None:
        """Some loops of a product's nest, with those variables of its block that they decide; `leaf` is given the
        number of the iteration."""
        if not loops:
            for variable, value in zip(p.block.iter_vars, p.values, strict=True):
                if variables(value) <= self.names.keys():
                    self.define(variable.var, value)
            leaf(number)
            return
        s, v = loops[0], self.name(loops[0].loop_var)
        extent = int(s.extent.value)

        def body():
            self.learn(s.loop_var, values_of(s.min, s.extent))
            self._over(p, loops[1:], leaf, f"({number}) * {extent} + {v}" if number else v)

        self.scoped(f"for (i64 {v} = 0; {v} < {extent}; {v}++) {{", body)
        self.names.pop(hash(s.loop_var), None)


def values_of(first, extent) -> tuple[int, int] | None:
    """Of a loop with constant bounds that runs at all."""
    first, extent = (x if isinstance(x, int) else getattr(x, "value", None) for x in (first, extent))
    if not isinstance(first, int) or not isinstance(extent, int) or extent < 1:
        return None
    return first, first + extent - 1
