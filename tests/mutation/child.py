"""A function in a process of its own: generated code that writes where it may not ends only that."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable

SECONDS = 60.0


def in_child(function: Callable[[], str], seconds: float = SECONDS) -> str:
    """What `function` returns; a crash or a hang as a text that says so."""
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe(duplex=False)

    def run() -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what the C library says of a crash
        try:
            theirs.send(function())
        except Exception as problem:
            theirs.send(f"{type(problem).__name__}: {problem}"[:160])

    process = context.Process(target=run, daemon=True)
    process.start()
    theirs.close()
    try:
        return mine.recv() if mine.poll(seconds) else f"still running after {seconds:g} s"
    except EOFError:
        process.join(seconds)
        code = process.exitcode or 0
        return f"crashed: {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
    finally:
        if process.is_alive():
            process.kill()
        process.join()
