"""A rule's own lines: header, requirements, choices, form. Kernels are `kernel_lines`."""

from __future__ import annotations

from attrs import define, evolve, field

from kdsl.check.blueprint import Blueprint, blueprint
from kdsl.check.declarations import Declarations
from kdsl.check.domains import known_domain
from kdsl.check.evaluate import NotStatic, Undecided
from kdsl.check.findings import (
    Findings,
    closest,
    duplicate,
    listed,
    unknown_name,
    unknown_target,
    wrong_arity,
    wrong_place,
)
from kdsl.check.infer import expect_bool, expect_int
from kdsl.check.model import DTYPE_BYTES, Operator, Port, Target, names_in, walk
from kdsl.check.operator_names import OperatorNames
from kdsl.check.operators import block
from kdsl.check.rules import form_setting, substitute
from kdsl.check.scope import STATIC_FUNCTIONS, Scope, Symbol
from kdsl.check.types import INT, of_value, option_type
from kdsl.source.diagnostic import Diagnostic, Edit, Label
from kdsl.source.span import Span
from kdsl.syntax import nodes as n


@define
class RuleNames:
    """What the names in a rule mean; `doubtful` are names that a finding was made for."""

    declaration: n.Rule
    declarations: Declarations
    operator: Operator
    names: OperatorNames
    targets: tuple[Target, ...]
    findings: Findings
    choices: dict[str, tuple] = field(factory=dict)
    choice_spans: dict[str, Span] = field(factory=dict)
    defaults: dict[str, object] = field(factory=dict)
    target_defaults: dict[str, dict[str, object]] = field(factory=dict)
    form: dict[str, n.Expr] = field(factory=dict)
    require: list[n.Claim] = field(factory=list)
    form_whole: bool = True  # every form and parameter has a value
    form_guessed: bool = False  # some value is not the author's: nothing about the graph follows from it
    used: set[str] = field(factory=set)
    memo: dict = field(factory=dict)  # answers that several points share
    facts: dict[str, str] = field(factory=dict)  # names that only `ensure` and `measure` know, and why

    def defaults_on(self, target: str | None) -> dict[str, object]:
        """As `Rule.defaults_on`."""
        return {**self.defaults, **self.target_defaults.get(target, {})}

    @property
    def graph(self) -> Blueprint:
        return blueprint(self.operator)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of its kernels, from the top."""
        return tuple(item.name.text for item in self.declaration.items if isinstance(item, n.Kernel))

    def fields(self) -> dict[str, Symbol]:
        """`target.x` for every field that all the rule's targets have; where none of them is known, that any has."""
        tables = [target.fields for target in self.targets]
        if not tables:
            return {f"target.{name}": Symbol("target field", of_value(value, name))
                    for target in self.declarations.right_targets.values()
                    for name, value in target.fields.items()}  # fmt: skip
        common = set.intersection(*(set(t) for t in tables))
        return {f"target.{name}": Symbol("target field", of_value(tables[0][name], name)) for name in common}

    def choice_symbols(self) -> dict[str, Symbol]:
        return {name: Symbol("choice", option_type(values) if isinstance(values[0], str) else INT,
                             self.choice_spans[name]) for name, values in self.choices.items()}  # fmt: skip

    def static_scope(self, where: str) -> Scope:
        """What is known before any call: choices, parameters, target fields."""
        absent = {name: f"it is {_article(s.kind)} of the call, and {where} is settled before any call"
                  for name, s in self.names.values.items()}  # fmt: skip
        absent |= {name: "it is an index" for name in self.names.indices}
        names = {
            **self.fields(),
            **{name: Symbol("parameter", INT, p.span) for name, p in self.operator.parameters.items()},
        }
        for name in names:
            absent.pop(name, None)
        return Scope(where, {**names, **self.choice_symbols()}, STATIC_FUNCTIONS, {}, absent)

    def call_scope(self, where: str) -> Scope:
        """What a requirement may speak of: sizes, options, what is given; and all that is known before."""
        scope = self.names.call_scope(where)
        absent = {**self.facts, **scope.absent}
        return evolve(scope, absent=absent, names={**scope.names, **self.fields(), **self.choice_symbols()})


def _article(kind: str) -> str:
    return {"size": "a size", "option": "an option", "parameter": "a parameter"}.get(kind, kind)


def rule_names(declaration: n.Rule, declarations: Declarations, findings: Findings) -> RuleNames | None:
    """The header; None if the operator is not there or has findings of its own."""
    targets = _targets(declaration, declarations, findings)
    name = declaration.operator.text
    if name not in declarations.operators:
        findings.add(unknown_name("operator", name, declaration.operator.span, declarations.operators))
        return None
    if name not in declarations.right_operators:
        return None
    return RuleNames(declaration, declarations, declarations.right_operators[name],
                     declarations.operator_names[name],
                     targets, findings)  # fmt: skip


def _targets(declaration: n.Rule, declarations: Declarations, findings: Findings) -> tuple[Target, ...]:
    seen: dict[str, Span] = {}
    found = []
    for name in declaration.targets:
        if name.text in seen:
            findings.add(duplicate("target", name.text, name.span, seen[name.text]))
        elif name.text not in declarations.targets:
            findings.add(unknown_target(name.text, name.span, declarations.targets))
        elif name.text in declarations.right_targets:
            found.append(declarations.right_targets[name.text])
        seen.setdefault(name.text, name.span)
    return tuple(found)


def check_rule_lines(rule: RuleNames) -> None:
    """Choices, requirements and form; fills `rule` with what is right of them."""
    for line in block(rule.declaration.items, "choose"):
        _choice(rule, line)
    for claim in block(rule.declaration.items, "require"):
        _requirement(rule, claim)
    _form(rule)


# ---- choices -----------------------------------------------------------------------------------------------


def _choice(rule: RuleNames, line: n.Option) -> None:
    values = known_domain(line.values, f"choice `{line.names[0].text}`", rule.findings)
    if line.condition is not None:
        rule.findings.add(wrong_place("clause", "when", line.condition.span, "a choice is always there",
                                  "say it where the choice is used: `if ... then ... else ...`"))  # fmt: skip
    for name in line.names:
        taken = rule.names.first.get(name.text)
        if name.text in rule.choice_spans:
            rule.findings.add(duplicate("choice", name.text, name.span, rule.choice_spans[name.text]))
            continue
        if taken is not None and taken[0] not in ("tensor", "view", "definition"):
            rule.findings.add(duplicate(f"{taken[0]} and choice", name.text, name.span, taken[1],
                                       f"`{name.text}` is a name of the operator: take another"))  # fmt: skip
            continue
        rule.choice_spans[name.text] = name.span
        rule.choices[name.text] = values or (0,)
        rule.defaults[name.text] = _default(rule, line.default, line, name, values) if values else 0
        _target_defaults(rule, line, name, values)
        if not values:
            rule.form_whole = False


def _target_defaults(rule: RuleNames, line: n.Option, name: n.Id, values: tuple) -> None:
    seen: dict[str, Span] = {}
    known = [target.text for target in rule.declaration.targets]
    for one in line.target_defaults:
        target = one.target.text
        if target in seen:
            rule.findings.add(duplicate("default on", target, one.target.span, seen[target]))
        elif target not in known:
            rule.findings.add(_default_elsewhere(rule, one.target, known))
        elif values:
            value = _default(rule, one.value, line, name, values, target)
            rule.target_defaults.setdefault(target, {})[name.text] = value
        seen.setdefault(target, one.target.span)


def _default_elsewhere(rule: RuleNames, target: n.Id, known: list[str]) -> Diagnostic:
    """A default on a target that the rule is not for, or that there is not."""
    if target.text not in rule.declarations.targets:
        return unknown_name("target", target.text, target.span, known)
    return wrong_place("target", target.text, target.span, f"the rule is for {listed(known)}",
                       f"drop this default, or add `{target.text}` to the rule's targets")  # fmt: skip


def _default(
    rule: RuleNames, default: n.Expr | None, line: n.Option, name: n.Id, values: tuple, target: str = ""
) -> object:
    if default is None:
        return values[0]
    value: object = default.text if isinstance(default, n.Name) else None
    if isinstance(default, n.Number):
        value = default.value
    if value in values:
        return value
    near = closest(default.span.text, map(str, values))
    rule.findings.add(Diagnostic(
        "E142", f"the default of `{name.text}`{f' on {target}' if target else ''} is none of its values", default.span,
        observed=default.span.text,
        required=listed(values), labels=(Label(line.values.span, "its values"),),
        help=(f"did you mean `{near}`?",) if near else (f"write {_defaults(values, target)}",),
        edits=(Edit(default.span, near, f"replace by `{near}`"),) if near else ()))  # fmt: skip
    return values[0]


def _defaults(values: tuple, target: str) -> str:
    """`default 8` or `default 16`, on a target `8 on cpu` or `16 on cpu`: the first of many values of a choice."""
    return " or ".join(f"`{value} on {target}`" if target else f"`default {value}`" for value in values[:4])


# ---- requirements ------------------------------------------------------------------------------------------


def _requirement(rule: RuleNames, claim: n.Claim) -> None:
    before = len(rule.findings)
    predicate = claim.predicate
    if isinstance(predicate, n.Typed):
        typed_claim(rule, predicate)
    elif isinstance(predicate, (n.Uses, n.Within)):
        rule.findings.add(Diagnostic("E114", "`require` asks about a call, not about the code made for it",
                                     predicate.span, help=("move the line to `ensure`",)))  # fmt: skip
    else:
        expect_bool(predicate, rule.call_scope("`require`"), rule.findings)
    rule.used |= set(names_in(predicate))
    if len(rule.findings) == before:
        rule.require.append(claim)


def possible_dtypes(operator: Operator, port: Port) -> tuple[str, ...]:
    """Every dtype that a port may have, `like` followed."""
    followed = [d for other in port.like if other in operator.ports and other != port.name
                for d in possible_dtypes(operator, operator.ports[other])]  # fmt: skip
    return tuple(dict.fromkeys((*followed, *port.dtypes)))


def typed_claim(rule: RuleNames, predicate: n.Typed) -> None:
    never: dict[tuple[int, tuple[str, ...]], list[str]] = {}  # names of one line that a dtype of it does not fit
    for name in predicate.names:
        port = rule.operator.ports.get(name.text)
        if port is None:
            rule.findings.add(
                unknown_name("port", name.text, name.span, rule.operator.ports, " in `require`")
            )
            continue
        allowed = possible_dtypes(rule.operator, port)
        for position, dtype in enumerate(predicate.dtypes):
            if dtype.like:
                if dtype.name not in rule.operator.ports:
                    rule.findings.add(unknown_name("port", dtype.name, dtype.span, rule.operator.ports))
            elif dtype.name not in DTYPE_BYTES:
                rule.findings.add(unknown_name("dtype", dtype.name, dtype.span, allowed).with_(code="E116"))
            elif dtype.name not in allowed:
                never.setdefault((position, tuple(allowed)), []).append(name.text)
    for (position, allowed), names in never.items():
        dtype, port = predicate.dtypes[position], rule.operator.ports[names[0]]
        those = f"{listed(f'`{name}`' for name in names)} {'is' if len(names) == 1 else 'are'}"
        rule.findings.add(Diagnostic(
            "E113", f"{those} never {dtype.name}", dtype.span, label="no such value", observed=dtype.name,
            required=listed(allowed), labels=(Label(port.span, "declared here"),),
            help=(f"take it out: {rule.operator.name} takes {listed(allowed)} here",)))  # fmt: skip


# ---- form --------------------------------------------------------------------------------------------------


def _form(rule: RuleNames) -> None:
    seen: dict[str, Span] = {}
    settable = (*rule.operator.parameters, *rule.operator.forms)
    for line in block(rule.declaration.items, "form"):
        name = line.name.text
        rule.used |= set(names_in(line.value))
        if name in seen:
            rule.findings.add(duplicate("setting", name, line.name.span, seen[name]))
            continue
        seen[name] = line.name.span
        before = len(rule.findings)
        if name in rule.operator.options:
            rule.findings.add(wrong_place("form", name, line.name.span,
                                          "it is an option, which the call sets",
                                          _asked(rule, name, line.value)))  # fmt: skip
        elif name in rule.operator.parameters:
            expect_int(line.value, rule.static_scope(f"`{name}`"), rule.findings, f"parameter `{name}`")
        elif name in rule.operator.forms:
            _alternative(rule, name, line.value)
        else:
            rule.findings.add(
                unknown_name("form", name, line.name.span, settable, f" of {rule.operator.name}")
            )
        if len(rule.findings) == before:
            rule.form[name] = line.value
        elif name in settable:
            _guess(rule, name, line.value.span)
    missing = [name for name in settable if name not in seen and not _spared(rule, name)]
    guessed = [closest(name, missing) for name in seen if name not in settable]
    missing = [name for name in missing if name not in guessed]
    for name in settable:
        if name not in rule.form and (name in seen or not _spared(rule, name)):
            _guess(rule, name, rule.declaration.name.span)
    if missing:
        where = next((item.span for item in rule.declaration.items if isinstance(item, n.Block)
                      and item.kind == "form"),
                     rule.declaration.name.span)  # fmt: skip
        rule.findings.add(Diagnostic(
            "E141", f"rule `{rule.declaration.name.text}` leaves {listed(f'`{m}`' for m in missing)} open",
            where,
            label="not set here", observed=listed(seen) or "nothing set",
            required=listed(name for name in settable if name in seen or not _spared(rule, name)),
            help=tuple(f"add {_example(rule, m)}" for m in missing[:3])))  # fmt: skip


def _spared(rule: RuleNames, name: str) -> bool:
    """Whether a rule need not set it: a form with a default, or a parameter of another alternative than the rule's."""
    if name in rule.graph.defaults:
        return True
    parameter = rule.operator.parameters.get(name)
    if parameter is None or parameter.condition is None:
        return False
    form = parameter.condition.subject.span.text
    value = rule.form.get(form)
    chosen = rule.graph.defaults.get(form) if value is None else value.text if isinstance(value, n.Name) else None
    return chosen is not None and chosen not in rule.choices and chosen != parameter.condition.option.text


def _asked(rule: RuleNames, name: str, value: n.Expr) -> str:
    """How a requirement says what `name = value` was to say in `form`."""
    option = rule.operator.options[name]
    text = " ".join(value.span.text.split())
    if option.kind == "scalar":
        return f"remove the line and write `{name} == {text}` in `require`"
    known = [str(x).lower() for x in option.values] or ["true", "false"]
    if text not in known:
        return f"remove the line and say what the rule takes in `require`, as in `{name} is {known[0]}`"
    return f"remove the line and write `{name} is {text}` in `require`"


def _guess(rule: RuleNames, name: str, span: Span) -> None:
    """A value to go on with, so that what does not depend on it is still checked."""
    rule.form_guessed = True
    cases = rule.operator.forms.get(name)
    if cases:
        rule.form[name] = n.Name(span, cases[-1])
        return
    values = rule.operator.parameters[name].values
    if values:
        rule.form[name] = n.Number(span, str(values[0]))
    else:
        rule.form_whole = False


def _example(rule: RuleNames, name: str) -> str:
    cases = rule.operator.forms.get(name)
    fitting = _fitting(rule, name) if cases else ()
    values = fitting or cases or rule.operator.parameters[name].values or ("...",)
    text = " or ".join(f"`{name} = {value}`" for value in values[:4])
    return text + (": the kernels fit it" if len(fitting) == 1 else "")


def _fitting(rule: RuleNames, name: str) -> tuple[str, ...]:
    """The alternatives of a form with which the operator makes all that the rule's kernels name; () if unknown."""
    from kdsl.check.alternatives import lost_names  # builds on this module

    if not any(isinstance(item, n.Kernel) for item in rule.declaration.items):
        return ()
    try:
        form = {key: form_setting(value, rule.defaults) for key, value in rule.form.items()}
    except (NotStatic, Undecided):
        return ()
    return tuple(case for case in rule.operator.forms[name] if not lost_names(rule, {**form, name: case}))


def _alternative(rule: RuleNames, name: str, value: n.Expr) -> None:
    """A form's value: an alternative, a choice among alternatives, or an `if` between them."""
    cases = rule.operator.forms[name]
    if isinstance(value, n.Group):
        _alternative(rule, name, value.inner)
    elif isinstance(value, n.Conditional):
        expect_bool(value.condition, rule.static_scope(f"form `{name}`"), rule.findings)
        _alternative(rule, name, value.then)
        _alternative(rule, name, value.otherwise)
    elif isinstance(value, n.Name) and value.text in rule.choices:
        wrong = [v for v in rule.choices[value.text] if v not in cases]
        if wrong:
            rule.findings.add(_no_alternative(rule, name, str(wrong[0]), rule.choice_spans[value.text]))
    elif not (isinstance(value, n.Name) and value.text in cases):
        rule.findings.add(_no_alternative(rule, name, value.span.text, value.span))


def _no_alternative(rule: RuleNames, form: str, found: str, span: Span) -> Diagnostic:
    cases = rule.operator.forms[form]
    near = closest(found, cases)
    either = next(e.node for e in rule.graph.eithers if e.node.name.text == form)
    return Diagnostic("E142", f"form `{form}` has no alternative `{found}`", span, observed=found,
                      required=listed(cases),
                      labels=(Label(either.name.span, "declared here"),),
                      help=(f"did you mean `{near}`?",) if near else (),
                      edits=(Edit(span, near, f"replace by `{near}`"),) if near else ())  # fmt: skip


# ---- tactics -----------------------------------------------------------------------------------------------


def expanded(rule: RuleNames, items: tuple[n.Node, ...], depth: int = 0) -> tuple[n.Node, ...]:
    """Items with every tactic in its place; applications that are wrong are findings and are left out."""
    found: list[n.Node] = []
    tactics = rule.declarations.tactics
    for item in items:
        if not isinstance(item, n.Apply):
            found.append(item)
            continue
        name = item.tactic.text
        rule.used |= {used for argument in item.arguments for used in names_in(argument)}
        if name not in tactics:
            rule.findings.add(unknown_name("tactic", name, item.tactic.span, tactics))
        elif len(item.arguments) != len(tactics[name].parameters):
            tactic = tactics[name]
            count, names = len(tactic.parameters), ", ".join(p.text for p in tactic.parameters)
            needed = f"{count} argument{'s' * (count != 1)} ({names})" if count else "no arguments"
            rule.findings.add(wrong_arity(f"tactic `{name}`", len(item.arguments), needed, item.span,
                                          tactic.name.span, f"write `apply {name}({names})`"))  # fmt: skip
        elif name not in rule.declarations.broken_tactics and depth < 32:
            arguments = {p.text: a for p, a in zip(tactics[name].parameters, item.arguments, strict=False)}
            found += expanded(rule, substitute(tactics[name].items, arguments), depth + 1)
    return tuple(found)


def check_tactic(tactic: n.Tactic, declarations: Declarations, findings: Findings) -> None:
    """What can be said of a tactic that nothing applies: its parameters and the tactics it applies."""
    seen: dict[str, Span] = {}
    for parameter in tactic.parameters:
        if parameter.text in seen:
            findings.add(duplicate("parameter", parameter.text, parameter.span, seen[parameter.text]))
        seen.setdefault(parameter.text, parameter.span)
    for apply in (node for node in walk(tactic) if isinstance(node, n.Apply)):
        known = declarations.tactics.get(apply.tactic.text)
        if known is None:
            findings.add(unknown_name("tactic", apply.tactic.text, apply.tactic.span, declarations.tactics))
        elif len(known.parameters) != len(apply.arguments):
            findings.add(wrong_arity(f"tactic `{apply.tactic.text}`", len(apply.arguments),
                                     str(len(known.parameters)),
                                     apply.span, known.name.span))  # fmt: skip
