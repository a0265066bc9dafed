"""The log of a walk, JSON lines: an entry for each case of each code on each device, written as soon as it is known.

A walk that was killed goes on behind the last whole line. An entry counts for the code that it was made with and for
no other, so a changed rule or compiler leaves its old times behind.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from kdsl.bench.subjects import NotUsable
from kdsl.validate.gpu_report import FAILED, PASSED, REFUSED, Check

# What a later walk need not find out again: a time, a refusal by name, a wrong result or an impossible time.
WRONG, BELOW_FLOOR = "wrong", "below floor"
SETTLED = (PASSED, REFUSED, WRONG, BELOW_FLOOR)


@attrs.frozen
class Entry:
    """One case of one code on one device; `numbers` as in a report of `kdsl bench`."""

    code: str
    case: str
    device: str
    status: str
    choices: Mapping[str, Any]
    detail: str = ""
    numbers: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.code, self.case, self.device

    @classmethod
    def of(cls, check: Check, code: str, case: str, device: str, choices: Mapping[str, Any]) -> Entry:
        """The entry of a check: one that failed was wrong, impossible, or ended by an error that may not come back."""
        status = check.status
        if status == FAILED and "median_us" in check.numbers:
            status = BELOW_FLOOR
        elif status == FAILED and not check.traceback:
            status = WRONG
        return cls(code, case, device, status, choices, check.detail, check.numbers)


@attrs.define
class Log:
    """The entries of a file, the latest of each key, and where more are added."""

    path: Path
    entries: dict[tuple[str, str, str], Entry] = attrs.field(factory=dict)
    torn: bool = False  # the last line was cut off

    @classmethod
    def read(cls, path: Path) -> Log:
        """The log at a path, empty if there is none. Raises NotUsable for a line in it that is no entry."""
        log = cls(path)
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
        except (OSError, ValueError) as failure:
            raise NotUsable(f"{path} cannot be read: {failure}") from None
        lines = text.split("\n")
        log.torn = bool(lines.pop())  # a whole line ends with a newline
        for number, line in enumerate(lines, 1):
            try:
                entry = Entry(**json.loads(line))
            except (TypeError, ValueError) as wrong:
                raise NotUsable(f"{path}:{number}: no entry of a walk ({wrong}); remove the line") from None
            log.entries[entry.key] = entry
        return log

    def writable(self) -> None:
        """See that entries can be added, and take a line off that was cut off. Raises NotUsable."""
        try:
            with self.path.open("a+b") as file:
                if self.torn:
                    file.seek(0)
                    file.truncate(file.read().rfind(b"\n") + 1)
        except OSError as failure:
            raise NotUsable(f"cannot write to {self.path}: {failure.strerror or failure}") from None
        self.torn = False

    def add(self, entry: Entry) -> None:
        """Add an entry, on the disk before this returns."""
        line = json.dumps(attrs.asdict(entry), allow_nan=True) + "\n"
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self.entries[entry.key] = entry

    def settled(self, code: str, case: str, device: str) -> Entry | None:
        """The entry that answers a case of a code, if one does."""
        entry = self.entries.get((code, case, device))
        return entry if entry is not None and entry.status in SETTLED else None

    def of(self, code: str) -> Iterator[Entry]:
        """Everything known of a code."""
        return (entry for entry in self.entries.values() if entry.code == code)
