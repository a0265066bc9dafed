"""docs/mutation.md and the table of mutants, from the log."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping

from .mutant import LEVELS
from .verdict import EQUIVALENT, FALSE_ACCEPT, STAGES

COLUMNS = ("name", "line", "change", "verdict", "stage", "reason", "detail")
HEAD = """# Mutation suite

What kdsl catches when something is wrong: mutants of rules, of the mathematics of operators, of generated
code and of the promises that contracts make about it, each with the stage that rejected it. Every operator is
applied at every place it fits. Edits that keep the meaning are the other half: rejecting one is a fault too.

{date}, {machine}. Of {listed} mutants listed {judged} were judged{sampling};
`tests/mutation/outcomes.tsv` names them with what became of each. They are made and judged again by

```
make mutation                                   # the judging, then this page
python -m tests.mutation list                   # every mutant
python -m tests.mutation run --only drop_wait   # some of them
```
"""


def table(entries: Iterable[Mapping]) -> str:
    """The judged mutants as tab-separated lines, in the order of their names."""
    out = io.StringIO()
    writer = csv.DictWriter(
        out,
        COLUMNS,
        delimiter="\t",
        lineterminator="\n",
        extrasaction="ignore",
        quoting=csv.QUOTE_NONE,
        escapechar="\\",
    )
    writer.writeheader()
    for entry in entries:
        writer.writerow({key: str(entry[key]).replace("\t", " ").replace("\n", " ") for key in COLUMNS})
    return out.getvalue()


def document(entries: list[Mapping], listed: Mapping[str, int], machine: str, date: str, most: int) -> str:
    sampling = f", at most {most} places of each operator on each subject, chosen by a seed" if most else ""
    harmful = [e for e in entries if e["level"] != "harmless"]
    harmless = [e for e in entries if e["level"] == "harmless"]
    head = HEAD.format(
        date=date,
        machine=machine,
        listed=sum(listed.values()),
        judged=len(entries),
        sampling=sampling,
    )
    parts = [
        head,
        "## Figures\n",
        by_level(harmful, listed),
        stages_text(harmful),
        by_operator(harmful),
        accepts(harmful),
        only_on_own_calls(harmful),
        only_by_running(harmful),
        equivalents(harmful),
        defects(entries),
        rejects(harmless, listed.get("harmless", 0)),
    ]
    return "\n".join(parts)


def rows(head: tuple, body: Iterable[tuple]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in body)]) + "\n"


def verdicts(entries: Iterable[Mapping]) -> Counter:
    return Counter(entry["verdict"] for entry in entries)


def by_level(entries: list[Mapping], listed: Mapping[str, int]) -> str:
    body = []
    for level, what in LEVELS.items():
        own = [e for e in entries if e["level"] == level]
        if own:
            tally = verdicts(own)
            body.append(
                (
                    f"{level}: {what}",
                    listed.get(level, ""),
                    len(own),
                    tally["rejected"],
                    tally[EQUIVALENT],
                    tally[FALSE_ACCEPT],
                )
            )
    tally = verdicts(entries)
    total = sum(n for name, n in listed.items() if name != "harmless")
    body.append(
        ("all", total, len(entries), tally["rejected"], tally[EQUIVALENT], f"**{tally[FALSE_ACCEPT]}**")
    )
    return rows(("level", "listed", "judged", "rejected", "equivalent", "false accepts"), body)


def stages_text(entries: list[Mapping]) -> str:
    levels = [level for level in LEVELS if any(e["level"] == level for e in entries)]
    counts = Counter((e["stage"], e["level"]) for e in entries if e["stage"])
    body = [
        (
            stage,
            what,
            *(counts[stage, level] or "" for level in levels),
            sum(counts[stage, level] for level in levels),
        )
        for stage, what in STAGES.items()
        if any(counts[stage, level] for level in levels)
    ]
    return "By the stage that rejected them:\n\n" + rows(("stage", "", *levels, "all"), body)


def by_operator(entries: list[Mapping]) -> str:
    groups: dict[tuple[str, str], list[Mapping]] = {}
    for entry in entries:
        groups.setdefault((entry["level"], entry["operator"]), []).append(entry)
    body = []
    for (level, operator), own in groups.items():
        tally = verdicts(own)
        stages = Counter(e["stage"] for e in own if e["stage"])
        body.append(
            (
                level,
                operator,
                len(own),
                ", ".join(f"{s} {n}" for s, n in stages.most_common()),
                tally[EQUIVALENT] or "",
                tally[FALSE_ACCEPT] or "",
            )
        )
    head = ("level", "operator", "judged", "rejected by", "equivalent", "false accepts")
    return "By operator:\n\n" + rows(head, body)


def item(entry: Mapping) -> str:
    note = entry["reason"] or entry["detail"]
    return f"- `{entry['name']}`, line {entry['line']}: `{entry['change'].replace('`', '')}`" + (
        f" ({note})" if note else ""
    )


def accepts(entries: list[Mapping]) -> str:
    found = [e for e in entries if e["verdict"] == FALSE_ACCEPT]
    text = "\n".join(map(item, found)) if found else "None."
    return f"## False accepts: {len(found)}\n\nWrong, and nothing above rejected them.\n\n{text}\n"


OWN_CALLS = """CPU code that the one call of `kdsl lower`'s trial does not reject: it takes the further calls of this
suite (rows without offsets, offsets outside). Counted strictly, for that command alone, each is a false accept. Code
for a GPU is tried by `kdsl lower` on every kind of call (`kdsl/emulate/rehearsals.py`)."""


def only_on_own_calls(entries: list[Mapping]) -> str:
    found = [e for e in entries if e["stage"] == "calls" and e["level"] == "mathematics"]
    lines = [f"{item({**e, 'reason': '', 'detail': ''})}: {e['detail']}" for e in found]
    text = "\n".join(lines) if found else "None."
    return f"## Rejected only on further calls: {len(found)}\n\n{OWN_CALLS}\n\n{text}\n"


RUNNING = ("emulator", "acceptance", "calls", "trial", "prove")


RUNNING_TEXT = """`kdsl check` accepts these; `kdsl lower` refuses to write a bundle, because the code is wrong when it
runs on the emulator. Each is a check that is missing earlier, or a schedule so slow that the emulator gave up on it."""


def only_by_running(entries: list[Mapping]) -> str:
    """Rules for a GPU that every check lets pass, and that are wrong when run."""
    found = [e for e in entries if e["level"] == "rule" and e["stage"] in RUNNING]
    found = [e for e in found if not e["subject"].startswith("cpu")]
    lines = [f"{item({**e, 'reason': '', 'detail': ''})}: {e['detail']}" for e in found]
    text = "\n".join(lines) if found else "None."
    return f"## Rules for a GPU rejected only when their code ran: {len(found)}\n\n{RUNNING_TEXT}\n\n{text}\n"


def equivalents(entries: list[Mapping]) -> str:
    tally = Counter(e["reason"] for e in entries if e["verdict"] == EQUIVALENT)
    text = "\n".join(f"- {count}: {reason}" for reason, count in tally.most_common())
    what = "Accepted, and shown to be the same program or another right one."
    return f"## Equivalent mutants\n\n{what}\n\n{text}\n"


def defects(entries: list[Mapping]) -> str:
    found = [e for e in entries if e["stage"] == "internal"]
    text = "\n".join(map(item, found)) if found else "None."
    return f"## Exceptions in place of a diagnostic: {len(found)}\n\n{text}\n"


def rejects(entries: list[Mapping], listed: int) -> str:
    found = [e for e in entries if e["stage"]]
    text = "\n".join(f"{item(e)}: {e['stage']}: {e['detail']}" for e in found) if found else "None."
    what = f"Of {listed} edits that keep the meaning {len(entries)} were tried; these were refused."
    return f"## False rejects: {len(found)}\n\n{what}\n\n{text}\n"
