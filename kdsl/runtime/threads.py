"""A range of tasks split over threads. Kernels run without the interpreter lock, so threads run them in
parallel.

A task never depends on another, so the result is the same however the range is split.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from queue import SimpleQueue

from kdsl.runtime.errors import ArgumentValueError

THREADS_VARIABLE = "KDSL_THREADS"
# More parts than threads, so that tasks of unequal length even out.
PARTS_PER_THREAD = 4


def thread_count() -> int:
    """KDSL_THREADS if it is set, else the CPUs this process may use. Raises ArgumentValueError for a bad
    value.
    """
    given = os.environ.get(THREADS_VARIABLE)
    if given is None:
        return _usable_cpus()
    if given.isdecimal() and int(given) > 0:
        return int(given)
    raise ArgumentValueError(
        f"environment variable {THREADS_VARIABLE}",
        repr(given),
        "an integer of 1 or more",
        "correct or unset it",
    )


def run_range(run: Callable[[int, int], None], tasks: int, threads: int) -> None:
    """Call `run(begin, end)` on parts that cover [0, tasks) once, on up to `threads` threads with this one.

    Returns when all parts have ended; raises the first error of one.
    """
    if tasks <= 0:
        return
    threads = min(threads, tasks)
    if threads <= 1:
        run(0, tasks)
        return
    count = min(tasks, threads * PARTS_PER_THREAD)
    job = _Job(run, [(tasks * part // count, tasks * (part + 1) // count) for part in range(count)])
    waiting = _workers(threads - 1)
    for _ in range(threads - 1):
        waiting.put(job)
    job.work()
    # Every part leaves one outcome. Workers that come later find none left; memory may be freed now.
    failures = [failure for failure in [job.outcomes.get() for _ in range(count)] if failure is not None]
    if failures:
        raise failures[0]


class _Job:
    """Parts that any number of threads work off."""

    def __init__(self, run: Callable[[int, int], None], parts: list[tuple[int, int]]) -> None:
        self.run = run
        self.parts = deque(parts)
        self.outcomes: SimpleQueue[BaseException | None] = SimpleQueue()

    def work(self) -> None:
        while True:
            try:
                begin, end = self.parts.popleft()
            except IndexError:
                return
            try:
                self.run(begin, end)
            except BaseException as failure:
                self.outcomes.put(failure)
            else:
                self.outcomes.put(None)


@lru_cache(maxsize=8)
def _workers(count: int) -> SimpleQueue[_Job]:
    """The queue of `count` threads that live as long as the process."""
    waiting: SimpleQueue[_Job] = SimpleQueue()

    def serve() -> None:
        while True:
            waiting.get().work()

    for _ in range(count):
        threading.Thread(target=serve, name="kdsl", daemon=True).start()
    return waiting


@lru_cache(maxsize=1)
def _usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


if hasattr(os, "register_at_fork"):
    # A forked child has the queues but not their threads.
    os.register_at_fork(after_in_child=_workers.cache_clear)
