"""Every test of the compiler sees NaN where a kernel reads what nobody wrote, and no rules of the user."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

TABLE_VARIABLE = "KDSL_ERROR_TABLE"
ROWS = "error-rows.jsonl"
HEAD = ("input", "o rms", "o worst", "state rms", "state worst")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    monkeypatch.setenv("KDSL_POISON", "1")
    for name in ("KDSL_RULES", "KDSL_BUNDLES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def error_row():
    """`error_row(name, acceptance)`: a line of the table of errors that the run prints at its end."""

    def add(name: str, result) -> None:
        from .workshop import figures

        with _rows().open("a", encoding="utf-8") as file:
            file.write(json.dumps([name, *figures(result)]) + "\n")

    return add


def _rows() -> Path:
    return Path(os.environ["KDSL_CACHE_DIR"]) / ROWS


def pytest_terminal_summary(terminalreporter, config):
    """The error table: to the terminal with -s, to a file where KDSL_ERROR_TABLE names one."""
    if hasattr(config, "workerinput") or not _rows().exists():
        return
    rows = [json.loads(line) for line in _rows().read_text(encoding="utf-8").splitlines()]
    table = error_table(rows)
    if config.getoption("capture") == "no":
        terminalreporter.section("error against the float64 oracle")
        terminalreporter.write_line(table)
    if os.environ.get(TABLE_VARIABLE):
        Path(os.environ[TABLE_VARIABLE]).write_text(table + "\n", encoding="utf-8")


def error_table(rows) -> str:
    """Markdown, the worst run of each name: rms in shares of the reference's, elements of their limit."""
    worst: dict[str, list[float]] = {}
    for name, *found in rows:
        worst[name] = [max(pair) for pair in zip(worst.get(name, found), found, strict=True)]
    lines = ["| " + " | ".join(HEAD) + " |", "|---|---|---|---|---|"]
    for name in sorted(worst, key=_order):
        lines.append(f"| {name} | " + " | ".join(f"{x:.2g}" for x in worst[name]) + " |")
    return "\n".join(lines)


def _order(name: str) -> tuple:
    """K2 before K10."""
    digits = "".join(c for c in name[1:3] if c.isdigit())
    return (name[0], int(digits) if digits else 0, name)
