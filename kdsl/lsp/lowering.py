"""The expensive verdicts: `kdsl lower` in a process of its own, with progress, stopped on request."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
import uuid
from pathlib import Path

from attrs import frozen
from lsprotocol import types

PULSE = 0.5  # seconds between two reports of progress
STOPPED = "stopped"


@frozen
class Lowered:
    """How it ended: `status` is the exit status of `kdsl lower`, or "stopped"."""

    status: int | str
    output: str
    seconds: float


class Cancelled(Exception):
    """The user no longer wants the answer."""


def command(path: str, target: str, emit: str, rule: str | None) -> list[str]:
    found = [sys.executable, "-m", "kdsl.cli.main", "lower", path, "--target", target, "--emit", emit]
    return [*found, "--rule", rule] if rule else found


async def lower(server, path: str, target: str, emit: str = "report", rule: str | None = None) -> Lowered:
    """Run it; a client that shows progress gets some, and may cancel."""
    started = time.monotonic()
    token = await begin(server, f"kdsl lower {Path(path).name} for {target}")
    process = await asyncio.create_subprocess_exec(
        *command(path, target, emit, rule), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT)  # fmt: skip
    reading = asyncio.ensure_future(process.communicate())
    try:
        while not reading.done():
            await asyncio.wait({reading}, timeout=PULSE)
            _pulse(server, token, time.monotonic() - started)
        output = (await reading)[0].decode("utf-8", "replace")
        status: int | str = process.returncode
    except (asyncio.CancelledError, Cancelled):
        await _stop(process, reading)
        status, output = STOPPED, ""
    seconds = time.monotonic() - started
    end(server, token, f"{'stopped' if status == STOPPED else 'done'} after {seconds:.1f} s")
    return Lowered(status, output, seconds)


async def begin(server, title: str) -> str | None:
    """Open a progress that can be cancelled; None for a client that shows none."""
    window = server.client_capabilities.window
    if window is None or not window.work_done_progress:
        return None
    token = str(uuid.uuid4())
    await server.work_done_progress.create_async(token)
    server.work_done_progress.begin(token, types.WorkDoneProgressBegin(title, cancellable=True))
    return token


def _pulse(server, token: str | None, seconds: float) -> None:
    if token is None:
        return
    if server.work_done_progress.tokens[token].cancelled():
        raise Cancelled
    server.work_done_progress.report(token, types.WorkDoneProgressReport(cancellable=True, message=f"{seconds:.0f} s"))


def end(server, token: str | None, message: str) -> None:
    if token is not None:
        server.work_done_progress.end(token, types.WorkDoneProgressEnd(message=message))


async def _stop(process, reading) -> None:
    """End the process; it gets two seconds to do so itself."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(asyncio.shield(reading), 2)
    except (asyncio.TimeoutError, asyncio.CancelledError):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    with contextlib.suppress(asyncio.CancelledError):
        await reading
