"""The chance of a false proof, by the lemma of Schwartz and Zippel.

Where the gates are precomputed, each decay exp(g) is uniform in the subgroup of order P[1], independently of
the others, so an output is a Laurent polynomial in inputs and decays.

**Lemma.** A nonzero Laurent polynomial whose monomials have exponents of L1 norm at most D vanishes at a
uniform point of S^n with probability at most 2 D / |S|. *Proof.* Take a variable; let k be its exponent of
largest magnitude; after replacing x by 1/x, k >= 0. Times x^k it is a polynomial of degree at most 2 k in x
whose leading coefficient has exponents of norm at most D - k; by induction that one vanishes with probability
at most 2 (D - k) / |S|, and otherwise at most 2 k points x are roots.

Gates computed in the kernel put rational functions of further inputs into the exponents. Two exponents that
differ as functions agree at a random point with the probability that the same lemma gives one level up;
then exponentials of exponents that are no integer combinations of each other are counted as independent
variables, and sqrt and log as random functions without collisions. Both are listed as assumptions of the
verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kdsl.prove.proof import BOUND

MOST_TRIALS = 40
SMALLEST = 30  # log2 of the first prime is at least this, unless said otherwise


def trial_bound(degree: int, exponent_degree: int, depth: int, smallest_bits: int = SMALLEST) -> float:
    """The chance that one trial misses a difference: 2 D / |S| for each level, with the smallest S of the
    tower."""
    smallest = 2.0 ** (smallest_bits - depth + 1)
    return min(1.0, 2 * (max(degree, 1) + (depth - 1) * max(exponent_degree, 1)) / smallest)


def trials_for(bound: float, wanted: float = BOUND) -> int:
    """How many trials push the chance below `wanted`."""
    if bound >= 0.5:
        return MOST_TRIALS
    return min(MOST_TRIALS, max(1, math.ceil(math.log(wanted) / math.log(bound))))


def trials_of_all(bounds: Sequence[float], least: int, wanted: float = BOUND) -> list[int]:
    """How many trials each of some calls has, `least` or more, so that the chances of all together stay below
    `wanted`: one more where most of what is left is, until they do."""
    counts = [least] * len(bounds)
    while True:
        left = [b**c for b, c in zip(bounds, counts, strict=True)]
        most = left.index(max(left))
        if sum(left) <= wanted or counts[most] == MOST_TRIALS:
            return counts
        counts[most] += 1


def assumptions_of(tower_depth: int, random_functions: bool) -> tuple[str, ...]:
    found = [
        "rounding, overflow and underflow are left out: the acceptance of the operator covers them",
        "integers do not overflow: sizes and positions stay below 2^31",
    ]
    if tower_depth > 2:
        found.append(
            "exponentials of exponents that are no integer combination of each other are independent"
        )
    if random_functions:
        found.append("sqrt and log are random functions whose values do not collide")
    return tuple(found)
