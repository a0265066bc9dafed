"""NumPy emulations of chunked KDA kernels: honest ones, and ones that cheat or cut a corner.

The honest ones compute the chunk form (c is the inclusive cumulative sum of the log decay within a chunk)

    L_ij = beta_i sum_d k_id k_jd exp(c_id - c_jd) for j < i
    U = (I + L)^-1 diag(beta) (V - (K * e^c) S)
    O = (Q * e^c) S + tril(sum_d q_id k_jd exp(c_id - c_jd)) U
    S <- e^(c_last) * S + (K * e^(c_last - c))^T U

with operands rounded to bfloat16 and sums in float32, as tensor cores do. The others are the judge's
negative controls: every probe has one that it must reject.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kdsl.validate import bfloat16, oracle
from kdsl.validate.activation import L2NORM_EPSILON, l2_normalise, log_decay, write_strength
from kdsl.validate.call import Call, Run, gate_of, state_v_first
from kdsl.validate.errors import OptionError

HALF_SMALLEST = 2.0**-24
EXPECTED_NORM_K128 = 128**-0.5


@dataclass(frozen=True)
class ChunkedKernel:
    """One emulated kernel; calling it runs it: `kernel(call) -> (o, final_state)`, both in `arithmetic`.

    The defaults are an honest kernel; each field names one thing that a kernel can do otherwise.

    chunk: tokens per chunk. arithmetic: dtype of sums. operands: "bfloat16" or "exact" matrix operands.
    decay: how exp(c_i - c_j) is formed: "pairwise"; "midpoint", two factors about the middle row (right only
    for bounded gates); "naive", e^c and 1 / e^c; "half_table", the same from a float16 table.
    inverse: "substitution", "neumann_half" (products of powers of L in float16), "skipped".
    wy: U = (INV diag(beta)) V - W S instead of one product with V - (K e^c) S. With bfloat16 operands both
    terms are rounded before they cancel, which costs accuracy where the state predicts v well.
    norm: "own", "constant", "joint" (one norm for q and k); epsilon: under its root.
    reads_initial_state, unread_rows (last K rows of the initial state taken as zero), history (tokens after
    which the state restarts from zero), state ("float32", "bfloat16" between chunks), boundaries ("given",
    "even": sequences of equal length), reads_bias (dt_bias), folds_last_token (into the final state).
    """

    chunk: int = 64
    arithmetic: type = np.float32
    operands: str = "bfloat16"
    decay: str = "pairwise"
    inverse: str = "substitution"
    wy: bool = False
    norm: str = "own"
    epsilon: float = L2NORM_EPSILON
    reads_initial_state: bool = True
    unread_rows: int = 0
    history: int | None = None
    state: str = "float32"
    boundaries: str = "given"
    reads_bias: bool = True
    folds_last_token: bool = True

    @property
    def needs_bounded_gate(self) -> bool:
        """Whether the kernel says so in its requirements: its two factors stay in range only down to -5."""
        return self.decay == "midpoint"

    def __call__(self, call: Call) -> tuple[np.ndarray, np.ndarray]:
        if self.needs_bounded_gate and gate_of(call) != "bounded":
            raise OptionError("lower_bound", "this kernel requires the bounded gate")
        with np.errstate(all="ignore"):
            q, k, v, c, beta = self._inputs(call)
        spans = self._spans(call, q.shape[0], q.shape[1])
        states = self._initial_states(call, len(spans), q.shape[2:] + v.shape[3:])
        o = np.full(v.shape, np.nan, self.arithmetic)
        with np.errstate(all="ignore"):
            for state, (row, start, stop) in zip(states, spans, strict=True):
                for first in range(start, stop, self.chunk):
                    part = slice(first, min(first + self.chunk, stop))
                    if self.history and first > start and (first - start) % self.history == 0:
                        state[:] = 0
                    heads = [x[row, part].swapaxes(0, 1) for x in (q, k, v, c)]
                    last = part.stop == stop
                    o[row, part] = self._chunk(state, *heads, beta[row, part].T, last).swapaxes(0, 1)
        o = self._round(o)
        return o, states.swapaxes(-1, -2).copy() if state_v_first(call) else states

    def _inputs(self, call: Call):
        """q, k, v, log decay and beta as the chunks read them, value heads already spread."""
        names = ("q", "k", "v", "g", "beta")
        q, k, v, g, beta = (bfloat16.values_of(name, call[name], self.arithmetic) for name in names)
        if call.get("use_qk_l2norm_in_kernel"):
            q, k = self._normalise(q, k)
        scale = call.get("scale")
        q = q * self.arithmetic(q.shape[-1] ** -0.5 if scale is None else scale)
        gate = gate_of(call)
        parameters = (None, None, None)
        if gate != "precomputed":
            bias = call.get("dt_bias") if self.reads_bias else None
            parameters = (call.get("A_log"), bias, call.get("lower_bound"))
        sigmoid_in_kernel = bool(call.get("use_beta_sigmoid_in_kernel"))
        beta = write_strength(beta, sigmoid_in_kernel, bool(call.get("allow_neg_eigval")))
        spread = v.shape[2] // q.shape[2]
        return np.repeat(q, spread, 2), np.repeat(k, spread, 2), v, log_decay(g, gate, *parameters), beta

    def _normalise(self, q: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.norm == "own":
            return l2_normalise(q, self.epsilon), l2_normalise(k, self.epsilon)
        if self.norm == "constant":
            return q * self.arithmetic(EXPECTED_NORM_K128), k * self.arithmetic(EXPECTED_NORM_K128)
        mean_square = ((q * q).sum(-1, keepdims=True) + (k * k).sum(-1, keepdims=True)) / 2
        joint = np.sqrt(mean_square + self.arithmetic(self.epsilon))
        return q / joint, k / joint

    def _spans(self, call: Call, batch: int, tokens: int) -> list[tuple[int, int, int]]:
        cu = call.get("cu_seqlens")
        if cu is not None and self.boundaries == "even":
            cu = np.linspace(0, tokens, len(cu)).astype(np.int64)
        return oracle.sequence_spans(batch, tokens, cu)

    def _initial_states(self, call: Call, sequences: int, shape: tuple[int, ...]) -> np.ndarray:
        given = call.get("initial_state")
        if given is None or not self.reads_initial_state:
            return np.zeros((sequences, *shape), self.arithmetic)
        states = bfloat16.values_of("initial_state", given, self.arithmetic)
        states = states.swapaxes(-1, -2).copy() if state_v_first(call) else states
        states[:, :, shape[1] - self.unread_rows :] = 0
        return states

    def _chunk(self, state, q, k, v, g, beta, last: bool) -> np.ndarray:
        """One chunk, all heads: q, k, g [HV, n, K], v [HV, n, V], beta [HV, n]; updates state [HV, K, V]."""
        r = self._round
        c = np.cumsum(g, axis=1, dtype=self.arithmetic)
        growth = self._table(np.exp(c))
        query_key, key_key = self._scores(q, k, c)
        L = np.tril(key_key, -1) * beta[:, :, None]
        inverse = self._inverse(L)
        old = r(state)
        if self.wy:
            weights = r(inverse * beta[:, None, :])
            u = weights @ r(v) - r(weights @ r(k * growth)) @ old
        else:
            u = r(inverse) @ r((v - r(k * growth) @ old) * beta[:, :, None])
        o = r(q * growth) @ old + r(np.tril(query_key)) @ r(u)
        kept = slice(None, None if self.folds_last_token or not last else -1)
        tail = r(k * np.exp(c[:, -1:] - c))[:, kept]
        state[:] = state * growth[:, -1, :, None] + tail.swapaxes(1, 2) @ r(u)[:, kept]
        if self.state == "bfloat16":
            state[:] = bfloat16.rounded(state)
        return o

    def _scores(self, q, k, c) -> tuple[np.ndarray, np.ndarray]:
        """sum_d q_id k_jd exp(c_id - c_jd) and the same with k_id, [HV, n, n]; only j <= i has a meaning."""
        if self.decay == "pairwise":
            factors = np.exp(np.minimum(c[:, :, None] - c[:, None, :], 0)) * k[:, None]
            return (factors @ q[..., None])[..., 0], (factors @ k[..., None])[..., 0]
        if self.decay == "midpoint":
            middle = c[:, (c.shape[1] - 1) // 2, None]
            down, up = np.exp(c - middle), np.exp(middle - c)
        else:
            down = self._table(np.exp(c))
            floor = HALF_SMALLEST if self.decay == "half_table" else 0
            up = 1 / np.maximum(down, self.arithmetic(floor))
        keys = self._round(k * up).swapaxes(1, 2)
        return self._round(q * down) @ keys, self._round(k * down) @ keys

    def _inverse(self, L: np.ndarray) -> np.ndarray:
        """(I + L)^-1 for strictly lower-triangular L [HV, n, n]."""
        n = L.shape[-1]
        identity = np.broadcast_to(np.eye(n, dtype=self.arithmetic), L.shape)
        if self.inverse == "skipped":
            return identity
        if self.inverse == "neumann_half":
            power = -L.astype(np.float16)
            total = identity.astype(np.float16) + power
            for _ in range(max(n - 1, 1).bit_length() - 1):
                power = _half_product(power, power)
                total = total + _half_product(total, power)
            return total.astype(self.arithmetic)
        inverse = identity.copy()
        for i in range(1, n):
            inverse[:, i, :i] = -(L[:, i, None, :i] @ inverse[:, :i, :i])[:, 0]
        return inverse

    def _round(self, x: np.ndarray) -> np.ndarray:
        return bfloat16.rounded(x) if self.operands == "bfloat16" else x

    def _table(self, growth: np.ndarray) -> np.ndarray:
        return growth.astype(np.float16).astype(self.arithmetic) if self.decay == "half_table" else growth


def _half_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A product with float16 operands and result and float32 sums."""
    return (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)


@dataclass
class CachedBoundaries:
    """A kernel that keeps the boundaries of each cu_seqlens array it has seen, by the array's identity."""

    kernel: ChunkedKernel = field(default_factory=ChunkedKernel)
    seen: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def __call__(self, call: Call) -> tuple[np.ndarray, np.ndarray]:
        cu = call.get("cu_seqlens")
        if cu is None:
            return self.kernel(call)
        _, kept = self.seen.setdefault(id(cu), (cu, cu.copy()))
        return self.kernel({**call, "cu_seqlens": kept})


@dataclass(frozen=True)
class Cheat:
    """A negative control: what it does, and the probes and recorded traces that must each reject it."""

    name: str
    make: Callable[[], Run]
    caught_by: tuple[str, ...]


def _cheat(name: str, *caught_by: str, **fields) -> Cheat:
    return Cheat(name, lambda: ChunkedKernel(**fields), caught_by)


HONEST: dict[str, ChunkedKernel] = {
    "chunk 16": ChunkedKernel(chunk=16),
    "chunk 32": ChunkedKernel(chunk=32),
    "chunk 64": ChunkedKernel(chunk=64),
    "chunk 16, midpoint": ChunkedKernel(chunk=16, decay="midpoint"),
    "chunk 32, midpoint": ChunkedKernel(chunk=32, decay="midpoint"),
}

CHEATS: tuple[Cheat, ...] = (
    _cheat("constant norm", "P1", "P2", norm="constant"),
    _cheat("joint norm", "P1", norm="joint"),
    _cheat("no epsilon", "P3", epsilon=0.0),
    _cheat("tiny epsilon", "P3", epsilon=1e-12),
    _cheat("dropped initial state", "P4", reads_initial_state=False),
    _cheat("eight state rows dropped", "P4", "P13", unread_rows=8),
    _cheat("one state row dropped", "P4", "P13", unread_rows=1),
    _cheat("history of 64", "P5", history=64),
    _cheat("history of 256", "P5", history=256),
    _cheat("state in bfloat16", "P5", state="bfloat16", chunk=16),
    _cheat("naive exponentials over 64 rows", "P6", "P7", decay="naive", chunk=64),
    _cheat("naive exponentials over 16 rows", "P8", "softplus_layer0", decay="naive", chunk=16),
    _cheat("float16 decay table", "P6", "P7", decay="half_table", chunk=16),
    _cheat("no triangular solve", "P10", inverse="skipped", chunk=16),
    _cheat("float16 Neumann over 16 rows", "P10", "bounded_layer3", inverse="neumann_half", chunk=16),
    _cheat("float16 Neumann over 64 rows", "P10", inverse="neumann_half", chunk=64),
    _cheat("WY form with bfloat16 W over 32 rows", "bounded_layer0", wy=True, chunk=32),
    _cheat("WY form with bfloat16 W over 64 rows", "bounded_layer0", wy=True, chunk=64),
    _cheat("even boundaries", "P11", "P13", boundaries="even"),
    Cheat("boundaries kept from the first run", CachedBoundaries, ("P11",)),
    _cheat("dt_bias not read", "P13", reads_bias=False),
    _cheat("last token not in the state", "P13", folds_last_token=False),
)
