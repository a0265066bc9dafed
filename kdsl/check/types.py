"""Types of expressions: what kind of value, and in which unit.

Numbers carry a unit as exponents of (bytes, seconds, operations); a plain number counts elements, so bytes
and elements never compare. `ANY` stands for an expression with a finding of its own: nothing follows from it.
"""

from __future__ import annotations

from attrs import frozen

Unit = tuple[int, int, int]
PLAIN: Unit = (0, 0, 0)
BYTES: Unit = (1, 0, 0)
SECONDS: Unit = (0, 1, 0)

UNIT_NAMES = {
    PLAIN: "a plain number", BYTES: "bytes", SECONDS: "a time", (0, -1, 0): "a frequency",
    (1, -1, 0): "bytes per second", (0, -1, 1): "operations per second",
}  # fmt: skip

UNIT_OF_SUFFIX: dict[str, Unit] = {
    "bytes": BYTES, "KiB": BYTES, "MiB": BYTES, "us": SECONDS, "ms": SECONDS, "GHz": (0, -1, 0),
    "TBps": (1, -1, 0), "TFLOPs": (0, -1, 1),
}  # fmt: skip
SUGGESTED_SUFFIX = {BYTES: "bytes", SECONDS: "us", (0, -1, 0): "GHz"}


@frozen
class Type:
    """`kind` is bool, int, float, text, option, list, name or any; `unit` None fits every unit (0)."""

    kind: str
    unit: Unit | None = PLAIN
    values: tuple = ()  # of an option
    item: Type | None = None  # of a list

    @property
    def is_any(self) -> bool:
        return self.kind == "any"

    @property
    def is_number(self) -> bool:
        return self.kind in ("int", "float")

    def __str__(self) -> str:
        if self.kind == "option":
            return "an option with the values " + ", ".join(str(v).lower() for v in self.values)
        if self.is_number and self.unit not in (None, PLAIN):
            return UNIT_NAMES.get(self.unit, "a mixed unit")
        return {
            "bool": "a condition", "int": "an integer", "float": "a number", "text": "a text",
            "list": "a list",
            "name": "a name", "any": "unknown",
        }[self.kind]  # fmt: skip


ANY = Type("any")
BOOL = Type("bool")
INT = Type("int")
FLOAT = Type("float")
TEXT = Type("text")
SIZE_IN_BYTES = Type("int", BYTES)
TIME = Type("float", SECONDS)
SWITCH = Type("option", values=(False, True))


def option_type(values: tuple) -> Type:
    return Type("option", values=tuple(values))


def number(kind: str, unit: Unit | None) -> Type:
    return Type(kind, unit)


def wider(a: Type, b: Type) -> str:
    """Kind of a sum or of the two ways of an `if`: float if one is."""
    return "float" if "float" in (a.kind, b.kind) else "int"


def unit_name(unit: Unit | None) -> str:
    return UNIT_NAMES.get(unit or PLAIN, "a mixed unit")


def of_value(value: object, name: str = "") -> Type:
    """The type of a declared constant; a field whose name says bytes is in bytes though written plain."""
    if isinstance(value, bool):
        return SWITCH
    if isinstance(value, (int, float)):
        unit = BYTES if "bytes" in name.split("_") else PLAIN
        return Type("int" if isinstance(value, int) else "float", unit)
    if isinstance(value, tuple):
        return Type("list", item=of_value(value[0]) if value else ANY)
    return TEXT
