"""A seeded part of the mutants: some of each operator on each subject."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from .mutant import Mutant


def rank(mutant: Mutant, seed: int) -> str:
    """An order of places that only the seed and the mutant's name decide."""
    return hashlib.sha256(f"{seed} {mutant.name}".encode()).hexdigest()


def sampled(mutants: Iterable[Mutant], most: int, seed: int = 0) -> list[Mutant]:
    """At most `most` places of each operator on each subject, in the order of the list."""
    mutants = list(mutants)
    groups: dict[tuple[str, str, str], list[Mutant]] = {}
    for mutant in mutants:
        groups.setdefault((mutant.level, mutant.subject, mutant.operator), []).append(mutant)
    chosen = {m.name for group in groups.values() for m in sorted(group, key=lambda m: rank(m, seed))[:most]}
    return [mutant for mutant in mutants if mutant.name in chosen]
