"""Starts the process that works with the device, hears its events, and ends it when it hangs.

A worker that dies, hangs or loses the device costs the rest of one section: the next worker goes on after
it.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from harness.worker import MARK, STICKY, Order
from kdsl.validate.gpu_report import FAILED, UNKNOWN, Check

MOST_WORKERS = 6
# Before the first section: importing PyTorch, starting the device, measuring its bandwidth.
START_SECONDS = 150.0
# A check is not interrupted at the section's limit; past this much more it counts as hanging.
GRACE_SECONDS = 30.0
KEPT_LINES = 20
# Of a check that passed; the report has all of it.
LONGEST_DETAIL = 110
SCRIPT = Path(__file__).resolve().parents[1] / "run.py"


@attrs.define
class Findings:
    """What the workers told: the environment before and after, and all checks."""

    environment: dict[str, Any] = attrs.field(factory=dict)
    afterwards: dict[str, Any] = attrs.field(factory=dict)
    checks: list[Check] = attrs.field(factory=list)


def supervise(order: Order, seconds: float, tell: Callable[[str], None], keep: Callable[[Findings], None],
              start_seconds: float = START_SECONDS, grace: float = GRACE_SECONDS) -> Findings:  # fmt: skip
    """Work off the order's plan within `seconds`. `tell` gets lines to show, `keep` the findings so far."""
    findings, plan, end = Findings(), order.plan, time.monotonic() + seconds
    for _ in range(MOST_WORKERS):
        left = end - time.monotonic()
        if not plan or left <= 0:
            break
        worker = _Worker(attrs.evolve(order, plan=plan, seconds=left), start_seconds, grace)
        done = worker.follow(findings, tell, keep)
        plan = plan[done:]
    else:
        if plan:
            tell(f"aborted: {MOST_WORKERS} workers died or hung; the device may be unusable")
    for section, path in plan:
        why = "no time was left" if time.monotonic() >= end else "too many workers died or hung"
        findings.checks.append(Check(section, _label(path), "the section", UNKNOWN, f"not run: {why}"))
    keep(findings)
    return findings


class _Worker:
    """One process, and the thread that reads what it prints."""

    def __init__(self, order: Order, start_seconds: float, grace: float) -> None:
        self.plan = order.plan
        self.at = -1
        self.deadline = time.monotonic() + start_seconds
        self.grace = grace
        self.said: deque[str] = deque(maxlen=KEPT_LINES)
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), "--worker", order.text()],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def follow(
        self, findings: Findings, tell: Callable[[str], None], keep: Callable[[Findings], None]
    ) -> int:
        """Hear the worker out. Returns how many entries of its plan are dealt with."""
        ended = False
        while True:
            try:
                line = self.lines.get(timeout=max(self.deadline - time.monotonic(), 0.01))
            except queue.Empty:
                self.process.kill()
                self.process.wait()
                self._lost(findings, tell, UNKNOWN, "its time was up: the device hangs, or a check is slow")
                break
            if line is None:
                status = self.process.wait()
                if not ended:
                    self._lost(findings, tell, *self._death(status))
                break
            if not line.startswith(MARK):
                self.said.append(line)
                continue
            ended = self._hear(_event(line), findings, tell) or ended
            keep(findings)
        return len(self.plan) if ended else self.at + 1

    def _hear(self, event: dict[str, Any], findings: Findings, tell: Callable[[str], None]) -> bool:
        """Take one event in; True for the last one."""
        kind = event.pop("event")
        if kind == "environment":
            if not findings.environment:
                findings.environment = event["environment"]
                for key, value in findings.environment.items():
                    tell(f"{key:>18}  {value}")
        elif kind == "section":
            self.at += 1
            self.deadline = time.monotonic() + event["seconds"] + self.grace
            tell(f"-- {event['section']}: {_label(event['bundle'])}")
        elif kind == "check":
            check = Check(**event)
            findings.checks.append(check)
            telling = check.status in (FAILED, UNKNOWN) or len(check.detail) <= LONGEST_DETAIL
            detail = f": {check.detail}" if check.detail and telling else ""
            tell(f"{check.status:>8}  {check.name} ({check.seconds:.1f} s){detail}")
        elif kind == "end":
            findings.afterwards = event["environment"]
            return True
        return False

    def _death(self, status: int) -> tuple[str, str]:
        if status == STICKY:
            return UNKNOWN, "the device was lost in the check before; a new process goes on behind it"
        said = " | ".join(self.said) or "nothing"
        return FAILED, f"the process ended with status {status}; it said: {said}"

    def _lost(self, findings: Findings, tell: Callable[[str], None], status: str, detail: str) -> None:
        section, path = self.plan[max(self.at, 0)]
        if self.at < 0:
            self.at = len(self.plan) - 1
            detail = f"no worker could start: {detail}"
            if self.said and "it said" not in detail:
                detail += f"; it said: {' | '.join(self.said)}"
        findings.checks.append(Check(section, _label(path), "the rest of the section", status, detail))
        tell(f"{status:>8}  the rest of the section: {detail}")


def _event(line: str) -> dict[str, Any]:
    return json.loads(line[len(MARK) :])


def _label(path: str) -> str:
    return Path(path).name.removesuffix(".kdsb")
