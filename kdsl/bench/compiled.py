"""Bundles of rules for the published cases: the only part of `kdsl.bench` that needs the compiler."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from attrs import evolve

from kdsl.bench.cases import GATES, OPTIONS, SOFTPLUS, Case
from kdsl.bench.subjects import NotCompiled, NotUsable
from kdsl.check import check_paths
from kdsl.check.library import Library
from kdsl.check.model import Rule
from kdsl.driver.ahead import Described
from kdsl.driver.compile import ContractFailed, NoRule, cached, plan_for
from kdsl.lower.stir.schedule import StepRefused
from kdsl.lower.toolchain.cc import ToolMissing
from kdsl.lower.tvm import TvmMissing
from kdsl.plan.model import Plan
from kdsl.plan.refusal import PlanRefused
from kdsl.source.render.text import render_text
from kdsl.validate.probes import LOWER_BOUND

# Sizes that follow from the others, or from the boundaries that a call may give.
IMPLIED = {"kda.chunk_forward": ("N", "HV"), "kda.decode": ("HV",)}


def compiled(paths: Sequence[Path], target: str, cases: Sequence[Case]) -> list[Path]:
    """A bundle from the cache for each rule of the files that is for the target and takes a case.

    Raises NotCompiled, NotUsable.
    """
    library = library_of(paths)
    found = []
    for rule in library.rules.values():
        own = [case for case in cases if case.operator == rule.operator]
        if own and target in rule.targets:
            found.append(_bundle(plan_for_cases(library, rule, target, own)))
    if not found:
        names = ", ".join(f"{rule.name} ({', '.join(rule.targets)})" for rule in library.rules.values()) or "none"
        raise NotUsable(f"no rule takes one of the cases on {target}; rules found: {names}")
    return found


def library_of(paths: Iterable[Path]) -> Library:
    """The rules of the files, checked. Raises NotCompiled with what is wrong."""
    result = check_paths(list(paths))
    if not result.ok:
        raise NotCompiled(render_text(result.diagnostics).rstrip())
    return result.library


def plan_for_cases(library: Library, rule: Rule, target: str, cases: Sequence[Case]) -> Plan:
    """The plan of the rule for the first case and gate that it takes. Raises NotCompiled with every refusal."""
    alone, refused = evolve(library, rules={rule.name: rule}), []
    for case in cases:
        for gate in GATES:
            try:
                return plan_for(alone, described(library, evolve(case, gate=gate)).request(library, target))
            except NoRule as refusal:
                refused.append(str(refusal))
            except PlanRefused as refusal:
                refused.append(render_text([refusal.diagnostic]).rstrip())
    raise NotCompiled("\n".join(refused))


def described(library: Library, case: Case) -> Described:
    """The case as a call that nobody has made yet."""
    operator = library.operators[case.operator]
    sizes = {name: size for name, size in case.sizes.items() if name not in IMPLIED[case.operator]}
    options = {name: value for name, value in OPTIONS.items() if name in operator.options} | {"gate": case.gate}
    if case.gate != SOFTPLUS:
        options["lower_bound"] = LOWER_BOUND
    return Described(case.operator, sizes, {}, options)


def _bundle(plan: Plan) -> Path:
    try:
        return cached(plan)
    except (ContractFailed, ToolMissing, TvmMissing) as failure:
        raise NotCompiled(str(failure)) from None
    except (PlanRefused, StepRefused) as refusal:
        raise NotCompiled(render_text([refusal.diagnostic]).rstrip()) from None
