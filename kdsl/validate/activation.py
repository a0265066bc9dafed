"""The pointwise parts of KDA: normalisation of q and k, the three forms of the log decay, beta.

Every function keeps the dtype of its first argument, so that the oracle calls it in float64 and an
emulation in float32. Names follow flash-linear-attention (`fla.ops.kda`).
"""

from __future__ import annotations

import numpy as np

from kdsl.validate.errors import ArrayError, MissingArrayError, OptionError

L2NORM_EPSILON = 1e-6
GATES = ("precomputed", "softplus", "bounded")


def softplus(x: np.ndarray) -> np.ndarray:
    """log(1 + e^x) without overflow for large x and without cancellation for very negative x."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-x); full relative precision in both tails, since only e^-|x| is ever formed."""
    tail = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + tail), tail / (1 + tail)).astype(x.dtype, copy=False)


def l2_normalise(x: np.ndarray, epsilon: float = L2NORM_EPSILON) -> np.ndarray:
    """x / sqrt(sum(x^2) + epsilon) over the last axis (FLA's `l2norm`): the epsilon is inside the root."""
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + x.dtype.type(epsilon))


def log_decay(
    g: np.ndarray,
    gate: str,
    A_log: np.ndarray | None = None,
    dt_bias: np.ndarray | None = None,
    lower_bound: float | None = None,
) -> np.ndarray:
    """Log decay per token and key channel, [..., HV, K], in the dtype of g (natural logarithm).

    precomputed: g itself. softplus: -exp(A_log) softplus(g + dt_bias). bounded: lower_bound
    sigmoid(exp(A_log) (g + dt_bias)). A_log is [HV]; dt_bias is [HV, K], [HV * K] or None (no bias).
    Raises OptionError for an unknown gate or a parameter that the chosen gate would not read,
    MissingArrayError for a parameter that it needs, ArrayError for a wrong shape.
    """
    if gate not in GATES:
        raise OptionError("gate", f"found {gate!r}, expected one of {', '.join(GATES)}")
    if gate == "bounded" and lower_bound is None:
        raise OptionError("lower_bound", "the bounded gate needs it")
    if gate != "bounded" and lower_bound is not None:
        raise OptionError("lower_bound", f"the {gate} gate does not read it")
    if gate == "precomputed":
        for name, array in (("A_log", A_log), ("dt_bias", dt_bias)):
            if array is not None:
                raise OptionError(name, "the precomputed gate does not read it")
        return g
    heads, channels = g.shape[-2:]
    rate = np.exp(_parameter("A_log", A_log, g.dtype, gate, (heads,)))[:, None]
    biased = g
    if dt_bias is not None:
        shapes = ((heads, channels), (heads * channels,))
        biased = g + _parameter("dt_bias", dt_bias, g.dtype, gate, *shapes).reshape(heads, channels)
    if gate == "softplus":
        return -rate * softplus(biased)
    return g.dtype.type(lower_bound) * sigmoid(rate * biased)


def _parameter(name: str, array: np.ndarray | None, dtype: np.dtype, gate: str, *shapes: tuple) -> np.ndarray:
    if array is None:
        raise MissingArrayError(name, f"the {gate} gate")
    if np.shape(array) not in shapes:
        raise ArrayError(name, f"shape {np.shape(array)}", " or ".join(f"shape {shape}" for shape in shapes))
    return np.asarray(array).astype(dtype)


def write_strength(beta: np.ndarray, beta_sigmoid: bool, allow_neg_eigval: bool) -> np.ndarray:
    """beta as the recurrence uses it: as given, or sigmoid(beta), twice that with `allow_neg_eigval`.

    Raises OptionError for `allow_neg_eigval` without `beta_sigmoid`: a beta that comes ready made already
    has its range.
    """
    if allow_neg_eigval and not beta_sigmoid:
        raise OptionError("allow_neg_eigval", "it doubles sigmoid(beta), which needs the beta sigmoid")
    if not beta_sigmoid:
        return beta
    return sigmoid(beta) * beta.dtype.type(2 if allow_neg_eigval else 1)
