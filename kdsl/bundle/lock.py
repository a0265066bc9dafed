"""A lock between processes (and threads) on a file that is gone once nobody holds it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

if os.name == "nt":
    import msvcrt

    def _hold(descriptor: int) -> None:
        while True:
            with contextlib.suppress(OSError):
                msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
                return

else:
    import fcntl

    def _hold(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock at `path`; wait for whoever holds it. The system releases it if the holder dies.

    Raises OSError where the file cannot be made (a read-only folder) or the file system has no locks.
    """
    descriptor = _acquire(path)
    try:
        yield
    finally:
        # Unlink before the release: a waiter then finds that its file is no longer the one at `path`.
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _acquire(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            _hold(descriptor)
            held = os.fstat(descriptor)
            with contextlib.suppress(FileNotFoundError):
                now = path.stat()
                if (now.st_ino, now.st_dev) == (held.st_ino, held.st_dev):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
