"""`pin` lines: what the author decided in the compiler's place."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field

from kdsl.check.evaluate import decide
from kdsl.check.model import Kernel
from kdsl.plan.refusal import PlanRefused
from kdsl.syntax import nodes as n


@define
class Pins:
    """The pins of one kernel; every value must be asked for, or it is refused as meaning nothing."""

    kernel: Kernel
    values: dict[tuple[str, str], n.PinValue] = field(factory=dict)
    orders: tuple[n.PinOrder, ...] = ()
    used: set[tuple[str, str]] = field(factory=set)
    settings: Mapping[str, object] = field(factory=dict)  # what a number may be computed from

    @classmethod
    def of(cls, kernel: Kernel, settings: Mapping[str, object]) -> Pins:
        values = {}
        for pin in kernel.pins:
            if isinstance(pin, n.PinValue):
                subject, _, key = pin.name.text.rpartition(".")
                if (subject, key) in values:
                    raise PlanRefused("D130", f"`{pin.name.text}` is pinned twice", pin.span)
                values[subject, key] = pin
        orders = tuple(pin for pin in kernel.pins if isinstance(pin, n.PinOrder))
        return cls(kernel, values, orders, settings=settings)

    def names(self, subject: str, key: str) -> tuple[str, ...] | None:
        """The pinned names, or None."""
        pin = self.values.get((subject, key))
        if pin is None:
            return None
        self.used.add((subject, key))
        names = tuple(value.text for value in pin.values if isinstance(value, n.Name))
        if len(names) != len(pin.values):
            raise PlanRefused("D131", f"`{pin.name.text}` takes names", pin.span)
        return names

    def number(self, subject: str, key: str) -> int | None:
        """The pinned number, or None."""
        pin = self.values.get((subject, key))
        if pin is None:
            return None
        self.used.add((subject, key))
        value = decide(pin.values[0], self.settings) if len(pin.values) == 1 else None
        if not isinstance(value, int) or value < 1:
            raise PlanRefused("D131", f"`{pin.name.text}` takes a positive whole number", pin.span)
        return value

    def span(self, subject: str, key: str):
        return self.values[subject, key].span

    def refuse_unused(self) -> None:
        for key, pin in self.values.items():
            if key not in self.used:
                raise PlanRefused(
                    "D132", f"`pin {pin.name.text}` names no decision of kernel `{self.kernel.name}`", pin.span,
                    help=("`kdsl lower RULE --emit decisions` lists the decisions that can be pinned",),
                )  # fmt: skip
