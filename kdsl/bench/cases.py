"""The cases that times are published for: sizes, tensors on a device, and the fewest bytes that a call moves.

K = V = 128, tokens in bf16, states in fp32 in and out; norm, gate and sigmoid in the kernel. One entry of CASES each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from types import MappingProxyType
from typing import Any

import attrs

from kdsl import kda
from kdsl.bundle.manifest import Variant
from kdsl.runtime.targets import acceptable_targets
from kdsl.validate.latency import chunk_bytes, decode_bytes
from kdsl.validate.probes import CHANNELS, LOWER_BOUND

CHUNK, DECODE = "kda.chunk_forward", "kda.decode"
BOUNDED, SOFTPLUS = "bounded", "softplus"
GATES = (BOUNDED, SOFTPLUS)
MIXED = (1300, 547, 2048, 963, 271, 3063)
TOKENS = ("q", "k", "v", "g", "beta", "o")
SWITCHES = {
    "use_qk_l2norm_in_kernel": True, "use_gate_in_kernel": True, "use_beta_sigmoid_in_kernel": True,
}  # fmt: skip
# What the calls ask of a variant, beside the gate.
OPTIONS = {
    "use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "allow_neg_eigval": False,
    "state_v_first": False, "slot_zero_is_real": True,
}  # fmt: skip
DTYPES = {
    **dict.fromkeys(TOKENS, "bf16"), "A_log": "f32", "dt_bias": "f32", "initial_state": "f32", "final_state": "f32",
    "pool": "f32",
}  # fmt: skip


@attrs.frozen
class Case:
    """A call: `heads` query and value heads; `lengths` of its sequences, or `rows` of one token for decoding.

    `key` is the word that picks it on a command line.
    """

    key: str
    name: str
    heads: int
    lengths: tuple[int, ...] = ()
    rows: int = 0
    gate: str = BOUNDED

    @property
    def operator(self) -> str:
        return DECODE if self.rows else CHUNK

    @property
    def in_graph(self) -> bool:
        """Whether it is timed in a CUDA graph: where a call is short beside the host's time for it."""
        return bool(self.rows)

    @property
    def label(self) -> str:
        """The name, with the gate where it is not the bounded one."""
        return self.name if self.gate == BOUNDED else f"{self.name}, {self.gate}"

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the operator's call."""
        both = {"H": self.heads, "HV": self.heads, "K": CHANNELS, "V": CHANNELS}
        if self.rows:
            return {"N": self.rows, "T": 1, "SLOTS": self.rows, "W": 1, **both}
        return {"B": 1, "T": sum(self.lengths), "N": len(self.lengths), **both}

    @property
    def nbytes(self) -> int:
        """The fewest bytes that the call moves."""
        if self.rows:
            return decode_bytes(self.rows, 1, self.heads, self.heads, CHANNELS, CHANNELS)
        return chunk_bytes(sum(self.lengths), len(self.lengths), self.heads, self.heads, CHANNELS, CHANNELS)

    def moved(self, tensor: str) -> int:
        """The bytes of one tensor of the call that are read or written; a pool's are both."""
        n = self.sizes
        tokens = n.get("B", n["N"]) * n["T"]
        state = n["N"] * self.heads * CHANNELS * CHANNELS * 4
        table = {
            **dict.fromkeys(TOKENS, tokens * self.heads * CHANNELS * 2), "beta": tokens * self.heads * 2,
            "A_log": 4 * self.heads, "dt_bias": 4 * self.heads * CHANNELS, "initial_state": state,
            "final_state": state, "pool": 2 * state, "cu_seqlens": 8 * (n["N"] + 1) if len(self.lengths) > 1 else 0,
        }  # fmt: skip
        return table.get(tensor, 0)

    def tensors(self, torch: Any, device: Any, seed: int) -> dict[str, Any]:
        """Arguments of the public function, drawn from `seed`."""
        if not self.rows:
            return chunk_tensors(torch, device, self, seed)
        drawn = decode_tensors(torch, device, self.rows, self.heads, seed, self.gate)
        pool = drawn.pop("pool")
        return drawn | {"initial_state": pool, "inplace_final_state": True, "output_final_state": True}

    def bind(self, tensors: Mapping[str, Any]):
        """The call of the public function on the tensors; its results are (o, states)."""
        function = kda.fused_recurrent_kda if self.rows else kda.chunk_kda
        return lambda: function(**tensors)

    def takes(self, variant: Variant) -> bool:
        """Whether a variant is for calls like this, as far as its options and dtypes say."""
        options = {**OPTIONS, "gate": self.gate}
        return all(options[name] == value for name, value in variant.options.items() if name in options) and all(
            DTYPES[name] == dtype for name, dtype in variant.dtypes.items() if name in DTYPES
        )


def _chunk(key: str, heads: int, what: str, lengths: tuple[int, ...]) -> Case:
    return Case(key, f"H = {heads}, {what}", heads, lengths)


def _published() -> Iterable[Case]:
    for heads in (96, 64):
        yield _chunk(f"h{heads}", heads, "one sequence", (8192,))
        yield _chunk(f"h{heads}-mixed", heads, "mixed lengths", MIXED)
        yield _chunk(f"h{heads}-8x1024", heads, "8 x 1024", (1024,) * 8)
    for heads in (32, 16):
        yield _chunk(f"h{heads}", heads, "one sequence", (8192,))
    yield _chunk("h8-32768", 8, "one sequence of 32768", (32768,))
    for rows in (1, 8, 64, 256):
        yield Case(f"n{rows}", f"decode N = {rows}, H = 32", 32, rows=rows)


def variant_for(variants: Iterable[Variant], case: Case, target: str) -> Variant | None:
    """The variant that takes the case's calls on a device of the target, the one that uses most of it first."""
    fitting = [variant for variant in variants if case.takes(variant)]
    for name in acceptable_targets(target):
        for variant in fitting:
            if variant.target == name:
                return variant
    return None


CASES: Mapping[str, Case] = MappingProxyType({case.key: case for case in _published()})
# What a host can do in seconds, in their place.
SMALL_CASES: Mapping[str, Case] = MappingProxyType({case.key: case for case in (
    _chunk("h2", 2, "two sequences", (64, 33)), Case("n2", "decode N = 2, H = 2", 2, rows=2),
)})  # fmt: skip


def chunk_tensors(torch: Any, device: Any, case: Case, seed: int) -> dict[str, Any]:
    """Arguments of chunk_kda: a bounded gate at -5 or softplus, fp32 states in and out."""
    rng = torch.Generator(device=device).manual_seed(seed)

    def normal(*shape: int) -> Any:
        return torch.randn(shape, generator=rng, device=device)

    tokens, heads = sum(case.lengths), case.heads
    wide = (1, tokens, heads, CHANNELS)
    boundaries = torch.tensor([0, *accumulate(case.lengths)], dtype=torch.int64, device=device)
    return {
        "q": normal(*wide).bfloat16(), "k": normal(*wide).bfloat16(), "v": normal(*wide).bfloat16(),
        "g": (2 * normal(*wide) - 1).bfloat16(), "beta": normal(*wide[:3]).bfloat16(),
        "A_log": 0.5 * normal(heads), "dt_bias": normal(heads, CHANNELS) - 2,
        "initial_state": 0.3 * normal(len(case.lengths), heads, CHANNELS, CHANNELS),
        "cu_seqlens": boundaries if len(case.lengths) > 1 else None,
        "output_final_state": True, **SWITCHES, **_gate(case.gate),
    }  # fmt: skip


def decode_tensors(
    torch: Any, device: Any, rows: int, heads: int, seed: int, gate: str = BOUNDED
) -> dict[str, Any]:
    """Arguments of fused_recurrent_kda for one token in each of `rows` rows, and `pool`, in fp32."""
    rng = torch.Generator(device=device).manual_seed(seed)

    def normal(*shape: int) -> Any:
        return torch.randn(shape, generator=rng, device=device)

    wide = (rows, 1, heads, CHANNELS)
    return {
        "q": normal(*wide).bfloat16(), "k": normal(*wide).bfloat16(), "v": normal(*wide).bfloat16(),
        "g": (normal(*wide) - 3).bfloat16(), "beta": normal(*wide[:3]).bfloat16(),
        "A_log": 0.3 * normal(heads), "dt_bias": 0.3 * normal(heads, CHANNELS),
        "pool": 0.3 * normal(rows, heads, CHANNELS, CHANNELS), **SWITCHES, **_gate(gate),
    }  # fmt: skip


def _gate(gate: str) -> dict[str, Any]:
    bounded = gate == BOUNDED
    return {"safe_gate": bounded, "lower_bound": LOWER_BOUND if bounded else None}
