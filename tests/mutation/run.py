"""Judging mutants: every outcome is a line of the log, so that a run goes on where it stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from attrs import asdict

from .levels import level
from .mutant import Mutant
from .verdict import Outcome


def digest_of(mutant: Mutant) -> str:
    texts = level(mutant.level).subjects()
    return mutant.digest("".join(texts.values()) if mutant.level == "contract" else texts[mutant.subject])


def entries_of(mutants: Iterable[Mutant], log: Path) -> list[dict]:
    """Entries of these mutants for their present text, from the log and from the logs of its parts."""
    done: dict[str, dict] = {}
    for part in (log, *sorted(log.parent.glob(f"{log.stem}.*{log.suffix}"))):
        done.update(known(part))
    return [done[m.name] for m in mutants if m.name in done and done[m.name]["digest"] == digest_of(m)]


def known(log: Path) -> dict[str, dict]:
    """Entries of the log by mutant and digest; the last one counts."""
    if not log.exists():
        return {}
    entries = (json.loads(line) for line in log.read_text(encoding="utf-8").splitlines())
    return {entry["name"]: entry for entry in entries}


def entry_of(mutant: Mutant, outcome: Outcome, seconds: float, digest: str) -> dict:
    return {
        "name": mutant.name,
        "level": mutant.level,
        "operator": mutant.operator,
        "subject": mutant.subject,
        "line": mutant.line,
        "change": mutant.change,
        "digest": digest,
        "verdict": "accepted" if mutant.level == "harmless" and outcome.accepted else outcome.verdict,
        **asdict(outcome),
        "seconds": round(seconds, 2),
    }


def outcome_of(mutant: Mutant) -> Outcome:
    """What the level's judge says; an exception that is no diagnostic makes no code, and is a defect."""
    try:
        return level(mutant.level).judge(mutant)
    except Exception as problem:
        return Outcome("internal", f"{type(problem).__name__}: {problem}".splitlines()[0][:200])


def judged(mutants: Iterable[Mutant], log: Path) -> Iterator[dict]:
    """The outcome of every mutant, from the log where it stands there for the same text."""
    done = known(log)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        for mutant in mutants:
            digest = digest_of(mutant)
            entry = done.get(mutant.name)
            if entry is None or entry["digest"] != digest:
                started = time.perf_counter()
                outcome = outcome_of(mutant)
                entry = entry_of(mutant, outcome, time.perf_counter() - started, digest)
                file.write(json.dumps(entry) + "\n")
                file.flush()
            yield entry
