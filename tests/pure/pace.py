"""Seconds of work as an idle machine takes them: a limit on them holds beside other programs, and on a slower machine.

Processor time is not enough: a neighbour on the core's other thread, or in its cache, stretches that too. So a fixed
piece of work of the same kind (small objects made, walked and looked up) is timed right before and after, and the time
between is divided by how much slower than IDLE that ran. A machine that is faster than IDLE gets no credit.
"""

from __future__ import annotations

import gc
import time

from attrs import define, frozen

IDLE = 0.057  # processor seconds of `reference`, the least of many on an idle core of the machine the limits are from


@frozen
class _Leaf:
    name: str
    parts: tuple


@define
class Paced:
    """`with Paced() as took: ...`, then `took.seconds`. What the process made before is no work of the collector."""

    seconds: float = float("nan")
    before: float = 0.0
    begun: float = 0.0

    def __enter__(self) -> Paced:
        gc.freeze()
        self.before = reference()
        self.begun = time.process_time()
        return self

    def __exit__(self, *_) -> None:
        taken = time.process_time() - self.begun
        gc.unfreeze()
        self.seconds = taken / max(1.0, (self.before + reference()) / 2 / IDLE)


def reference() -> float:
    """Processor seconds of the fixed piece of work, whatever the settings of the collector."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _fixed_work()
    finally:
        if collecting:
            gc.enable()


def _fixed_work() -> float:
    begun = time.process_time()
    found: dict[tuple[str, int], int] = {}
    for turn in range(6):
        leaves = [_Leaf(f"leaf{i}", (i, (i + turn, _Leaf("inner", ())))) for i in range(4000)]
        stack: list = [tuple(leaves)]
        while stack:
            node = stack.pop()
            if isinstance(node, tuple):
                stack.extend(part for part in node if isinstance(part, (tuple, _Leaf)))
            else:
                found[node.name, len(node.parts)] = found.get((node.name, turn), 0) + 1
                stack.append(node.parts)
    assert len(found) == 4001
    return time.process_time() - begun
