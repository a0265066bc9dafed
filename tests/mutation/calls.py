"""The calls that a mutant of generated code is run on: those that `kdsl lower` tries it on, always the same."""

from __future__ import annotations

from collections.abc import Mapping

from kdsl.emulate.rehearsals import SIZES, Tried, rehearsals, same, stored, tiny

__all__ = ["SIZES", "SWITCHES", "Tried", "calls_of", "same", "stored", "tiny"]

SWITCHES = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True}


def calls_of(operator: str, settings: Mapping[str, object]) -> tuple[Tried, ...]:
    return rehearsals(operator, settings)
