"""Times of the published cases, each checked against the oracle first, beside FLA in the same process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import accumulate
from typing import Any

import attrs

from harness import baseline
from harness.decoding import decode_tensors
from harness.device import poison
from harness.outcome import Checks, Context, Outcome, Skip, Unknown
from harness.repeating import captured
from kdsl import kda
from kdsl.validate.acceptance import acceptance
from kdsl.validate.call import reference
from kdsl.validate.gpu_report import error_numbers, timing_numbers
from kdsl.validate.latency import (
    RUNS,
    Samples,
    Timing,
    chunk_bytes,
    decode_bytes,
    rotation,
    time_calls,
)
from kdsl.validate.probes import CHANNELS, LOWER_BOUND

MIXED = (1300, 547, 2048, 963, 271, 3063)
LENGTHS = {"one sequence": (8192,), "mixed lengths": MIXED, "8 x 1024": (1024,) * 8}
HEADS = (96, 64)
DECODE_ROWS = (1, 8, 64, 256)
DECODE_HEADS = 32
QUICK_RUNS = 100
# A graph holds at least so many calls, so that its own start does not count.
CALLS_IN_GRAPH = 16
OURS = "kdsl"
FLA = "fla"


@attrs.frozen
class Case:
    """`heads` query and value heads, sequences of `lengths`, a bounded gate or one of softplus."""

    name: str
    heads: int
    lengths: tuple[int, ...]
    gate: str = "bounded"

    @property
    def nbytes(self) -> int:
        tokens = sum(self.lengths)
        return chunk_bytes(tokens, len(self.lengths), self.heads, self.heads, CHANNELS, CHANNELS)


def chunk_times(context: Context) -> Checks:
    """The six cases of chunk_kda; FLA on the first of them, or on all with `--baseline all`."""
    gate = context.gate
    shown = "" if gate == "bounded" else f", {gate}"
    cases = [Case(f"H = {h}, {name}{shown}", h, lengths, gate) for h in HEADS for name, lengths in LENGTHS.items()]
    if context.small:
        cases = [Case(f"H = 2, two sequences{shown}", 2, (64, 33), gate)]
    for case in cases[:2] if context.quick else cases:
        yield f"{case.name}, {OURS}", partial(_chunk, context, case)
    # Last, because it tunes itself for up to a minute.
    for case in {"none": [], "one": cases[:1], "all": cases}[context.baseline]:
        yield f"{case.name}, {FLA}", partial(_chunk_baseline, context, case)


def decode_times(context: Context) -> Checks:
    """fused_recurrent_kda at four sizes of batch, in a CUDA graph."""
    rows = (2,) if context.small else DECODE_ROWS[::2] if context.quick else DECODE_ROWS
    for count in rows:
        yield f"decode N = {count}, {OURS}", partial(_decode, context, count, OURS, kda.fused_recurrent_kda)
    for count in rows if context.baseline != "none" else ():
        yield f"decode N = {count}, {FLA}", partial(_decode_baseline, context, count)


def chunk_tensors(torch: Any, device: Any, case: Case, seed: int) -> dict[str, Any]:
    """Arguments of chunk_kda: everything in the kernel, a bounded gate at -5, fp32 states in and out."""
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
        "output_final_state": True, "use_qk_l2norm_in_kernel": True, "use_gate_in_kernel": True,
        "use_beta_sigmoid_in_kernel": True, "safe_gate": case.gate == "bounded",
        "lower_bound": LOWER_BOUND if case.gate == "bounded" else None,
    }  # fmt: skip


def _sets(context: Context, case: Case) -> list[dict[str, Any]]:
    count = 2 if context.small else rotation(case.nbytes, context.device.l2_bytes)
    torch, name = context.device.torch, context.device.name
    return [chunk_tensors(torch, name, case, context.seed + number) for number in range(count)]


def _chunk(context: Context, case: Case) -> Outcome:
    inputs = _sets(context, case)
    with poison(True):
        checked = _first_and_last_head(context, inputs[0], kda.chunk_kda(**inputs[0]))
    if not checked.passed:
        return attrs.evolve(checked, detail=f"not timed, because it is wrong: {checked.detail}")
    call = partial(_call_set, kda.chunk_kda, inputs)
    return _timed(context, case.name, OURS, call, len(inputs), case.nbytes, checked.numbers)


def _chunk_baseline(context: Context, case: Case) -> Outcome:
    called = baseline.function("chunk_kda")
    inputs = _sets(context, case)
    theirs = [baseline.arguments(called, tensors) for tensors in inputs]
    with baseline.theirs():
        # The first call of a shape tunes itself; it may take a minute.
        checked = _first_and_last_head(context, inputs[0], called(**theirs[0]))
        call = partial(_call_set, called, theirs)
        outcome = _timed(context, case.name, FLA, call, len(inputs), case.nbytes, checked.numbers)
    return attrs.evolve(outcome, passed=True)


def _call_set(called: Callable[..., Any], inputs: list[dict[str, Any]], turn: int) -> Any:
    return called(**inputs[turn])


def _first_and_last_head(context: Context, tensors: Mapping[str, Any], results: tuple[Any, Any]) -> Outcome:
    """The results of two heads against the oracle: heads do not meet, and all would take minutes."""
    heads = [0, tensors["q"].shape[2] - 1]
    to_host = context.device.to_host
    call = {name: value for name, value in tensors.items() if not hasattr(value, "shape")}
    call |= {name: to_host(tensors[name][:, :, heads]) for name in ("q", "k", "v", "g", "beta")}
    call |= {name: to_host(tensors[name][heads]) for name in ("A_log", "dt_bias")}
    call["initial_state"] = to_host(tensors["initial_state"][:, heads])
    if tensors["cu_seqlens"] is not None:
        call["cu_seqlens"] = to_host(tensors["cu_seqlens"])
    o, state = results
    result = acceptance(to_host(o[:, :, heads]), to_host(state[:, heads]), *reference(call))
    return Outcome(result.accepted, result.explain(), error_numbers(result))


def _timed(
    context: Context, case: str, kernel: str, call: Callable[[int], Any], sets: int, nbytes: int,
    numbers: Mapping[str, Any], calls: int = 1,
) -> Outcome:  # fmt: skip
    if not context.seconds_left:
        raise Unknown("the section's time was up before anything was timed")
    runs = 20 if context.small else QUICK_RUNS if context.quick else RUNS
    with poison(False):
        samples: Samples = time_calls(
            call, sets, context.device.clock, runs=runs, calls=calls, seconds=context.seconds_left
        )
    timing = Timing(case, kernel, samples, nbytes, context.device.bandwidth)
    found = {**numbers, **timing_numbers(timing), "state": context.device.state()}
    # A host's caches are as large as its inputs here: no floor.
    return Outcome(timing.possible or context.small, timing.explain(), found)


def _decode_baseline(context: Context, rows: int) -> Outcome:
    if context.small:
        raise Skip("FLA needs a GPU")
    called = baseline.function("fused_recurrent_kda")
    with baseline.theirs():
        return attrs.evolve(_decode(context, rows, FLA, called), passed=True)


def _decode(context: Context, rows: int, kernel: str, called: Callable[..., Any]) -> Outcome:
    torch, name = context.device.torch, context.device.name
    heads = 2 if context.small else DECODE_HEADS
    nbytes = decode_bytes(rows, 1, heads, heads, CHANNELS, CHANNELS)
    count = 2 if context.small else rotation(nbytes, context.device.l2_bytes)
    sets = [decode_tensors(torch, name, rows, heads, context.seed + number) for number in range(count)]
    calls = []
    for tensors in sets:
        pool = tensors.pop("pool")
        given = tensors | {"initial_state": pool, "inplace_final_state": True, "output_final_state": True}
        calls.append(given if kernel == OURS else baseline.arguments(called, given))
    case = f"decode N = {rows}, H = {heads}"
    if context.small:
        return _timed(context, case, kernel, partial(_call_set, called, calls), count, nbytes, {})
    turns = count * -(-CALLS_IN_GRAPH // count)

    def whole() -> tuple[Any, ...]:
        return tuple(called(**calls[turn % count])[0] for turn in range(turns))

    with poison(False):
        graph, results = captured(torch, whole)
    graph.replay()
    context.device.wait()
    if not all(bool(torch.isfinite(result).all()) for result in results[:1]):
        return Outcome(False, "not timed, because the results are not finite")
    outcome = _timed(context, case, kernel, lambda turn: graph.replay(), 1, nbytes, {}, calls=turns)
    return attrs.evolve(outcome, numbers={**outcome.numbers, "sets": count})

