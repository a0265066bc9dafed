"""E502: two rules for one operator and target that claim the same call and schedule it differently.

A call that both claim is found by search and shown; it proves the overlap. If none is found, nothing is said,
even where the search could not prove that there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from attrs import frozen

from kdsl.check.evaluate import decide
from kdsl.check.findings import Findings
from kdsl.check.model import names_in
from kdsl.check.rule_lines import RuleNames
from kdsl.check.sizes import conjuncts
from kdsl.contract.calls import call_text
from kdsl.contract.conditions import Condition
from kdsl.contract.satisfy import search
from kdsl.source.diagnostic import Diagnostic, Evidence, Label
from kdsl.syntax import nodes as n


def check_conflicts(rules: Iterable[RuleNames], findings: Findings) -> None:
    """Every pair of rules that have a target in common; for a rule, the first other one that it overlaps."""
    by_operator: dict[str, list[RuleNames]] = {}
    for rule in rules:
        by_operator.setdefault(rule.operator.name, []).append(rule)
    for group in by_operator.values():
        bounds = [Bounds.of(rule) for rule in group]
        for position, second in enumerate(group):
            for other, first in enumerate(group[:position]):
                shared = [t for t in first.targets if t.name in {u.name for u in second.targets}]
                if not shared or bounds[other].apart(bounds[position]) or _same_schedule(first, second):
                    continue
                if _pair(first, second, shared, findings):
                    break


@frozen
class Bounds:
    """What a rule's clauses say of one name at a time; enough to see that most pairs of rules have nothing in
    common.
    """

    values: Mapping[str, frozenset]
    ends: Mapping[str, tuple[float, float]]

    @classmethod
    def of(cls, rule: RuleNames) -> Bounds:
        values: dict[str, frozenset] = {}
        ends: dict[str, tuple[float, float]] = {}
        for claim in rule.require:
            predicate = claim.predicate
            if isinstance(predicate, n.Typed):
                if not any(d.like for d in predicate.dtypes):
                    for name in predicate.names:
                        _narrow(values, f"dtype.{name.text}", frozenset(d.name for d in predicate.dtypes))
                continue
            for atom in conjuncts(predicate):
                _bound(atom, values, ends, rule.operator.sizes)
        return cls(values, ends)

    def apart(self, other: Bounds) -> bool:
        if any(not self.values[k] & other.values[k] for k in self.values.keys() & other.values.keys()):
            return True
        for name in self.ends.keys() & other.ends.keys():
            (a, b), (c, d) = self.ends[name], other.ends[name]
            if max(a, c) > min(b, d):
                return True
        return False


def _narrow(values: dict[str, frozenset], name: str, found: frozenset) -> None:
    values[name] = values[name] & found if name in values else found


def _bound(atom: n.Node, values: dict[str, frozenset], ends: dict[str, tuple[float, float]], sizes) -> None:
    """Add what `X == 4`, `X < 4` or `gate is bounded` says."""
    if isinstance(atom, n.IsOption) and isinstance(atom.subject, n.Name):
        _narrow(values, atom.subject.text, frozenset((atom.option.text,)))
    if not (isinstance(atom, n.Comparison) and isinstance(atom.left, n.Name)):
        return
    value = decide(atom.right, {})
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return
    name = atom.left.text
    low, high = ends.get(name, (-inf, inf))
    step = 1 if isinstance(value, int) and name in sizes else 0  # sizes are whole numbers
    limits = {"==": (value, value), "<=": (-inf, value), ">=": (value, inf), "<": (-inf, value - step),
              ">": (value + step, inf)}  # fmt: skip
    a, b = limits.get(atom.operator, (-inf, inf))
    ends[name] = (max(low, a), min(high, b))


def _same_schedule(first: RuleNames, second: RuleNames) -> bool:
    """Whether the two differ only in name, text and requirements."""

    def schedule(rule: RuleNames):
        return [item for item in rule.declaration.items
                if not isinstance(item, n.Doc) and not (isinstance(item, n.Block)
                                                        and item.kind in ("require", "measure"))]  # fmt: skip

    return schedule(first) == schedule(second)


def _pair(first: RuleNames, second: RuleNames, shared, findings: Findings) -> bool:
    """Whether a call was found that both claim."""
    claims = [*first.require, *second.require]
    speaks_of_target = any(x.startswith("target.") for c in claims for x in names_in(c.predicate))
    differ = speaks_of_target or first.target_defaults or second.target_defaults
    for target in shared if differ else shared[:1]:
        env = {f"target.{name}": value for name, value in target.fields.items()}
        call = common_call(first, second, env, target.name)
        if call is None:
            continue
        name, other = second.declaration.name, first.declaration.name
        findings.add(Diagnostic(
            "E502", f"rules `{other.text}` and `{name.text}` both claim calls of {first.operator.name} on "
                    f"{target.name}, and schedule them differently",
            name.span, label="claims it", labels=(Label(other.span, "claims it too"),),
            observed="2 rules claim a call",
            required="1", evidence=Evidence.PROVED, notes=(f"for example {call_text(first.operator, call)}",),
            help=("add a clause to `require` of one of them that the other one excludes"
                  + _clauses(first, second, call, env, target.name),)))  # fmt: skip
        return True
    return False


def _clauses(
    first: RuleNames, second: RuleNames, call: Mapping[str, object], env: Mapping[str, object], target: str
) -> str:
    """Two such clauses about a size that the rules speak of: the call goes to one rule, and the other keeps calls."""
    spoken = {x for rule in (first, second) for c in rule.require for x in names_in(c.predicate)}
    for size in (x for x in first.operator.sizes if x in spoken and isinstance(call.get(x), int)):
        for taker, keeper in ((first, second), (second, first)):
            span = taker.declaration.name.span
            equal = n.Comparison(span, "==", n.Name(span, size), n.Number(span, str(call[size])))
            rest = [*(Condition(c.predicate) for c in keeper.require), Condition(equal, False)]
            if search(first.operator, rest, {**env, **keeper.defaults_on(target)}).call is not None:
                return (f", as `{size} == {call[size]}` in `{taker.declaration.name.text}` and "
                        f"`{size} != {call[size]}` in `{keeper.declaration.name.text}`")  # fmt: skip
    return ""


def common_call(
    first: RuleNames, second: RuleNames, env: Mapping[str, object], target: str
) -> Mapping[str, object] | None:
    """A call that meets the requirements of both, at the default choices on the target."""
    both = [Condition(c.predicate) for rule in (first, second) for c in rule.require]
    known = {**env, **{k: v for rule in (first, second) for k, v in rule.defaults_on(target).items()}}
    return search(first.operator, both, known).call
