"""Findings about the types, units and names of an expression."""

from __future__ import annotations

from kdsl.check import types as t
from kdsl.check.findings import a, closest, listed, type_mismatch, unknown_name, wrong_place
from kdsl.check.model import DTYPE_BYTES
from kdsl.check.scope import Scope
from kdsl.check.types import PLAIN, Type
from kdsl.source.diagnostic import Diagnostic, Edit, Label
from kdsl.syntax import nodes as n


def condition_help(found: Type) -> str | None:
    if found.is_number:
        return "compare the number with something: `==`, `<=`, ..."
    if found.kind == "option":
        return f"ask for one of its values: `is {str(found.values[0]).lower()}`" if found.values else None
    return None


def no_meaning(expr: n.Expr, scope: Scope) -> Diagnostic:
    kinds = {n.AtLevel: "a count at a level", n.Baseline: "a baseline", n.Typed: "a dtype claim",
             n.Uses: "a use of an instruction", n.Within: "an acceptance"}  # fmt: skip
    what = kinds.get(type(expr), "this")
    return Diagnostic("E114", f"{what} has no meaning in {scope.where}", expr.span, label="not here",
                      help=("such claims stand in `ensure` or `measure`",))  # fmt: skip


def unit_mismatch(message: str, expr: n.Expr, found: Type, needed: t.Unit | None) -> Diagnostic:
    help_, edits = (), ()
    suffix = t.SUGGESTED_SUFFIX.get(needed)
    if isinstance(expr, n.Number) and suffix is not None:
        help_ = (f"write `{expr.text} {suffix}`",)
        edits = (Edit(expr.span, f"{expr.text} {suffix}", f"give the number its unit: {suffix}"),)
    return Diagnostic("E111", message, expr.span, label=f"this is {t.unit_name(found.unit)}",
                      observed=t.unit_name(found.unit), required=t.unit_name(needed), help=help_,
                      edits=edits)  # fmt: skip

REMEDIES = (  # what to write instead of a name that has no value there, by why it has none
    ("of the call, and", "write a number{choices}; only `require` speaks of the call"),
    ("it is an index", "write the size that it runs over"),
    ("`given(", "ask whether it is there: `given(NAME)`"),
    ("which `ensure` or `measure` may", "move the line to `ensure`, or to `measure` if a GPU has to measure it"),
    ("which `ensure` may", "move the line to `ensure`"),
    ("which `measure` may", "move the line to `measure`"),
)


def missing_name(name: str, span, scope: Scope) -> Diagnostic:
    """Why a plain name has no value here."""
    if name in scope.absent:
        reason = scope.absent[name]
        remedy = next((help for part, help in REMEDIES if part in reason), None)
        if remedy is not None:
            remedy = remedy.replace("{choices}", _settled(scope))
        return wrong_place("value", name, span, reason, remedy)
    if name in scope.tensors:
        symbol = scope.tensors[name]
        example = f"{name}[{', '.join('...' for _ in range(symbol.rank))}]"
        return wrong_place("value", name, span, f"it is {a(symbol.kind)}", f"read it at indices: `{example}`")
    if name in scope.functions:
        return wrong_place("value", name, span, "it is a function", f"call it: `{name}(...)`")
    holder = next((key for key, symbol in scope.names.items() if symbol.type.kind == "option"
                   and name in [str(v).lower() for v in symbol.type.values]), None)  # fmt: skip
    if holder is not None:
        return wrong_place("value", name, span, f"it is a value of the option `{holder}`",
                           f"ask with `{holder} is {name}`")  # fmt: skip
    head, dot, tail = name.partition(".")
    if dot and head == "target":
        fields = [key.partition(".")[2] for key in scope.names if key.startswith("target.")]
        near = closest(tail, fields)
        found = unknown_name("target field", tail, span, fields, f" in {scope.where}")
        if near:
            whole = f"target.{near}"
            return found.with_(help=(f"did you mean `{whole}`?",), edits=(Edit(span, whole, f"replace by `{whole}`"),))
        return found
    found = unknown_name("name", name, span, scope.names, f" in {scope.where}")
    if dot and tail in ("dtype", "type") or name in DTYPE_BYTES:
        return found.with_(help=("a dtype is asked with a line of its own: `q, k : bf16, f16`",), notes=(), edits=())
    return found


def _settled(scope: Scope) -> str:
    """What may stand for a number before any call: the choices of the rule, the parameters of the operator."""
    kinds = (("choice", "a choice of this rule"), ("parameter", "a parameter of the operator"))
    names = {key: symbol for key, symbol in scope.names.items() if scope.where != f"`{key}`"}  # not the one being set
    named = [(what, [key for key, symbol in names.items() if symbol.kind == kind]) for kind, what in kinds]
    return "".join(f" or {what} ({listed(f'`{key}`' for key in keys)})" for what, keys in named if keys)


def option_value(side: n.Expr, other: n.Expr, scope: Scope) -> Diagnostic | None:
    """`gate == bounded`: an option compared as if its value were a number."""
    said = other.text if isinstance(other, n.Name) else other.value if isinstance(other, n.Text) else None
    if not isinstance(side, n.Name) or said is None:
        return None
    symbol = scope.names.get(side.text)
    if symbol is None or symbol.type.kind != "option" or said in scope.names:
        return None
    if said in ("true", "false") and symbol.type == t.SWITCH:
        return None
    if said in [str(v).lower() for v in symbol.type.values]:
        text = f"{side.text} is {said}"
        return type_mismatch("an option is asked with `is`", other.span,
                             f"a value of the option `{side.text}`",
                             f"`{text}`", f"write `{text}`")  # fmt: skip
    return no_value(side.text, said, other.span, symbol)


def no_value(option: str, value: str, span, symbol) -> Diagnostic:
    values = [str(v).lower() for v in symbol.type.values]
    near = closest(value, values)
    labels = (Label(symbol.span, "declared here"),) if symbol.span is not None else ()
    return Diagnostic("E113", f"`{option}` is never `{value}`", span, label="no such value", labels=labels,
                      observed=value, required=listed(values),
                      help=(f"did you mean `{near}`?",) if near else (f"its values are {listed(values)}",),
                      edits=(Edit(span, near, f"replace by `{near}`"),) if near else ())  # fmt: skip


def plain_side(e, at, left: Type, right: Type):
    """The side to point at: the plain number if there is one."""
    if left.unit == PLAIN and right.unit != PLAIN and hasattr(e, "left"):
        return e.left, left, right.unit
    return at, right, left.unit
