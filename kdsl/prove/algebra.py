"""Arrays in which the specification is evaluated: elements of the fields, or degrees of polynomials.

Both offer the same arithmetic, so the recurrence is written once (`recurrence.py`). `Degrees` is how the
program itself computes the degree that the Schwartz-Zippel bound needs.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol

import numpy as np
from attrs import frozen

from kdsl.prove.fields import Tower, reduced

SQRT, LOG = 0, 1


class Value(Protocol):
    """What the recurrence may do with a tensor: field arithmetic, exponentials, random functions, layout."""

    def __add__(self, other): ...
    def __sub__(self, other): ...
    def __mul__(self, other): ...
    def exp(self): ...
    def sigmoid(self): ...
    def softplus(self): ...
    def rsqrt(self): ...
    def zeros(self, shape: tuple[int, ...]): ...
    def sum(self, axis: int): ...
    def __getitem__(self, key): ...


@frozen
class LevelMismatch(Exception):
    """Two values of different levels meet in the specification: a fault of the specification."""

    left: int
    right: int


@frozen(eq=False)
class Elements:
    """An array of field elements of one level: uint64, reduced."""

    tower: Tower
    level: int
    values: np.ndarray

    def _other(self, other) -> np.ndarray:
        if isinstance(other, Elements):
            if other.level != self.level:
                raise LevelMismatch(self.level, other.level)
            return other.values
        return np.uint64(self.tower.literal(Fraction(other), self.level))

    def _with(self, values: np.ndarray, level: int | None = None) -> Elements:
        return Elements(self.tower, self.level if level is None else level, values)

    @property
    def _prime(self) -> np.uint64:
        return np.uint64(self.tower.primes[self.level])

    def _below(self, values: np.ndarray) -> np.ndarray:
        """Numbers below 2 p, below p: for those that already are, the difference wraps around."""
        return np.minimum(values, values - self._prime)

    def __add__(self, other) -> Elements:
        return self._with(self._below(self.values + self._other(other)))

    def __sub__(self, other) -> Elements:
        return self._with(self._below(self.values + (self._prime - self._other(other))))

    def __mul__(self, other) -> Elements:
        return self._with(reduced(self.values * self._other(other), self._prime))

    def __neg__(self) -> Elements:
        return self._with(self._below(self._prime - self.values))

    def exp(self) -> Elements:
        return self._with(self.tower.exp(self.values, self.level - 1), self.level - 1)

    def sigmoid(self) -> Elements:
        """1 / (1 + exp(-x)). -1 is no square in P[n], so the denominator is never zero."""
        one = (-self).exp() + 1
        return one._with(self.tower.inverse(one.values, one.level))

    def softplus(self) -> Elements:
        """log(1 + exp(x)), with the logarithm brought to level 1, where log decays live."""
        argument = self.exp() + 1
        return argument._with(self.tower.random_function(LOG, argument.values, argument.level, 1), 1)

    def rsqrt(self) -> Elements:
        root = self.tower.random_function(SQRT, self.values, self.level, self.level)
        return self._with(self.tower.inverse(root, self.level))

    def zeros(self, shape: tuple[int, ...]) -> Elements:
        return self._with(np.zeros(shape, np.uint64))

    def sum(self, axis: int) -> Elements:
        return self._with(reduced(self.values.sum(axis, dtype=np.uint64), self._prime))

    def __getitem__(self, key) -> Elements:
        return self._with(self.values[key])


@frozen(eq=False)
class Degrees:
    """Degrees in place of elements.

    `degree` bounds the L1 norm of the exponents of every monomial (decays may be inverted, so monomials are
    Laurent); `linear` bounds the sum of absolute coefficients where the value is an exponent itself;
    `exponents` is the largest degree of any exponent met so far.
    """

    degree: np.ndarray
    linear: np.ndarray
    exponents: int = 0

    @classmethod
    def indeterminates(cls, shape: tuple[int, ...]) -> Degrees:
        return cls(np.ones(shape, np.int64), np.ones(shape, np.int64))

    def zeros(self, shape: tuple[int, ...]) -> Degrees:
        return Degrees(np.zeros(shape, np.int64), np.zeros(shape, np.int64))

    def __add__(self, other) -> Degrees:
        if not isinstance(other, Degrees):
            return self
        exponents = max(self.exponents, other.exponents)
        return Degrees(np.maximum(self.degree, other.degree), self.linear + other.linear, exponents)

    __sub__ = __add__

    def __mul__(self, other) -> Degrees:
        if not isinstance(other, Degrees):
            return Degrees(self.degree, self.linear * max(1, abs(Fraction(other).numerator)), self.exponents)
        degree = self.degree + other.degree
        return Degrees(degree, np.ones_like(degree), max(self.exponents, other.exponents))

    def __neg__(self) -> Degrees:
        return self

    def exp(self) -> Degrees:
        """A monomial in the exponentials of what the exponent adds up."""
        exponents = max(self.exponents, int(self.degree.max(initial=0)))
        return Degrees(self.linear, np.ones_like(self.linear), exponents)

    def _opaque(self) -> Degrees:
        one = np.ones_like(self.degree)
        return Degrees(one, one, max(self.exponents, int(self.degree.max(initial=0))))

    sigmoid = softplus = rsqrt = _opaque

    def sum(self, axis: int) -> Degrees:
        return Degrees(self.degree.max(axis, initial=0), self.linear.sum(axis), self.exponents)

    def __getitem__(self, key) -> Degrees:
        return Degrees(self.degree[key], self.linear[key], self.exponents)
