"""The values of a choice that mend what fails at some choose points only.

A point is a target's name and then one (choice, value) for every choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def narrowed(names: tuple[str, ...], total: set[tuple], failing: set[tuple], default: tuple | None) -> str:
    """The one choice whose values, with the fewest points lost, leave out every failing point: what to write.

    Empty if there is none, or if nothing fails.
    """
    best: tuple[int, str] | None = None
    for position, name in enumerate(names, 1) if failing else ():
        bad = {key[position][1] for key in failing}
        good = [key[position][1] for key in total if key[position][1] not in bad]
        left = len({key[1:] for key in total if key[position][1] not in bad})
        if not good or (best is not None and left <= best[0]):
            continue
        text = f"{name} in {domain_text(good)}"
        if default is not None and default[position][1] in bad:
            text += f" default {min(good)}"
        best = left, f"write `{text}`: all {left} points that are left hold" if left > 1 else f"write `{text}`"
    return best[1] if best is not None else ""


def never_used(names: tuple[str, ...], total: set[tuple], failing: set[tuple]) -> Iterator[str]:
    """Values of a choice that fail whatever the others are, while some value of it does not."""
    if failing == total:
        return
    for position, name in enumerate(names, 1):
        bad = _dead(position, total, failing)
        if bad:
            those = "it" if len(bad) == 1 else "them"
            yield f"{name} = {span_text(bad)} can never be used: take {those} out of `choose`"


def mended_without(names: tuple[str, ...], total: set[tuple], failing: set[tuple]) -> bool:
    """Whether nothing fails once the values that can never be used are out."""
    dead = [(position, _dead(position, total, failing)) for position in range(1, len(names) + 1)]
    return all(any(key[position][1] in bad for position, bad in dead) for key in failing)


def _dead(position: int, total: set[tuple], failing: set[tuple]) -> set:
    fine = {key[position][1] for key in total - failing}
    return {key[position][1] for key in failing} - fine


def domain_text(values: Iterable[object]) -> str:
    """`2..8` or `[16, 32]`: values as `choose` lists them."""
    every = sorted(set(values), key=lambda value: (str(type(value)), value))
    text = span_text(every)
    return text if ".." in text and " " not in text else f"[{', '.join(map(str, every))}]"


def span_text(values: Iterable[object]) -> str:
    """`16`, `16 or 32`, `2..9`, `2..9 or 16`: values of a choice, runs of numbers by their ends."""
    every = set(values)
    if not all(isinstance(value, int) for value in every):
        return " or ".join(sorted(map(str, every)))
    runs: list[list[int]] = []
    for value in sorted(every):
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    texts = [f"{run[0]}..{run[-1]}" if len(run) > 2 else " or ".join(map(str, run)) for run in runs]
    return " or ".join(texts)
