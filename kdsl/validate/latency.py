"""How a kernel is timed, and the floor that no honest time is under.

One sample is the device's own time for one call, between two marks on its stream. Inputs rotate through more
than the L2 holds; before each sample the device is held busy for longer than the host needs to enqueue the
call, so that a sample has no time of the host in it; kernel and baseline are timed in the same process.
Numbers of calls, of warm-up and of sets are in the result, raw samples too.

The floor is the fewest bytes that the call must move (each input read once, each output written once) over
the bandwidth of a large copy on the same device in the same run. A time under it is a failure, not a record.

PyTorch is the caller's: its module comes as an argument, and nothing here imports it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

RUNS = 1000
FEWEST_RUNS = 20
WARM_UP = 20
# The inputs of all sets together are at least this many times the L2.
L2_MULTIPLE = 3
# The device is held for this many times what the host needs to enqueue a call, and a little more.
HOLD_MULTIPLE = 1.5
HOLD_EXTRA = 30.0
LONGEST_HOLD = 20_000.0
COPY_BYTES = 2 << 30
COPIES = 20


class Clock(Protocol):
    """The time of a device. All times are in microseconds."""

    def hold(self, duration: float) -> None:
        """Keep the device busy for about `duration`, without waiting for it."""

    def mark(self) -> Any:
        """A point in the device's order of work."""

    def between(self, begin: Any, end: Any) -> float:
        """The device's time between two marks that it has passed."""

    def wait(self) -> None:
        """Wait until the device has done all its work."""


class DeviceClock:
    """Events of PyTorch on a GPU's current stream."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._cycles = 0.0
        self._cycles = self._calibrate()

    def _calibrate(self) -> float:
        """Cycles of the sleeping kernel in a microsecond; 0 where this PyTorch has none."""
        sleep = getattr(self._torch.cuda, "_sleep", None)
        if sleep is None:
            return 0.0
        cycles = 2_000_000
        for _ in range(2):
            begin = self.mark()
            sleep(cycles)
            end = self.mark()
            self.wait()
        return cycles / max(self.between(begin, end), 1.0)

    def hold(self, duration: float) -> None:
        if self._cycles:
            self._torch.cuda._sleep(int(duration * self._cycles))

    def mark(self) -> Any:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, begin: Any, end: Any) -> float:
        return begin.elapsed_time(end) * 1e3

    def wait(self) -> None:
        self._torch.cuda.synchronize()


class HostClock:
    """The host as its own device: a call has ended when it returns."""

    def hold(self, duration: float) -> None:
        """Nothing runs behind the host's back."""

    def mark(self) -> float:
        return time.perf_counter()

    def between(self, begin: float, end: float) -> float:
        return (end - begin) * 1e6

    def wait(self) -> None:
        """Nothing is outstanding."""


@dataclass(frozen=True)
class Samples:
    """Times of single calls in microseconds, in the order of the runs.

    `enqueue` is the host's median time for one call; `sets` the number of input sets rotated through;
    `calls` how many calls one sample is the mean of (more than one only in a captured graph).
    """

    microseconds: tuple[float, ...]
    enqueue: float
    sets: int
    calls: int = 1

    @property
    def median(self) -> float:
        return quantile(self.microseconds, 0.5)

    @property
    def p95(self) -> float:
        return quantile(self.microseconds, 0.95)

    @property
    def least(self) -> float:
        return min(self.microseconds)


def quantile(values: tuple[float, ...], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed. Raises ValueError for none."""
    if not values:
        raise ValueError("no samples: nothing was measured")
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def rotation(set_bytes: int, l2_bytes: int, least: int = 2, most: int = 512) -> int:
    """How many input sets of `set_bytes` it takes that none is still in the L2 when its turn comes again."""
    return max(least, min(most, math.ceil(L2_MULTIPLE * l2_bytes / max(set_bytes, 1)) + 1))


def time_calls(
    call: Callable[[int], Any],
    sets: int,
    clock: Clock,
    *,
    runs: int = RUNS,
    warm_up: int = WARM_UP,
    seconds: float = math.inf,
    calls: int = 1,
) -> Samples:
    """Time `call(set)` for sets 0, 1, ... in turn; `calls` is how many calls of the operator one makes.

    After `seconds` no further run is made, once there are FEWEST_RUNS. Every set is called at least once
    before the first sample.
    """
    deadline = time.perf_counter() + seconds
    for turn in range(max(warm_up, sets)):
        call(turn % sets)
    clock.wait()
    enqueue = _enqueue_time(call, sets, clock)
    hold = min(HOLD_MULTIPLE * enqueue + HOLD_EXTRA, LONGEST_HOLD)
    found: list[float] = []
    while len(found) < runs and (len(found) < FEWEST_RUNS or time.perf_counter() < deadline):
        marks = []
        for turn in range(len(found), min(runs, len(found) + FEWEST_RUNS)):
            clock.hold(hold)
            begin = clock.mark()
            call(turn % sets)
            marks.append((begin, clock.mark()))
        clock.wait()
        found += [clock.between(*pair) / calls for pair in marks]
    return Samples(tuple(found), enqueue / calls, sets, calls)


def _enqueue_time(call: Callable[[int], Any], sets: int, clock: Clock) -> float:
    found = []
    for turn in range(9):
        begin = time.perf_counter()
        call(turn % sets)
        found.append((time.perf_counter() - begin) * 1e6)
        clock.wait()
    return quantile(tuple(found), 0.5)


def copy_bandwidth(torch: Any, device: Any, clock: Clock, nbytes: int = COPY_BYTES) -> float:
    """Bytes per second of a copy on `device` from one tensor of `nbytes` to another, read and written
    together.
    """
    source = torch.ones(nbytes // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    samples = time_calls(lambda turn: target.copy_(source), 1, clock, runs=COPIES, warm_up=3)
    return 2 * source.numel() * 4 / (samples.median * 1e-6)


def chunk_bytes(
    tokens: int, sequences: int, heads: int, value_heads: int, key: int, value: int, item: int = 2
) -> int:
    """The fewest bytes of a chunk_kda call with states in fp32 in and out: q, k, v, g, beta, o of `item`
    bytes each, boundaries, gate parameters.
    """
    per_token = 2 * heads * key + value_heads * (2 * value + key + 1)
    states = 2 * sequences * value_heads * key * value * 4
    return tokens * per_token * item + states + 8 * (sequences + 1) + 4 * value_heads * (1 + key)


def decode_bytes(
    rows: int, tokens: int, heads: int, value_heads: int, key: int, value: int, item: int = 2
) -> int:
    """The fewest bytes of a fused_recurrent_kda call on a pool in fp32: each row's state read and written
    once.
    """
    per_token = 2 * heads * key + value_heads * (2 * value + key + 1)
    states = 2 * rows * value_heads * key * value * 4
    return rows * tokens * per_token * item + states + 8 * rows + 4 * value_heads * (1 + key)


@dataclass(frozen=True)
class Timing:
    """One kernel on one case. `nbytes` is compulsory, `bandwidth` in bytes per second; `floor` in
    microseconds.
    """

    case: str
    kernel: str
    samples: Samples
    nbytes: int
    bandwidth: float

    @property
    def floor(self) -> float:
        return self.nbytes / self.bandwidth * 1e6

    @property
    def share_of_floor(self) -> float:
        """1 where the call takes no longer than moving its bytes once; above 1 is impossible."""
        return self.floor / self.samples.median

    @property
    def runs_below_floor(self) -> int:
        return sum(1 for sample in self.samples.microseconds if sample < self.floor)

    @property
    def possible(self) -> bool:
        """Whether the median is a time that moving the bytes allows."""
        return self.samples.median >= self.floor

    def explain(self) -> str:
        """The numbers in one sentence, or why they are refused."""
        samples = self.samples
        numbers = (
            f"median {samples.median:.1f} us, p95 {samples.p95:.1f} us of {len(samples.microseconds)} runs, "
            f"{samples.sets} input sets; floor {self.floor:.1f} us"
        )
        if self.possible:
            return f"{numbers}, {100 * self.share_of_floor:.0f}% of the median"
        return (
            f"refused: {numbers}. {self.nbytes} bytes cannot be moved in less than the floor at the "
            f"{self.bandwidth / 1e12:.2f} TB/s of a copy: inputs were cached, or not all were read"
        )
