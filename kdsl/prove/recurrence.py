"""What KDA means: one token after the other, over any algebra.

    S <- diag(exp(g_t)) S;   d = beta_t (v_t - S^T k_t);   S <- S + k_t d^T;   o_t = S^T q_t

(Kimi Linear, arXiv:2510.26692; the delta rule with a decay for each key channel.) No chunks, no cumulative
sums, no inverse and nothing of the operator's graph: this text and the graph in `stdlib/operators` can only
agree by both being right. Tensors have their logical shapes; where they lie in memory is the business of
`layout.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from attrs import field, frozen

if TYPE_CHECKING:
    from kdsl.prove.algebra import Value  # NumPy takes a tenth of a second, and a check only needs the names

EPSILON = 1e-6


@frozen
class Call:
    """One call of an operator without its float tensors.

    `sizes` by the operator's names; `options` static ones; `given` optional ports that are passed;
    `integers` the index tensors that are passed, as nested tuples.
    """

    operator: str
    sizes: Mapping[str, int]
    options: Mapping[str, object]
    given: frozenset[str]
    integers: Mapping[str, tuple] = field(factory=dict)

    def on(self, option: str) -> bool:
        return bool(self.options.get(option, False))


Pieces = dict[str, list]  # output -> (index of a slice, value of that slice)


def port_levels(call: Call) -> dict[str, int]:
    """The level of every float input and output: which exponentials stand between it and the output."""
    levels = dict.fromkeys(("q", "k", "v", "o", "initial_state", "final_state", "pool", "scale"), 0)
    levels["beta"] = 1 if call.on("use_beta_sigmoid_in_kernel") else 0
    levels |= {
        "precomputed": {"g": 1},
        "softplus": {"g": 1, "dt_bias": 1, "A_log": 2},
        "bounded": {"lower_bound": 1, "g": 2, "dt_bias": 2, "A_log": 3},
    }[str(call.options["gate"])]
    return levels


def log_decay(a: Mapping[str, Value], call: Call) -> Value:
    """Log decay of every token, in the shape of g [.., HV, K]."""
    x = a["g"]
    if call.options["gate"] == "precomputed":
        return x
    if "dt_bias" in a:
        x = x + a["dt_bias"]
    rate = a["A_log"].exp()[:, None]
    if call.options["gate"] == "softplus":
        return -(x.softplus() * rate)
    return (x * rate).sigmoid() * a["lower_bound"]


def write_strength(a: Mapping[str, Value], call: Call) -> Value:
    """beta [.., HV] of every token."""
    x = a["beta"]
    if call.on("use_beta_sigmoid_in_kernel"):
        x = x.sigmoid()
        if call.on("allow_neg_eigval"):
            x = x * 2
    return x


def spread(a: Mapping[str, Value], call: Call, name: str) -> Value:
    """Queries or keys [.., HV, K] of every token: every value head takes those of its query/key head."""
    x = a[name]
    if call.on("use_qk_l2norm_in_kernel"):
        x = x * ((x * x).sum(-1) + EPSILON_LITERAL).rsqrt()[..., None]
    ratio = call.sizes["HV"] // call.sizes["H"]
    return x[..., [head // ratio for head in range(call.sizes["HV"])], :]


@frozen(eq=False)
class Tokens:
    """What each token brings, by its place: of a token q, k and decay [HV, K], v [HV, V], beta [HV]."""

    q: Value
    k: Value
    v: Value
    decay: Value
    beta: Value

    @classmethod
    def of(cls, a: Mapping[str, Value], call: Call) -> Tokens:
        q, k = (spread(a, call, name) for name in ("q", "k"))
        return cls(q * a["scale"], k, a["v"], log_decay(a, call).exp(), write_strength(a, call))


def step(state: Value, tokens: Tokens, where: tuple) -> tuple[Value, Value]:
    """One token for all value heads: the next state [HV, K, V] and o_t [HV, V]."""
    k = tokens.k[where][:, :, None]
    state = state * tokens.decay[where][:, :, None]
    predicted = (state * k).sum(1)
    change = (tokens.v[where] - predicted) * tokens.beta[where][:, None]
    state = state + k * change[:, None, :]
    return state, (state * tokens.q[where][:, :, None]).sum(1)


def chunk_forward(a: Mapping[str, Value], call: Call) -> Pieces:
    """o [B, T, HV, V], and final_state [N, HV, K, V] if it is given. What of a sequence lies behind the last token is
    none of it."""
    sizes = call.sizes
    tokens, cu = Tokens.of(a, call), call.integers.get("cu_seqlens")
    pieces: Pieces = {"o": [], "final_state": []}
    for n in range(sizes["N"]):
        row, *ends = (n, 0, sizes["T"]) if cu is None else (0, cu[n], cu[n + 1])
        first, last = (min(end, sizes["T"]) for end in ends)
        state = a["initial_state"][n] if "initial_state" in a else _zeros(a, call)
        for t in range(first, last):
            state, o = step(state, tokens, (row, t))
            pieces["o"].append(((row, t), o))
        if "final_state" in call.given:
            pieces["final_state"].append(((n,), state))
    return pieces


def decode(a: Mapping[str, Value], call: Call) -> Pieces:
    """o [N, T, HV, V] and the slots of the pool [SLOTS, HV, K, V] that are written.

    A row reads its source slot and, unless that is no slot, writes its last state back: without indices to
    slot n, with indices [N, 1] to its own; with a slot for each token, [N, T], the state after token t goes to slot
    indices[n, t]. The source is the first of a row's slots, with accepted counts that of the last accepted token. A
    row without a source gives zeros and leaves every slot alone.
    """
    sizes = call.sizes
    indices, accepted = call.integers.get("ssm_state_indices"), call.integers.get("num_accepted_tokens")
    tokens = Tokens.of(a, call)
    each = indices is not None and sizes["W"] == sizes["T"]  # a slot for each token
    lowest = 0 if indices is None or call.options.get("slot_zero_is_real", True) else 1
    pieces: Pieces = {"o": [], "pool": []}
    for n in range(sizes["N"]):
        column = 0 if accepted is None else min(max(accepted[n] - 1, 0), sizes["W"] - 1)
        source = n if indices is None else indices[n][column]
        live = lowest <= source < sizes["SLOTS"]
        if live:
            state = a["pool"][source]
        for t in range(sizes["T"]):
            if not live:
                pieces["o"].append(((n, t), a["v"].zeros((sizes["HV"], sizes["V"]))))
                continue
            state, o = step(state, tokens, (n, t))
            pieces["o"].append(((n, t), o))
            target = n if indices is None else indices[n][t if each else 0]
            if (each or t == sizes["T"] - 1) and lowest <= target < sizes["SLOTS"]:
                pieces["pool"].append(((target,), state))
    return pieces


def _zeros(a: Mapping[str, Value], call: Call) -> Value:
    return a["v"].zeros((call.sizes["HV"], call.sizes["K"], call.sizes["V"]))


def _float32(value: float):
    """The exact rational of a literal rounded to float32, which is what a program can hold."""
    import struct
    from fractions import Fraction

    return Fraction(struct.unpack("f", struct.pack("f", value))[0])


EPSILON_LITERAL = _float32(EPSILON)
MEANINGS: dict[str, Callable[[Mapping[str, Value], Call], Pieces]] = {
    "kda.chunk_forward": chunk_forward,
    "kda.decode": decode,
}
