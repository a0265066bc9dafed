"""The type of an expression, with a finding for each independent mistake in it."""

from __future__ import annotations

from kdsl.check import types as t
from kdsl.check.findings import (
    Findings,
    a,
    type_mismatch,
    unknown_name,
    wrong_arity,
    wrong_place,
)
from kdsl.check.scope import PORT_CLAIMS, Scope, Signature, Symbol
from kdsl.check.type_findings import (
    condition_help,
    missing_name,
    no_meaning,
    no_value,
    option_value,
    plain_side,
    unit_mismatch,
)
from kdsl.check.types import ANY, BOOL, FLOAT, INT, PLAIN, TEXT, Type
from kdsl.source.diagnostic import Diagnostic, Label
from kdsl.syntax import nodes as n


def infer(expr: n.Expr, scope: Scope, findings: Findings) -> Type:
    """The type of `expr`; `ANY` where a finding was made, so that nothing follows from it."""
    method = _METHODS.get(type(expr))
    if method is None:
        findings.add(no_meaning(expr, scope))
        return ANY
    return method(expr, scope, findings)


def expect_bool(expr: n.Expr, scope: Scope, findings: Findings) -> Type:
    found = infer(expr, scope, findings)
    if not (found.is_any or found.kind == "bool" or found == t.SWITCH):
        findings.add(type_mismatch(f"a condition is needed in {scope.where}", expr.span, str(found),
                                   "a condition",
                                   condition_help(found)))  # fmt: skip
        return ANY
    return found


def expect_int(expr: n.Expr, scope: Scope, findings: Findings, what: str, unit: t.Unit = PLAIN) -> Type:
    """An integer number; `what` names it: "an index", "the tile of `e`"."""
    found = infer(expr, scope, findings)
    if found.is_any:
        return found
    needed = "an integer" if unit == PLAIN else f"an integer of {t.unit_name(unit)}"
    if found.kind != "int":
        findings.add(type_mismatch(f"{what} must be {needed}", expr.span, str(found), needed))
        return ANY
    if found.unit is not None and found.unit != unit:
        findings.add(unit_mismatch(f"{what} must be {needed}", expr, found, unit))
        return ANY
    return found


def expect_number(expr: n.Expr, scope: Scope, findings: Findings, what: str) -> Type:
    found = infer(expr, scope, findings)
    if not (found.is_any or found.is_number):
        findings.add(type_mismatch(f"{what} must be a number", expr.span, str(found), "a number"))
        return ANY
    return found


# ---- atoms -------------------------------------------------------------------------------------------------


def _number(e: n.Number, scope, findings):
    if e.text.strip("0.") == "":
        return Type("float" if "." in e.text else "int", None)
    try:
        value = e.value
    except ValueError:
        value = float("inf")
    if value in (float("inf"), float("-inf")):
        findings.add(Diagnostic("E115", "the number is too large", e.span, label="out of range"))
        return ANY
    return FLOAT if isinstance(value, float) else INT


def _quantity(e: n.Quantity, scope, findings):
    unit = t.UNIT_OF_SUFFIX[e.unit]
    return Type("float" if "." in e.number or unit != t.BYTES else "int", unit)


def _name(e: n.Name, scope: Scope, findings: Findings):
    symbol = scope.names.get(e.text)
    if symbol is not None:
        return symbol.type
    if e.text in ("true", "false"):
        return t.SWITCH
    findings.add(missing_name(e.text, e.span, scope))
    return ANY


def _reference(e: n.Reference, scope: Scope, findings: Findings):
    for index in e.indices:
        expect_int(index, scope, findings, f"an index of `{e.name.text}`")
    symbol = scope.tensors.get(e.name.text)
    if symbol is None:
        if e.name.text in scope.names:
            kind = scope.names[e.name.text].kind
            findings.add(wrong_place("tensor", e.name.text, e.name.span, f"it is {a(kind)}"))
        elif not scope.tensors:
            findings.add(wrong_place("tensor", e.name.text, e.name.span, f"{scope.where} reads no tensors"))
        else:
            findings.add(
                unknown_name("tensor", e.name.text, e.name.span, scope.tensors, f" in {scope.where}")
            )
        return ANY
    if symbol.rank >= 0 and symbol.rank != len(e.indices):
        labels = (Label(symbol.span, f"declared with {symbol.rank}"),) if symbol.span is not None else ()
        needed = f"{symbol.rank} indices" if symbol.rank != 1 else "1 index"
        findings.add(Diagnostic("E112",
                                f"{symbol.kind} `{e.name.text}` has {needed}, read at {len(e.indices)}",
                                e.span,
                                observed=str(len(e.indices)), required=str(symbol.rank),
                                labels=labels))  # fmt: skip
    return symbol.type


# ---- functions ---------------------------------------------------------------------------------------------


def _call(e: n.Call, scope: Scope, findings: Findings):
    name = e.function.text
    signature = scope.functions.get(name)
    if signature is None:
        if name not in scope.absent:
            findings.add(
                unknown_name("function", name, e.function.span, scope.functions, f" in {scope.where}")
            )
        else:
            findings.add(wrong_place("function", name, e.function.span, scope.absent[name]))
        if name not in PORT_CLAIMS:
            for argument in e.arguments:
                infer(argument, scope, findings)
        return ANY
    count = len(e.arguments)
    if count < signature.least or (signature.most is not None and count > signature.most):
        needed = str(signature.least) if signature.most == signature.least else f"at least {signature.least}"
        plural = "" if needed == "1" else "s"
        findings.add(wrong_arity(f"`{name}`", count, f"{needed} argument{plural}", e.span, signature.span))
    if signature.arguments == "port":
        _port_argument(e, scope, findings)
        return BOOL
    return _applied(e, signature, scope, findings)


def _port_argument(e: n.Call, scope: Scope, findings: Findings) -> None:
    for argument in e.arguments:
        if not isinstance(argument, n.Name):
            findings.add(
                type_mismatch(
                    f"`{e.function.text}` asks for a port",
                    argument.span,
                    "an expression",
                    "the name of an input or output",
                )
            )
        elif argument.text not in scope.inputs:
            findings.add(
                unknown_name("port", argument.text, argument.span, scope.inputs, f" in {scope.where}")
            )


def _applied(e: n.Call, signature: Signature, scope: Scope, findings: Findings):
    found = []
    for argument in e.arguments:
        if signature.arguments == "int":
            found.append(expect_int(argument, scope, findings, f"an argument of `{e.function.text}`"))
        else:
            found.append(expect_number(argument, scope, findings, f"an argument of `{e.function.text}`"))
    if signature.result == "fixed":
        return signature.type
    if signature.result in ("float", "int"):
        return FLOAT if signature.result == "float" else INT
    if signature.result == "list":
        return Type("list", item=INT)
    if any(x.is_any for x in found) or not found:
        return ANY
    result = found[0]
    for argument, other in zip(e.arguments[1:], found[1:], strict=False):
        result = _same_unit(e, argument, result, other, findings)
        if result.is_any:
            return ANY
    return result


# ---- arithmetic --------------------------------------------------------------------------------------------


def _binary(e: n.Binary, scope: Scope, findings: Findings):
    left, right = infer(e.left, scope, findings), infer(e.right, scope, findings)
    bad = False
    for side, found in ((e.left, left), (e.right, right)):
        if not (found.is_any or found.is_number):
            findings.add(type_mismatch(f"`{e.operator}` needs numbers", side.span, str(found), "a number"))
            bad = True
    if bad or left.is_any or right.is_any:
        return ANY
    if e.operator in "+-%" and e.operator != "**":
        return _same_unit(e, e.right, left, right, findings)
    if e.operator == "**":
        return _power(e, left, right, findings)
    kind = t.wider(left, right)
    sign = 1 if e.operator == "*" else -1
    unit = tuple(x + sign * y for x, y in zip(left.unit or PLAIN, right.unit or PLAIN, strict=False))
    return Type(kind, unit)


def _power(e: n.Binary, left: Type, right: Type, findings: Findings):
    if (left.unit or PLAIN) != PLAIN or (right.unit or PLAIN) != PLAIN:
        findings.add(unit_mismatch("`**` needs plain numbers", e.left if left.unit else e.right, left, PLAIN))
        return ANY
    negative = isinstance(e.right, n.Signed) and e.right.sign == "-"
    return FLOAT if negative or "float" in (left.kind, right.kind) else INT


def _same_unit(e: n.Node, at: n.Expr, left: Type, right: Type, findings: Findings) -> Type:
    if left.unit is None or right.unit is None or left.unit == right.unit:
        return Type(t.wider(left, right), right.unit if left.unit is None else left.unit)
    message = f"{t.unit_name(left.unit)} and {t.unit_name(right.unit)} do not mix"
    findings.add(unit_mismatch(message, *plain_side(e, at, left, right)))
    return ANY


def _signed(e: n.Signed, scope: Scope, findings: Findings):
    found = infer(e.operand, scope, findings)
    if not (found.is_any or found.is_number):
        findings.add(type_mismatch(f"`{e.sign}` needs a number", e.operand.span, str(found), "a number"))
        return ANY
    return found


def _share(e, scope: Scope, findings: Findings):
    found = infer(e.of, scope, findings)
    if not (found.is_any or found.is_number):
        findings.add(type_mismatch("a share needs a number", e.of.span, str(found), "a number"))
        return ANY
    return found if found.is_any else Type("float", found.unit)


# ---- conditions --------------------------------------------------------------------------------------------


def _comparison(e: n.Comparison, scope: Scope, findings: Findings):
    for side, other in ((e.left, e.right), (e.right, e.left)):
        value = option_value(side, other, scope)
        if value is not None:
            findings.add(value)
            return BOOL
    left, right = infer(e.left, scope, findings), infer(e.right, scope, findings)
    if left.is_any or right.is_any:
        return BOOL
    if left.is_number and right.is_number:
        if left.unit is not None and right.unit is not None and left.unit != right.unit:
            message = f"{t.unit_name(left.unit)} cannot be compared with {t.unit_name(right.unit)}"
            findings.add(unit_mismatch(message, *plain_side(e, e.right, left, right)))
        return BOOL
    if left.kind == right.kind and left.kind in ("text", "bool", "option") and e.operator in ("==", "!="):
        return BOOL
    wrong = (e.right, right) if left.is_number else (e.left, left)
    help_ = None
    if wrong[1].kind == "option":
        help_ = f"options are asked with `is`: `{wrong[0].span.text} is {str(wrong[1].values[0]).lower()}`"
    findings.add(type_mismatch(f"{left} and {right} cannot be compared with `{e.operator}`", wrong[0].span,
                               str(wrong[1]), "numbers on both sides", help_))  # fmt: skip
    return BOOL


def _is(e: n.IsOption, scope: Scope, findings: Findings):
    found = infer(e.subject, scope, findings)
    if found.is_any:
        return BOOL
    if found.kind != "option":
        findings.add(type_mismatch("`is` asks an option for its value", e.subject.span, str(found),
                                   "an option",
                                   "compare numbers with `==`" if found.is_number else None))  # fmt: skip
        return BOOL
    if e.option.text not in [str(v).lower() for v in found.values]:
        name = e.subject.text if isinstance(e.subject, n.Name) else e.subject.span.text
        symbol = scope.names.get(name)
        if symbol is not None:
            findings.add(no_value(name, e.option.text, e.option.span, symbol))
    return BOOL


def _contains(e: n.Contains, scope: Scope, findings: Findings):
    item, container = infer(e.item, scope, findings), infer(e.container, scope, findings)
    if container.is_any:
        return BOOL
    if container.kind != "list":
        findings.add(type_mismatch("`in` needs a list", e.container.span, str(container), "a list",
                                   "write the values in brackets: `[16, 32]`"))  # fmt: skip
        return BOOL
    inner = container.item or ANY
    if not (item.is_any or inner.is_any) and (item.is_number != inner.is_number or item.kind == "bool"):
        findings.add(type_mismatch("the list holds other things", e.item.span, str(item), str(inner)))
    elif (
        item.is_number and inner.is_number and None not in (item.unit, inner.unit) and item.unit != inner.unit
    ):
        message = f"{t.unit_name(item.unit)} cannot be looked for among {t.unit_name(inner.unit)}"
        findings.add(unit_mismatch(message, e.item, item, inner.unit))
    return BOOL


def _logical(e: n.Logical, scope: Scope, findings: Findings):
    for side in (e.left, e.right):
        expect_bool(side, scope, findings)
    return BOOL


def _conditional(e: n.Conditional, scope: Scope, findings: Findings):
    expect_bool(e.condition, scope, findings)
    then, otherwise = infer(e.then, scope, findings), infer(e.otherwise, scope, findings)
    if then.is_any or otherwise.is_any:
        return ANY
    if then.is_number and otherwise.is_number:
        return _same_unit(e, e.otherwise, then, otherwise, findings)
    if then.kind == otherwise.kind or {then.kind, otherwise.kind} <= {"bool", "option"}:
        return then
    findings.add(type_mismatch("the two ways of `if` differ", e.otherwise.span, str(otherwise), str(then)))
    return ANY


def _reduction(e: n.Reduction, scope: Scope, findings: Findings):
    if scope.bindable is None:
        findings.add(wrong_place("value", e.operator, e.span, f"{scope.where} has no reductions",
                                 "reductions belong in a stage"))  # fmt: skip
        return ANY
    bound = {}
    for binder in e.binders:
        name = binder.name.text
        if name not in scope.bindable:
            findings.add(unknown_name("index", name, binder.name.span, scope.bindable, f" in {scope.where}"))
        if binder.bound is not None:
            expect_int(binder.bound, scope, findings, f"the bound of `{name}`")
        bound[name] = Symbol("index", INT, binder.name.span)
    return expect_number(
        e.body, scope.with_names(bound), findings, "what is summed" if e.operator == "sum" else "the operand"
    )


def _sequence(e: n.Sequence, scope: Scope, findings: Findings):
    items = [infer(item, scope, findings) for item in e.items]
    known = [item for item in items if not item.is_any]
    return Type("list", item=known[0] if known else ANY)


_METHODS = {
    n.Number: _number,
    n.Quantity: _quantity,
    n.Name: _name,
    n.Text: lambda e, scope, findings: TEXT,
    n.Reference: _reference,
    n.Group: lambda e, scope, findings: infer(e.inner, scope, findings),
    n.Sequence: _sequence,
    n.Call: _call,
    n.Binary: _binary,
    n.Signed: _signed,
    n.Comparison: _comparison,
    n.IsOption: _is,
    n.Contains: _contains,
    n.Logical: _logical,
    n.Not: lambda e, scope, findings: (expect_bool(e.operand, scope, findings), BOOL)[1],
    n.Conditional: _conditional,
    n.Reduction: _reduction,
    n.Percent: _share,
    n.Ratio: _share,
}
