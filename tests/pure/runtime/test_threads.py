"""The split of a range over threads."""

import os
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdsl.runtime.threads import run_range, thread_count


@settings(max_examples=60, deadline=None)
@given(st.integers(-2, 200), st.integers(0, 9))
def test_every_task_runs_once(tasks, threads):
    lock, seen = threading.Lock(), []

    def run(begin, end):
        with lock:
            seen.extend(range(begin, end))

    run_range(run, tasks, threads)
    assert sorted(seen) == list(range(max(tasks, 0)))


def test_several_threads_take_part():
    both = threading.Barrier(2, timeout=10)
    run_range(lambda begin, end: both.wait(), 2, 2)
    with pytest.raises(threading.BrokenBarrierError):
        alone = threading.Barrier(2, timeout=0.05)
        run_range(lambda begin, end: alone.wait(), 2, 1)


def test_an_error_in_any_part_comes_out_after_all_have_ended():
    ended = []

    def run(begin, end):
        if begin == 0:
            raise ZeroDivisionError
        time.sleep(0.02)
        ended.append(begin)

    with pytest.raises(ZeroDivisionError):
        run_range(run, 4, 2)
    count = len(ended)
    time.sleep(0.1)
    assert len(ended) == count


def test_the_number_of_threads(monkeypatch):
    monkeypatch.setenv("KDSL_THREADS", "3")
    assert thread_count() == 3
    monkeypatch.delenv("KDSL_THREADS")
    assert thread_count() >= 1
    for bad in ("0", "-1", "two", ""):
        monkeypatch.setenv("KDSL_THREADS", bad)
        with pytest.raises(ValueError, match="KDSL_THREADS"):
            thread_count()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the test forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own():
    run_range(lambda begin, end: None, 8, 3)
    child = os.fork()
    if child == 0:
        both = threading.Barrier(3, timeout=10)
        try:
            run_range(lambda begin, end: both.wait(), 3, 3)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
