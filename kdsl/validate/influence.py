"""Influence checks (probe P13): change one input at a chosen place and see that the right outputs change.

An honest kernel's output moves as the recurrence's does. A kernel that never reads the place gives the
output it gave before, however well that output fits on the average.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kdsl.validate import bfloat16
from kdsl.validate.call import Call, copy_of, reference

MOVED_AT_LEAST = 0.5
UNWATCHED = -1


@dataclass(frozen=True)
class Influence:
    """One change to a call and the places that must react.

    change: arrays that take the place of the call's. groups: for "o" and/or "final_state" an integer array
    that broadcasts to that output; elements of equal number form a group, `UNWATCHED` ones are left out.
    Every group must move by at least half of what the recurrence's moves, in the same direction.
    """

    name: str
    change: Mapping[str, np.ndarray]
    groups: Mapping[str, np.ndarray]

    def changed(self, call: Call) -> dict:
        return copy_of(call, **self.change)


@dataclass(frozen=True)
class Movement:
    """How one group moved: share 1 as the recurrence, 0 not at all; NaN where nothing could be measured."""

    influence: str
    output: str
    group: int
    share: float

    @property
    def moved(self) -> bool:
        return self.share >= MOVED_AT_LEAST

    def explain(self) -> str:
        return (
            f"{self.influence}: group {self.group} of {self.output} moved by {self.share:.3g} of what the "
            f"recurrence moves, needed at least {MOVED_AT_LEAST:g}."
        )


def movements(
    influence: Influence,
    before: tuple[np.ndarray, np.ndarray],
    after: tuple[np.ndarray, np.ndarray],
    reference_before: tuple[np.ndarray, np.ndarray],
    reference_after: tuple[np.ndarray, np.ndarray],
) -> tuple[Movement, ...]:
    """One Movement per group: the kernel's movement d projected on the recurrence's r, (d . r) / (r . r)."""
    found = []
    for position, output in enumerate(("o", "final_state")):
        if output not in influence.groups:
            continue
        x0, x1, r0, r1 = (bfloat16.values_of(output, pair[position])
                          for pair in (before, after, reference_before, reference_after))  # fmt: skip
        labels = np.broadcast_to(influence.groups[output], r0.shape)
        watched = labels != UNWATCHED
        with np.errstate(invalid="ignore", over="ignore"):
            along, length = (np.bincount(labels[watched], weights=(x * (r1 - r0))[watched])
                             for x in (x1 - x0, r1 - r0))  # fmt: skip
        for group in np.unique(labels[watched]):
            share = along[group] / length[group] if length[group] > 0 else np.nan
            found.append(Movement(influence.name, output, int(group), float(share)))
    return tuple(found)


def influences(call: Call, rng: np.random.Generator) -> tuple[Influence, ...]:
    """The influence checks for a packed call with an initial state and the bounded gate in the kernel.

    Every element of q and v, every key channel and value column of the initial state, every boundary, the
    gate parameters of every head, and k, g and beta at the first and last token of every sequence and at
    tokens 16 and 32 of those long enough.
    """
    cu = np.asarray(call["cu_seqlens"])
    checks = [_all_queries(call), _all_values(call, rng), _initial_states(call, rng), *_gate_parameters(call)]
    for name, offset in (("first", 0), ("last", -1), ("16th", 16), ("32nd", 32)):
        tokens = np.where(offset < 0, cu[1:] - 1, cu[:-1] + offset)
        lanes = np.flatnonzero((np.diff(cu) > 0) & (tokens < cu[1:]))
        checks += _at_tokens(call, name, lanes, tokens)
    checks += [_boundary(call, n) for n in range(1, len(cu) - 1)]
    return tuple(checks)


def smallest_movement(call: Call, check: Influence) -> float:
    """The smallest movement of any group in the recurrence, as a share of the output's rms over the group.

    It says whether the check can tell movement from rounding: honest kernels err by less than 0.01.
    """
    shares = []
    pairs = zip(reference(call), reference(check.changed(call)), ("o", "final_state"), strict=True)
    for before, after, output in pairs:
        if output in check.groups:
            labels = np.broadcast_to(check.groups[output], before.shape)
            watched = labels != UNWATCHED
            moved = np.bincount(labels[watched], weights=np.square(after - before)[watched])
            level = np.bincount(labels[watched], weights=np.square(before)[watched])
            present = np.unique(labels[watched])
            shares.append(np.sqrt(moved[present] / level[present]).min())
    return float(min(shares))


def _values(call: Call, name: str) -> np.ndarray:
    return bfloat16.values_of(name, call[name], np.float32)


def _all_queries(call: Call) -> Influence:
    """One channel of q per token and head, a different one each time, grows large: that token's o moves."""
    q = _values(call, "q")
    _, tokens, heads, channels = q.shape
    t, h = np.meshgrid(np.arange(tokens), np.arange(heads), indexing="ij")
    q[0, t, h, (t + h * (channels // 2)) % channels] = 4 * channels**0.5
    groups = (t * heads + h).reshape(1, tokens, heads, 1)
    return Influence("q at every token", {"q": bfloat16.encode(q)}, {"o": groups})


def _all_values(call: Call, rng: np.random.Generator) -> Influence:
    """v changes at every token; groups of 8 value channels, recurrences of their own, move at each token."""
    v = _values(call, "v")
    change = np.sign(rng.standard_normal(v.shape)) * rng.uniform(2, 4, v.shape)
    groups = np.arange(v.size).reshape(v.shape) // 8
    return Influence("v at every token", {"v": bfloat16.encode(v + change)}, {"o": groups})


def _initial_states(call: Call, rng: np.random.Generator) -> Influence:
    """Each key channel of each head and sequence is changed in one value column of its own."""
    state = _values(call, "initial_state")
    sequences, heads, channels, width = state.shape
    order = np.stack([rng.permutation(width) for _ in range(sequences * heads)])
    changed = state.reshape(sequences * heads, channels, width)
    lane, channel = np.meshgrid(np.arange(sequences * heads), np.arange(channels), indexing="ij")
    changed[lane, channel, order[lane, channel % width]] += 8
    groups = np.arange(sequences * heads * width).reshape(sequences, heads, 1, width)
    change = {"initial_state": changed.reshape(state.shape)}
    return Influence("each channel of the initial state", change, {"final_state": groups})


def _gate_parameters(call: Call) -> list[Influence]:
    rate = np.asarray(call["A_log"], np.float32)
    bias = np.asarray(call["dt_bias"], np.float32)
    heads, channels = rate.size, bias.size // rate.size
    per_head = np.arange(heads).reshape(1, heads, 1, 1)
    per_row = np.arange(heads * channels).reshape(1, heads, channels, 1)
    return [
        Influence("A_log of each head", {"A_log": rate + np.float32(0.7)}, {"final_state": per_head}),
        Influence("each channel of dt_bias", {"dt_bias": bias + np.float32(2)}, {"final_state": per_row}),
    ]


def _at_tokens(call: Call, name: str, lanes: np.ndarray, tokens: np.ndarray) -> list[Influence]:
    """Changes at one token of each sequence in `lanes`; that sequence's results move, in every head."""
    k, v, g, beta = (_values(call, x) for x in ("k", "v", "g", "beta"))
    sequences, heads, channels, width = np.shape(call["initial_state"])
    per_lane = np.full((sequences, heads, 1, 1), UNWATCHED)
    per_lane[lanes, :, 0, 0] = lanes[:, None] * heads + np.arange(heads)
    column = np.arange(width)
    per_column = np.where(per_lane < 0, UNWATCHED, per_lane * width + column)
    row = np.arange(channels)[:, None]
    per_row = np.where(per_lane < 0, UNWATCHED, per_lane * channels + row)
    at = tokens[lanes]
    at_token = np.full((1, k.shape[1], heads, 1), UNWATCHED)
    at_token[0, at, :, 0] = per_lane[lanes, :, 0, 0]
    both = {"o": at_token, "final_state": per_lane}
    lane, head = np.meshgrid(lanes, np.arange(heads), indexing="ij")
    k[0, tokens[lane], head, (lane * 37 + head * 61 + 127) % channels] = 4 * channels**0.5
    v[0, at] += 6
    g[0, at] += 5
    beta[0, at] = np.where(beta[0, at] > 0, -4, 4)
    place = f"at the {name} token"
    return [
        Influence(f"k {place}", {"k": bfloat16.encode(k)}, both),
        Influence(f"v {place}", {"v": bfloat16.encode(v)}, {"final_state": per_column}),
        Influence(f"each channel of g {place}", {"g": bfloat16.encode(g)}, {"final_state": per_row}),
        Influence(f"beta {place}", {"beta": bfloat16.encode(beta)}, both),
    ]


def _boundary(call: Call, n: int) -> Influence:
    """The start of sequence n moves one token later: that token's o and both final states move."""
    cu = np.array(call["cu_seqlens"])
    token = int(cu[n])
    cu[n] += 1
    o = np.full((1, np.shape(call["v"])[1], 1, 1), UNWATCHED)
    o[0, token] = 0
    states = np.full((len(cu) - 1, 1, 1, 1), UNWATCHED)
    states[n - 1 : n + 1, 0, 0, 0] = (n - 1, n)
    return Influence(f"boundary {n}", {"cu_seqlens": cu}, {"o": o, "final_state": states})
