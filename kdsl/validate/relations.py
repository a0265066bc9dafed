"""Relations between runs that hold for every honest kernel, whatever its rounding.

Each check takes a runner, `run(call) -> (o, final_state)`, and a call, and gives a tuple of findings; an
empty tuple means that the relation holds. `RELATIONS` names those that apply to any call; splitting,
causality and packing ask for a call of a certain form and say so.

Results of equal meaning are compared bit for bit. A kernel whose cuts depend on the length (a segmented
form), or whose reference for exponents is a later row of the chunk, keeps a relation only within rounding:
`exact=False` then asks for agreement within the acceptance limits instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kdsl.validate import bfloat16, oracle
from kdsl.validate.acceptance import compare
from kdsl.validate.call import NEEDED, Call, Run, copy_of, digest, output_shapes
from kdsl.validate.errors import ArrayError
from kdsl.validate.judge import Finding, changed_arrays

# Below this size a kernel may flush intermediate values to zero, and doubling them crosses that line.
FLUSH_LEVEL = 2.0**-100
CHUNK = 64

Findings = tuple[Finding, ...]


def inputs_unchanged(run: Run, call: Call) -> Findings:
    """No array of the call has other bytes after the run (SHA-256 before and after)."""
    call = copy_of(call)
    before = digest(call)
    run(call)
    return tuple(Finding("inputs unchanged", f"{name} was written") for name in changed_arrays(before, call))


def outputs_complete(run: Run, call: Call) -> Findings:
    """o and final_state have their full shapes and no NaN is left of what the runner filled them with."""
    found = []
    for name, array, shape in zip(("o", "final_state"), run(copy_of(call)), output_shapes(call), strict=True):
        if array is None:
            found.append(Finding("outputs complete", f"{name} is missing"))
        elif np.shape(array) != shape:
            found.append(Finding("outputs complete", f"{name} has shape {np.shape(array)}, expected {shape}"))
        elif (unwritten := np.isnan(bfloat16.values_of(name, array))).any():
            first = tuple(int(i) for i in np.argwhere(unwritten)[0])
            count = f"{int(unwritten.sum())} of {unwritten.size}"
            found.append(Finding("outputs complete", f"{name} has NaN in {count} elements, first at {first}"))
    return tuple(found)


def doubling_is_exact(run: Run, call: Call) -> Findings:
    """v and the initial state times 2 give o and the final state times 2: each step is linear in them.

    A power of two passes through every rounding; elements below 2^-100 are left out, where a kernel may
    flush to zero.
    """
    doubled = copy_of(call)
    for name in ("v", "initial_state"):
        if call.get(name) is not None:
            doubled[name] = _like(call[name], 2 * bfloat16.values_of(name, call[name]))
    found = []
    for name, once, twice in zip(("o", "final_state"), run(copy_of(call)), run(doubled), strict=True):
        once, twice = bfloat16.values_of(name, once), bfloat16.values_of(name, twice)
        tiny = (np.abs(once) < FLUSH_LEVEL) & (np.abs(twice) < FLUSH_LEVEL)
        wrong = ~((twice == 2 * once) | tiny)
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            detail = f"{int(wrong.sum())} elements of {name}, the first at {at}"
            moved = f"from {once[at]:.9g} to {twice[at]:.9g}"
            found.append(Finding("doubling is exact", f"{detail}, went {moved}"))
    return tuple(found)


def splitting_at_chunk(run: Run, call: Call, *, at: int = CHUNK, exact: bool = True) -> Findings:
    """Running [0, at) and then [at, T) from the state in between equals running [0, T) at once.

    Needs a call without cu_seqlens (any batch), at a multiple of the kernel's chunk, 0 <= at <= T. The state
    goes on in the dtype that the runner gave.
    """
    _unpacked(call)
    tokens = np.shape(call["q"])[1]
    if not 0 <= at <= tokens:
        raise ArrayError("at", str(at), f"0 to {tokens}")
    first, second = _tokens(call, slice(0, at)), _tokens(call, slice(at, tokens))
    o, final_state = run(copy_of(call))
    o_first, between = run(first)
    o_second, split_state = run(copy_of(second, initial_state=np.array(between)))
    pairs = (("o", np.concatenate([o_first, o_second], axis=1), o), ("final_state", split_state, final_state))
    return _agreement(f"splitting at token {at}", pairs, exact)


def causality(run: Run, call: Call, *, at: int = CHUNK, seed: int = 0, exact: bool = True) -> Findings:
    """Outputs before token `at` of each sequence stay as they are when all inputs from there on change.

    Later q and k are shuffled over the channels, v and beta change sign, g is shuffled over the channels.
    Bitwise at a multiple of the kernel's chunk; elsewhere a kernel may need `exact=False` (see above).
    """
    rng = np.random.default_rng(seed)
    batch, tokens = np.shape(call["q"])[:2]
    later = np.zeros((batch, tokens), bool)
    for row, start, stop in oracle.sequence_spans(batch, tokens, call.get("cu_seqlens")):
        later[row, min(start + at, stop) : stop] = True
    changed = copy_of(call)
    for name in ("q", "k", "g"):
        array = changed[name]
        array[later] = rng.permuted(array[later], axis=-1)
    for name in ("v", "beta"):
        values = bfloat16.values_of(name, changed[name])
        changed[name][later] = _like(changed[name], -values)[later]
    before, after = run(copy_of(call))[0], run(changed)[0]
    pairs = (("o", np.asarray(after)[~later], np.asarray(before)[~later]),)
    return _agreement(f"causality at token {at}", pairs, exact)


def batched_equals_packed(run: Run, call: Call, *, exact: bool = True) -> Findings:
    """A batch of B sequences gives what the same sequences packed into one row with cu_seqlens give."""
    _unpacked(call)
    batch, tokens = np.shape(call["q"])[:2]
    packed = copy_of(call)
    for name in NEEDED:
        packed[name] = packed[name].reshape(1, batch * tokens, *packed[name].shape[2:])
    packed["cu_seqlens"] = np.arange(batch + 1, dtype=np.int64) * tokens
    o, state = run(copy_of(call))
    packed_o, packed_state = run(packed)
    pairs = (("o", np.reshape(packed_o, np.shape(o)), o), ("final_state", packed_state, state))
    return _agreement("batched equals packed", pairs, exact)


RELATIONS: dict[str, Callable[[Run, Call], Findings]] = {
    "inputs unchanged": inputs_unchanged,
    "outputs complete": outputs_complete,
    "doubling is exact": doubling_is_exact,
    "causality": causality,
}


def _agreement(check: str, pairs: tuple[tuple[str, Any, Any], ...], exact: bool) -> Findings:
    found = []
    for name, x, y in pairs:
        x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
        if x.dtype != y.dtype or x.shape != y.shape:
            detail = f"{name} is {x.dtype} {x.shape} and {y.dtype} {y.shape}"
            found.append(Finding(check, detail))
        elif x.tobytes() != y.tobytes():
            comparison = compare(x, y, name=name)
            if exact or not comparison.accepted:
                needed = "the same bits" if exact else "agreement within the limits"
                detail = f"{needed} needed; with one run as the other's reference, {comparison.explain()}"
                found.append(Finding(check, detail))
    return tuple(found)


def _unpacked(call: Call) -> None:
    if call.get("cu_seqlens") is not None:
        raise ArrayError("cu_seqlens", "packed sequences", "a call without them")


def _tokens(call: Call, part: slice) -> dict[str, Any]:
    return copy_of(call, **{name: call[name][:, part] for name in NEEDED})


def _like(array: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`values` in the format of `array`: its float dtype, or bfloat16 patterns."""
    return bfloat16.encode(values) if array.dtype == np.uint16 else values.astype(array.dtype)
