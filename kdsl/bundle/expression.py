"""Size expressions (`N * HV * 4096`) and claims (`T % 16 == 0`): a small parser and evaluator, never `eval`.

Integers, names, `+ - *`, `/` and `//` (both floor), `%`, `**`, parentheses, comparisons (chains as in
Python), `and or not`, `min max ceildiv`; in claims also decimals (`lower_bound >= -5.0`). Precedence and
floor division are Python's. Every value on the way has to fit in 64 bits with a sign. An expression is a
number or a claim, and that is known from its text alone.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache

import attrs

from kdsl.bundle.errors import ExpressionError

NUMBER = "number"
CLAIM = "claim"
LONGEST_TEXT = 1000
DEEPEST = 50
# `given_x` in a claim is 1 if the optional tensor x is given, else 0.
GIVEN = "given_"

Evaluator = Callable[[Mapping[str, int]], int]

_TOKEN = re.compile(
    r"\s*(?:(?P<decimal>[0-9]+\.[0-9]+)|(?P<integer>0|[1-9][0-9]*)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<sign>\*\*|//|==|!=|<=|>=|[-+*/%()<>,]))"
)
_COMPARISONS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_WORDS = ("and", "or", "not")


class _NoValue(Exception):
    """Raised inside evaluation: (found, needed)."""


def _bounded(value: int) -> int:
    if -(2**63) <= value < 2**63:
        return value
    raise _NoValue("a value beyond 64 bits on the way", "every value within -2**63 to 2**63 - 1")


def _floor(left: int, right: int) -> int:
    if right == 0:
        raise _NoValue("a division by zero", "a divisor that is not 0")
    return left // right


def _rest(left: int, right: int) -> int:
    if right == 0:
        raise _NoValue("a remainder by zero", "a divisor that is not 0")
    return left % right


def _power(base: int, exponent: int) -> int:
    if isinstance(exponent, float):
        raise _NoValue(f"the exponent {exponent}", "an integer")
    if exponent < 0:
        raise _NoValue(f"the exponent {exponent}", "an exponent of 0 or more")
    if exponent > 63 and abs(base) > 1:
        raise _NoValue("a value beyond 64 bits on the way", "every value within -2**63 to 2**63 - 1")
    return base**exponent


def _ceildiv(left: int, right: int) -> int:
    return -_floor(-left, right)


_ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": _floor, "//": _floor, "%": _rest}
_FUNCTIONS: dict[str, Callable[..., int]] = {"min": min, "max": max, "ceildiv": _ceildiv}


@attrs.frozen
class Expression:
    """A parsed expression.

    `kind` is "number" or "claim"; `names` are the sizes it needs; `decimals` tells whether any stand in it.
    """

    text: str
    kind: str
    names: frozenset[str]
    _evaluator: Evaluator = attrs.field(eq=False, repr=False)
    decimals: bool = False

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """The value (an int, or a bool for a claim) for `sizes`.

        Raises ExpressionError for a size that is missing, a division by zero, or a value beyond 64 bits.
        """
        try:
            return self._evaluator(sizes)
        except _NoValue as failure:
            found, needed = failure.args
            raise ExpressionError(self.text, -1, found, needed) from None
        except OverflowError:
            raise ExpressionError(self.text, -1, "a decimal beyond its range", "smaller numbers") from None
        except KeyError as missing:
            known = ", ".join(sorted(sizes)) or "none"
            raise ExpressionError(
                self.text, -1, f"the name {missing.args[0]}", f"a size of the call: {known}"
            ) from None


@lru_cache(maxsize=1024)
def parse(text: str) -> Expression:
    """Parse `text`. Raises ExpressionError with the position of the first thing that does not fit."""
    if len(text) > LONGEST_TEXT:
        raise ExpressionError(text[:40] + "...", 0, f"{len(text)} characters", f"at most {LONGEST_TEXT}")
    parser = _Parser(text)
    kind, evaluator = parser.disjunction()
    if parser.token != "":
        parser.refuse("the end or an operator")
    return Expression(text, kind, frozenset(parser.names), evaluator, parser.decimals)


def parse_number(text: str) -> Expression:
    """Parse a size expression; a claim is an ExpressionError."""
    return _of_kind(text, NUMBER, "a number, not a claim")


def parse_claim(text: str) -> Expression:
    """Parse a claim; a bare number is an ExpressionError."""
    return _of_kind(text, CLAIM, "a claim such as `T % 16 == 0`")


def _of_kind(text: str, kind: str, needed: str) -> Expression:
    expression = parse(text)
    if expression.kind != kind:
        raise ExpressionError(text, 0, f"a {expression.kind}", needed)
    if kind == NUMBER and expression.decimals:
        raise ExpressionError(text, 0, "a decimal number", "integers: it counts bytes or blocks")
    return expression


def _tokens(text: str) -> list[tuple[str, int]]:
    found, position, end = [], 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            start = position + len(text[position:]) - len(text[position:].lstrip())
            raise ExpressionError(
                text, start, repr(text[start]), "an integer, a name, an operator or parentheses"
            )
        found.append((match.group(match.lastgroup or 0), match.start(match.lastgroup or 0)))
        position = match.end()
    return [*found, ("", end)]


class _Parser:
    """Recursive descent, one method for each level of precedence; each returns (kind, evaluator)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.at = 0
        self.depth = 0
        self.names: set[str] = set()
        self.decimals = False

    @property
    def token(self) -> str:
        return self.tokens[self.at][0]

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1][0]

    def refuse(self, needed: str) -> None:
        raise ExpressionError(
            self.text, self.tokens[self.at][1], repr(self.token) if self.token else "the end", needed
        )

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            self.refuse(f"an expression nested at most {DEEPEST} deep")

    def expect(self, kind: str, operand: tuple[str, Evaluator], position: int) -> Evaluator:
        if operand[0] != kind:
            raise ExpressionError(self.text, position, f"a {operand[0]} as operand", f"a {kind}")
        return operand[1]

    def disjunction(self) -> tuple[str, Evaluator]:
        return self.connected("or", self.conjunction, any)

    def conjunction(self) -> tuple[str, Evaluator]:
        return self.connected("and", self.negation, all)

    def connected(self, word: str, level: Callable, fold: Callable) -> tuple[str, Evaluator]:
        position = self.tokens[self.at][1]
        first = level()
        if self.token != word:
            return first
        parts = [self.expect(CLAIM, first, position)]
        while self.token == word:
            self.take()
            position = self.tokens[self.at][1]
            parts.append(self.expect(CLAIM, level(), position))
        return CLAIM, lambda sizes: fold(part(sizes) for part in parts)

    def negation(self) -> tuple[str, Evaluator]:
        if self.token != "not":
            return self.comparison()
        self.take()
        self.deeper()
        position = self.tokens[self.at][1]
        inner = self.expect(CLAIM, self.negation(), position)
        self.depth -= 1
        return CLAIM, lambda sizes: not inner(sizes)

    def comparison(self) -> tuple[str, Evaluator]:
        position = self.tokens[self.at][1]
        first = self.sum()
        if self.token not in _COMPARISONS:
            return first
        left = self.expect(NUMBER, first, position)
        links: list[tuple[Callable, Evaluator]] = []
        while self.token in _COMPARISONS:
            compare = _COMPARISONS[self.take()]
            position = self.tokens[self.at][1]
            links.append((compare, self.expect(NUMBER, self.sum(), position)))

        def evaluate(sizes: Mapping[str, int]) -> bool:
            value = left(sizes)
            for compare, term in links:
                following = term(sizes)
                if not compare(value, following):
                    return False
                value = following
            return True

        return CLAIM, evaluate

    def sum(self) -> tuple[str, Evaluator]:
        return self.chained(("+", "-"), self.product)

    def product(self) -> tuple[str, Evaluator]:
        return self.chained(("*", "/", "//", "%"), self.unary)

    def chained(self, signs: tuple[str, ...], level: Callable) -> tuple[str, Evaluator]:
        position = self.tokens[self.at][1]
        first = level()
        if self.token not in signs:
            return first
        start = self.expect(NUMBER, first, position)
        links: list[tuple[Callable, Evaluator]] = []
        while self.token in signs:
            apply = _ARITHMETIC[self.take()]
            position = self.tokens[self.at][1]
            links.append((apply, self.expect(NUMBER, level(), position)))

        def evaluate(sizes: Mapping[str, int]) -> int:
            value = start(sizes)
            for apply, term in links:
                value = _bounded(apply(value, term(sizes)))
            return value

        return NUMBER, evaluate

    def unary(self) -> tuple[str, Evaluator]:
        if self.token != "-":
            return self.power()
        self.take()
        self.deeper()
        position = self.tokens[self.at][1]
        inner = self.expect(NUMBER, self.unary(), position)
        self.depth -= 1
        return NUMBER, lambda sizes: _bounded(-inner(sizes))

    def power(self) -> tuple[str, Evaluator]:
        position = self.tokens[self.at][1]
        first = self.atom()
        if self.token != "**":
            return first
        base = self.expect(NUMBER, first, position)
        self.take()
        self.deeper()
        position = self.tokens[self.at][1]
        exponent = self.expect(NUMBER, self.unary(), position)
        self.depth -= 1
        return NUMBER, lambda sizes: _bounded(_power(base(sizes), exponent(sizes)))

    def atom(self) -> tuple[str, Evaluator]:
        token = self.token
        if token.isdigit():
            value = int(self.take())
            if value >= 2**63:
                self.at -= 1
                self.refuse("an integer below 2**63")
            return NUMBER, lambda sizes: value
        if token[:1].isdigit():
            self.decimals, decimal = True, float(self.take())
            return NUMBER, lambda sizes: decimal
        if token == "(":
            self.take()
            self.deeper()
            inner = self.disjunction()
            self.depth -= 1
            self.close()
            return inner
        if not (token[:1].isalpha() or token[:1] == "_") or token in _WORDS:
            self.refuse("an integer, a name or `(`")
        self.take()
        if self.token == "(":
            self.at -= 1
            return self.call()
        self.names.add(token)
        return NUMBER, lambda sizes: sizes[token]

    def call(self) -> tuple[str, Evaluator]:
        if self.token not in _FUNCTIONS:
            self.refuse("one of the functions min, max, ceildiv")
        name, start = self.token, self.at
        self.take()
        self.take()
        self.deeper()
        arguments: list[Evaluator] = []
        while True:
            position = self.tokens[self.at][1]
            arguments.append(self.expect(NUMBER, self.disjunction(), position))
            if self.token != ",":
                break
            self.take()
        self.depth -= 1
        self.close()
        if len(arguments) < 2 or (name == "ceildiv" and len(arguments) > 2):
            self.at = start
            self.refuse("exactly two arguments" if name == "ceildiv" else "two arguments or more")
        function = _FUNCTIONS[name]
        return NUMBER, lambda sizes: _bounded(function(*[argument(sizes) for argument in arguments]))

    def close(self) -> None:
        if self.token != ")":
            self.refuse("`)`")
        self.take()
