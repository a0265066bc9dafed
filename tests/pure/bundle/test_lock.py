"""The lock between builders."""

import contextlib
import threading
import time

from kdsl.bundle.lock import exclusive


def most_holders(lock, rounds, threads):
    """The largest number of threads that were inside `lock` at the same time."""
    inside, most, start = [], [], threading.Barrier(threads, timeout=10)

    def work():
        start.wait()
        for _ in range(rounds):
            with lock():
                inside.append(None)
                time.sleep(1e-4)
                most.append(len(inside))
                inside.pop()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    return max(most)


def test_one_holder_at_a_time_and_no_file_left(tmp_path):
    assert most_holders(lambda: exclusive(tmp_path / "a.lock"), 40, 6) == 1
    assert list(tmp_path.iterdir()) == []
    assert most_holders(contextlib.nullcontext, 40, 6) > 1


def test_the_lock_is_free_after_an_error(tmp_path):
    with contextlib.suppress(ZeroDivisionError), exclusive(tmp_path / "a.lock"):
        raise ZeroDivisionError
    with exclusive(tmp_path / "a.lock"):
        assert (tmp_path / "a.lock").exists()
