"""`kda.acceptance`: the limits within which a result counts as right, and how far it is from them.

Against the float64 recurrence, on o and on the final state: everything finite; rms(x - ref) / rms(ref) at
most 0.01; every element within max(0.25 rms(ref), 2.5% of |ref|). No share of elements is exempt. Only for
nearly equal keys with beta near 1 the final state's first limit is 0.02.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kdsl.validate.bfloat16 import values_of
from kdsl.validate.errors import ArrayError, MissingArrayError

RMS_LIMIT = 0.01
NEARLY_EQUAL_KEYS_STATE_RMS_LIMIT = 0.02
ELEMENT_SHARE_OF_RMS = 0.25
ELEMENT_SHARE_OF_VALUE = 0.025


@dataclass(frozen=True)
class Comparison:
    """One array against its reference. All ratios are without unit; `accepted` is the whole verdict.

    rms_ratio: rms(x - ref) / rms(ref). worst_share: the largest |x - ref| / limit over all elements, at
    `worst_index`, where `worst_error` was found and `worst_limit` allowed. Where x or the reference is not
    finite both ratios are NaN and the index is that of the first element that is not.
    """

    name: str
    size: int
    finite: bool
    reference_finite: bool
    rms_ratio: float
    rms_limit: float
    worst_share: float
    worst_index: tuple[int, ...]
    worst_error: float
    worst_limit: float

    @property
    def accepted(self) -> bool:
        """Finite, and both limits met; a value exactly on its limit is within it. NaN meets no limit."""
        within = self.rms_ratio <= self.rms_limit and self.worst_share <= 1
        return self.finite and self.reference_finite and within

    def explain(self) -> str:
        """One or two sentences with the numbers found and needed."""
        if self.size == 0:
            return f"{self.name} is accepted: it is empty."
        if not self.reference_finite:
            return f"{self.name} is rejected: its reference is not finite at {list(self.worst_index)}."
        if not self.finite:
            return f"{self.name} is rejected: it is not finite at {list(self.worst_index)}."
        verdict = "accepted" if self.accepted else "rejected"
        return (
            f"{self.name} is {verdict}: its rms error is {self.rms_ratio:.4g} of the reference's rms, "
            f"at most {self.rms_limit:g} is allowed. The worst element, {list(self.worst_index)}, is off by "
            f"{self.worst_error:.4g}: {self.worst_share:.4g} of the {self.worst_limit:.4g} that is allowed."
        )


@dataclass(frozen=True)
class Acceptance:
    """The verdict on both results of one call."""

    o: Comparison
    final_state: Comparison

    @property
    def accepted(self) -> bool:
        return self.o.accepted and self.final_state.accepted

    def explain(self) -> str:
        """The sentences of the results that are rejected, or of both if none is."""
        rejected = [one for one in (self.o, self.final_state) if not one.accepted]
        return " ".join(one.explain() for one in rejected or (self.o, self.final_state))


def acceptance(
    o: np.ndarray | None,
    final_state: np.ndarray | None,
    reference_o: np.ndarray | None,
    reference_state: np.ndarray | None,
    *,
    state_rms_limit: float = RMS_LIMIT,
) -> Acceptance:
    """Judge o and the final state of one call; all four arrays are needed (floats or uint16 patterns).

    `state_rms_limit` is 0.02 only for nearly equal keys with beta near 1
    (`NEARLY_EQUAL_KEYS_STATE_RMS_LIMIT`). Errors as for `compare`.
    """
    return Acceptance(
        compare(o, reference_o, name="o"),
        compare(final_state, reference_state, name="final_state", rms_limit=state_rms_limit),
    )


def compare(
    x: np.ndarray | None, reference: np.ndarray | None, *, name: str = "x", rms_limit: float = RMS_LIMIT
) -> Comparison:
    """Judge one array against its reference of the same shape.

    An empty array is accepted: there is nothing in it to be wrong. Where the reference is zero throughout,
    every limit is zero too, so x must be exactly zero: such references come from zero inputs (v and state
    zero, or rows that are skipped), where every product is an exact zero in any precision. Both ratios are
    then 0, otherwise infinite. Raises MissingArrayError for None and ArrayError for shapes that differ.
    """
    for label, array in ((name, x), (f"reference of {name}", reference)):
        if array is None:
            raise MissingArrayError(label, "acceptance: a result that is missing is no pass")
    if np.shape(x) != np.shape(reference):
        raise ArrayError(name, f"shape {np.shape(x)}", f"shape {np.shape(reference)}, as the reference")
    x, reference = values_of(name, x), values_of(f"reference of {name}", reference)
    head = {"name": name, "size": x.size, "rms_limit": rms_limit}
    sound, reference_sound = np.isfinite(x), np.isfinite(reference)
    if not (sound.all() and reference_sound.all()):
        flaw = reference_sound if not reference_sound.all() else sound
        return Comparison(
            **head, finite=bool(sound.all()), reference_finite=bool(reference_sound.all()),
            rms_ratio=np.nan, worst_share=np.nan, worst_index=_place(np.argmin(flaw), x.shape),
            worst_error=np.nan, worst_limit=np.nan,
        )  # fmt: skip
    if x.size == 0:
        return Comparison(**head, finite=True, reference_finite=True, rms_ratio=0.0, worst_share=0.0,
                          worst_index=(), worst_error=0.0, worst_limit=0.0)  # fmt: skip
    error = np.abs(x - reference)
    level = rms(reference)
    limit = np.maximum(ELEMENT_SHARE_OF_RMS * level, ELEMENT_SHARE_OF_VALUE * np.abs(reference))
    share = ratio(error, limit)
    worst = int(np.argmax(share))
    return Comparison(
        **head, finite=True, reference_finite=True, rms_ratio=float(ratio(rms(error), level)),
        worst_share=float(share.flat[worst]), worst_index=_place(worst, x.shape),
        worst_error=float(error.flat[worst]), worst_limit=float(limit.flat[worst]),
    )  # fmt: skip


def rms(x: np.ndarray) -> float:
    """Root of the mean square, 0 for an empty array; scaled by a power of two, so squares stay in range."""
    largest = float(np.abs(x).max(initial=0.0))
    if largest == 0 or not np.isfinite(largest):
        return largest
    exponent = int(np.frexp(largest)[1])
    return float(np.ldexp(np.sqrt(np.mean(np.square(np.ldexp(x, -exponent)))), exponent))


def ratio(found: np.ndarray | float, allowed: np.ndarray | float) -> np.ndarray:
    """found / allowed for values >= 0, where 0 / 0 is 0 (nothing wrong) and x / 0 is infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.equal(found, 0), 0.0, np.divide(found, allowed))


def _place(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(flat), shape))
