"""Claims to verdicts, from the facts at hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import frozen

from kdsl.check.evaluate import NotStatic, Undecided, evaluate
from kdsl.check.model import RulePoint, names_in
from kdsl.contract.predicates import TABLE, Mention, keyed
from kdsl.contract.verdict import Fact, Status, Verdict, weakest
from kdsl.source.diagnostic import Evidence
from kdsl.syntax import nodes as n


def decide(point: RulePoint, facts: Mapping[str, Fact], env: Mapping[str, object]) -> tuple[Verdict, ...]:
    """A verdict for every clause of `ensure` and `measure`, in order.

    `facts` by key: `spills` of the whole rule, or `recurrence/spills` of one kernel; `count(shfl.sync) at
    ptx`; `uses X in stage`; `error within kda.acceptance` (true or false). `env` holds sizes and options of a
    call.
    """
    values = {
        **{f"target.{k}": v for k, v in point.target.fields.items()},
        **env,
        **point.choices,
        **point.form,
    }
    kernels = tuple(kernel.name for kernel in point.kernels)
    verdicts = [decide_claim(claim, facts, values, kernels) for claim in point.ensure]
    for kernel in point.kernels:
        verdicts += [decide_claim(claim, facts, values, kernels, kernel.name) for claim in kernel.ensure]
    verdicts += [pending(claim) for claim in point.measure]
    return tuple(verdicts)


def decide_claim(
    claim: n.Claim,
    facts: Mapping[str, Fact],
    env: Mapping[str, object],
    kernels: tuple[str, ...],
    kernel: str | None = None,
) -> Verdict:
    """One clause: holds, fails, or unknown with the reason."""
    predicate = claim.predicate
    text = clause_text(claim)
    if isinstance(predicate, n.Uses):
        return _uses(claim, facts, kernels, kernel)
    if isinstance(predicate, n.Within):
        key = f"error within {predicate.acceptance.text}"
        return _flag(
            claim, text, fact_of(key, "max", facts, kernels, kernel), RUN, kernel, predicate
        )
    mentions: list[Mention] = []
    expr = keyed(predicate, mentions)
    found: dict[str, Fact] = {}
    missing = []
    for spoken in mentions:
        fact = fact_of(spoken.key, TABLE[spoken.name.text].combine, facts, kernels, kernel)
        if fact is None:
            missing.append(spoken)
        else:
            found[spoken.key] = fact
    values = {**env, **{key: fact.value for key, fact in found.items()}}
    try:
        outcome = bool(evaluate(expr, values))
    except Undecided as undecided:
        return Verdict(text, predicate.span, Status.UNKNOWN, Evidence.UNKNOWN, "", needed_text(predicate),
                       kernel,
                       unknown_note(missing, undecided))  # fmt: skip
    except NotStatic as problem:
        return Verdict(text, predicate.span, Status.UNKNOWN, Evidence.UNKNOWN, "", "", kernel, str(problem))
    status = Status.HOLDS if outcome else Status.FAILS
    return Verdict(text, predicate.span, status, weakest(tuple(f.evidence for f in found.values())),
                   found_text(expr, found, values), needed_text(predicate, expr, values, found), kernel, "",
                   tuple(dict.fromkeys(f.tool for f in found.values() if f.tool)))  # fmt: skip


def fact_of(
    key: str, combine: str, facts: Mapping[str, Fact], kernels: tuple[str, ...], kernel: str | None
) -> Fact | None:
    """The fact of a kernel, or of the rule: given as such, or combined from all its kernels."""
    if kernel is not None:
        found = facts.get(f"{kernel}/{key}")
        return found if found is not None or len(kernels) > 1 else facts.get(key)
    if key in facts:
        return facts[key]
    parts = [facts.get(f"{name}/{key}") for name in kernels]
    if not parts or any(part is None for part in parts):
        return None
    values = [part.value for part in parts]
    if all(isinstance(v, bool) for v in values):
        total: object = all(values)
    else:
        total = {"sum": sum, "min": min, "max": max}[combine](values)
    tools = ", ".join(dict.fromkeys(part.tool for part in parts if part.tool))
    return Fact(total, parts[0].unit, weakest(tuple(part.evidence for part in parts)), tools)


RUN = "`kdsl lower --emit bundle` runs the kernel and decides it"


def _flag(claim, text: str, fact: Fact | None, how: str, kernel: str | None, predicate) -> Verdict:
    if fact is None:
        return Verdict(
            text,
            predicate.span,
            Status.UNKNOWN,
            Evidence.UNKNOWN,
            "",
            "",
            kernel,
            how,
        )
    status = Status.HOLDS if fact.value else Status.FAILS
    return Verdict(
        text,
        predicate.span,
        status,
        fact.evidence,
        fact.unit,
        text,
        kernel,
        "",
        (fact.tool,) if fact.tool else (),
    )


def _uses(claim: n.Claim, facts, kernels: tuple[str, ...], kernel: str | None) -> Verdict:
    predicate = claim.predicate
    keys = [f"uses {predicate.instruction.text} in {stage.text}" for stage in predicate.stages]
    found = [_any_kernel(key, facts, kernels) for key in keys]
    text = clause_text(claim)
    if any(fact is None for fact in found):
        return Verdict(text, predicate.span, Status.UNKNOWN, Evidence.UNKNOWN, "", "", kernel,
                       "`kdsl lower` reads it from the machine code")  # fmt: skip
    absent = [s.text for s, fact in zip(predicate.stages, found, strict=False) if not fact.value]
    status = Status.FAILS if absent else Status.HOLDS
    return Verdict(text, predicate.span, status, weakest(tuple(f.evidence for f in found)),
                   f"not in {', '.join(absent)}" if absent else "in every stage", text, kernel, "",
                   tuple(dict.fromkeys(f.tool for f in found if f.tool)))  # fmt: skip


def _any_kernel(key: str, facts: Mapping[str, Fact], kernels: tuple[str, ...]) -> Fact | None:
    return facts.get(key) or next((facts[f"{k}/{key}"] for k in kernels if f"{k}/{key}" in facts), None)


def pending(claim: n.Claim) -> Verdict:
    return Verdict(clause_text(claim), claim.predicate.span, Status.PENDING, Evidence.UNKNOWN, "", "", None,
                   "`kdsl validate` decides it on a GPU")  # fmt: skip


def clause_text(claim: n.Claim) -> str:
    """The clause as written, on one line."""
    return " ".join(claim.predicate.span.text.split())


def unknown_note(missing: Iterable[Mention], undecided: Undecided) -> str:
    who = {"binary": "`kdsl lower` reads it from the binary", "run": "`kdsl lower` runs the kernel",
           "gpu": "`kdsl validate` measures it"}  # fmt: skip
    for spoken in missing:
        entry = TABLE[spoken.name.text]
        if entry.decided in who or undecided.names <= {spoken.key}:
            return f"no value yet for {spoken.key}: {who.get(entry.decided, '`kdsl lower` decides it')}"
    names = ", ".join(sorted(undecided.names))
    return f"depends on {names}, which the call decides"


def quantity(value: object, unit: str = "") -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if unit == "s":
        return duration(float(value))
    if isinstance(value, float):
        value = int(value) if value == int(value) and abs(value) < 1e15 else f"{value:g}"
    return f"{value} {unit}".strip()


def duration(seconds: float) -> str:
    """`77.3 us`, `1.18 ms`."""
    scale, unit = next((pair for pair in ((1, "s"), (1e-3, "ms")) if seconds >= pair[0]), (1e-6, "us"))
    return f"{seconds / scale:.4g} {unit}"


def found_text(expr: n.Expr, facts: Mapping[str, Fact], values: Mapping[str, object]) -> str:
    """`1118208 bytes`: the side of the comparison that speaks of a fact, or the facts themselves."""
    named = [(key, fact) for key, fact in facts.items() if key in names_in(expr)]
    if isinstance(expr, n.Comparison) and len(named) == 1 and isinstance(expr.left, n.Name):
        return quantity(named[0][1].value, named[0][1].unit)
    return ", ".join(f"{key} = {quantity(fact.value, fact.unit)}" for key, fact in named)


def needed_text(
    predicate: n.Node,
    expr: n.Node | None = None,
    values: Mapping[str, object] | None = None,
    facts: Mapping[str, Fact] = {},
) -> str:
    """`<= 4194304`: the other side with its value; a time has its unit."""
    if not isinstance(predicate, n.Comparison):
        return " ".join(predicate.span.text.split())
    text = " ".join(predicate.right.span.text.split())
    try:
        value = (
            evaluate(expr.right, values) if isinstance(expr, n.Comparison) and values is not None else None
        )
    except (Undecided, NotStatic):
        value = None
    unit = "s" if any(fact.unit == "s" for fact in facts.values()) else ""
    shown = text if value is None or quantity(value, unit) == text else f"{text} = {quantity(value, unit)}"
    return f"{predicate.operator} {shown}"


@frozen
class Decided:
    """Verdicts of one point, for those who ask how it stands as a whole."""

    verdicts: tuple[Verdict, ...]

    @property
    def fails(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.verdicts if v.status is Status.FAILS)

    @property
    def open(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.verdicts if v.status in (Status.UNKNOWN, Status.PENDING))
