"""Rules as subjects: each mutant of a rule's text goes the way of `kdsl lower`, then of `kdsl emulate`.

A subject is a rule with the tactics that it applies, under names of their own, so that both are mutated. A
rule that is still accepted may be another valid schedule: then it has to compute the operator wherever it
claims to.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from attrs import frozen

from kdsl.check import check_paths
from kdsl.check.library import Library
from kdsl.data import data_root
from kdsl.driver import rehearsal
from kdsl.driver.compile import plan_of
from kdsl.driver.contract import broken, verdicts
from kdsl.driver.emulation import LoweredProgram
from kdsl.lower.lowering import Lowering
from kdsl.lower.stir.schedule import StepRefused
from kdsl.plan.model import Plan
from kdsl.plan.refusal import PlanRefused
from kdsl.plan.specialize import SettingRefused, allowed, specialize
from kdsl.source.diagnostic import Severity

from .calls import SWITCHES
from .cuda_text import closing
from .domain import claimed_calls, claims_some_call
from .mathematics import tried
from .mutant import Mutant, applied, mutants_of
from .rule_operators import RULES
from .verdict import Outcome

TARGETS = {"cuda": "sm_90a", "cpu": "cpu"}
SEED = 31  # of the calls that the code of a GPU is run on
TACTIC = re.compile(r"^tactic (\w+)\(", re.MULTILINE)


@lru_cache(maxsize=1)
def subjects() -> dict[str, str]:
    """Every shipped rule. A tactic that several rules apply is mutated with the first of them."""
    tactics, found, used = tactic_texts(), {}, set()
    for file in sorted(
        (data_root() / "rules").rglob("*.kds"), key=lambda f: (f.stem != "mma_bounded", f.stem)
    ):
        text = file.read_text(encoding="utf-8")
        for name in re.findall(r"apply (\w+)\(", text):
            if name not in used:
                used.add(name)
                text = text.replace(f"apply {name}(", f"apply own_{name}(")
                text += tactics[name].replace(f"tactic {name}(", f"tactic own_{name}(")
        found[file.stem] = text
    return found


def tactic_texts() -> dict[str, str]:
    found = {}
    for file in sorted((data_root() / "stdlib" / "tactics").glob("*.kds")):
        text = file.read_text(encoding="utf-8")
        for match in TACTIC.finditer(text):
            opening = text.index("{", match.start())
            found[match[1]] = text[match.start() : closing(text, opening) + 1] + "\n"
    return found


def mutants() -> Iterator[Mutant]:
    for name, text in subjects().items():
        yield from mutants_of("rule", name, text, RULES)


# ---- the way of one text
@frozen(eq=False)
class Lowered:
    """A checked text's rule, lowered for the default settings of its family."""

    library: Library
    name: str
    lowering: Lowering


def checked(text: str) -> tuple[Library | None, str]:
    """The library with the text's rule, or the first error of `kdsl check`."""
    with tempfile.TemporaryDirectory(prefix="kdsl-") as folder:
        file = Path(folder, "rule.kds")
        file.write_text(text, encoding="utf-8")
        result = check_paths([file])
    errors = [d for d in result.diagnostics if d.severity is Severity.ERROR]
    return (None, f"{errors[0].code}: {errors[0].message}"[:160]) if errors else (result.library, "")


def settings_of(library: Library, name: str) -> dict[str, object]:
    """The switches on, and the first gate that the rule takes of those that are computed in the kernel."""
    rule = library.rules[name]
    gates = [gate for gate in ("bounded", "softplus", "precomputed") if allowed(rule, {"gate": gate})]
    return {**SWITCHES, "gate": (gates or ["bounded"])[0]}


def lowered(library: Library, name: str, **changes) -> Lowering:
    """Raises PlanRefused and StepRefused."""
    rule = library.rules[name]
    operator = library.operators[rule.operator]
    options = {**settings_of(library, name), **changes.get("options", {})}
    special = specialize(operator, rule, changes.get("dtypes", {}), options, changes.get("sizes", {}))
    target = next((t for t in TARGETS.values() if t in rule.targets), next(iter(rule.targets), "cpu"))
    return Lowering(plan_of(library, name, target, changes.get("choices", {}), special))


def generated(lowering: Lowering) -> tuple:
    """Everything that a launch of the code depends on."""
    texts = tuple((s.source, getattr(s, "shared_bytes", 0)) for s in lowering.sources)
    return texts, tuple((k.threads, k.grid) for k in lowering.plan.kernels)


@lru_cache(maxsize=8)
def unchanged(name: str) -> tuple:
    library, refusal = checked(subjects()[name])
    assert library is not None, refusal
    return generated(lowered(library, name))


def refused(make) -> tuple[object, Outcome | None]:
    """What `make` gives, or the outcome of its refusal."""
    try:
        return make(), None
    except PlanRefused as refusal:
        return None, Outcome("plan", f"{refusal.diagnostic.code}: {refusal.diagnostic.message}"[:160])
    except StepRefused as refusal:
        return None, Outcome("schedule", f"{refusal.diagnostic.code}: {refusal.diagnostic.message}"[:160])
    except SettingRefused as refusal:
        return None, Outcome("plan", str(refusal)[:160])


def judge(mutant: Mutant) -> Outcome:
    return judge_text(applied(subjects()[mutant.subject], mutant.edits), mutant.subject)


def judge_text(text: str, subject: str) -> Outcome:
    library, refusal = checked(text)
    if library is None:
        return Outcome("check", refusal)
    name = next((n for n in library.rules), None)
    if name is None:
        return Outcome("check", "no rule is left")
    lowering, outcome = refused(lambda: made(lowered(library, name)))
    if outcome is not None:
        return outcome
    before, now = original(subject), claims(lowering.plan)
    if generated(lowering) == unchanged(subject) and now == before:
        return Outcome(reason="same generated code", same_code=True)
    calls = claimed_calls(library, name, now.requires == before.requires, before.choices)
    return judged_code(library, name, lowering, calls)


def made(lowering: Lowering) -> Lowering:
    assert lowering.sources is not None
    return lowering


@frozen
class Claims:
    """What a rule requires, promises and lets a tuner choose."""

    requires: tuple[str, ...]
    promises: tuple[str, ...]
    choices: Mapping[str, tuple]


def claims(plan: Plan) -> Claims:
    kernels = [claim for kernel in plan.point.kernels for claim in kernel.ensure]
    texts = [
        sorted(c.predicate.span.text for c in group)
        for group in (plan.rule.require, (*plan.point.ensure, *kernels))
    ]
    return Claims(tuple(texts[0]), tuple(texts[1]), dict(plan.rule.choices))


@lru_cache(maxsize=8)
def original(subject: str) -> Claims:
    library, _ = checked(subjects()[subject])
    return claims(lowered(library, subject).plan)


def judged_code(library: Library, name: str, lowering: Lowering, calls) -> Outcome:
    """Results where the rule claims to be right, then its contract."""
    for label, changes in calls:
        special, outcome = refused(lambda c=changes: made(lowered(library, name, **c)))
        if outcome is not None:
            return (
                outcome if label == "default" else Outcome("plan", f"late, {label}: {outcome.detail}"[:160])
            )
        stage, detail = results(special, changes)
        if stage:
            return Outcome(stage if label == "default" else "calls", f"{label}: {detail}"[:200])
    failed = broken(verdicts(lowering)) if lowering.plan.target.family == "cuda" else ()
    failed = [v for v in failed if not v.clause.startswith("error within")]
    if failed:
        return Outcome(
            "contract", f"{failed[0].clause}: {failed[0].status.value}, found {failed[0].found}"[:160]
        )
    if not claims_some_call(library, name):
        return Outcome(detail="no call meets what it requires, and nothing said so")
    return Outcome(
        reason="another rule: right within the acceptance on every call tried, and its promises hold"
    )


def results(lowering: Lowering, changes: Mapping[str, object]) -> tuple[str, str]:
    """(stage, finding) of the code's results, or two empty texts."""
    if lowering.plan.target.family == "cpu":
        found = tried(lowering.plan, lowering, 1)
        return ("trial", found) if found else ("", "")
    for number, one in enumerate(rehearsal.runs(LoweredProgram(lowering), SEED)):
        if one.refusal is not None:
            return "compiler", str(one.refusal)[:160]
        if one.complaint:
            stage = "acceptance" if "is rejected" in one.complaint else "emulator"
            return stage if number == 0 else "calls", f"{one.call}: {one.complaint}"[:160]
    return "", ""
