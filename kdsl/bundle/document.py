"""A JSON document read strictly: every surprise is a ManifestError that names its place in the document."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import attrs

from kdsl.bundle.errors import ExpressionError, ManifestError
from kdsl.bundle.expression import Expression

T = TypeVar("T")
_TYPES = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
}


def parse_json(text: str) -> Place:
    """Parse JSON text; refuse duplicate keys, NaN and infinities, and nesting beyond what Python reads."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        for key, count in Counter(key for key, _ in pairs).items():
            if count > 1:
                raise ManifestError("$", f"the key `{key}` {count} times in one object", "every key once")
        return dict(pairs)

    def refuse(constant: str) -> None:
        raise ManifestError("$", constant, "a finite number")

    try:
        return Place(json.loads(text, object_pairs_hook=once, parse_constant=refuse), "$")
    except (ValueError, RecursionError) as failure:
        raise ManifestError("$", f"text that is not JSON ({failure})", "a JSON document") from None


@attrs.frozen
class Place:
    """A value and where it stands: `$.variants[0].id`."""

    value: Any
    path: str

    def refuse(self, found: str, needed: str) -> ManifestError:
        """The error for this place, to be raised by the caller."""
        return ManifestError(self.path, found, needed)

    def of_type(self, kind: type[T]) -> T:
        """The value if it is of `kind` (a boolean is no integer)."""
        if isinstance(self.value, kind) and not (kind is int and isinstance(self.value, bool)):
            return self.value
        raise self.refuse(_described(self.value), _TYPES[kind])

    def text(self, pattern: str = r"(?s).+", meaning: str = "a string that is not empty") -> str:
        """A string that matches `pattern` as a whole."""
        value = self.of_type(str)
        if re.fullmatch(pattern, value) is None:
            raise self.refuse(_described(value), meaning)
        return value

    def any_text(self) -> str:
        """A string, which may be empty."""
        return self.of_type(str)

    def one_of(self, words: Iterable[str]) -> str:
        """A string out of `words`."""
        words = tuple(words)
        if self.of_type(str) not in words:
            raise self.refuse(_described(self.value), f"one of {', '.join(words)}")
        return self.value

    def count(self) -> int:
        """An integer of 0 or more."""
        if self.of_type(int) < 0:
            raise self.refuse(str(self.value), "an integer of 0 or more")
        return self.value

    def scalar(self) -> str | int | float | bool | None:
        """A string, a number, a boolean or null."""
        if isinstance(self.value, dict | list):
            raise self.refuse(_described(self.value), "a string, a number, a boolean or null")
        return self.value

    def expression(self, read: Callable[[str], Expression]) -> str:
        """The text of an expression that `read` accepts."""
        try:
            return read(self.text()).text
        except ExpressionError as failure:
            raise self.refuse(str(failure), "an expression over sizes") from None

    def fields(self, *names: str) -> tuple[Place, ...]:
        """The members of an object that has exactly these keys."""
        value = self.of_type(dict)
        missing = [name for name in names if name not in value]
        unknown = [name for name in value if name not in names]
        if missing or unknown:
            found = [f"no `{name}`" for name in missing] + [f"the unknown key `{name}`" for name in unknown]
            raise self.refuse(", ".join(found), f"exactly the keys {', '.join(names)}")
        return tuple(Place(value[name], f"{self.path}.{name}") for name in names)

    def filled(self, **defaults: Any) -> Place:
        """The same object with `defaults` for the keys that it may leave out."""
        return Place({**defaults, **self.of_type(dict)}, self.path)

    def items(self) -> list[Place]:
        """The elements of an array."""
        return [Place(element, f"{self.path}[{index}]") for index, element in enumerate(self.of_type(list))]

    def members(self) -> dict[str, Place]:
        """The members of an object with free keys."""
        return {key: Place(value, f"{self.path}.{key}") for key, value in self.of_type(dict).items()}


def _described(value: Any) -> str:
    if value is None:
        return "null"
    shown = json.dumps(value)
    shown = shown if len(shown) <= 40 else shown[:37] + "..."
    return f"{_TYPES[type(value)]} {shown}"
