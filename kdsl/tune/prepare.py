"""The half of tuning that needs the compiler: every choose point of a rule lowered and judged, into a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from attrs import evolve

from kdsl.bench.cases import Case
from kdsl.bench.compiled import described, plan_for_cases
from kdsl.bench.subjects import NotUsable
from kdsl.bundle.errors import BundleError
from kdsl.bundle.load import read_bundle
from kdsl.check.library import Library
from kdsl.check.model import Rule
from kdsl.check.rules import points
from kdsl.contract.select import Claimed, consider
from kdsl.driver.compile import ContractFailed, build, content_key, plan_of
from kdsl.driver.package import variant_id
from kdsl.lower.stir.schedule import StepRefused
from kdsl.lower.toolchain.cc import CompilerFailed
from kdsl.plan.model import Plan
from kdsl.plan.refusal import PlanRefused
from kdsl.tune.prepared import FILE, POINTS, Point, Prepared, code_of, read


class Space:
    """The points of a rule on a target for the first case and gate that the rule takes.

    `only` has for some choices the values that are walked; the default point is walked in any case, to compare with.
    Raises NotCompiled if the rule takes no case, NotUsable for a choice or value that it does not have.
    """

    def __init__(
        self, library: Library, rule: Rule, target: str, cases: Sequence[Case],
        only: Mapping[str, Sequence[object]] = {},
    ) -> None:  # fmt: skip
        self.library, self.rule, self.target, self.only = library, rule, target, only
        for name, values in only.items():
            if not set(values) <= set(rule.choices.get(name, ())):
                allowed = ", ".join(f"{n} in {list(v)}" for n, v in rule.choices.items()) or "nothing"
                raise NotUsable(f"rule {rule.name} cannot choose {name} = {values}; it chooses {allowed}")
        first = plan_for_cases(library, rule, target, cases)
        self.special = first.specialization
        self.gate = str(self.special.options["gate"])
        self.call = described(library, evolve(cases[0], gate=self.gate)).completed(library)

    def __iter__(self):
        default = self.rule.defaults_on(self.target)
        for choices in points(self.rule, self.target):
            if choices == default or all(choices[name] in values for name, values in self.only.items()):
                yield choices

    def plan(self, choices: Mapping[str, object]) -> Plan:
        """Raises PlanRefused."""
        return plan_of(self.library, self.rule.name, self.target, choices, self.special)

    def refused(self, choices: Mapping[str, object]) -> list[str]:
        """Why the rule does not take the call at this point, by arithmetic alone: before anything is lowered."""
        only = evolve(
            self.rule, choices={name: (value,) for name, value in choices.items()}, defaults=dict(choices),
            target_defaults={},
        )  # fmt: skip
        answer = consider(self.library, only, self.library.targets[self.target], self.call)
        return [] if isinstance(answer, Claimed) else [f"{refusal.clause}: {refusal}" for refusal in answer]


def prepare(space: Space, folder: Path, tell: Callable[[str], None]) -> Prepared:
    """Lower and judge every point that the folder does not have yet, and keep each as soon as it is done.

    Raises ToolMissing, TvmMissing; OSError where the folder cannot be written.
    """
    (folder / POINTS).mkdir(parents=True, exist_ok=True)
    before = {point.key: point for point in read(folder).points} if (folder / FILE).exists() else {}
    done = Prepared(space.rule.name, space.rule.operator, space.target, space.gate,
                    space.rule.defaults_on(space.target), len(list(space)))  # fmt: skip
    for choices in space:
        point = _point(space, folder, choices, before)
        done = evolve(done, points=(*done.points, point))
        done.write(folder)
        tell(f"{point.name}: {point.bundle or 'discarded: ' + '; '.join(point.reasons)}")
    return done


def _point(space: Space, folder: Path, choices: Mapping[str, object], before: Mapping[str, Point]) -> Point:
    try:
        plan = space.plan(choices)
    except PlanRefused as refusal:
        return Point(choices, "", reasons=(_said(refusal),))
    key = content_key(plan)
    name = "-".join(f"{name}_{value}" for name, value in choices.items()) or "only"
    place = f"{POINTS}/{name}.kdsb"
    if key in before and before[key].reasons:
        return evolve(before[key], choices=choices)
    if made := _made(folder / place, key):
        return Point(choices, key, place, made)
    if reasons := space.refused(choices):
        return Point(choices, key, reasons=reasons)
    try:
        bundle = read_bundle(build([plan], folder / place, replace=True))
    except ContractFailed as failure:
        return Point(choices, key, reasons=tuple(f"`{v.clause}`: {v.told}, found {v.found}" for v in failure.verdicts))
    except (PlanRefused, StepRefused) as refusal:
        return Point(choices, key, reasons=(_said(refusal),))
    except CompilerFailed as failure:
        return Point(choices, key, reasons=(" ".join(str(failure).split()),))
    return Point(choices, key, place, code_of(bundle))


def _said(refusal: PlanRefused | StepRefused) -> str:
    return f"{refusal.diagnostic.code}: {refusal.diagnostic.message}"


def _made(path: Path, key: str) -> str:
    """The code of a bundle that was built for the key before, also if that was interrupted behind it; else ""."""
    try:
        bundle = read_bundle(path)
    except BundleError:
        return ""
    return code_of(bundle) if [v.id for v in bundle.manifest.variants] == [variant_id(key)] else ""
