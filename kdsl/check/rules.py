"""Rule declarations: the rule itself, and the rule at one point of its choices on one target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from attrs import evolve, fields, has

from kdsl.check.domains import domain_values
from kdsl.check.evaluate import evaluate
from kdsl.check.model import Computation, GridAxis, Home, Kernel, Role, Rule, RulePoint, Target
from kdsl.check.operators import block
from kdsl.syntax import nodes as n

NAMED = {"as", "via", "on", "alias"}


def resolve_rule(declaration: n.Rule) -> Rule:
    choices, defaults, on_targets = {}, {}, {}
    for line in block(declaration.items, "choose"):
        for name in line.names:
            choices[name.text] = domain_values(line.values, {})
            first = choices[name.text][0] if choices[name.text] else None
            defaults[name.text] = form_setting(line.default, {}) if line.default is not None else first
            for one in line.target_defaults:
                on_targets.setdefault(one.target.text, {})[name.text] = form_setting(one.value, {})
    return Rule(
        name=declaration.name.text,
        operator=declaration.operator.text,
        targets=tuple(t.text for t in declaration.targets),
        require=block(declaration.items, "require"),
        ensure=block(declaration.items, "ensure"),
        measure=block(declaration.items, "measure"),
        choices=choices,
        defaults=defaults,
        form={line.name.text: line.value for line in block(declaration.items, "form")},
        kernels=tuple(item for item in declaration.items if isinstance(item, n.Kernel)),
        applied=tuple(item for item in declaration.items if isinstance(item, n.Apply)),
        declaration=declaration,
        target_defaults=on_targets,
    )


def points(rule: Rule, target: str | None = None) -> Iterator[dict[str, object]]:
    """Every combination of the rule's choices, the target's default first."""
    names, default = list(rule.choices), rule.defaults_on(target)
    yield default
    for values in product(*rule.choices.values()):
        point = dict(zip(names, values, strict=False))
        if point != default:
            yield point


def rule_at(
    rule: Rule, target: Target, choices: Mapping[str, object], tactics: Mapping[str, n.Tactic]
) -> RulePoint:
    """The rule with every tactic expanded and every value known that does not depend on a call."""
    env: dict[str, object] = {f"target.{name}": value for name, value in target.fields.items()}
    env.update(choices)
    form = {name: form_setting(value, env) for name, value in rule.form.items()}
    env.update(form)
    ensure = list(rule.ensure)
    for apply in rule.applied:
        for item in expand(apply, tactics):
            if isinstance(item, n.Block) and item.kind == "ensure":
                ensure += item.items
    kernels = []
    for declaration in rule.kernels:
        if declaration.condition is None or evaluate(declaration.condition, env):
            kernels.append(resolve_kernel(declaration, env, tactics))
    return RulePoint(rule, target, dict(choices), form, tuple(kernels), tuple(ensure), rule.measure)


def form_setting(value: n.Expr, env: Mapping[str, object]):
    """A form's value: a number, a choice's value, or the name of an alternative."""
    if isinstance(value, n.Name) and value.text not in env:
        return value.text
    if isinstance(value, n.Group):
        return form_setting(value.inner, env)
    if isinstance(value, n.Conditional):
        return form_setting(value.then if evaluate(value.condition, env) else value.otherwise, env)
    return evaluate(value, env)


def expand(apply: n.Apply, tactics: Mapping[str, n.Tactic]) -> tuple[n.Node, ...]:
    """The tactic's items with its parameters replaced by the arguments, names and values alike."""
    tactic = tactics[apply.tactic.text]
    arguments = {p.text: a for p, a in zip(tactic.parameters, apply.arguments, strict=False)}
    items: list[n.Node] = []
    for item in substitute(tactic.items, arguments):
        items += expand(item, tactics) if isinstance(item, n.Apply) else [item]
    return tuple(items)


def substitute(node, arguments: Mapping[str, n.Expr]):
    """A tree with parameters replaced; spans stay those of the tactic's text."""
    if isinstance(node, tuple):
        return tuple(substitute(item, arguments) for item in node)
    if isinstance(node, n.Name) and node.text in arguments:
        return arguments[node.text]
    if isinstance(node, n.Id):
        head, dot, tail = node.text.partition(".")
        argument = arguments.get(head)
        return evolve(node, text=argument.text + dot + tail) if isinstance(argument, n.Name) else node
    if not has(type(node)) or not isinstance(node, n.Node):
        return node
    changes = {}
    for attribute in fields(type(node)):
        value = getattr(node, attribute.name)
        if isinstance(value, (n.Node, tuple)):
            new = substitute(value, arguments)
            if new is not value:
                changes[attribute.name] = new
    return evolve(node, **changes) if changes else node


def resolve_kernel(
    declaration: n.Kernel, env: Mapping[str, object], tactics: Mapping[str, n.Tactic]
) -> Kernel:
    items: list[n.Node] = []
    for item in declaration.items:
        items += expand(item, tactics) if isinstance(item, n.Apply) else [item]
    homes: dict[str, Home] = {}
    views: dict[str, list[Home]] = {}
    for line in block(tuple(items), "place"):
        for home in _homes(line, env):
            if home.readers:
                views.setdefault(home.tensor, []).append(home)
            else:
                homes[home.tensor] = home
    return Kernel(
        name=declaration.name.text,
        parts=tuple(p.text for p in declaration.parts),
        grid=tuple(_grid(line, env) for line in block(tuple(items), "grid")),
        roles={line.name.text: _role(line, env) for line in block(tuple(items), "roles")},
        homes=homes,
        views={name: tuple(found) for name, found in views.items()},
        computations={
            c.stage: c for line in block(tuple(items), "compute") for c in _computations(line, env)
        },
        pins=block(tuple(items), "pin"),
        ensure=block(tuple(items), "ensure"),
        span=declaration.span,
    )


def _axes(axes: tuple[n.Axis, ...], env) -> tuple[tuple[str, int], ...]:
    return tuple((axis.index.text, evaluate(axis.by, env) if axis.by is not None else 1) for axis in axes)


def _grid(line: n.GridLine, env) -> GridAxis:
    packed = tuple(axis.index.text for axis in line.axes if axis.packed)
    order = line.order.text if line.order else None
    return GridAxis(line.axis.text, _axes(line.axes, env), order, line.span, packed)


def _role(line: n.Role, env) -> Role:
    registers = evaluate(line.registers, env) if line.registers is not None else None
    return Role(line.name.text, evaluate(line.warps, env), _axes(line.over, env), registers, line.span)


def _attributes(attributes: tuple[n.Attribute, ...], env) -> dict[str, object]:
    found: dict[str, object] = {}
    for attribute in attributes:
        if attribute.kind in NAMED and attribute.name is not None:
            found[attribute.kind] = attribute.name.text
            if attribute.value is not None:
                found[f"{attribute.kind}.bytes"] = evaluate(attribute.value, env)
        elif attribute.axes:
            found[attribute.kind] = _axes(attribute.axes, env)
        elif attribute.names:
            found[attribute.kind] = tuple(name.text for name in attribute.names)
        elif attribute.value is not None:
            found[attribute.kind] = evaluate(attribute.value, env)
        elif attribute.name is not None:
            found[attribute.kind] = attribute.name.text
    return found


def _homes(line: n.Placement, env) -> Iterator[Home]:
    attributes = _attributes(line.attributes, env)
    readers = tuple(r.text for r in line.readers)
    dtype = line.dtype.text if line.dtype is not None else None
    for name in line.names:
        yield Home(name.text, readers, dtype, line.memory, attributes, name.span)


def _computations(line: n.Computation, env) -> Iterator[Computation]:
    attributes = _attributes(line.attributes, env)
    instruction = line.instruction.text if line.instruction is not None else None
    for stage in line.stages:
        yield Computation(stage.text, instruction, attributes, stage.span)
