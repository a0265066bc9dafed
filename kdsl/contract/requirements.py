"""What `require` takes: a call at least (E503) at every choose point (W505), and not every one (W503)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kdsl.check.evaluate import AT_LAUNCH, NotStatic, Undecided
from kdsl.check.findings import listed, warning
from kdsl.check.graph import strip
from kdsl.check.model import names_in
from kdsl.check.points import choice_points
from kdsl.check.rule_lines import RuleNames
from kdsl.check.rules import form_setting
from kdsl.check.sizes import conjuncts
from kdsl.contract.conditions import Condition, variables
from kdsl.contract.decide import clause_text
from kdsl.contract.satisfy import Outcome, search
from kdsl.source.diagnostic import Diagnostic, Evidence, Label
from kdsl.syntax import nodes as n


def check_requirements(rule: RuleNames) -> None:
    """E503: no call meets them; W505: none at some choose point; W506: none was found; W503: every call does."""
    targets = rule.targets or (None,)
    if not any(x.startswith("target.") for c in rule.require for x in variables(c.predicate)):
        targets = targets[:1]  # they differ in nothing that a requirement reads
    claims = [c for c in rule.require if not _depends_on_choices(rule, c)]
    envs = {t.name if t is not None else "": _fields(t) for t in targets}
    found = {name: _outcome(rule, claims, env) for name, env in envs.items()}
    never = [name for name, outcome in found.items() if outcome.refuted]
    open_ = [name for name, outcome in found.items() if outcome.call is None and not outcome.refuted]
    if never:
        _unsatisfiable(rule, claims, envs[never[0]], f" on {listed(never)}" if len(never) < len(envs) else "")
        return
    if open_:
        _undecided(rule, claims, f" on {listed(open_)}" if len(open_) < len(envs) else "")
    elif len(claims) < len(rule.require) and rule.form_whole:
        _at_points(rule, envs)
    for claim in claims:
        for predicate in conjuncts(claim.predicate):
            if (
                not isinstance(predicate, n.Typed)
                and not at_launch(predicate)
                and all(_always(rule, predicate, t) for t in targets)
            ):
                text = " ".join(predicate.span.text.split())
                rule.findings.add(warning(
                    "W503", f"`{text}` holds for every call of {rule.operator.name}", predicate.span,
                    evidence=Evidence.PROVED, help=("drop it: it refuses nothing",)))  # fmt: skip


def _outcome(rule: RuleNames, claims: list[n.Claim], env: Mapping[str, object]) -> Outcome:
    return search(rule.operator, [Condition(c.predicate) for c in claims], env)


def at_launch(predicate: n.Node) -> bool:
    """Claims on strides, which the launcher decides at every call."""
    return isinstance(predicate, n.Call) and predicate.function.text in AT_LAUNCH


def _depends_on_choices(rule: RuleNames, claim: n.Claim) -> bool:
    return bool(variables(claim.predicate) & (set(rule.choices) | set(rule.operator.parameters)))


def _always(rule: RuleNames, predicate: n.Node, target) -> bool:
    return search(rule.operator, [Condition(predicate, False)], _fields(target)).refuted


def _fields(target) -> dict[str, object]:
    return {f"target.{k}": v for k, v in target.fields.items()} if target is not None else {}


def _unsatisfiable(rule: RuleNames, claims: list[n.Claim], env: Mapping[str, object], on: str) -> None:
    """The fewest conditions that no call meets together: of a clause, what `and` joins is one each."""
    needed = [part for claim in claims for part in conjuncts(claim.predicate)]
    for part in tuple(needed):
        rest = [x for x in needed if x is not part]
        if search(rule.operator, [Condition(x) for x in rest], env).refuted:
            needed = rest
    if not needed:
        return
    *others, last = needed
    together = " together with " + listed(f"`{_written(x)}`" for x in others) if others else ""
    ranges = () if others else _ranges(rule, last)
    rule.findings.add(Diagnostic(
        "E503", f"no call of {rule.operator.name} meets `{_written(last)}`{together}{on}", last.span,
        label="never true", labels=tuple(Label(x.span, "with this") for x in others)
        or tuple(Label(rule.names.values[x].span, f"`{x}` is declared here") for x in ranges),
        evidence=Evidence.PROVED, notes=tuple(_range_text(rule, x) for x in ranges if _range_text(rule, x)),
        help=("a rule that claims nothing can be removed; or widen the condition",)))  # fmt: skip


def _written(node: n.Node) -> str:
    return " ".join(node.span.text.split())


def _ranges(rule: RuleNames, predicate: n.Node) -> list[str]:
    """The names of the call that the condition speaks of, two at most."""
    return [x for x in names_in(strip(predicate)) if x in rule.names.values][:2]


def _range_text(rule: RuleNames, name: str) -> str:
    """`K is 16..256`, of a size that the operator bounds."""
    size = rule.operator.sizes.get(name)
    if size is None or (size.low is None and size.high is None):
        return ""
    if size.high is None:
        return f"{name} is at least {size.low}"
    return f"{name} is {size.low}..{size.high}" if size.low is not None else f"{name} is at most {size.high}"


def _undecided(rule: RuleNames, claims: list[n.Claim], on: str) -> None:
    last = claims[-1] if claims else rule.require[-1]
    several = next((c for c in claims if len(variables(c.predicate) & set(rule.operator.sizes)) > 1), last)
    rule.findings.add(warning(
        "W506", f"no call of {rule.operator.name} that meets `require` was found{on}, nor a proof that there is none",
        several.predicate.span, evidence=Evidence.UNKNOWN,
        help=("write the clause about one size at a time, or try a call with `kdsl select`",)))  # fmt: skip


# ---- choose points -----------------------------------------------------------------------------------------


def _at_points(rule: RuleNames, envs: Mapping[str, Mapping[str, object]]) -> None:
    """Clauses that speak of choices, at every one of their values."""
    claims = rule.require
    spoken = {name for c in claims for name in variables(c.predicate)}
    seen: dict[tuple, bool] = {}
    dead: list[dict[str, object]] = []
    points = 0
    for env, choices in _settings(rule, envs):
        points += 1
        key = tuple((name, value) for name, value in env.items() if name in spoken)
        if key not in seen:
            seen[key] = _outcome(rule, claims, env).refuted
        if seen[key]:
            dead.append({**env, **choices})
    if not dead:
        return
    if len(dead) == points:
        _unsatisfiable(rule, claims, dead[0], "")
        return
    mine = [c for c in claims if _depends_on_choices(rule, c)]
    used = [x for x in rule.choices if any(x in variables(c.predicate) for c in mine)] or list(rule.choices)
    where = list(dict.fromkeys(", ".join(f"{x} = {env[x]}" for x in used) for env in dead))
    rule.findings.add(warning(
        "W505", f"no call of {rule.operator.name} meets `{clause_text(mine[0])}` at choose {' or '.join(where[:4])}",
        mine[0].predicate.span, label="never true there", observed=f"{len(dead)} of {points} points take no call",
        evidence=Evidence.PROVED, help=("drop those values from `choose`, or widen the clause",)))  # fmt: skip


def _settings(rule: RuleNames, envs) -> Iterator[tuple[dict[str, object], dict[str, object]]]:
    """The names known at every choose point on every target, and the choices among them."""
    for fields in envs.values():
        for choices in choice_points(rule):
            env = {**fields, **choices}
            try:
                env.update({name: form_setting(value, env) for name, value in rule.form.items()})
            except (Undecided, NotStatic):
                continue
            yield env, choices
