"""Each kind of declaration to the occurrences of names in it."""

from __future__ import annotations

from kdsl.lsp.names import Binder, Lookup, Occurrence, OperatorTable, Symbol, operator_table
from kdsl.source.span import Span
from kdsl.syntax import nodes as n

CONSTANTS = ("true", "false")
INDEX_ATTRIBUTES = ("lanes", "over", "vector", "unroll")


def occurrences(path: str, declaration: n.Node, lookup: Lookup) -> tuple[Occurrence, ...]:
    """Every name of a declaration that stands for something, in no order."""
    binder = Binder(path, lookup)
    visit = _DECLARATIONS.get(type(declaration))
    if visit is not None:
        visit(binder, declaration)
    return tuple(binder.found)


# ---- operator ----------------------------------------------------------------------------------------------


def _operator(b: Binder, node: n.Operator) -> None:
    owner = b.declare("operator", node.name)
    table = operator_table(b.path, node)
    b.tables = [table]
    for item in node.items:
        if isinstance(item, n.Block):
            for line in item.items:
                _operator_line(b, table, item.kind, line)
        elif isinstance(item, n.Part):
            b.mark(item.name, Symbol("part", item.name.text, owner), True)
            _graph(b, table, item.nodes)
        elif isinstance(item, n.Acceptance):
            b.mark(item.name, Symbol("acceptance", item.name.text, b.path), True)
            b.expressions(item.claims)


def _operator_line(b: Binder, table: OperatorTable, kind: str, line: n.Node) -> None:
    if isinstance(line, (n.Domain, n.Port, n.Option, n.Index)):
        for name in line.names:
            b.mark(name, table.symbol(name.text), True)
    if isinstance(line, n.Option) and isinstance(line.values, n.Sequence):
        for name in line.names:
            for value in line.values.items:
                b.mark(value, table.value(name.text, value.span.text), True)
        b.expressions(line.default, line.condition)
    elif isinstance(line, n.Definition):
        b.mark(line.name, table.symbol(line.name.text), True)
        for parameter in line.parameters:
            b.local("argument", parameter, f"{table.owner}/{line.name.text}")
        b.expressions(line.body)
        b.locals.clear()
    elif isinstance(line, n.View):
        b.mark(line.target.name, table.symbol(line.target.name.text), True)
        b.expressions(line.target.indices, line.source, line.condition, line.otherwise)
    elif isinstance(line, n.Allowance):
        for name in line.names:
            b.mark(name, table.symbol(name.text))
        b.expressions(line.dtypes)
    elif not isinstance(line, n.Doc):
        b.expressions(line)


def _graph(b: Binder, table: OperatorTable, nodes) -> None:
    for node in nodes:
        if isinstance(node, n.Stage):
            b.mark(node.name, Symbol("stage", node.name.text, table.owner), True)
            b.mark(
                node.target.name,
                table.symbol(node.target.name.text),
                table.kinds.get(node.target.name.text) == "tensor",
            )
            b.expressions(node.target.indices, node.body)
            if node.scan is not None:
                b.name(node.scan, node.scan.text)
        elif isinstance(node, n.Carry):
            b.mark(node.tensor.name, table.symbol(node.tensor.name.text), True)
            b.expressions(node.tensor.indices, node.start, node.end)
            b.name(node.over, node.over.text)
            if node.within is not None:
                b.name(node.within, node.within.text)
            b.name(node.next, node.next.text)
        elif isinstance(node, n.Either):
            form = table.kinds.get(node.name.text) == "form"
            b.mark(node.name, table.symbol(node.name.text), form)
            if node.default is not None:
                b.mark(node.default, table.value(node.name.text, node.default.text))
            for case in node.cases:
                if case.name.text not in CONSTANTS:
                    b.mark(case.name, table.value(node.name.text, case.name.text), form)
                b.expressions(case.requires)
                _graph(b, table, case.nodes)


# ---- target, instruction -----------------------------------------------------------------------------------


def _target(b: Binder, node: n.Target) -> None:
    b.declare("target", node.name)
    if node.extends is not None:
        b.outer("target", node.extends)
    for item in node.items:
        if isinstance(item, n.Field):
            b.mark(item.name, Symbol("field", item.name.text, "target"), True)
        elif isinstance(item, (n.Has, n.Lacks)):
            for name in item.names:
                if b.lookup.find("instruction", name.text) is not None:
                    b.instruction(name)
                else:
                    b.mark(name, Symbol("feature", name.text), isinstance(item, n.Has))


def _instruction(b: Binder, node: n.Instruction) -> None:
    owner = b.declare("instruction", node.name)
    for item in node.items:
        if isinstance(item, n.Field):
            b.mark(item.name, Symbol("property", item.name.text, owner), True)
            if isinstance(item.value, n.Name):
                b.instruction(n.Id(item.value.span, item.value.text))
            b.expressions(item.value)
        elif isinstance(item, n.Operand):
            b.mark(item.target.name, Symbol("operand", item.target.name.text, owner), True)
            b.expressions(item.dtypes)
            for index in item.target.indices:
                if isinstance(index, n.Name):
                    b.local("dimension", n.Id(index.span, index.text), f"{owner}/{item.target.name.text}")
            b.expressions(tuple(line.value for line in item.maps))
            b.locals.clear()


# ---- rule, tactic ------------------------------------------------------------------------------------------


def _rule(b: Binder, node: n.Rule) -> None:
    owner = b.declare("rule", node.name)
    b.outer("operator", node.operator)
    table = b.lookup.table(node.operator.text)
    b.tables = [table] if table is not None else []
    for target in node.targets:
        b.outer("target", target)
    for line in (
        line for item in node.items if isinstance(item, n.Block) and item.kind == "choose" for line in item.items
    ):
        for name in line.names:
            b.local("choice", name, owner)
    for kernel in (item for item in node.items if isinstance(item, n.Kernel)):
        b.mark(kernel.name, Symbol("kernel", kernel.name.text, owner), True)
    kernels = {item.name.text for item in node.items if isinstance(item, n.Kernel)}
    for item in node.items:
        if isinstance(item, n.Kernel):
            _kernel(b, item, owner, kernels)
        else:
            _rule_item(b, item, owner, kernels)


def _rule_item(b: Binder, item: n.Node, owner: str, kernels: set[str]) -> None:
    if isinstance(item, n.Block) and item.kind == "choose":
        for line in item.items:
            b.expressions(line.values, line.default, line.condition)
            for one in line.target_defaults:
                b.expressions(one.value)
                b.outer("target", one.target)
    elif isinstance(item, n.Block) and item.kind == "form":
        for line in item.items:
            b.mark(line.name, next((s for t in b.tables if (s := t.symbol(line.name.text))), None))
            _form_value(b, line.name.text, line.value)
    else:
        _item(b, item, owner, kernels)


def _form_value(b: Binder, form: str, value: n.Expr) -> None:
    """An alternative of the form, or an expression."""
    if isinstance(value, n.Name):
        symbol = next((v for t in b.tables if (v := t.value(form, value.text))), None)
        if symbol is not None and value.text not in b.locals:
            b.mark(value, symbol)
            return
    if isinstance(value, n.Conditional):
        b.expressions(value.condition)
        _form_value(b, form, value.then)
        _form_value(b, form, value.otherwise)
    elif isinstance(value, n.Group):
        _form_value(b, form, value.inner)
    else:
        b.expressions(value)


def _kernel(b: Binder, node: n.Kernel, owner: str, kernels: set[str]) -> None:
    for part in node.parts:
        b.mark(part, next((Symbol("part", part.text, t.owner) for t in b.tables if part.text in t.parts), None))
    b.expressions(node.condition)
    inner = f"{owner}/{node.name.text}"
    before = dict(b.locals)
    _roles(b, node.items, inner)
    for item in node.items:
        _item(b, item, inner, kernels)
    b.locals = before


def _tactic(b: Binder, node: n.Tactic) -> None:
    owner = b.declare("tactic", node.name)
    tables = (b.lookup.table(name) for name in b.lookup.users(node.name.text))
    b.tables = [table for table in tables if table is not None]
    for parameter in node.parameters:
        b.local("argument", parameter, owner)
    _roles(b, node.items, owner)
    for item in node.items:
        _item(b, item, owner, set())


def _roles(b: Binder, items, owner: str) -> None:
    for item in items:
        if isinstance(item, n.Block) and item.kind == "roles":
            for line in item.items:
                b.local("role", line.name, owner)


def _item(b: Binder, item: n.Node, owner: str, kernels: set[str]) -> None:
    """A block that kernels, tactics and rules share, or an application of a tactic."""
    if isinstance(item, n.Apply):
        b.outer("tactic", item.tactic)
        b.expressions(item.arguments)
    elif isinstance(item, n.Block):
        for line in item.items:
            if isinstance(line, n.Placement):
                _placement(b, line, owner, kernels)
            elif isinstance(line, n.Computation):
                _computation(b, line)
            elif isinstance(line, n.PinOrder):
                for name in (line.first, line.second):
                    b.mark(name, b.stage(name.text))
            elif not isinstance(line, n.Doc):
                b.expressions(line)


def _placement(b: Binder, line: n.Placement, owner: str, kernels: set[str]) -> None:
    for name in line.names:
        _tensor(b, name)
    rule = owner.rpartition("/")[0] or owner
    for reader in line.readers:
        symbol = b.locals.get(reader.text) or b.stage(reader.text)
        if symbol is None and reader.text in kernels:
            symbol = Symbol("kernel", reader.text, rule)
        b.mark(reader, symbol)
    if line.dtype is not None:
        b.expressions(n.Dtype(line.dtype.span, line.dtype.text))
    for via in (attribute.name for attribute in line.attributes if attribute.kind == "via"):
        if via is not None and via.text in kernels:
            b.mark(via, Symbol("kernel", via.text, rule))
    _attributes(b, tuple(x for x in line.attributes if x.name is None or x.kind != "via" or x.name.text not in kernels))


def _tensor(b: Binder, name: n.Id) -> None:
    if name.text in b.locals:
        b.mark(name, b.locals[name.text])
    else:
        b.mark(name, next((s for t in b.tables if (s := t.symbol(name.text))), None))


def _computation(b: Binder, line: n.Computation) -> None:
    for stage in line.stages:
        b.mark(stage, b.locals.get(stage.text) or b.stage(stage.text))
    if line.instruction is not None:
        if line.instruction.text in b.locals:
            b.mark(line.instruction, b.locals[line.instruction.text])
        else:
            b.instruction(line.instruction)
    _attributes(b, line.attributes)


def _attributes(b: Binder, attributes: tuple[n.Attribute, ...]) -> None:
    for attribute in attributes:
        b.expressions(attribute.value, attribute.axes)
        name = attribute.name
        if name is not None and attribute.kind in ("as", "via"):
            b.instruction(name)
        elif name is not None and attribute.kind == "on":
            b.mark(name, b.locals.get(name.text))
        elif name is not None and attribute.kind == "alias":
            _tensor(b, name)
        elif name is not None:
            b.name(name, name.text)
        for index in attribute.names:
            b.name(index, index.text)


def _use(b: Binder, node: n.Use) -> None:
    span = Span(node.path.span.origin, node.path.span.start + 1, node.path.span.stop - 1)
    b.found.append(Occurrence(span, Symbol("file", node.path.value, b.path)))


def _expectation(b: Binder, node: n.Expectation) -> None:
    """What is inside is its own: names declared there are not those of the file."""
    for item in node.items:
        b.found += occurrences(f"{b.path}@{id(node)}", item, b.lookup)


_DECLARATIONS = {
    n.Operator: _operator, n.Target: _target, n.Instruction: _instruction, n.Rule: _rule, n.Tactic: _tactic,
    n.Use: _use,
    n.Expectation: _expectation,
}  # fmt: skip
