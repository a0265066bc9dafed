"""A range of tasks split over threads. Kernels run without the interpreter lock, so threads run them in
parallel.

A task never depends on another, so the result is the same however the range is split.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

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
    """Call `run(begin, end)` on parts that cover [0, tasks) once, on up to `threads` threads with this one
    among them.

    Returns when all are done; raises the first error that a part raised.
    """
    if tasks <= 0:
        return
    threads = min(threads, tasks)
    if threads <= 1:
        run(0, tasks)
        return
    count = min(tasks, threads * PARTS_PER_THREAD)
    parts = deque((tasks * part // count, tasks * (part + 1) // count) for part in range(count))

    def work() -> None:
        while parts:
            try:
                begin, end = parts.popleft()
            except IndexError:
                return
            run(begin, end)

    pool = _pool(threads - 1)
    others = [pool.submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        # Those that have not started have nothing left to do; the rest must end before memory is freed.
        failures = [other.exception() for other in others if not other.cancel()]
    for failure in failures:
        if failure is not None:
            raise failure


@lru_cache(maxsize=8)
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="kdsl")


@lru_cache(maxsize=1)
def _usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


if hasattr(os, "register_at_fork"):
    # A forked child has the pools but not their threads.
    os.register_at_fork(after_in_child=_pool.cache_clear)
