"""Bundles for calls that nobody has made yet: described as for `kdsl select`, built before they are needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from attrs import field, frozen

from kdsl.check.library import Library
from kdsl.contract.call import Call, complete_call
from kdsl.driver.compile import NoRule, build, cached, content_key, plan_for
from kdsl.plan.model import Plan
from kdsl.runtime.request import CallRequest


@frozen
class Described:
    """A call of an operator: what is not said follows from its laws and defaults."""

    operator: str
    sizes: Mapping[str, int] = field(factory=dict)
    dtypes: Mapping[str, str] = field(factory=dict)
    options: Mapping[str, object] = field(factory=dict)
    given: Mapping[str, bool] = field(factory=dict)

    def completed(self, library: Library) -> Call:
        """The call with what follows. Raises WrongCall."""
        return complete_call(library.operators[self.operator], self.sizes, self.dtypes, self.options, self.given)

    def request(self, library: Library, target: str) -> CallRequest:
        """The request that such a call makes on a device. Raises WrongCall."""
        operator, call = library.operators[self.operator], self.completed(library)
        scalars = {name for name, option in operator.options.items() if option.kind == "scalar"}
        options = {name: value for name, value in call.options.items() if name not in scalars}
        # The dtypes of optional tensors are part of the code, whether one call has them or not.
        return CallRequest(
            self.operator, target, call.dtypes, options, call.sizes, call.given,
            {name: value for name, value in self.options.items() if name in scalars},
        )  # fmt: skip


def plans_for(library: Library, calls: Iterable[Described], targets: Iterable[str]) -> tuple[list[Plan], list[NoRule]]:
    """A plan for each call on each target, each once, and what no rule claims. Raises WrongCall, PlanRefused."""
    plans, refused = {}, []
    for call in calls:
        for target in targets:
            try:
                plan = plan_for(library, call.request(library, target))
            except NoRule as refusal:
                refused.append(refusal)
            else:
                plans.setdefault(content_key(plan), plan)
    return list(plans.values()), refused


def precompile(
    plans: Iterable[Plan], folder: Path | None, proved: bool = False
) -> Iterator[tuple[Path, list[Plan]]]:
    """Bundles of the plans as they are made: one for each rule in `folder`, or each plan's own in the cache.

    `proved` as in `build`. Raises whatever `build` raises.
    """
    if folder is None:
        for plan in plans:
            yield cached(plan, proved), [plan]
        return
    of_rule: dict[str, list[Plan]] = {}
    for plan in plans:
        of_rule.setdefault(plan.rule.name, []).append(plan)
    folder.mkdir(parents=True, exist_ok=True)
    for name, own in of_rule.items():
        yield build(own, folder / f"{name}.kdsb", replace=True, proved=proved), own
