"""What a rule says, as one line a statement: tactics in their place, choices at their values, one name a line.

Two rules that mean the same give the same lines, however they are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen

from kdsl.check.model import Computation, Home, Kernel, RulePoint
from kdsl.contract.decide import clause_text
from kdsl.plan.model import Plan
from kdsl.syntax import nodes as n


@frozen
class Line:
    """`key` says what is spoken of, in `section` (require, form, `prepare place`); `text` what is said of it."""

    section: str
    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.key} {self.text}".strip()


def meaning(plan: Plan) -> tuple[Line, ...]:
    """Every statement of the rule at the plan's point, and the settings it is compiled for."""
    return (*settings(plan), *statements(plan.point))


def settings(plan: Plan) -> Iterator[Line]:
    special = plan.specialization
    for name, value in {**special.sizes, **special.options, **special.dtypes, **plan.point.choices}.items():
        yield Line("compiled for", name, f"= {plain(value)}")


def statements(point: RulePoint) -> Iterator[Line]:
    rule, default = point.rule, point.rule.defaults_on(point.target.name)
    yield Line("rule", "schedules", rule.operator)
    yield Line("rule", "targets", ", ".join(rule.targets))
    for claim in rule.require:
        yield Line("require", clause_text(claim), f'else "{claim.message.value}"' if claim.message else "")
    for name, values in rule.choices.items():
        allowed = ", ".join(map(plain, values))
        yield Line("choose", name, f"in [{allowed}] default {plain(default[name])}")
    for name, value in point.form.items():
        yield Line("form", name, f"= {plain(value)}")
    for kernel in point.kernels:
        yield from kernel_lines(kernel)
    for section, claims in (("ensure", point.ensure), ("measure", point.measure)):
        yield from (Line(section, clause_text(claim), "") for claim in claims)


def kernel_lines(kernel: Kernel) -> Iterator[Line]:
    name = kernel.name
    yield Line(name, "computes", ", ".join(kernel.parts))
    for axis in kernel.grid:
        dealt = ", ".join(loop.text for loop in axis.loops)
        yield Line(f"{name} grid", axis.axis, f": {dealt}{f' order {axis.order}' if axis.order else ''}")
    for role in kernel.roles.values():
        over = "".join(f" over {index} by {step}" for index, step in role.over)
        registers = f" registers {role.registers}" if role.registers else ""
        yield Line(f"{name} roles", role.name, f": {role.warps} warps{over}{registers}")
    for home in (*kernel.homes.values(), *(view for views in kernel.views.values() for view in views)):
        yield home_line(f"{name} place", home)
    for computation in kernel.computations.values():
        yield computation_line(f"{name} compute", computation)
    for pin in kernel.pins:
        yield pin_line(f"{name} pin", pin)
    yield from (Line(f"{name} ensure", clause_text(claim), "") for claim in kernel.ensure)


def home_line(section: str, home: Home) -> Line:
    readers = f" for {', '.join(home.readers)}" if home.readers else ""
    dtype = f"{home.dtype} " if home.dtype else ""
    return Line(section, f"{home.tensor}{readers}", f": {dtype}in {home.memory}{attributes(home.attributes)}")


def computation_line(section: str, computation: Computation) -> Line:
    instruction = f" {computation.instruction}" if computation.instruction else ""
    return Line(section, computation.stage, f":{instruction}{attributes(computation.attributes)}")


def pin_line(section: str, pin: n.PinValue | n.PinOrder) -> Line:
    text = " ".join(pin.span.text.split())
    if isinstance(pin, n.PinOrder):
        return Line(section, text, "")
    return Line(section, pin.name.text, f"= {text.partition('=')[2].strip()}")


def attributes(found: Mapping[str, object]) -> str:
    """` pad 8 ring 2 via cp.async of 16 bytes`; the bytes of a `via` follow it."""
    parts = []
    for name, value in found.items():
        if name.endswith(".bytes"):
            parts.append(f"of {value} bytes")
        elif isinstance(value, tuple):
            parts.append(f"{name} {', '.join(axis_text(item) for item in value)}")
        else:
            parts.append(f"{name} {plain(value)}")
    return "".join(f" {part}" for part in parts)


def axis_text(item: object) -> str:
    return f"{item[0]} by {item[1]}" if isinstance(item, tuple) else str(item)


def plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- what changed


@frozen
class Change:
    """One statement that is not the same: `old` or `new` is None where there is none."""

    section: str
    key: str
    old: str | None
    new: str | None


def changes(before: tuple[Line, ...], after: tuple[Line, ...]) -> tuple[Change, ...]:
    """Statements that were added, dropped, or that say something else of the same thing, in the rule's order."""
    old = {(line.section, line.key): line.text for line in before}
    new = {(line.section, line.key): line.text for line in after}
    keys = dict.fromkeys([*old, *new])
    found = (Change(section, key, old.get((section, key)), new.get((section, key))) for section, key in keys)
    return tuple(change for change in found if change.old != change.new)
