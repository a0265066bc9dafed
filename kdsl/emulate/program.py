"""What a lowered rule has to offer so that `kdsl emulate` can try it: a call in, launches and their outputs
out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from attrs import field, frozen

from kdsl.emulate.launches import Launch
from kdsl.emulate.run import EmulationResult, emulate
from kdsl.validate import bfloat16, oracle
from kdsl.validate.acceptance import Acceptance, acceptance
from kdsl.validate.call import reference

OPERATORS = ("kda.chunk_forward", "kda.decode")


@frozen(eq=False)
class Bound:
    """The launches of one call, in order, and the arrays in which its results will be.

    `state` is the final state, or the pool after the call; uint16 arrays are bfloat16 patterns. Both are
    buffers of the launches: o and the final state as `output`, the pool as `updated`, tensors between kernels
    as `workspace`, all else as `input`. A launch whose grid is empty is left out, as the runtime leaves it
    out.
    """

    launches: tuple[Launch, ...]
    o: np.ndarray
    state: np.ndarray


class Program(Protocol):
    """A rule lowered for one target and one set of settings."""

    operator: str  # of OPERATORS

    def bind(self, call: Mapping[str, Any]) -> Bound:
        """The launches that execute `call`: arguments of `kdsl.validate.call` for kda.chunk_forward, of
        `kdsl.validate.oracle.decode` for kda.decode, as the functions in `kdsl.emulate.calls` draw them.
        """
        ...


# (rule file, target, settings: options, dtypes and choices by name) -> the program.
Lower = Callable[[Path, str, Mapping[str, object]], Program]


@frozen
class Trial:
    """One call of one program: what the emulator saw, and the results against the oracle if there are any."""

    emulation: EmulationResult = field(repr=False)
    acceptance: Acceptance | None

    @property
    def verdict(self) -> str:
        """`pass` only for a clean emulation whose results are accepted."""
        if self.emulation.verdict != "pass" or self.acceptance is None:
            return self.emulation.verdict
        return "pass" if self.acceptance.accepted else "fail"

    def explain(self) -> str:
        parts = [self.emulation.explain()]
        if self.acceptance is not None:
            parts.append(self.acceptance.explain())
        return "\n".join(parts)


def try_program(
    program: Program, call: Mapping[str, Any], *, target: str, seed: int = 0, seconds: float = 60.0
) -> Trial:
    """Emulate the call and judge its results. Raises as `emulate` and `Program.bind` do."""
    bound = program.bind(call)
    result = emulate(bound.launches, target=target, seed=seed, seconds=seconds)
    if result.refusal is not None:
        return Trial(result, None)
    needed = oracle.decode(**call) if program.operator == "kda.decode" else reference(call)
    return Trial(result, acceptance(values(bound.o), values(bound.state), *needed))


def values(array: np.ndarray) -> np.ndarray:
    """uint16 arrays are bfloat16 patterns."""
    return bfloat16.decode(array) if array.dtype == np.uint16 else array
