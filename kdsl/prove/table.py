"""Proofs as a table for people: one row for programs that compute alike, with the targets that share them."""

from __future__ import annotations

from collections.abc import Iterable

from kdsl.prove.jobs import Job
from kdsl.prove.proof import FIELD, Proof

HEAD = ("subject", "targets", "choices or form, options", "verdict", "calls", "trials", "degree", "false accept", "s")


def markdown(proofs: Iterable[tuple[Job, Proof]]) -> str:
    """Markdown of all proofs; seconds are those of the first proof, an equal program is proved once."""
    rows: dict[tuple, list[tuple[Job, Proof]]] = {}
    for job, proof in proofs:
        rows.setdefault((job.subject, job.said, proof.verdict, proof.digest), []).append((job, proof))
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += ["| " + " | ".join(cells(same)) + " |" for same in rows.values()]
    return "\n".join(lines) + "\n"


def cells(same: list[tuple[Job, Proof]]) -> tuple[str, ...]:
    job, proof = min(same, key=lambda pair: pair[1].recalled)
    targets = ", ".join(dict.fromkeys(j.target for j, _ in same if j.target))
    common = (f"`{job.subject}`", targets, job.said)
    if proof.verdict != FIELD:
        return (*common, f"**{proof.verdict}**: {proof.found}".replace("|", "\\|"), "", "", "", "", "")
    degree = max(case.degree for case in proof.cases)
    numbers = (str(len(proof.cases)), str(proof.trials), str(degree), f"{proof.bound:.0e}", f"{proof.seconds:.1f}")
    return (*common, proof.verdict, *numbers)
