"""A tower of prime fields in which exponentials have a meaning.

P[0] = 2 P[1] + 1, P[1] = 2 P[2] + 1, ... is a Cunningham chain of the first kind below 2^31. A value of
level n lives in Z_P[n]. `exp` maps level n + 1 to level n by exp(x) = w_n^x mod P[n], where w_n has order
P[n + 1]; so exp(x + y) = exp(x) exp(y) holds exactly. The construction is Mirage's (Wu et al., OSDI 2025,
section 5), with more than two fields because KDA's gates nest exponentials: exp(lower_bound *
sigmoid(exp(A_log) * ...)).

`sqrt` and `log` are random functions: equal arguments give equal results, and nothing else is known of
them. Laws that a program may use of them (sqrt(x)^2 = x) therefore lead to a false rejection, never to a
false proof.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property

import numpy as np
from attrs import field, frozen

TAINT = np.uint32(1 << 31)  # read before it was written
BITS = 31  # of the first prime, unless asked otherwise
LIMB = 2048  # exp(x) is a product of three table entries, one for each 11 bits of x
SMALL_PRIMES = tuple(p for p in range(3, 400, 2) if all(p % q for q in range(3, int(p**0.5) + 1, 2)))
WITNESSES = (2, 3, 5, 7)  # decide primality below 3,215,031,751 (Jaeschke 1993)


def is_prime(n: int) -> bool:
    """Miller-Rabin with witnesses that decide every n below 2^31."""
    if n < 2 or any(n % p == 0 for p in (2, *SMALL_PRIMES)):
        return n == 2 or n in SMALL_PRIMES
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_witness_agrees(a, odd, twos, n) for a in WITNESSES)


def _witness_agrees(a: int, odd: int, twos: int, n: int) -> bool:
    x = pow(a, odd, n)
    if x in (1, n - 1):
        return True
    for _ in range(twos - 1):
        x = x * x % n
        if x == n - 1:
            return True
    return False


def draw_chain(rng: np.random.Generator, depth: int, bits: int = BITS) -> tuple[int, ...]:
    """A random chain of `depth` primes, the largest first and of `bits` bits: in [2^30, 2^31) for 31."""
    low = 1 << (bits - depth)
    step, offset = (30, 29) if depth >= 4 else (2, 1)  # a chain of four or more ends in r = 29 mod 30
    while True:
        last = rng.integers(low // step, 2 * low // step, 1 << 14, dtype=np.int64) * step + offset
        last = last[(last >= low - 1) & (last < 2 * low - 1)]
        for prime in SMALL_PRIMES:
            bad = np.zeros(prime, bool)  # by the remainder of the last prime and 1
            bad[[pow(1 << rung, -1, prime) for rung in range(depth)]] = True  # (r + 1) 2^rung - 1 is divided
            last = last[~bad[(last + 1) % prime]]
        for r in last.tolist():
            chain = tuple(((r + 1) << rung) - 1 for rung in reversed(range(depth)))
            if all(map(is_prime, chain)):
                return chain


@frozen
class Tower:
    """One random draw of everything that a trial fixes.

    `primes[n]` is the field of level n, `roots[n]` is w_n (one for each level but the last), `ln2` stands
    for ln 2 at every level (log2 e is its inverse), `salt` makes the random functions sqrt and log.
    """

    primes: tuple[int, ...]
    roots: tuple[int, ...]
    ln2: int
    salt: int
    memo: dict = field(factory=dict, eq=False, repr=False)

    @classmethod
    def draw(cls, rng: np.random.Generator, depth: int, bits: int = BITS) -> Tower:
        primes = draw_chain(rng, depth, bits)
        # squares other than 1 have the odd prime order (p - 1) / 2 = P[n + 1]
        roots = tuple(pow(int(rng.integers(2, p - 1)), 2, p) for p in primes[:-1])
        ln2 = int(rng.integers(2, min(primes)))
        return cls(primes, roots, ln2, int(rng.integers(0, 1 << 63)) * 2 + 1)

    @property
    def depth(self) -> int:
        return len(self.primes)

    def literal(self, value: Fraction, level: int) -> int:
        """An exact rational in the field of `level`."""
        p = self.primes[level]
        return value.numerator * pow(value.denominator, -1, p) % p

    @cached_property
    def log2e(self) -> tuple[int, ...]:
        return tuple(pow(self.ln2, -1, p) for p in self.primes)

    def elements(self, rng: np.random.Generator, shape: tuple[int, ...], level: int) -> np.ndarray:
        """Uniform elements other than zero, uint64."""
        return rng.integers(1, self.primes[level], shape, dtype=np.uint64)

    # ---- arithmetic on uint64 arrays of reduced elements ----
    def exp(self, x: np.ndarray, level: int) -> np.ndarray:
        """From level + 1 to level."""
        p = np.uint64(self.primes[level])
        table = self._exp_table(level)
        low, middle, high = (x >> np.uint64(s) & np.uint64(LIMB - 1) for s in (0, 11, 22))
        return reduced(reduced(table[0][low] * table[1][middle], p) * table[2][high], p)

    def _exp_table(self, level: int) -> list[np.ndarray]:
        if ("exp", level) not in self.memo:
            p, tables, w = self.primes[level], [], self.roots[level]
            for _ in range(3):
                powers = np.ones(1, np.uint64)
                while len(powers) < LIMB:  # w is to the power of their number
                    powers = np.concatenate([powers, reduced(powers * np.uint64(w), np.uint64(p))])
                    w = w * w % p
                tables.append(powers)
            self.memo["exp", level] = tables
        return self.memo["exp", level]

    def inverse(self, x: np.ndarray, level: int) -> np.ndarray:
        """x^(p - 2). Zero has no inverse: raises ZeroDivisionError."""
        if not np.all(x):
            raise ZeroDivisionError("zero has no inverse in the field")
        p = np.uint64(self.primes[level])
        result, power = np.ones_like(x), x
        exponent = self.primes[level] - 2
        while exponent:
            if exponent & 1:
                result = reduced(result * power, p)
            power = reduced(power * power, p)
            exponent >>= 1
        return result

    def random_function(self, kind: int, x: np.ndarray, level: int, result_level: int) -> np.ndarray:
        """sqrt (kind 0) or log (kind 1): an element other than zero that only kind, levels and x decide."""
        tag = np.uint64(kind * 64 + level * 8 + result_level)
        z = mix((x << np.uint64(8) | tag) + np.uint64(self.salt))
        return reduced(z, np.uint64(self.primes[result_level] - 1)) + np.uint64(1)


def reduced(x: np.ndarray, p: np.uint64) -> np.ndarray:
    """x mod p. NumPy divides by one number without a division instruction, but takes remainders with one."""
    return x - x // p * p


def mix(z: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014)."""
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)
