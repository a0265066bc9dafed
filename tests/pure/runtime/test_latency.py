"""How times are taken and judged, with a clock that is told the time."""

import math

import pytest

from kdsl.validate.latency import (
    FEWEST_RUNS,
    HOLD_EXTRA,
    HostClock,
    Samples,
    Timing,
    chunk_bytes,
    decode_bytes,
    quantile,
    rotation,
    time_calls,
)


class ToldClock:
    """A device whose calls take what `durations` say, one after the other."""

    def __init__(self, durations):
        self.durations, self.now, self.held, self.order = durations, 0.0, [], []

    def call(self, turn):
        self.order.append(turn)
        self.now += self.durations[len(self.order) % len(self.durations)]

    def hold(self, duration):
        self.held.append(duration)
        self.now += duration

    def mark(self):
        return self.now

    def between(self, begin, end):
        return end - begin

    def wait(self):
        pass


def test_samples_are_of_the_call_alone_and_inputs_rotate():
    clock = ToldClock([100.0])
    samples = time_calls(clock.call, 3, clock, runs=50, warm_up=4)
    assert samples.median == samples.p95 == samples.least == pytest.approx(100)
    assert len(samples.microseconds) == 50 and samples.sets == 3
    assert clock.order[:6] == [0, 1, 2, 0, 0, 1] and clock.order[-50:] == [turn % 3 for turn in range(50)]
    assert len(clock.held) == 50 and min(clock.held) >= HOLD_EXTRA


def test_every_set_is_called_before_the_first_sample():
    clock = ToldClock([1.0])
    time_calls(clock.call, 40, clock, runs=20, warm_up=2)
    assert clock.order[:40] == list(range(40))


def test_time_that_is_up_leaves_a_few_runs():
    clock = ToldClock([1.0])
    assert len(time_calls(clock.call, 1, clock, runs=1000, seconds=0).microseconds) == FEWEST_RUNS
    assert len(time_calls(clock.call, 1, clock, runs=7, seconds=0).microseconds) == 7


def test_a_sample_of_several_calls_is_their_mean():
    clock = ToldClock([640.0])
    samples = time_calls(clock.call, 1, clock, runs=20, calls=64)
    assert samples.median == pytest.approx(10) and samples.calls == 64


def test_the_host_times_itself():
    samples = time_calls(lambda turn: sum(range(1000)), 1, HostClock(), runs=20)
    assert 0 < samples.least <= samples.median <= samples.p95 < 1e6


def test_quantiles():
    values = tuple(float(number) for number in range(1, 101))[::-1]
    assert quantile(values, 0.5) == 50 and quantile(values, 0.95) == 95 and quantile((7.0,), 0.95) == 7
    with pytest.raises(ValueError, match="no samples"):
        quantile((), 0.5)


def test_rotation_passes_the_l2():
    assert rotation(1 << 30, 60 << 20) == 2
    sets = rotation(4 << 20, 60 << 20)
    assert (sets - 1) * (4 << 20) > 2 * (60 << 20)
    assert rotation(0, 60 << 20) == 512 and rotation(10, 10, least=5) == 5


@pytest.mark.parametrize(
    ("heads", "sequences", "microseconds"),
    [(96, 1, 237), (96, 6, 252), (96, 8, 257), (64, 1, 158), (64, 6, 168), (64, 8, 171), (32, 1, 79)],
)
def test_compulsory_bytes_are_those_of_the_published_floors(heads, sequences, microseconds):
    nbytes = chunk_bytes(8192, sequences, heads, heads, 128, 128)
    assert nbytes / 4.30e12 * 1e6 == pytest.approx(microseconds, rel=0.01)


@pytest.mark.parametrize(("rows", "microseconds"), [(8, 8), (64, 62), (256, 250)])
def test_compulsory_bytes_of_decoding(rows, microseconds):
    nbytes = decode_bytes(rows, 1, 32, 32, 128, 128)
    assert nbytes / 4.30e12 * 1e6 == pytest.approx(microseconds, rel=0.04)


def timing(*microseconds):
    return Timing("H = 96", "kdsl", Samples(microseconds, 5.0, 2), 430_000_000, 4.3e12)


def test_a_time_under_the_floor_is_refused():
    good, bad = timing(250.0, 200.0, 99.0), timing(60.0, 99.0, 400.0)
    assert good.floor == pytest.approx(100) and good.share_of_floor == pytest.approx(0.5)
    assert good.possible and good.runs_below_floor == 1 and "50% of the median" in good.explain()
    assert not bad.possible and bad.runs_below_floor == 2
    assert "refused" in bad.explain() and "430000000 bytes" in bad.explain() and "4.30 TB/s" in bad.explain()
    assert math.isclose(timing(100.0).share_of_floor, 1.0) and timing(100.0).possible
