"""E502: two rules for one operator and target that claim the same call and schedule it differently.

A call that both claim is found by search and shown; it proves the overlap. If none is found, nothing is said, even
where the search could not prove that there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations

from kdsl.check.findings import Findings
from kdsl.check.model import names_in
from kdsl.check.rule_lines import RuleNames
from kdsl.contract.calls import call_text
from kdsl.contract.satisfy import Condition, search
from kdsl.source.diagnostic import Diagnostic, Evidence, Label
from kdsl.syntax import nodes as n


def check_conflicts(rules: Iterable[RuleNames], findings: Findings) -> None:
    """Every pair of rules that have a target in common; one finding a pair."""
    by_operator: dict[str, list[RuleNames]] = {}
    for rule in rules:
        by_operator.setdefault(rule.operator.name, []).append(rule)
    for group in by_operator.values():
        for first, second in combinations(group, 2):
            shared = [t for t in first.targets if t.name in {u.name for u in second.targets}]
            if shared and not _same_schedule(first, second):
                _pair(first, second, shared, findings)


def _same_schedule(first: RuleNames, second: RuleNames) -> bool:
    """Whether the two differ only in name, text and requirements."""
    def schedule(rule: RuleNames):
        return [item for item in rule.declaration.items
                if not isinstance(item, n.Doc) and not (isinstance(item, n.Block) and item.kind in ("require", "measure"))]  # fmt: skip

    return schedule(first) == schedule(second)


def _pair(first: RuleNames, second: RuleNames, shared, findings: Findings) -> None:
    claims = [*first.require, *second.require]
    speaks_of_target = any(x.startswith("target.") for c in claims for x in names_in(c.predicate))
    for target in shared if speaks_of_target else shared[:1]:
        env = {f"target.{name}": value for name, value in target.fields.items()}
        call = common_call(first, second, env)
        if call is None:
            continue
        name, other = second.declaration.name, first.declaration.name
        findings.add(Diagnostic(
            "E502", f"rules `{other.text}` and `{name.text}` both claim calls of {first.operator.name} on {target.name}",
            name.span, label="claims it", labels=(Label(other.span, "claims it too"),), observed="2 rules claim a call",
            required="1", evidence=Evidence.PROVED, notes=(f"for example {call_text(first.operator, call)}",),
            help=("add a clause to `require` of one of them that the other one excludes",)))  # fmt: skip
        return


def common_call(first: RuleNames, second: RuleNames, env: Mapping[str, object]) -> Mapping[str, object] | None:
    """A call that meets the requirements of both, at the default choices."""
    both = [Condition(c.predicate) for rule in (first, second) for c in rule.require]
    known = {**env, **{k: v for rule in (first, second) for k, v in rule.defaults.items()}}
    return search(first.operator, both, known).call
