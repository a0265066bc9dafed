"""The straight line from a rule to a bundle, and the compiler's answer to a call that no bundle fits."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from attrs import evolve, field, frozen

from kdsl.bundle.cache import Cache
from kdsl.bundle.write import write_bundle
from kdsl.check.evaluate import decide
from kdsl.check.library import Library
from kdsl.check.model import Specialization
from kdsl.check.rules import rule_at
from kdsl.contract.verdict import Status, Verdict
from kdsl.data import data_root
from kdsl.driver.versions import compiler_lines, versions
from kdsl.plan.derive import derive
from kdsl.plan.layout import layout_options
from kdsl.plan.listing import settings_text
from kdsl.plan.model import Plan

RULES_VARIABLE = "KDSL_RULES"
log = logging.getLogger("kdsl.driver")


@frozen
class NoRule(Exception):
    """No rule claims the call; `refusals` say why, one line a rule."""

    call: str
    refusals: tuple[str, ...] = field(factory=tuple)

    def __str__(self) -> str:
        return "\n  ".join([f"no rule claims {self.call}", *self.refusals])


@frozen
class RulesWrong(Exception):
    """The rules in scope do not check."""

    findings: str

    def __str__(self) -> str:
        return f"the rules in scope have errors; `kdsl check` says more:\n{self.findings}"


@frozen
class ContractFailed(Exception):
    """A clause of `ensure` does not hold for the code that was made, so no bundle is written."""

    rule: str
    verdicts: tuple[Verdict, ...]
    made_for: str = ""  # target, settings and dtypes

    def __str__(self) -> str:
        lines = [f"rule `{self.rule}`: its contract does not hold, so no bundle is written"]
        lines += [f"made for {self.made_for}"] if self.made_for else []
        for v in self.verdicts:
            where = f"{v.span.path}:{v.span.line}"
            known = f"; found {v.found}, needed {v.needed or v.clause}" if v.found else ""
            lines.append(f"{where}: `{v.clause}`: {v.told}{known}{f'; {v.note}' if v.note else ''}")
        return "\n  ".join(lines)


@lru_cache(maxsize=1)
def shipped_library() -> Library:
    """The standard library, the shipped rules, and the files and folders of KDSL_RULES. Raises RulesWrong."""
    from kdsl.check import check_paths
    from kdsl.source.render.text import render_text

    more = filter(None, os.environ.get(RULES_VARIABLE, "").split(os.pathsep))
    result = check_paths([data_root() / "rules", *map(Path, more)])
    if not result.ok:
        raise RulesWrong(render_text(result.diagnostics))
    return result.library


def plan_of(
    library: Library, rule: str, target: str, choices: Mapping[str, object], specialization: Specialization
) -> Plan:
    """The plan of a rule on a target. Raises PlanRefused."""
    found = library.rules[rule]
    point = rule_at(found, library.targets[target], {**found.defaults_on(target), **choices}, library.tactics)
    return derive(point, library.operators[found.operator], specialization)


def content_key(plan: Plan) -> str:
    """The sha256 of everything that makes the bundle: texts, choices, specialization, versions, flags, the compiler."""
    point, special = plan.point, plan.specialization
    parts = {
        "versions": versions(), "compiler": compiler_lines(plan.target),
        "rule": plan.rule.declaration.span.text, "operator": plan.operator.declaration.span.text,
        "target": [point.target.name, sorted(map(str, point.target.fields.items()))],
        "kernels": repr(point.kernels), "choices": sorted(map(str, point.choices.items())),
        "dtypes": sorted(special.dtypes.items()), "options": sorted(map(str, special.options.items())),
        "sizes": sorted(special.sizes.items()), "source": source_digest(),
    }  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


# What a bundle and the verdicts in it come from, beside the texts that the key has by themselves.
MAKERS = (
    "bundle", "syntax", "check", "contract", "plan", "lower", "inspect", "emulate", "prove", "validate", "driver",
)  # fmt: skip


@lru_cache(maxsize=1)
def source_digest() -> str:
    """The compiler itself, its grammar and the instructions it knows: a change of them makes other bundles."""
    package = Path(__file__).resolve().parent.parent
    folders = [*(package / name for name in MAKERS), data_root() / "grammar", data_root() / "stdlib" / "instructions"]
    digest = hashlib.sha256()
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(file.read_bytes())
    return digest.hexdigest()


def without_oracle(verdict: Verdict, plan: Plan) -> Verdict:
    """An open verdict on the error of an operator that kdsl cannot judge says so."""
    from kdsl.contract.decide import RUN
    from kdsl.driver.trial import TRIALS

    if verdict.note != RUN or plan.operator.name in TRIALS:
        return verdict
    note = f"kdsl has no oracle for {plan.operator.name}: leave the clause out, and test the bundle"
    return evolve(verdict, note=note)


def build(plans: Sequence[Plan], path: Path, replace: bool = False, proved: bool = False) -> Path:
    """One bundle with a variant for each plan; `proved` puts a verdict on `same_algorithm` into each, and refuses
    what is proved wrong. Raises ContractFailed, StepRefused, ToolMissing, BundleExists."""
    from kdsl.driver.contract import broken, record, verdicts, with_algorithm
    from kdsl.driver.package import manifest_of, variant_files
    from kdsl.lower.lowering import Lowering

    variants, files = [], {}
    for plan in plans:
        lowering = Lowering(plan)
        variant, own = variant_files(lowering, content_key(plan))
        with tempfile.TemporaryDirectory(prefix="kdsl-") as folder:
            trial = write_bundle(Path(folder) / "trial.kdsb", manifest_of((plan,), (variant,)), own)
            found = verdicts(lowering, trial)
        failed = tuple(without_oracle(v, plan) for v in broken(found))
        if proved and not failed:
            found = with_algorithm(found, lowering)
            failed = tuple(v for v in found if v.status is Status.FAILS)
        if failed:
            dtypes = ", ".join(f"{name} {dtype}" for name, dtype in plan.specialization.dtypes.items())
            raise ContractFailed(plan.rule.name, failed, f"{plan.target.name}, {settings_text(plan)}, {dtypes}")
        variants.append(evolve(variant, verdicts=tuple(record(v) for v in found)))
        files.update(own)
    return write_bundle(path, manifest_of(tuple(plans), tuple(variants)), files, replace=replace)


def bundle_for(request, proved: bool = False) -> Path:
    """A bundle for a call (`kdsl.runtime.request.CallRequest`), from the cache or made now; `proved` as in `build`.

    Raises RulesWrong, and whatever `plan_for` and `build` raise.
    """
    return cached(plan_for(shipped_library(), request), proved)


def cached(plan: Plan, proved: bool = False) -> Path:
    """The bundle of a plan in the cache, made now if it is not there. Raises whatever `build` raises."""
    key = content_key(plan)
    if proved:
        key = hashlib.sha256(f"proved {key}".encode()).hexdigest()
    return Cache().put(key, lambda path: build([plan], path, proved=proved))


def plan_for(library: Library, request) -> Plan:
    """The plan of the one rule that claims a call. Raises NoRule with every rule's refusal, PlanRefused."""
    from kdsl.contract.select import select

    if request.target not in library.targets:
        raise NoRule(str(request), (f"no target is called {request.target}",))
    options = {**request.options, **meaningful_scalars(library.operators[request.operator], request)}
    selection = select(
        library, request.target, request.operator, request.sizes, request.dtypes, options, request.given
    )
    for refusal in selection.refusals:
        log.info("rule `%s` refuses: %s", refusal.rule, refusal)
    chosen = selection.chosen
    if chosen is None:
        raise NoRule(str(request), tuple(_refusal_lines(selection)))
    operator = library.operators[request.operator]
    log.info("rule `%s` takes the call", chosen.rule.name)
    return derive(chosen.point, operator, specialization_of(operator, chosen.rule, selection.call, request))


def meaningful_scalars(operator, request) -> dict[str, float]:
    """The numbers of a call that its options give a meaning: `lower_bound` where the gate is bounded."""
    found = {}
    for name, value in request.scalars.items():
        option = operator.options.get(name)
        if option is not None and (option.condition is None or decide(option.condition, request.options) is not False):
            found[name] = value
    return found


def specialization_of(operator, rule, call, request) -> Specialization:
    """What the call fixes: dtypes of its tensors, its options, the sizes that shape tensors."""
    by_strides, _ = layout_options(operator, rule)
    options = {
        name: request.options.get(name, call.options.get(name))
        for name, option in operator.options.items()
        if option.kind != "scalar" and name not in by_strides
    }
    sizes = {name: request.sizes[name] for name in operator.static_sizes}
    return Specialization({**call.dtypes, **request.dtypes}, options, sizes)


def _refusal_lines(selection) -> Iterable[str]:
    if len(selection.claims) > 1:
        yield f"several rules claim it: {', '.join(claim.rule.name for claim in selection.claims)}"
    for refusal in selection.refusals:
        yield f"rule `{refusal.rule}`: {refusal}"
