"""Run a probe through a kernel and say whether the kernel passes, with every number that decided it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kdsl.validate.acceptance import Acceptance, acceptance
from kdsl.validate.call import Call, Run, copy_of, digest, reference
from kdsl.validate.influence import Movement, movements
from kdsl.validate.probes import Probe


@dataclass(frozen=True)
class Finding:
    """Something that an honest kernel does not do: which check saw it, and what it saw."""

    check: str
    detail: str

    def explain(self) -> str:
        return f"{self.check}: {self.detail}"


@dataclass(frozen=True)
class Verdict:
    """All that was seen of one kernel on one probe. `results` has one Acceptance per run."""

    probe: str
    results: tuple[Acceptance, ...]
    movements: tuple[Movement, ...]
    findings: tuple[Finding, ...]

    @property
    def accepted(self) -> bool:
        """At least one run, all of them accepted, every influence seen, and nothing found."""
        return (
            bool(self.results)
            and all(result.accepted for result in self.results)
            and all(movement.moved for movement in self.movements)
            and not self.findings
        )

    def explain(self) -> str:
        """Why the kernel is rejected, at most three reasons and the count of all; or that it is accepted."""
        reasons = [result.explain() for result in self.results if not result.accepted]
        reasons += [movement.explain() for movement in self.movements if not movement.moved]
        reasons += [finding.explain() for finding in self.findings]
        if not reasons:
            return f"{self.probe}: accepted in {len(self.results)} runs."
        return f"{self.probe}: rejected for {len(reasons)} reasons. " + " ".join(reasons[:3])


def changed_arrays(before: dict[str, str], call: Call) -> list[str]:
    """Names of the arrays of `call` whose digest is no longer the one in `before`."""
    after = digest(call)
    return [name for name in before if after[name] != before[name]]


def judge(probe: Probe, run: Run) -> Verdict:
    """Run every call of `probe` with `run` and compare with the oracle; the probe itself stays as it was."""
    results: list[Acceptance] = []
    moved: list[Movement] = []
    findings: list[Finding] = []

    def once(call: Call) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        needed, before = reference(call), digest(call)
        found = tuple(None if x is None else np.array(x) for x in run(call))
        for name in changed_arrays(before, call):
            findings.append(Finding(probe.name, f"the kernel wrote to its input {name}"))
        results.append(acceptance(*found, *needed, state_rms_limit=probe.state_rms_limit))
        return found, needed

    call = copy_of(probe.call)
    base = once(copy_of(call) if probe.influences else call)
    for contents in probe.refills:
        call["cu_seqlens"][...] = contents
        once(call)
    for check in probe.influences:
        after = once(check.changed(call))
        moved += movements(check, base[0], after[0], base[1], after[1])
    return Verdict(probe.name, tuple(results), tuple(moved), tuple(findings))
