"""What only a call decides: claims over its sizes, scalars and optional tensors, all that is known filled in.

A bundle keeps them as text (`lower_bound >= -5.0`); the launcher holds every call to them.
"""

from __future__ import annotations

from collections.abc import Iterator

from kdsl.bundle import manifest as m
from kdsl.bundle.expression import GIVEN
from kdsl.check.blueprint import blueprint
from kdsl.check.evaluate import decide
from kdsl.check.model import Operator, walk
from kdsl.plan.model import Plan
from kdsl.plan.refusal import PlanRefused
from kdsl.syntax import nodes as n

FUNCTIONS = ("min", "max", "ceildiv")
UNSAID = "the rule takes no other call"  # of a claim without `else`


def requirements(plan: Plan) -> Iterator[m.Requirement]:
    """Claims that the settings leave open: of the rule, of the forms it chose, and laws of the operator about sizes.

    Laws about optional tensors are not among them: the public functions hold their arguments to those. Raises
    PlanRefused for a claim that a launcher cannot decide.
    """
    sizes = set(plan.operator.sizes)
    for claim in plan.operator.laws:
        if is_open(claim, plan) and spoken(claim.predicate, plan) <= sizes:
            yield requirement(claim, plan)
    for claim in (*plan.rule.require, *form_claims(plan)):
        if is_open(claim, plan):
            yield requirement(claim, plan)


def is_open(claim: n.Claim, plan: Plan) -> bool:
    """Whether a claim is over values, and none of the settings decides it."""
    if isinstance(claim.predicate, (n.Typed, n.Uses, n.Within)):
        return False
    return decide(claim.predicate, plan.settings) is None


def form_claims(plan: Plan) -> Iterator[n.Claim]:
    """What the chosen forms require."""
    for alternatives in blueprint(plan.operator).under(plan.point.form).eithers:
        chosen = plan.point.form.get(alternatives.node.name.text)
        for case in alternatives.node.cases:
            if case.requires is not None and case.name.text == chosen:
                yield case.requires


def requirement(claim: n.Claim, plan: Plan) -> m.Requirement:
    otherwise = claim.message.value if claim.message is not None and claim.message.value.strip() else UNSAID
    return m.Requirement(residue(claim.predicate, plan), otherwise)


def spoken(predicate: n.Expr, plan: Plan) -> set[str]:
    """Names in a claim that the settings do not know; `given(x)` as `given(x)`."""
    found = set()
    for node in walk(predicate):
        if isinstance(node, n.Name) and node.text not in plan.settings:
            found.add(node.text)
        elif isinstance(node, n.Call) and node.function.text == "given":
            found.add(node.span.text)
    return found


def residue(expr: n.Expr, plan: Plan) -> str:
    """The text of a claim without the sides of `and` and `or` that are settled. Raises PlanRefused."""
    if isinstance(expr, n.Group):
        return f"({residue(expr.inner, plan)})"
    if isinstance(expr, n.Not):
        return f"not {residue(expr.operand, plan)}"
    if isinstance(expr, n.Logical):
        sides = [side for side in (expr.left, expr.right) if decide(side, plan.settings) is None]
        return f" {expr.operator} ".join(residue(side, plan) for side in sides)
    if isinstance(expr, n.Comparison):
        return f"{number(expr.left, plan)} {expr.operator} {number(expr.right, plan)}"
    if isinstance(expr, n.Contains):
        values = decide(expr.container, plan.settings)
        if isinstance(values, tuple) and values:
            return f"({' or '.join(f'{number(expr.item, plan)} == {value}' for value in values)})"
    if isinstance(expr, n.Call) and expr.function.text == "given":
        return f"{GIVEN}{expr.arguments[0].text} == 1"
    raise undecidable(expr, plan)


def number(expr: n.Expr, plan: Plan) -> str:
    """The text of a number with its known parts filled in. Raises PlanRefused."""
    known = decide(expr, plan.settings)
    if isinstance(known, (int, float)) and not isinstance(known, bool):
        return str(known)
    if isinstance(expr, n.Name) and (expr.text in plan.operator.sizes or is_scalar(plan.operator, expr.text)):
        return expr.text
    if isinstance(expr, n.Group):
        return f"({number(expr.inner, plan)})"
    if isinstance(expr, n.Signed):
        return f"{expr.sign}{number(expr.operand, plan)}".removeprefix("+")
    if isinstance(expr, n.Binary):
        return f"{number(expr.left, plan)} {expr.operator} {number(expr.right, plan)}"
    if isinstance(expr, n.Call) and expr.function.text in FUNCTIONS:
        return f"{expr.function.text}({', '.join(number(a, plan) for a in expr.arguments)})"
    raise undecidable(expr, plan)


def undecidable(expr: n.Expr, plan: Plan) -> PlanRefused:
    return PlanRefused(
        "R001", f"rule `{plan.rule.name}` requires what no launch can decide", expr.span, observed=expr.span.text,
        required="sizes and numbers of a call, compared, and `given` of its tensors",
        help=("state it over sizes, or fix it with an option that the rule is built for",),
    )  # fmt: skip


def is_scalar(operator: Operator, name: str) -> bool:
    return name in operator.options and operator.options[name].kind == "scalar"
