"""The calls that a proof covers: lengths, heads, layouts, optional tensors, skipped rows.

A verdict holds for its shapes, so the default ones are chosen for what goes wrong in kernels: a tail, a
chunk that ends exactly, one token, no token, several sequences, more value heads than heads, both state
layouts, gaps between rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from attrs import evolve, field, frozen

from kdsl.check.evaluate import evaluate
from kdsl.check.model import Operator
from kdsl.prove.engine import Situation
from kdsl.prove.layout import Layout
from kdsl.prove.recurrence import Call
from kdsl.prove.specification import meaning_of

INTEGERS = ("i32", "i64")
STATES = ("initial_state", "final_state", "pool")
OPTIONAL_FLOATS = ("initial_state", "final_state", "dt_bias", "A_log")


@frozen
class Case:
    """One call by its name, sizes that vary, what is given and how tensors lie. `fixed` sizes come from the
    plan."""

    name: str
    sizes: Mapping[str, int]
    absent: tuple[str, ...] = ()
    integers: Mapping[str, tuple] = field(factory=dict)
    order: str = "contiguous"  # contiguous, gaps, or swapped (states as [.., V, K], tokens after heads)


def chunk_cases(chunk: int, tokens: int | None = None, runs: int = 1) -> Iterator[Case]:
    """Lengths around the chunk: within a few chunks every boundary between them occurs. A sequence with several chunks
    also starts late, so that what is fetched ahead for it lies elsewhere than for the first; the last is empty.

    Where chunks are joined to `runs`, the first sequence has all of them, of two chunks but for the last, which has one
    that is not full, and the second long one has fewer chunks than there are runs."""
    first = chunk + 3 if runs == 1 else (2 * runs - 2) * chunk + 3
    lengths = (
        (first, 0, chunk + chunk // 2 + 1, 1, 0)
        if tokens is None
        else (tokens - min(tokens, 1), 0, min(tokens, 1))
    )
    cu = tuple(int(x) for x in np.cumsum((0, *lengths)))
    packed = {"B": 1, "T": cu[-1], "H": 1, "HV": 2, "N": len(lengths)}
    yield Case(
        "packed sequences, two of them empty, rows with gaps", packed, integers={"cu_seqlens": cu}, order="gaps"
    )
    dense = chunk + 3 if tokens is None else tokens
    yield Case(
        "two rows, states as [V, K], no bias",
        {"B": 2, "T": dense, "H": 1, "HV": 1, "N": 2},
        ("dt_bias",),
        order="swapped",
    )
    yield Case(
        "one token, two heads of two, no states",
        {"B": 1, "T": 1, "H": 2, "HV": 4, "N": 1},
        ("initial_state", "final_state"),
    )
    if tokens is None:
        exact = {"B": 2, "T": 2 * chunk, "H": 1, "HV": 1, "N": 2}
        yield Case("two rows that end with their chunk", exact, ("initial_state",))
        # a chunk too many would take the workspace of the sequence behind it; whatever cu_seqlens holds, nothing
        # outside a tensor is touched
        ends = tuple(int(x) for x in np.cumsum((0, chunk - 1, 1, chunk, chunk - 1, 3)))
        cu = (*ends, ends[-1] + 2, ends[-1] + chunk + 5, ends[-1] + 2 * chunk)
        full = {"B": 1, "T": ends[-1], "H": 1, "HV": 1, "N": len(cu) - 1}
        name = "packed sequences that fill their chunks, or all but a token, and three behind the end"
        yield Case(name, full, integers={"cu_seqlens": cu})
    yield Case("no token", {"B": 1, "T": 0, "H": 1, "HV": 1, "N": 1})


def decode_cases(slot_zero_is_real: bool, tokens: int | None = None) -> Iterator[Case]:
    """Rows that own slots, skip, speculate. Without indices slot 0 is row 0's: such calls are never
    compiled with `slot_zero_is_real` off."""
    t = tokens or 1
    if slot_zero_is_real:
        yield Case("row n owns slot n", {"N": 2, "T": t, "H": 1, "HV": 2, "SLOTS": 3, "W": 1}, order="gaps")
    slots = ((3,), (-1,), (0,), (1,), (5,))
    yield Case(
        "slots by index, one row skipped, one outside the pool",
        {"N": 5, "T": t, "H": 2, "HV": 2, "SLOTS": 5, "W": 1},
        ("dt_bias",),
        {"ssm_state_indices": slots},
        "swapped",
    )
    t = tokens or 3
    table = [[row * t + column for column in range(t)] for row in range(5)]
    table[1][-1] = -1  # a token whose state is not kept
    table[2][0] = 5 * t  # the first slot that there is not
    table[3][0], table[4][0] = -1, 5 * t  # rows without a source, whose other slots stay as they are
    if t > 1:
        states = {"N": 2, "T": t, "H": 1, "HV": 2, "SLOTS": 2 * t + 1, "W": 1}
        yield Case("several tokens, one slot a row", states, integers={"ssm_state_indices": ((2 * t,), (1,))})
        each = tuple(tuple(1 + row * t + column for column in range(t)) for row in range(2))
        yield Case("a slot for each token", {**states, "W": t}, integers={"ssm_state_indices": each})
    yield Case(
        "speculative tokens",
        {"N": 5, "T": t, "H": 1, "HV": 1, "SLOTS": 5 * t, "W": t},
        integers={
            "ssm_state_indices": tuple(map(tuple, table)),
            "num_accepted_tokens": (0, min(2, t), t + 1, 1, 1),
        },
    )


def cases_of(
    operator: Operator, settings: Mapping[str, object], tokens: int | None = None
) -> tuple[Case, ...]:
    """The default cases of an operator under a plan's settings."""
    if meaning_of(operator) == "kda.decode":
        return tuple(decode_cases(bool(settings["slot_zero_is_real"]), tokens))
    return tuple(chunk_cases(int(settings["C"]), tokens, int(settings.get("S", 1))))


MOST = {"T": 1024}  # sizes of a call that a proof runs at most
MOST_OTHER = 64


def tried(cases: Iterable[Case]) -> dict[str, int]:
    """The largest of each size; T is that of the longest sequence."""
    largest: dict[str, int] = {}
    for case in cases:
        cu = case.integers.get("cu_seqlens")
        longest = case.sizes["T"] if cu is None else max(b - a for a, b in zip(cu, cu[1:], strict=False))
        for name, value in {**case.sizes, "T": longest}.items():
            largest[name] = max(value, largest.get(name, 0))
    return largest


def past(operator: Operator, settings: Mapping[str, object], size: str, value: int) -> Case:
    """A call in which `size` is more than `value`, and everything else small."""
    name = f"past {size} = {value}, which the program tells apart"
    if meaning_of(operator) == "kda.decode":
        sizes = {"N": 2, "T": 1, "H": 1, "HV": 1, "SLOTS": 4, "W": 1, size: value + 1}
        if size in ("T", "W"):
            sizes |= {"T": value + 1, "W": value + 1}
        width, count = sizes["W"], sizes["N"]
        sizes["SLOTS"] = max(sizes["SLOTS"], count * width + 1)
        sizes["HV"] = max(sizes["HV"], sizes["H"])
        table = tuple(tuple(1 + row * width + column for column in range(width)) for row in range(count))
        return Case(name, sizes, integers={"ssm_state_indices": table})
    chunk = int(settings["C"])
    sizes = {"B": 1, "T": chunk + 1, "H": 1, "HV": 1, size: value + 1}
    if size == "T":
        sizes["T"] = value + chunk + 1  # a chunk more: what is fetched ahead comes to use
    rows = max(sizes["B"], sizes.get("N", 1))
    return Case(name, {**sizes, "HV": max(sizes["HV"], sizes["H"]), "B": rows, "N": rows})


def asked(operator: Operator, settings: Mapping[str, object], shape: Mapping[str, int]) -> tuple[Case, ...]:
    """The cases with sizes that the user fixed. Cases whose sequences cannot have them are made dense."""
    found = []
    for case in cases_of(operator, settings, shape.get("T")):
        free = {k: v for k, v in shape.items() if k in case.sizes and k not in ("T", "N", "B", "W", "SLOTS")}
        sizes = {**case.sizes, **free}
        if sizes["HV"] % sizes["H"]:
            sizes["HV"] = sizes["H"] * max(1, sizes["HV"] // sizes["H"])
        if "cu_seqlens" not in case.integers and meaning_of(operator) == "kda.chunk_forward" and "B" in shape:
            sizes.update(B=shape["B"], N=shape["B"])
        found.append(evolve(case, sizes=sizes))
    return tuple(found)


def situation(
    operator: Operator,
    case: Case,
    settings: Mapping[str, object],
    options: Mapping[str, object],
    required: Mapping[str, tuple[int | None, ...]] = {},
) -> Situation:
    """The case as a call of the operator with a place for every tensor; `required` are strides that the
    program has built in (its rule refuses other calls)."""
    sizes = {**{k: v for k, v in settings.items() if k in operator.sizes}, **case.sizes}
    given = frozenset(
        name
        for name, port in operator.ports.items()
        if (not port.optional or name in OPTIONAL_FLOATS or name in case.integers) and name not in case.absent
    )
    call = Call(meaning_of(operator), sizes, options, given, case.integers)
    layouts, integers = {}, {}
    for name, port in operator.ports.items():
        shape = tuple(max(int(evaluate(extent, sizes)), 0) for extent in port.shape)
        layout = _layout(name, shape, case.order if port.strided else "contiguous")
        if name in required and not layout.has(required[name]):
            layout = Layout.bound(shape, required[name], 0 if case.order == "contiguous" else 8)
        if set(port.dtypes) & set(INTEGERS):
            storage = np.full(layout.length, -(1 << 40), np.int64)
            if name in case.integers:
                storage[layout.positions] = np.array(case.integers[name], np.int64)
            integers[name] = storage
        layouts[name] = layout
    written = tuple(name for name, port in operator.ports.items() if port.written)
    return Situation(call, layouts, written, integers)


# Gaps are multiples of 8 elements: kernels that take ports in pieces claim that, and the launcher refuses others.
def _layout(name: str, shape: tuple[int, ...], order: str) -> Layout:
    axes = tuple(range(len(shape)))
    if order == "gaps":
        return Layout.of(shape, axes, 8)
    if order == "swapped" and name in STATES:
        return Layout.of(shape, (*axes[:-2], axes[-1], axes[-2]), 2)
    if order == "swapped" and len(shape) >= 3:
        return Layout.of(shape, (axes[0], axes[2], axes[1], *axes[3:]), 8)
    return Layout.of(shape, axes)
