"""Which recurrence an operator is held to: by its name, or as a variant of an operator of the standard library.

`mine.chunk_forward` with the ports of `kda.chunk_forward` means what that one means: so other forms of the mathematics
can be tried in a file of one's own, and proved.
"""

from __future__ import annotations

from functools import lru_cache

from kdsl.check.library import load
from kdsl.check.model import Operator
from kdsl.prove.recurrence import MEANINGS


def meaning_of(operator: Operator) -> str | None:
    """The name in MEANINGS, or None where nothing says what the operator is to compute."""
    if operator.name in MEANINGS:
        return operator.name
    last = operator.name.rpartition(".")[2]
    return next(
        (name for name in MEANINGS if name.rpartition(".")[2] == last and ports_of(operator) == standard_ports(name)),
        None,
    )


def ports_of(operator: Operator) -> dict[str, tuple]:
    """What a call passes: of each port its extents, whether it can be left out, whether it is written."""
    return {
        name: (tuple(extent.span.text for extent in port.shape), port.optional, port.written)
        for name, port in operator.ports.items()
    }


@lru_cache(maxsize=8)
def standard_ports(name: str) -> dict[str, tuple]:
    return ports_of(load().operators[name])
