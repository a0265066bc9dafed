"""Mutants of generated CUDA and of its launches, judged on the emulator; equal ones shown to be so."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from . import programs
from .cuda_roles import ROLES
from .cuda_structure import STRUCTURE
from .cuda_values import VALUES
from .equivalence import reason_of, same_code
from .mutant import Mutant, applied, mutants_of
from .verdict import Outcome

LAUNCHES = tuple(
    (operator, change)
    for operator, key, deltas in (
        ("grid_extent", "grid.x", (-1, 1)),
        ("grid_extent", "grid.y", (-1, 1)),
        ("grid_extent", "grid.z", (-1, 1)),
        ("block_extent", "block.x", (-1, 1)),
        ("block_extent", "block.y", (-1, 1)),
        ("shared_bytes", "shared", (-4, -64, -1024)),
    )
    for delta in deltas
    for change in ({key: delta},)
)


def mutants() -> Iterator[Mutant]:
    """A line that an earlier kernel of the same part has too gives its mutants once."""
    seen: set[tuple] = set()
    for subject, text in programs.subjects().items():
        part, lines = subject.split(".")[1], text.splitlines()
        for mutant in mutants_of("program", subject, text, {**STRUCTURE, **VALUES, **ROLES}):
            place = (part, mutant.operator, programs.unnamed(lines[mutant.line - 1]), mutant.change)
            if subject.startswith("mma_any_gate") and place in seen:
                continue
            seen.add(place)
            yield mutant
        for place, (operator, change) in enumerate(LAUNCHES, 1):
            yield Mutant("program", operator, subject, place, 0, launch=change)


def judge(mutant: Mutant) -> Outcome:
    outcome = programs.judge(mutant)
    if not outcome.accepted:
        return outcome
    if mutant.launch:
        return evolve(outcome, reason=reason_of(mutant, "", outcome))
    text = programs.subjects()[mutant.subject]
    outcome = evolve(outcome, same_code=same_code(text, applied(text, mutant.edits)))
    return evolve(outcome, reason=reason_of(mutant, text, outcome))
