"""What a hover says: one short piece of Markdown for the thing under the cursor."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define

from kdsl.check.model import DTYPE_BYTES, Index, Operator, Port, walk
from kdsl.check.operators import block
from kdsl.contract.predicates import TABLE
from kdsl.lsp.analysis import Analysis
from kdsl.lsp.names import Symbol
from kdsl.lsp.scope import Scope
from kdsl.syntax import nodes as n
from kdsl.syntax.phrase import expression

MOST = 12  # readers, values or fields that are listed


def code(text: str) -> str:
    return f"```kds\n{text.strip()}\n```"


def listed(names: Iterable[object], most: int = MOST) -> str:
    found = [f"`{name}`" for name in names]
    rest = len(found) - most
    return ", ".join(found[:most]) + (f" and {rest} more" if rest > 0 else "")


def doc_of(items) -> str:
    return next((" ".join(item.text.split()) for item in items if isinstance(item, n.Doc)), "")


@define(eq=False)
class Hover:
    """`say` gives the Markdown of a symbol, or None if there is nothing to tell."""

    scope: Scope
    analysis: Analysis

    def say(self, symbol: Symbol) -> str | None:
        method = getattr(self, symbol.kind, None)
        parts = method(symbol) if method is not None else None
        return "\n\n".join(part for part in parts if part) if parts else None

    # ---- declarations ----
    def declaration(self, kind: str, name: str) -> n.Node | None:
        found = self.scope.find(kind, name)
        return found[1] if found is not None else None

    def owner(self, symbol: Symbol) -> Operator | None:
        """The checked operator that a symbol belongs to."""
        name = symbol.owner.split("#")[-1].split("/")[0]
        return self.analysis.library.operators.get(name)

    def operator(self, symbol: Symbol):
        node = self.declaration("operator", symbol.name)
        checked = self.analysis.library.operators.get(symbol.name)
        yield code(f"operator {symbol.name}")
        yield doc_of(node.items)
        if checked is None:
            yield "This operator has errors of its own."
            return
        yield f"sizes {listed(checked.sizes)}"
        for direction in ("input", "output"):
            yield f"{direction}s {listed(p.name for p in checked.ports.values() if p.direction == direction)}"
        if checked.forms:
            yield "forms " + "; ".join(f"`{name}`: {', '.join(cases)}" for name, cases in checked.forms.items())
        rules = [name for name, (_, rule) in self.scope.names("rule").items() if rule.operator.text == symbol.name]
        yield f"rules {listed(rules)}" if rules else ""

    def target(self, symbol: Symbol):
        node = self.declaration("target", symbol.name)
        checked = self.analysis.library.targets.get(symbol.name)
        yield code(f"target {symbol.name}" + (f" extends {node.extends.text}" if node.extends else ""))
        yield doc_of(node.items)
        if checked is None:
            return
        rows = [f"| {name} | {amount(value, name)} |" for name, value in checked.fields.items()]
        yield "| limit | value |\n|---|---|\n" + "\n".join(rows)
        yield f"has {listed(sorted(checked.has), 24)}"

    def instruction(self, symbol: Symbol):
        node = self.declaration("instruction", symbol.name)
        checked = self.analysis.library.instructions.get(symbol.name)
        yield code(f"instruction {symbol.name}")
        yield doc_of(node.items)
        if checked is not None:
            shape = " x ".join(
                str(checked.fields[x])
                for x in ("m", "n", "k")
                if not isinstance(checked.fields.get(x), (tuple, type(None)))
            )
            known = checked.fields
            yield f"m x n x k = {shape}, {known.get('threads')} threads, sums in {known.get('accumulate')}"
            yield (
                code("\n".join(" ".join(o.span.text.split()) for o in checked.operands.values()))
                if checked.operands
                else ""
            )
        yield self.having(symbol.name)

    def feature(self, symbol: Symbol):
        yield code(symbol.name)
        yield self.having(symbol.name)

    def having(self, name: str) -> str:
        targets = [t.name for t in self.analysis.library.targets.values() if name in t.has]
        return f"targets that have it: {listed(targets)}" if targets else "no target has it"

    def tactic(self, symbol: Symbol):
        node = self.declaration("tactic", symbol.name)
        yield code(f"tactic {symbol.name}({', '.join(p.text for p in node.parameters)})")
        yield doc_of(node.items)
        yield code("\n".join(dedented(item) for item in node.items if not isinstance(item, n.Doc)))

    def rule(self, symbol: Symbol):
        from kdsl.lsp.verdicts import contract

        node = self.declaration("rule", symbol.name)
        yield code(f"rule {node.name.text} schedules {node.operator.text} on {', '.join(t.text for t in node.targets)}")
        yield doc_of(node.items)
        yield contract(self.analysis, symbol.name)

    def acceptance(self, symbol: Symbol):
        node = self.declaration("acceptance", symbol.name)
        yield code(f"acceptance {symbol.name} {{\n" + "\n".join("  " + c.span.text for c in node.claims) + "\n}")

    def field(self, symbol: Symbol):
        rows = [f"| {t.name} | {amount(t.fields[symbol.name], symbol.name)} |"
                for t in self.analysis.library.targets.values() if symbol.name in t.fields]  # fmt: skip
        yield code(f"target.{symbol.name}")
        yield "| target | value |\n|---|---|\n" + "\n".join(rows) if rows else "no target has this field"

    # ---- names of an operator ----
    def size(self, symbol: Symbol):
        operator = self.owner(symbol)
        size = operator.sizes.get(symbol.name) if operator is not None else None
        if size is None:
            return
        bounds = f" in {size.low}..{size.high}" if size.low is not None else ""
        yield code(f"{symbol.name}{bounds}")
        yield f"a size of `{operator.name}`; " + ("compiled in: it shapes the tensors of the graph"
              if symbol.name in operator.static_sizes else "known when a kernel is launched")  # fmt: skip

    def parameter(self, symbol: Symbol):
        operator = self.owner(symbol)
        if operator is not None and symbol.name in operator.parameters:
            yield code(f"{symbol.name} in {values_text(operator.parameters[symbol.name].values)}")
            yield f"a parameter of `{operator.name}` that a rule sets in `form`"

    def option(self, symbol: Symbol):
        operator = self.owner(symbol)
        option = operator.options.get(symbol.name) if operator is not None else None
        if option is None:
            return
        values = {"bool": "bool", "scalar": "f32"}.get(option.kind) or values_text(option.values)
        text = f"{symbol.name} in {values}"
        text += f" default {expression(option.default)}" if option.default is not None else ""
        yield code(text + (f" when {expression(option.condition)}" if option.condition is not None else ""))
        yield f"an option of `{operator.name}`, set by the call" + \
            ("; a value at run time" if option.kind == "scalar" else "; compiled in")  # fmt: skip

    def form(self, symbol: Symbol):
        operator = self.owner(symbol)
        if operator is not None and symbol.name in operator.forms:
            yield code(f"{symbol.name} = {' | '.join(operator.forms[symbol.name])}")
            yield f"a form of `{operator.name}`: alternatives that compute the same; a rule takes one"

    def value(self, symbol: Symbol):
        of = symbol.owner.rpartition("/")[2]
        operator = self.owner(symbol)
        yield code(f"{of} = {symbol.name}")
        nodes = walk(operator.declaration) if operator is not None else ()
        cases = [x for x in nodes if isinstance(x, n.FormCase) and x.name.text == symbol.name]
        for case in cases[:2]:
            if case.requires is not None:
                yield f"requires `{' '.join(case.requires.predicate.span.text.split())}`"
            stages = [s for s in walk(case) if isinstance(s, n.Stage)]
            yield code("\n".join(stage_text(s) for s in stages[:MOST])) if stages else "no stages"

    def input(self, symbol: Symbol):
        operator = self.owner(symbol)
        port = operator.ports.get(symbol.name) if operator is not None else None
        if port is not None:
            yield code(port_text(port))
            flags = [word for word, on in (("optional", port.optional), ("updated in place", port.updated),
                                           ("any strides", port.strided)) if on]  # fmt: skip
            yield f"an {port.direction} of `{operator.name}`" + (f": {', '.join(flags)}" if flags else "")

    output = input

    def index(self, symbol: Symbol):
        operator = self.owner(symbol)
        if operator is not None and symbol.name in operator.indices:
            index: Index = operator.indices[symbol.name]
            yield code(
                f"{symbol.name} in {index.said}" + ("" if index.mode == "local" else f" {index.mode}")
            )
            if index.cuts is not None:
                yield f"runs of the steps `{index.cuts}`, one after the other: a carry `over {index.cuts} in"\
                      f" {symbol.name}` starts anew in each, so a grid may enumerate them"  # fmt: skip
                return
            yield {"parallel": "a loop around the graph, in any order: a grid may enumerate it",
                   "sequential": "a loop around the graph, in order: a carried tensor goes from step to step",
                   "local": "an axis of the graph's tensors"}[index.mode]  # fmt: skip
            if index.slot is not None:
                slots = f"`{expression(index.slot)}` of `{expression(index.slots)}`"
                yield f"stored at {slots}: a grid enumerates the slots with `{symbol.name} packed`"

    def definition(self, symbol: Symbol):
        operator = self.owner(symbol)
        if operator is not None and symbol.name in operator.definitions:
            yield code(operator.definitions[symbol.name].span.text)

    def part(self, symbol: Symbol):
        operator = self.owner(symbol)
        if operator is not None and symbol.name in operator.parts:
            stages = [x.name.text for x in walk(operator.parts[symbol.name]) if isinstance(x, n.Stage)]
            yield code(f"part {symbol.name}")
            yield f"stages {listed(dict.fromkeys(stages), 30)}"

    def dtype(self, symbol: Symbol):
        yield code(symbol.name)
        yield f"{DTYPE_BYTES[symbol.name]} bytes an element"

    def predicate(self, symbol: Symbol):
        entry = TABLE[symbol.name]
        how = {"plan": "arithmetic on the plan", "binary": "`kdsl lower`, which reads it from the binary",
               "run": "`kdsl lower --emit bundle`, which runs the kernel",
               "gpu": "`kdsl validate`, which measures it on a GPU"}  # fmt: skip
        yield code(symbol.name + (f"({', '.join(entry.arguments)})" if entry.arguments else ""))
        yield entry.summary + (f", in {entry.unit}" if entry.unit and entry.unit not in entry.summary else "")
        where = ", ".join(f"`{keyword}`" for keyword in entry.where)
        yield f"decided by {how.get(entry.decided, entry.decided)}; may stand in {where}"

    def kernel(self, symbol: Symbol):
        from kdsl.lsp.verdicts import kernel_text

        return kernel_text(self.scope, self.analysis, symbol)

    def choice(self, symbol: Symbol):
        from kdsl.lsp.verdicts import choice_text

        return choice_text(self.analysis, symbol)

    def stage(self, symbol: Symbol):
        from kdsl.lsp.graph_hover import stage_parts

        return stage_parts(self, symbol)

    def tensor(self, symbol: Symbol):
        from kdsl.lsp.graph_hover import tensor_parts

        return tensor_parts(self, symbol)

    view = tensor


# ---- texts -------------------------------------------------------------------------------------------------


def dedented(item: n.Node) -> str:
    import textwrap

    span = item.span
    return textwrap.dedent(" " * (span.column - 1) + span.text)


def stage_text(stage: n.Stage) -> str:
    return " ".join(stage.span.text.split())


def values_text(values) -> str:
    if values is None:
        return "any"
    return "[" + ", ".join(str(v) for v in values[:MOST]) + (", ..." if len(values) > MOST else "") + "]"


def port_text(port: Port) -> str:
    dtypes = ", ".join((*(f"like {name}" for name in port.like), *port.dtypes))
    return f"{port.name} : [{', '.join(expression(e) for e in port.shape)}] of {dtypes}"


def amount(value: object, name: str) -> str:
    """A field of a target; bytes also in KiB or MiB."""
    if isinstance(value, tuple):
        return values_text(value)
    if isinstance(value, int) and value >= 4096 and ("bytes" in name or "shared" in name or name == "l2"):
        unit, scale = ("MiB", 1 << 20) if value % (1 << 20) == 0 else ("KiB", 1 << 10)
        return f"{value} bytes ({value / scale:g} {unit})"
    return str(value)


def rules_of(scope: Scope, operator: str) -> list[n.Rule]:
    return [rule for _, rule in scope.names("rule").values() if rule.operator.text == operator]


def lines_of(rule: n.Rule, kind: str):
    """The lines of a block in every kernel of a rule, with the kernel."""
    for kernel in (item for item in rule.items if isinstance(item, n.Kernel)):
        for line in block(kernel.items, kind):
            yield kernel, line
