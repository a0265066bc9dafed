"""Error types of the judge: dataclasses whose fields say what was found and what was needed."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(eq=False)
class ValidationError(Exception):
    """Base of all errors raised by kdsl.validate; the fields are also `args`, so that errors pickle."""

    def __post_init__(self) -> None:
        self.args = tuple(getattr(self, field.name) for field in fields(self))


@dataclass(eq=False)
class ArrayError(ValidationError, ValueError):
    """An array has the wrong shape, dtype or values."""

    name: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.name}: found {self.found}, expected {self.expected}"


@dataclass(eq=False)
class MissingArrayError(ValidationError, ValueError):
    """An array that is needed was not given (None)."""

    name: str
    purpose: str

    def __str__(self) -> str:
        return f"{self.name} is missing: it is needed for {self.purpose}"


@dataclass(eq=False)
class OptionError(ValidationError, ValueError):
    """An option has a value that the operator does not define, or contradicts another option."""

    option: str
    reason: str

    def __str__(self) -> str:
        return f"{self.option}: {self.reason}"


@dataclass(eq=False)
class TraceError(ValidationError):
    """A recorded trace could not be read or does not hold what a trace holds."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"trace {self.path}: {self.problem}"
