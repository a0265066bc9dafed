"""Operator declarations to their signature."""

from __future__ import annotations

from attrs import evolve

from kdsl.check.domains import domain_values
from kdsl.check.evaluate import evaluate
from kdsl.check.model import Definition, Index, Operator, Option, Parameter, Port, Size, View, walk
from kdsl.syntax import nodes as n

SCALAR_TYPES = ("f32",)


def block(items: tuple[n.Node, ...], kind: str) -> tuple[n.Node, ...]:
    """The lines of every block of one kind, in order."""
    return tuple(
        line for item in items if isinstance(item, n.Block) and item.kind == kind for line in item.items
    )


def resolve_operator(declaration: n.Operator) -> Operator:
    items = declaration.items
    sizes = {s.name: s for domain in block(items, "sizes") for s in _sizes(domain)}
    options = {o.name: o for line in block(items, "options") for o in _options(line)}
    parts = {item.name.text: item for item in items if isinstance(item, n.Part)}
    return Operator(
        name=declaration.name.text,
        declaration=declaration,
        sizes=sizes,
        parameters={p.name: p for domain in block(items, "parameters") for p in _parameters(domain)},
        ports={
            p.name: p
            for side in ("inputs", "outputs")
            for line in block(items, side)
            for p in _ports(line, side)
        },
        options=options,
        laws=block(items, "laws"),
        definitions={line.name.text: _definition(line) for line in block(items, "define")},
        indices=_with_runs({i.name: i for line in block(items, "indices") for i in _indices(line)}),
        views={line.target.name.text: _view(line) for line in block(items, "views")},
        rounding={
            name.text: tuple(d.name for d in line.dtypes)
            for line in block(items, "rounding")
            for name in line.names
        },
        parts=parts,
        forms=_forms(parts, options),
        defaults=_defaults(parts),
        acceptance=next((item for item in items if isinstance(item, n.Acceptance)), None),
        span=declaration.span,
    )


def _sizes(domain: n.Domain):
    low, high = _ends(domain.values)
    for name in domain.names:
        yield Size(name.text, low, high, name.span)


def _ends(values) -> tuple[int | None, int | None]:
    if isinstance(values, n.Range):
        return evaluate(values.low, {}), evaluate(values.high, {})
    if isinstance(values, n.Sequence):
        known = evaluate(values, {})
        return min(known), max(known)
    return None, None


def _parameters(domain: n.Domain):
    values = domain_values(domain.values, {})
    for name in domain.names:
        yield Parameter(name.text, values, name.span, domain.condition)


def _ports(line: n.Port, side: str):
    for name in line.names:
        yield Port(
            name=name.text,
            direction="input" if side == "inputs" else "output",
            shape=line.shape,
            dtypes=tuple(d.name for d in line.dtypes if not d.like),
            like=tuple(d.name for d in line.dtypes if d.like),
            optional="optional" in line.flags,
            updated="updated" in line.flags,
            strided="strided" in line.flags,
            span=name.span,
        )


def _options(line: n.Option):
    if isinstance(line.values, n.Name) and line.values.text in SCALAR_TYPES:
        kind, values = "scalar", (line.values.text,)
    elif isinstance(line.values, n.Name) and line.values.text == "bool":
        kind, values = "bool", (False, True)
    else:
        kind, values = "choice", domain_values(line.values, {})
    for name in line.names:
        yield Option(name.text, kind, values, line.default, line.condition, name.span)


def _definition(line: n.Definition) -> Definition:
    return Definition(line.name.text, tuple(p.text for p in line.parameters), line.body, line.span)


def _indices(line: n.Index):
    cuts = line.extent.text if line.by is not None and isinstance(line.extent, n.Name) else None
    for name in line.names:
        yield Index(name.text, line.extent, line.mode or "local", name.span, line.slot, line.slots, line.most,
                    cuts, line.by if cuts else None)  # fmt: skip


def _with_runs(indices: dict[str, Index]) -> dict[str, Index]:
    """An index that cuts another has as many values as that has runs: its steps, divided upwards."""
    found = {}
    for name, index in indices.items():
        cut = indices.get(index.cuts or "")
        if cut is not None:
            span, by = index.by.span, n.Group(index.by.span, index.by)
            whole = n.Binary(span, "+", n.Group(span, cut.extent), n.Binary(span, "-", by, n.Number(span, "1")))
            index = evolve(index, extent=n.Binary(span, "/", n.Group(span, whole), by))
        found[name] = index
    return found


def _view(line: n.View) -> View:
    source = line.source
    return View(
        line.target.name.text,
        tuple(i.text for i in line.target.indices if isinstance(i, n.Name)),
        source.name.text if isinstance(source, n.Reference) else "",
        source.indices if isinstance(source, n.Reference) else (),
        line.condition,
        line.otherwise,
        line.span,
    )


def _defaults(parts) -> dict[str, str]:
    """The first default that is written for a form; another one is a finding."""
    eithers = [node for node in walk(tuple(parts.values())) if isinstance(node, n.Either) and node.default is not None]
    return {node.name.text: node.default.text for node in reversed(eithers)}


def _forms(parts, options) -> dict[str, tuple[str, ...]]:
    forms: dict[str, tuple[str, ...]] = {}
    pending = [node for part in parts.values() for node in part.nodes]
    while pending:
        node = pending.pop(0)
        if isinstance(node, n.Either):
            if node.name.text not in options:
                names = tuple(case.name.text for case in node.cases)
                forms[node.name.text] = tuple(dict.fromkeys((*forms.get(node.name.text, ()), *names)))
            pending += [inner for case in node.cases for inner in case.nodes]
    return forms
