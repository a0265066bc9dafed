"""Probes: inputs, drawn from the caller's seed, that a cheating or sloppy kernel gets wrong.

`PROBES` is the table: a probe is one entry of it, a name, what it catches, and a function that draws a call.
Unless a probe is about something else, calls are bfloat16 with H = 2 heads and K = V = 128, norm, gate
and beta sigmoid in the kernel, and the bounded gate at -5, the mode that every forward kernel has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kdsl.validate import bfloat16
from kdsl.validate.acceptance import NEARLY_EQUAL_KEYS_STATE_RMS_LIMIT, RMS_LIMIT
from kdsl.validate.call import Call
from kdsl.validate.influence import Influence, influences

HEADS = 2
CHANNELS = 128
LOWER_BOUND = -5.0
SHUFFLED_LENGTHS = (1, 0, 16, 1, 64, 63, 155)
REFILLS = 2
INFLUENCE_LENGTHS = (16, 33, 64, 15)


@dataclass(frozen=True)
class Probe:
    """One drawn probe. `refills` are contents written into the call's cu_seqlens array, in place, one after
    the other, each followed by another run; `influences` are changes whose effect must be seen."""

    name: str
    catches: str
    call: Call
    state_rms_limit: float = RMS_LIMIT
    refills: tuple[np.ndarray, ...] = ()
    influences: tuple[Influence, ...] = ()


@dataclass(frozen=True)
class ProbeKind:
    """An entry of the table: how a probe is drawn. `draw` takes the generator and gives the call."""

    name: str
    catches: str
    draw: Callable[[np.random.Generator], dict[str, Any]]
    state_rms_limit: float = RMS_LIMIT
    refills: Callable[[Call, np.random.Generator], tuple[np.ndarray, ...]] | None = None
    influences: Callable[[Call, np.random.Generator], tuple[Influence, ...]] | None = None

    def make(self, seed: int) -> Probe:
        """The probe for `seed`; each kind has its own stream, so adding one changes no other."""
        rng = np.random.default_rng([seed, int(self.name[1:])])
        call = self.draw(rng)
        return Probe(
            name=self.name,
            catches=self.catches,
            call=call,
            state_rms_limit=self.state_rms_limit,
            refills=self.refills(call, rng) if self.refills else (),
            influences=self.influences(call, rng) if self.influences else (),
        )


def make_probes(seed: int) -> tuple[Probe, ...]:
    """All probes for one seed (a non-negative integer that the kernel's author does not choose)."""
    return tuple(kind.make(seed) for kind in PROBES.values())


def random_call(
    rng: np.random.Generator,
    tokens: int,
    *,
    lengths: tuple[int, ...] | None = None,
    with_state: bool = True,
    **replaced: np.ndarray,
) -> dict[str, Any]:
    """A call of ordinary data: normal q, k, v; log gates around -0.1; beta logits normal; states of size 0.3.

    `lengths` packs sequences. `replaced` arrays (floats; q, k, v, g, beta are encoded to bfloat16, the rest
    are kept) take the place of what would be drawn.
    """
    sequences = 1 if lengths is None else len(lengths)
    wide, thin = (1, tokens, HEADS, CHANNELS), (1, tokens, HEADS)
    drawn = {name: rng.standard_normal(wide) for name in ("q", "k", "v")}
    drawn["g"] = rng.normal(-4, 1, wide)
    drawn["beta"] = rng.standard_normal(thin)
    drawn |= {name: replaced.pop(name) for name in tuple(drawn) if name in replaced}
    call: dict[str, Any] = {name: bfloat16.encode(array) for name, array in drawn.items()}
    call["A_log"] = rng.uniform(-0.3, 0.3, HEADS).astype(np.float32)
    call["dt_bias"] = rng.normal(0, 0.3, (HEADS, CHANNELS)).astype(np.float32)
    if with_state:
        call["initial_state"] = rng.normal(0, 0.3, (sequences, HEADS, CHANNELS, CHANNELS)).astype(np.float32)
    if lengths is not None:
        call["cu_seqlens"] = np.cumsum((0, *lengths)).astype(np.int64)
    return call | _IN_KERNEL | replaced


_IN_KERNEL: Mapping[str, Any] = {
    "use_qk_l2norm_in_kernel": True,
    "use_gate_in_kernel": True,
    "use_beta_sigmoid_in_kernel": True,
    "safe_gate": True,
    "lower_bound": LOWER_BOUND,
    "output_final_state": True,
}
_NEUTRAL_GATE: Mapping[str, np.ndarray] = {
    "A_log": np.zeros(HEADS, np.float32),
    "dt_bias": np.zeros((HEADS, CHANNELS), np.float32),
}


def _gate_logits(log_decay: np.ndarray) -> np.ndarray:
    """g for which the bounded gate gives `log_decay`, with A_log and dt_bias zero."""
    share = log_decay / LOWER_BOUND
    return np.log(share) - np.log1p(-share)


def _scaled_tokens(rng: np.random.Generator) -> dict[str, Any]:
    q, k = (rng.standard_normal((1, 160, HEADS, CHANNELS)) * 2.0 ** rng.uniform(-6, 6, (1, 160, HEADS, 1))
            for _ in range(2))  # fmt: skip
    return random_call(rng, 160, q=q, k=k)


def _one_hot(rng: np.random.Generator) -> dict[str, Any]:
    def rows() -> np.ndarray:
        size = 2.0 ** rng.uniform(-2, 2, (1, 128, HEADS)) * rng.choice((-1, 1), (1, 128, HEADS))
        return np.eye(CHANNELS)[rng.integers(0, CHANNELS, (1, 128, HEADS))] * size[..., None]

    return random_call(rng, 128, q=rows(), k=rows())


def _tiny_rows(rng: np.random.Generator) -> dict[str, Any]:
    """A fifth of the rows zero, the others of element size 1 or 2^-12, or of norm 2^-12."""

    def rows() -> np.ndarray:
        sizes = np.array([0, 1, 2.0**-12, 2.0**-12, 2.0**-12 / CHANNELS**0.5])
        return rng.standard_normal((1, 160, HEADS, CHANNELS)) * sizes[rng.integers(0, 5, (1, 160, HEADS, 1))]

    return random_call(rng, 160, q=rows(), k=rows())


def _state_only(rng: np.random.Generator) -> dict[str, Any]:
    """Each of 16 sequence-head lanes has its initial state in 8 key channels, so that all 128 occur."""
    lengths = (24, 17, 32, 24, 8, 16, 40, 31)
    tokens, lanes = sum(lengths), len(lengths) * HEADS
    block = CHANNELS // lanes
    state = np.zeros((lanes, CHANNELS, CHANNELS), np.float32)
    for lane, start in enumerate(rng.permutation(lanes) * block):
        state[lane, start : start + block] = rng.standard_normal((block, CHANNELS))
    return random_call(
        rng, tokens, lengths=lengths, **_NEUTRAL_GATE,
        v=np.zeros((1, tokens, HEADS, CHANNELS)),
        g=_gate_logits(-(10 ** rng.uniform(-5, -3, (1, tokens, HEADS, CHANNELS)))),
        initial_state=state.reshape(len(lengths), HEADS, CHANNELS, CHANNELS),
    )  # fmt: skip


def _one_write(rng: np.random.Generator) -> dict[str, Any]:
    """Decay per channel from 5e-5 to 2e-3 a token: slow enough that a bfloat16 state stands still."""
    v = np.zeros((1, 512, HEADS, CHANNELS))
    v[:, 0] = rng.standard_normal((HEADS, CHANNELS))
    beta = np.full((1, 512, HEADS), -30.0)
    beta[:, 0] = 4
    rate = 10 ** rng.uniform(np.log10(5e-5), np.log10(2e-3), (HEADS, CHANNELS))
    g = np.broadcast_to(_gate_logits(-rate), v.shape)
    return random_call(rng, 512, with_state=False, v=v, beta=beta, g=g, **_NEUTRAL_GATE)


def _whole_gate_range(rng: np.random.Generator) -> dict[str, Any]:
    """A channel stays at -5, stays near 0, or changes every token, uniform in log gate or logit."""
    shape = (1, 192, HEADS, CHANNELS)
    even, steep = _gate_logits(rng.uniform(-4.999, -0.001, shape)), rng.uniform(-12, 12, shape)
    kind = rng.choice(4, (1, 1, HEADS, CHANNELS), p=(0.2, 0.2, 0.3, 0.3))
    return random_call(rng, 192, g=np.choose(kind, (40.0, -16.0, even, steep)), **_NEUTRAL_GATE)


def _full_decay(rng: np.random.Generator) -> dict[str, Any]:
    return random_call(rng, 192, g=np.full((1, 192, HEADS, CHANNELS), 40.0))


def _unbounded_gates(rng: np.random.Generator) -> dict[str, Any]:
    """exp(A_log) of 8.3 and 201; biases from -8 to 1 leave some channels a memory at either rate."""
    shape = (1, 192, HEADS, CHANNELS)
    bias = rng.uniform(-8, 1, (HEADS, CHANNELS)).astype(np.float32)
    rate = np.log(np.array([8.3, 201.0])).astype(np.float32)
    return random_call(rng, 192, g=rng.standard_normal(shape), A_log=rate, dt_bias=bias) | {
        "safe_gate": False,
        "lower_bound": None,
    }


def _nearly_equal_keys(rng: np.random.Generator) -> dict[str, Any]:
    """Head 0 has one key throughout, head 1 a common key with 1% to 5% noise, a different size per token.

    Along the common key a float32 state in any honest chunk form is as uncertain as the rounding of a whole
    chunk of writes; sizes 0.5 of v and 0.25 of the state keep those forms at 0.7 of the limits.
    """
    shape = (1, 256, HEADS, CHANNELS)
    common = rng.standard_normal((1, 1, HEADS, CHANNELS))
    noise = rng.uniform(0.01, 0.05, (1, 256, HEADS, 1)) * np.array([0, 1])[:, None]
    return random_call(
        rng, 256, **_NEUTRAL_GATE,
        k=common + noise * rng.standard_normal(shape),
        v=0.5 * rng.standard_normal(shape),
        beta=rng.uniform(4, 8, (1, 256, HEADS)),
        g=_gate_logits(-(10 ** rng.uniform(-3, -2, shape))),
        initial_state=rng.normal(0, 0.25, (1, HEADS, CHANNELS, CHANNELS)).astype(np.float32),
    )  # fmt: skip


def _shuffled_lengths(rng: np.random.Generator) -> dict[str, Any]:
    return random_call(rng, sum(SHUFFLED_LENGTHS), lengths=tuple(rng.permutation(SHUFFLED_LENGTHS).tolist()))


def _other_orders(call: Call, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Orders of the same lengths, each unlike the one before."""
    found, last = [], np.diff(call["cu_seqlens"])
    while len(found) < REFILLS:
        lengths = rng.permutation(last)
        if not np.array_equal(lengths, last):
            found.append(np.concatenate([[0], np.cumsum(lengths)]).astype(call["cu_seqlens"].dtype))
            last = lengths
    return tuple(found)


def _influence_base(rng: np.random.Generator) -> dict[str, Any]:
    """Log gates near -0.012, and q near k: a change shows at its own token and in the final state."""
    tokens = sum(INFLUENCE_LENGTHS)
    k = rng.standard_normal((1, tokens, HEADS, CHANNELS))
    return random_call(
        rng, tokens, lengths=INFLUENCE_LENGTHS, k=k, q=k + 0.5 * rng.standard_normal(k.shape),
        g=rng.normal(-6, 0.3, k.shape), **_NEUTRAL_GATE,
        beta=rng.choice((-1, 1), k.shape[:3]) * rng.uniform(0.2, 1, k.shape[:3]),
    )  # fmt: skip


PROBES: dict[str, ProbeKind] = {
    kind.name: kind
    for kind in (
        ProbeKind("P1", "constant or joint norms", _scaled_tokens),
        ProbeKind("P2", "constant norms", _one_hot),
        ProbeKind("P3", "the epsilon of the norms", _tiny_rows),
        ProbeKind("P4", "a dropped initial state, or rows of it", _state_only),
        ProbeKind("P5", "truncated history, a state kept in bfloat16", _one_write),
        ProbeKind("P6", "underflow of cumulated decays, float16 decay tables", _whole_gate_range),
        ProbeKind("P7", "underflow at the fastest decay throughout", _full_decay),
        ProbeKind("P8", "exponentials that overflow with unbounded gates", _unbounded_gates),
        ProbeKind("P10", "a skipped or low-precision triangular solve", _nearly_equal_keys,
                  state_rms_limit=NEARLY_EQUAL_KEYS_STATE_RMS_LIMIT),
        ProbeKind("P11", "hard-coded boundaries, cached results", _shuffled_lengths, refills=_other_orders),
        ProbeKind("P13", "anything that is not read", _influence_base, influences=influences),
    )
}  # fmt: skip
