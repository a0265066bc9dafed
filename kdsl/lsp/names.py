"""What every name of a declaration stands for, by syntax alone: it works while the text is being written.

A `Symbol` is a thing with a name; an `Occurrence` is one place that names it. Names of the operator are
looked up through `Lookup`, which knows the files in scope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from attrs import define, field, frozen

from kdsl.check.model import DTYPE_BYTES, walk
from kdsl.check.operators import block
from kdsl.contract.predicates import TABLE
from kdsl.source.span import Span
from kdsl.syntax import nodes as n

Found = tuple[str, n.Node]  # where a declaration lies, and itself


@frozen
class Symbol:
    """`owner` says whose name it is: a path for a declaration, `path#name` for what is inside one."""

    kind: str
    name: str
    owner: str = ""


@frozen
class Occurrence:
    span: Span
    symbol: Symbol
    defines: bool = False


@frozen(eq=False)
class OperatorTable:
    """The names of one operator by kind, whether or not the operator is right."""

    owner: str
    node: n.Operator
    kinds: Mapping[str, str]  # sizes, parameters, ports, options, indices, functions, views, tensors
    stages: frozenset[str]
    parts: tuple[str, ...]
    cases: Mapping[str, tuple[str, ...]]  # of forms and of options with named values

    def symbol(self, name: str) -> Symbol | None:
        kind = self.kinds.get(name)
        return Symbol(kind, name, self.owner) if kind else None

    def value(self, of: str, name: str) -> Symbol | None:
        return Symbol("value", name, f"{self.owner}/{of}") if name in self.cases.get(of, ()) else None


NAMED_BLOCKS = (("sizes", "size"), ("parameters", "parameter"), ("inputs", "input"), ("outputs", "output"),
                ("options", "option"), ("indices", "index"))  # fmt: skip


def operator_table(path: str, node: n.Operator) -> OperatorTable:
    kinds: dict[str, str] = {}
    stages: set[str] = set()
    cases: dict[str, tuple[str, ...]] = {}
    for keyword, kind in NAMED_BLOCKS:
        for line in block(node.items, keyword):
            for name in line.names:
                kinds.setdefault(name.text, kind)
    for line in block(node.items, "options"):
        if isinstance(line.values, n.Sequence):
            values = tuple(item.text for item in line.values.items if isinstance(item, n.Name))
            cases.update({name.text: values for name in line.names})
    for line in block(node.items, "define"):
        kinds.setdefault(line.name.text, "definition")
    for line in block(node.items, "views"):
        kinds.setdefault(line.target.name.text, "view")
    parts = [item for item in node.items if isinstance(item, n.Part)]
    for inner in walk(tuple(parts)):
        if isinstance(inner, n.Stage):
            stages.add(inner.name.text)
            kinds.setdefault(inner.target.name.text, "tensor")
        elif isinstance(inner, n.Carry):
            kinds.setdefault(inner.tensor.name.text, "tensor")
            if inner.end is not None:
                kinds.setdefault(inner.end.name.text, "tensor")  # a view is known by now
        elif isinstance(inner, n.Either):
            kinds.setdefault(inner.name.text, "form")
            names = (case.name.text for case in inner.cases)
            cases[inner.name.text] = tuple(dict.fromkeys((*cases.get(inner.name.text, ()), *names)))
    names = tuple(part.name.text for part in parts)
    return OperatorTable(f"{path}#{node.name.text}", node, kinds, frozenset(stages), names, cases)


class Lookup:
    """Declarations by kind and name, as one file sees them. Subclassed by who knows the files."""

    def find(self, kind: str, name: str) -> Found | None:
        raise NotImplementedError

    def table(self, name: str) -> OperatorTable | None:
        """The names of an operator in scope."""
        raise NotImplementedError

    def users(self, tactic: str) -> Iterable[str]:
        """Names of the operators whose rules apply a tactic, or of all in scope if none does."""
        raise NotImplementedError


@define(eq=False)
class Binder:
    """Collects the occurrences of one declaration of the file `path`."""

    path: str
    lookup: Lookup
    found: list[Occurrence] = field(factory=list)
    tables: list[OperatorTable] = field(factory=list)
    locals: dict[str, Symbol] = field(factory=dict)

    def mark(self, name: n.Node, symbol: Symbol | None, defines: bool = False) -> None:
        if symbol is not None:
            self.found.append(Occurrence(name.span, symbol, defines))

    def declare(self, kind: str, name: n.Id) -> str:
        """Mark the name of the declaration; what is inside it is owned by the result."""
        self.mark(name, Symbol(kind, name.text, self.path), True)
        return f"{self.path}#{name.text}"

    def outer(self, kind: str, name: n.Id) -> None:
        """A use of another declaration."""
        found = self.lookup.find(kind, name.text)
        if found is not None:
            self.mark(name, Symbol(kind, name.text, found[0]))

    def local(self, kind: str, name: n.Id, owner: str) -> None:
        symbol = Symbol(kind, name.text, owner)
        self.locals[name.text] = symbol
        self.mark(name, symbol, True)

    # ---- names that an expression may hold ----
    def resolve(self, text: str) -> Symbol | None:
        if text in self.locals:
            return self.locals[text]
        for table in self.tables:
            symbol = table.symbol(text)
            if symbol is not None:
                return symbol
            if text in table.stages:
                return Symbol("stage", text, table.owner)
        if text in DTYPE_BYTES:
            return Symbol("dtype", text)
        if text in TABLE:
            return Symbol("predicate", text)
        found = self.lookup.find("instruction", text)
        return Symbol("instruction", text, found[0]) if found else None

    def stage(self, text: str) -> Symbol | None:
        return next((Symbol("stage", text, t.owner) for t in self.tables if text in t.stages), None)

    def port(self, name: n.Node, text: str) -> None:
        self.mark(name, next((s for t in self.tables if (s := t.symbol(text))), None))

    def name(self, node: n.Node, text: str) -> None:
        head, dot, tail = text.partition(".")
        if head == "target" and dot:
            span = Span(node.span.origin, node.span.start + len(head) + 1, node.span.stop)
            self.found.append(Occurrence(span, Symbol("field", tail, "target")))
        else:
            self.mark(node, self.resolve(text))

    def expressions(self, *trees) -> None:
        """Everything below: expressions, claims, dtypes, axes."""
        for tree in trees:
            if isinstance(tree, tuple):
                self.expressions(*tree)
            elif isinstance(tree, n.Node):
                visit = _VISITS.get(type(tree))
                if visit is not None:
                    visit(self, tree)
                self.expressions(*(getattr(tree, attribute.name) for attribute in tree.__attrs_attrs__))

    def option_value(self, node: n.IsOption) -> None:
        subject = node.subject.text if isinstance(node.subject, n.Name) else ""
        self.mark(node.option, next((v for t in self.tables if (v := t.value(subject, node.option.text))), None))

    def within(self, node: n.Within) -> None:
        self.outer("acceptance", node.acceptance)

    def uses(self, node: n.Uses) -> None:
        self.instruction(node.instruction)
        for stage in node.stages:
            self.mark(stage, self.stage(stage.text))

    def level(self, node: n.AtLevel) -> None:
        symbol = self.locals.get(node.level.text)
        self.mark(node.level, symbol if symbol is not None and symbol.kind == "role" else None)

    def typed(self, node: n.Typed) -> None:
        for name in node.names:
            self.port(name, name.text)

    def dtype(self, node: n.Dtype) -> None:
        if node.like:
            start = node.span.stop - len(node.name)
            self.port(n.Id(Span(node.span.origin, start, node.span.stop), node.name), node.name)
        elif node.name in DTYPE_BYTES:
            self.mark(node, Symbol("dtype", node.name))

    def instruction(self, name: n.Id) -> None:
        """An instruction, an operand of one (`mma.m16n8k16.C`), or something that targets have."""
        text = name.text
        while text:
            found = self.lookup.find("instruction", text)
            if found is not None:
                span = Span(name.span.origin, name.span.start, name.span.start + len(text))
                self.found.append(Occurrence(span, Symbol("instruction", text, found[0])))
                return
            text = text.rpartition(".")[0]
        if self.lookup.find("feature", name.text) is not None:
            self.mark(name, Symbol("feature", name.text))


_VISITS: dict[type, Callable[[Binder, n.Node], None]] = {
    n.Name: lambda b, x: b.name(x, x.text),
    n.Reference: lambda b, x: b.name(x.name, x.name.text),
    n.Call: lambda b, x: b.name(x.function, x.function.text),
    n.Binder: lambda b, x: b.name(x.name, x.name.text),
    n.Axis: lambda b, x: b.name(x.index, x.index.text),
    n.IsOption: Binder.option_value,
    n.Within: Binder.within,
    n.Uses: Binder.uses,
    n.AtLevel: Binder.level,
    n.Typed: Binder.typed,
    n.Dtype: Binder.dtype,
}
