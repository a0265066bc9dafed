"""One case on one device: judged against the oracle first, then timed, its kernels one by one too.

A result that is wrong is not timed. A median under the floor is refused: the compulsory bytes of the call over the
bandwidth of a large copy on the same device in the same run (kdsl.validate.latency).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from kdsl.bench.baselines import NoBaseline, NotInstalled, baseline_call
from kdsl.bench.cases import Case
from kdsl.bench.device import Device, captured, poison
from kdsl.bench.kernels import kernel_numbers, kernel_times
from kdsl.bench.outcome import Outcome, Skip, Unknown
from kdsl.bundle.manifest import Variant
from kdsl.validate.acceptance import acceptance
from kdsl.validate.call import decode_reference, reference
from kdsl.validate.gpu_report import error_numbers, timing_numbers
from kdsl.validate.latency import RUNS, Timing, rotation, time_calls

OURS = "kdsl"
# A graph holds at least so many calls, so that its own start does not count.
CALLS_IN_GRAPH = 16
FEWEST_SETS = 2
Bind = Callable[[Mapping[str, Any]], Callable[[], Any]]


@attrs.define
class Stand:
    """What cases are measured with: the device, how often, until when, from which seed.

    `references` keeps the oracle's answers, so that kernels after the first do not wait for them again.
    """

    device: Device
    seed: int
    runs: int = RUNS
    deadline: float = math.inf
    references: dict[Case, tuple[Any, Any]] = attrs.field(factory=dict)

    @property
    def small(self) -> bool:
        """Whether the device is a host: no floor is held against it, its caches are as large as its inputs."""
        return not self.device.is_gpu

    @property
    def seconds_left(self) -> float:
        return max(self.deadline - time.monotonic(), 0.0)


def measure(stand: Stand, case: Case, variant: Variant | None = None) -> Outcome:
    """The registered bundle on a case. `variant`, where it is known, names the kernels and what they move."""
    return _measured(stand, case, OURS, case.bind, variant)


def measure_library(stand: Stand, case: Case, library: str) -> Outcome:
    """A library on the same tensors; passed once it is timed, for its errors are not ours.

    Raises Skip where it is not installed, Unknown where it fails or computes something else.
    """
    try:
        outcome = _measured(stand, case, library, lambda t: baseline_call(library, case.operator, t), None)
    except NotInstalled as missing:
        raise Skip(str(missing)) from None
    except NoBaseline as missing:
        raise Unknown(str(missing)) from None
    except (Skip, Unknown):
        raise
    except Exception as failure:
        raise Unknown(f"{library} failed: {type(failure).__name__}: {failure}") from failure
    return attrs.evolve(outcome, passed=True)


def _measured(stand: Stand, case: Case, kernel: str, bind: Bind, variant: Variant | None) -> Outcome:
    device = stand.device
    count = FEWEST_SETS if stand.small else rotation(case.nbytes, device.l2_bytes)
    sets = [case.tensors(device.torch, device.name, stand.seed + number) for number in range(count)]
    judged = judge(stand, case, sets[0], bind)
    if not judged.passed:
        return attrs.evolve(judged, detail=f"not timed, because it is wrong: {judged.detail}")
    calls = [bind(tensors) for tensors in sets]
    if case.in_graph and device.is_gpu:
        return _graph_timed(stand, case, kernel, calls, judged.numbers, variant)
    return _timed(stand, case, kernel, lambda turn: calls[turn](), count, judged.numbers, variant)


# ---- judged


def judge(stand: Stand, case: Case, tensors: Mapping[str, Any], bind: Bind) -> Outcome:
    """The results of a part of the call against the oracle, outputs filled with NaN before: the first and last head,
    or a few rows. Neither heads nor rows meet, and all of them would take minutes."""
    to_host = stand.device.to_host
    given = dict(tensors)
    if case.rows:  # the pool is updated in place, and its first contents are timed
        given["initial_state"] = given["initial_state"].clone()
    with poison(True):
        o, state = bind(given)()
    part = _part(case)
    if case not in stand.references:
        call = _call_of(stand, case, tensors)
        stand.references[case] = decode_reference(call) if case.rows else reference(call)
    found = (o[part], state[part]) if case.rows else (o[:, :, part], state[:, part])
    result = acceptance(*map(to_host, found), *stand.references[case])
    return Outcome(result.accepted, result.explain(), error_numbers(result))


def _part(case: Case) -> list[int]:
    """The heads, or rows, that the oracle computes."""
    if case.rows:
        return sorted({0, 1 % case.rows, case.rows // 2, case.rows - 1})
    return [0, case.heads - 1]


def _call_of(stand: Stand, case: Case, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """That part as a call of kdsl.validate.call."""
    part, to_host = _part(case), stand.device.to_host
    call = {name: value for name, value in tensors.items() if not hasattr(value, "shape")}
    if case.rows:
        call |= {name: to_host(tensors[name][part]) for name in ("q", "k", "v", "g", "beta")}
        call |= {name: to_host(tensors[name]) for name in ("A_log", "dt_bias")}
        return call | {"pool": to_host(tensors["initial_state"][part])}
    call |= {name: to_host(tensors[name][:, :, part]) for name in ("q", "k", "v", "g", "beta")}
    call |= {name: to_host(tensors[name][part]) for name in ("A_log", "dt_bias")}
    if tensors["cu_seqlens"] is not None:
        call["cu_seqlens"] = to_host(tensors["cu_seqlens"])
    return call | {"initial_state": to_host(tensors["initial_state"][:, part])}


# ---- timed


def _graph_timed(
    stand: Stand, case: Case, kernel: str, calls: Sequence[Callable[[], Any]], numbers, variant: Variant | None
) -> Outcome:
    """Calls in a CUDA graph, each set of inputs equally often; a sample is their mean."""
    torch, count = stand.device.torch, len(calls)
    turns = count * -(-CALLS_IN_GRAPH // count)

    def whole() -> tuple[Any, ...]:
        return tuple(calls[turn % count]()[0] for turn in range(turns))

    with poison(False):
        graph, results = captured(torch, whole)
    for result in results:
        result.fill_(math.nan)
    graph.replay()
    stand.device.wait()
    if not all(bool(torch.isfinite(result).all()) for result in results):
        return Outcome(False, "not timed, because results from the graph are not finite")
    return _timed(stand, case, kernel, lambda turn: graph.replay(), count, numbers, variant, turns)


def _timed(
    stand: Stand, case: Case, kernel: str, call: Callable[[int], Any], sets: int, numbers: Mapping[str, Any],
    variant: Variant | None, calls: int = 1,
) -> Outcome:  # fmt: skip
    if not stand.seconds_left:
        raise Unknown("the time was up before anything was timed")
    device = stand.device
    with poison(False):
        samples = time_calls(call, sets, device.clock, runs=stand.runs, calls=calls, seconds=stand.seconds_left)
        kernels = kernel_times(device, call, sets) if kernel == OURS else {}
    timing = Timing(case.label, kernel, samples, case.nbytes, device.bandwidth)
    found = {**numbers, **timing_numbers(timing), "state": device.state()}
    if variant is not None:
        found["kernels"] = kernel_numbers(case, variant, kernels, device.bandwidth)
    return Outcome(timing.possible or stand.small, timing.explain(), found)
