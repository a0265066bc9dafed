"""The clock that the limits of speed are read from."""

from __future__ import annotations

from .pace import IDLE, Paced, reference


def paced(times: int) -> float:
    with Paced() as took:
        for _ in range(times):
            reference()
    return took.seconds


def test_more_work_is_more_seconds():
    """The negative control: what takes four times as long is not scaled away, on whatever machine."""
    least = {times: min(paced(times) for _ in range(3)) for times in (1, 4)}
    assert 2.5 < least[4] / least[1] < 6.5, least


def test_a_slow_machine_is_no_slow_program():
    """The fixed work takes about IDLE by this clock, less on a faster machine only."""
    assert min(paced(2) for _ in range(3)) / 2 < IDLE * 1.5
