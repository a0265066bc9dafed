"""Where the mutants of each level come from and who judges them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from attrs import frozen

from .mutant import Mutant
from .verdict import Outcome


@frozen
class Level:
    """`subjects` are texts by name; `mutants` makes all of them in a fixed order; `judge` runs one."""

    name: str
    subjects: Callable[[], Mapping[str, str]]
    mutants: Callable[[], Iterator[Mutant]]
    judge: Callable[[Mutant], Outcome]


def program_level() -> Level:
    from . import program_mutants, programs

    return Level("program", programs.subjects, program_mutants.mutants, program_mutants.judge)


def math_level() -> Level:
    from . import mathematics

    return Level("mathematics", mathematics.subjects, mathematics.mutants, mathematics.judge)


def rule_level() -> Level:
    from . import rules

    return Level("rule", rules.subjects, rules.mutants, rules.judge)


def contract_level() -> Level:
    from . import contracts

    return Level("contract", contracts.subjects, contracts.mutants, contracts.judge)


def harmless_level() -> Level:
    from . import harmless

    return Level("harmless", harmless.subjects, harmless.mutants, harmless.judge)


LEVELS = {
    "contract": contract_level,
    "rule": rule_level,
    "mathematics": math_level,
    "program": program_level,
    "harmless": harmless_level,
}


@lru_cache(maxsize=8)
def level(name: str) -> Level:
    return LEVELS[name]()


def every(names=tuple(LEVELS)) -> Iterator[Mutant]:
    for name in names:
        yield from level(name).mutants()
