"""An operator's declarations: names, ranks, types and units of every line."""

from __future__ import annotations

from attrs import define, evolve

from kdsl.check.domains import known_domain, range_ends
from kdsl.check.findings import (
    Findings,
    a,
    duplicate,
    recursion,
    type_mismatch,
    unknown_name,
    wrong_place,
)
from kdsl.check.infer import expect_bool, expect_int, expect_number, infer
from kdsl.check.model import DTYPE_BYTES, walk
from kdsl.check.operator_names import OperatorNames
from kdsl.check.operators import SCALAR_TYPES, block
from kdsl.check.scope import (
    STATIC_FUNCTIONS,
    Scope,
    Signature,
    Symbol,
    TensorSymbol,
    index_symbol,
    tensor_value,
)
from kdsl.check.types import ANY, FLOAT, INT, SWITCH, Type, option_type
from kdsl.source.diagnostic import Diagnostic, Label
from kdsl.source.span import Span
from kdsl.syntax import nodes as n


def check_operator_lines(declaration: n.Operator, findings: Findings) -> OperatorNames:
    """Every line of the operator but the graph's own laws (`operator_graph`)."""
    lines = _Lines(OperatorNames(declaration), findings)
    for step in (lines.domains, lines.options, lines.ports, lines.index_names, lines.tensor_names,
                 lines.definitions,
                 lines.laws, lines.extents, lines.views, lines.rounding, lines.parts,
                 lines.acceptance):  # fmt: skip
        step()
    return lines.names


@define
class _Lines:
    names: OperatorNames
    findings: Findings

    def block(self, kind: str) -> tuple:
        return block(self.names.declaration.items, kind)

    def declare(self, kind: str, name: n.Id) -> bool:
        """Whether the name is new; sizes, options, indices, functions and tensors share one namespace."""
        known = self.names.first.get(name.text)
        if known is not None:
            self.findings.add(duplicate(f"{known[0]} and {kind}" if known[0] != kind else kind, name.text,
                                        name.span,
                                        known[1]))  # fmt: skip
            return False
        self.names.first[name.text] = (kind, name.span)
        return True

    # ---- values ----
    def domains(self) -> None:
        for keyword, kind in (("sizes", "size"), ("parameters", "parameter")):
            for line in self.block(keyword):
                if line.values is not None:
                    self.domain(kind, line)
                if line.condition is not None:
                    self.domain_condition(kind, line)
                for name in line.names:
                    if self.declare(kind, name):
                        self.names.values[name.text] = Symbol(kind, INT, name.span)

    def domain(self, kind: str, line: n.Domain) -> None:
        what = f"{kind} `{line.names[0].text}`"
        values = line.values
        found = (
            range_ends(values, what, self.findings)
            if kind == "size" and isinstance(values, n.Range)
            else known_domain(values, what, self.findings)
        )
        if found and any(isinstance(v, str) or v < 0 for v in found):
            self.findings.add(Diagnostic("E117", f"a {kind} is a number from 0 up", values.span))

    def domain_condition(self, kind: str, line: n.Domain) -> None:
        """`when span is segmented`: a parameter that only rules of one alternative set."""
        eithers = {
            node.name.text: [case.name.text for case in node.cases]
            for node in walk(self.names.declaration) if isinstance(node, n.Either)
        }  # fmt: skip
        condition = line.condition
        if kind != "parameter" or not isinstance(condition, n.IsOption):
            self.findings.add(wrong_place("clause", "when", condition.span, f"{a(kind)} belongs to a form or to all",
                                          "write `when FORM is CASE` after a parameter"))  # fmt: skip
        elif condition.subject.span.text not in eithers:
            form = condition.subject
            self.findings.add(unknown_name("form", form.span.text, form.span, eithers))
        elif condition.option.text not in eithers[condition.subject.span.text]:
            known = eithers[condition.subject.span.text]
            self.findings.add(unknown_name("alternative", condition.option.text, condition.option.span, known))

    def options(self) -> None:
        lines = self.block("options")
        for line in lines:
            kind = self.option_type(line)
            for name in line.names:
                if self.declare("option", name):
                    self.names.values[name.text] = Symbol("option", kind, name.span)
        scope = Scope("an option's line", dict(self.names.values), STATIC_FUNCTIONS)
        for line in lines:
            symbol = self.names.values.get(line.names[0].text)
            if line.condition is not None:
                expect_bool(line.condition, scope, self.findings)
            if line.default is not None and symbol is not None:
                self.option_default(line, symbol, scope)

    def option_type(self, line: n.Option) -> Type:
        if isinstance(line.values, n.Name) and line.values.text in SCALAR_TYPES:
            return FLOAT
        if isinstance(line.values, n.Name) and line.values.text == "bool":
            return SWITCH
        values = known_domain(line.values, f"option `{line.names[0].text}`", self.findings)
        return option_type(values) if values else ANY

    def option_default(self, line: n.Option, symbol: Symbol, scope: Scope) -> None:
        if symbol.type.kind != "option":
            expect_number(line.default, scope, self.findings, "the default of a scalar")
            return
        text = line.default.text if isinstance(line.default, n.Name) else line.default.span.text
        values = [str(v).lower() for v in symbol.type.values]
        if text not in values:
            self.findings.add(Diagnostic("E142",
                                         f"the default of `{line.names[0].text}` is none of its values",
                                         line.default.span, observed=text,
                                         required=", ".join(values)))  # fmt: skip

    # ---- tensors ----
    def ports(self) -> None:
        scope = Scope(
            "a shape", {k: s for k, s in self.names.values.items() if s.kind in ("size", "parameter")}
        )
        for side, kind in (("inputs", "input"), ("outputs", "output")):
            table = self.names.inputs if kind == "input" else self.names.outputs
            for line in self.block(side):
                self.port_line(line, kind, scope)
                dtypes = tuple(d.name for d in line.dtypes if not d.like)
                for name in line.names:
                    if self.declare(kind, name):
                        table[name.text] = TensorSymbol(
                            kind, len(line.shape), tensor_value(dtypes), name.span
                        )
                        if "updated" in line.flags:
                            self.names.updated.add(name.text)

    def port_line(self, line: n.Port, kind: str, scope: Scope) -> None:
        for expr in line.shape:
            expect_int(expr, scope, self.findings, "a dimension")
        for dtype in line.dtypes:
            if dtype.like and dtype.name not in (*self.names.inputs, *self.names.outputs):
                known = (*self.names.inputs, *self.names.outputs)
                self.findings.add(
                    unknown_name("port", dtype.name, dtype.span, known, " declared before this line")
                )
            elif not dtype.like:
                self.dtype(dtype.name, dtype.span)
        if "updated" in line.flags and kind == "output":
            self.findings.add(wrong_place("flag", "updated", line.span, "an output is always written",
                                          "`updated` marks an input that is written in place"))  # fmt: skip
        if line.alternative is not None:
            for expr in line.alternative.shape:
                expect_int(expr, scope, self.findings, "a dimension")
            if len(line.alternative.shape) != len(line.shape):
                self.findings.add(Diagnostic("E112", "the two shapes have different ranks",
                                             line.alternative.span,
                                             observed=str(len(line.alternative.shape)),
                                             required=str(len(line.shape))))  # fmt: skip
            expect_bool(
                line.alternative.condition, self.names.call_scope("a shape's condition"), self.findings
            )

    def dtype(self, name: str, span: Span) -> None:
        if name not in DTYPE_BYTES:
            self.findings.add(unknown_name("dtype", name, span, DTYPE_BYTES).with_(code="E116"))

    def index_names(self) -> None:
        for line in self.block("indices"):
            for name in line.names:
                if self.declare("index", name):
                    self.names.indices[name.text] = index_symbol(name.span)
                    self.names.modes[name.text] = line.mode or "local"

    def tensor_names(self) -> None:
        """Views, and the tensors that stages and carries make."""
        for line in self.block("views"):
            if self.declare("view", line.target.name):
                kind = FLOAT
                if isinstance(line.source, n.Reference):
                    port = {**self.names.inputs, **self.names.outputs}.get(line.source.name.text)
                    kind = port.type if port is not None else ANY
                self.names.views[line.target.name.text] = TensorSymbol("view", len(line.target.indices), kind,
                                                                       line.target.name.span)  # fmt: skip
        for part in (item for item in self.names.declaration.items if isinstance(item, n.Part)):
            for node in walk(part):
                if isinstance(node, n.Stage):
                    self.tensor(node.target)
                    self.names.stages.setdefault(node.name.text, node.name.span)
                elif isinstance(node, n.Carry):
                    self.tensor(node.tensor)
                    if node.end is not None and node.end.name.text not in self.names.views:
                        self.tensor(node.end)

    def tensor(self, reference: n.Reference) -> None:
        name = reference.name
        symbol = self.names.tensors.get(name.text) or self.names.views.get(name.text)
        if symbol is None:
            if self.declare("tensor", name):
                self.names.tensors[name.text] = TensorSymbol(
                    "tensor", len(reference.indices), FLOAT, name.span
                )
        elif symbol.rank != len(reference.indices):
            self.findings.add(Diagnostic("E112", f"`{name.text}` has {symbol.rank} indices, written at "
                                         f"{len(reference.indices)}", reference.span,
                                         observed=str(len(reference.indices)),
                                         required=str(symbol.rank), labels=(Label(symbol.span,
                                                 "declared here"),)))  # fmt: skip

    # ---- functions and laws ----
    def definitions(self) -> None:
        lines = {line.name.text: line for line in self.block("define")}
        for line in self.block("define"):
            if self.declare("definition", line.name):
                self.names.functions[line.name.text] = Signature(
                    len(line.parameters), len(line.parameters), "fixed", "int", line.name.span,
                    ANY)  # fmt: skip
        pending, done = list(lines), set()
        for name in pending:
            self.define(name, lines, [], done)

    def define(self, name: str, lines: dict, path: list[str], done: set[str]) -> None:
        """Types in the order of use; a circle is a finding."""
        if name in done:
            return
        if name in path:
            cycle = path[path.index(name) :] + [name]
            self.findings.add(recursion("definition", cycle, lines[name].name.span,
                                        [lines[step].name.span for step in cycle[1:-1]]))  # fmt: skip
            done.add(name)
            return
        line = lines[name]
        for call in (node for node in walk(line.body) if isinstance(node, n.Call)):
            if call.function.text in lines:
                self.define(call.function.text, lines, [*path, name], done)
        if name in done:
            return
        done.add(name)
        scope = self.graph_scope(
            f"definition `{name}`", {p.text: index_symbol(p.span) for p in line.parameters}, False
        )
        seen: dict[str, Span] = {}
        for parameter in line.parameters:
            if parameter.text in seen:
                self.findings.add(
                    duplicate("parameter", parameter.text, parameter.span, seen[parameter.text])
                )
            seen.setdefault(parameter.text, parameter.span)
        found = infer(line.body, scope, self.findings)
        count = len(line.parameters)
        self.names.functions[name] = Signature(count, count, "fixed", "int", line.name.span, found)

    def graph_scope(self, where: str, indices: dict[str, Symbol], tensors: bool) -> Scope:
        absent = {name: f"it is an index that {where} does not have" for name in self.names.indices}
        reads = {**self.names.inputs, **({**self.names.views, **self.names.tensors} if tensors else {})}
        return Scope(where, {**self.names.values, **indices}, self.names.functions, reads, absent,
                     self.names.given,
                     self.names.indices if tensors else None)  # fmt: skip

    def laws(self) -> None:
        for claim in self.block("laws"):
            self.claim(claim, "a law")

    def claim(self, claim: n.Claim, where: str) -> None:
        if isinstance(claim.predicate, (n.Typed, n.Uses, n.Within)):
            self.findings.add(Diagnostic("E114", f"this has no meaning in {where}", claim.predicate.span,
                                         help=("a law compares sizes and options",)))  # fmt: skip
            return
        expect_bool(claim.predicate, self.names.call_scope(where), self.findings)

    def extents(self) -> None:
        for line in self.block("indices"):
            name = line.names[0].text
            if line.mode == "sequential":
                parallel = {k: s for k, s in self.names.indices.items() if self.names.modes[k] == "parallel"}
                scope = self.graph_scope(f"the extent of `{name}`", parallel, False)
                if line.by is not None:
                    self.runs(line, scope)
                    self.bounds(line, name, scope)
                    continue
            else:
                values = {k: s for k, s in self.names.values.items() if s.kind in ("size", "parameter")}
                scope = Scope(f"the extent of `{name}`", values)
                if line.by is not None:
                    self.findings.add(wrong_place("clause", "by", line.by.span, f"`{name}` is not sequential",
                                                  "write `in INDEX by LENGTH ... sequential`"))  # fmt: skip
            expect_int(line.extent, scope, self.findings, f"the extent of `{name}`")
            self.bounds(line, name, scope)

    def runs(self, line: n.Index, scope: Scope) -> None:
        """`s in c by L`: the index that is cut is sequential and whole, the length of a run a number of the call."""
        whole = [other.names[0].text for other in self.block("indices")
                 if other.mode == "sequential" and other.by is None]  # fmt: skip
        cut = line.extent
        if not isinstance(cut, n.Name) or cut.text not in whole:
            self.findings.add(unknown_name("sequential index", cut.span.text, cut.span, whole))
        what = f"the length of a run of `{line.names[0].text}`"
        expect_int(line.by, scope.at(what), self.findings, what)
        if line.most is None or line.slot is None:
            unsaid = "how many runs there are at most" if line.most is None else "where tensors of a run lie"
            self.findings.add(Diagnostic(
                "E103", f"`{line.names[0].text}` cuts another index and does not say {unsaid}", line.span,
                required="`up to MOST sequential stored at SLOT of SLOTS`",
            ))  # fmt: skip

    def bounds(self, line: n.Index, name: str, scope: Scope) -> None:
        """What is known of the index when a kernel is launched, and where its tensors lie in a workspace."""
        values = {k: s for k, s in self.names.values.items() if s.kind in ("size", "parameter")}
        launch = Scope(f"the bound of `{name}`", values)
        for expr, what in ((line.most, f"the bound of `{name}`"), (line.slots, f"the slots of `{name}`")):
            if expr is not None:
                expect_int(expr, launch.at(what), self.findings, what)
        if line.slot is not None:
            own = {**scope.names, **{x.text: index_symbol(x.span) for x in line.names}}
            where = f"the slot of `{name}`"
            expect_int(line.slot, evolve(scope, where=where, names=own), self.findings, where)

    def views(self) -> None:
        for line in self.block("views"):
            where = f"view `{line.target.name.text}`"
            own = self.target_indices(line.target, where, local=True)
            scope = self.graph_scope(where, {**self.names.outer, **own}, False)
            ports = {**self.names.inputs, **self.names.outputs}
            if not isinstance(line.source, n.Reference):
                self.findings.add(type_mismatch("a view is a window of a port", line.source.span,
                                                "an expression",
                                                "a port at indices: `q[n, i]`"))  # fmt: skip
            elif line.source.name.text in ports:
                infer(line.source,
                      Scope(where, scope.names, scope.functions, ports, scope.absent, scope.inputs),
                      self.findings)  # fmt: skip
            else:
                self.findings.add(unknown_name("port", line.source.name.text, line.source.name.span, ports))
            if line.condition is not None:
                expect_bool(line.condition, scope, self.findings)
            if line.otherwise is not None:
                expect_number(line.otherwise, scope, self.findings, "the value outside")

    def target_indices(self, reference: n.Reference, where: str, local: bool) -> dict[str, Symbol]:
        """The indices on the left of `=`: known, plain, each once."""
        found: dict[str, Symbol] = {}
        for index in reference.indices:
            if not isinstance(index, n.Name):
                self.findings.add(type_mismatch(f"{where} is defined at plain indices", index.span,
                                                "an expression",
                                                "an index"))  # fmt: skip
            elif index.text not in self.names.indices:
                self.findings.add(
                    unknown_name("index", index.text, index.span, self.names.indices, f" of {where}")
                )
            elif index.text in found:
                self.findings.add(duplicate("index", index.text, index.span, found[index.text].span,
                                            "every index of a tensor is another one"))  # fmt: skip
            elif local and self.names.modes[index.text] != "local":
                self.findings.add(wrong_place("index of a tensor", index.text, index.span,
                                              f"`{index.text}` is {self.names.modes[index.text]}: a tensor "
                                              "of the graph "
                                              "belongs to one value of it", "leave it out"))  # fmt: skip
            else:
                found[index.text] = index_symbol(index.span)
        return found

    def rounding(self) -> None:
        seen: dict[str, Span] = {}
        for line in self.block("rounding"):
            for dtype in line.dtypes:
                self.dtype(dtype.name, dtype.span)
            for name in line.names:
                if name.text in seen:
                    self.findings.add(duplicate("rounding of", name.text, name.span, seen[name.text]))
                elif name.text not in self.names.tensors:
                    self.findings.add(unknown_name("tensor", name.text, name.span, self.names.tensors))
                seen.setdefault(name.text, name.span)

    # ---- graph ----
    def parts(self) -> None:
        seen: dict[str, Span] = {}
        for part in (item for item in self.names.declaration.items if isinstance(item, n.Part)):
            if part.name.text in seen:
                self.findings.add(duplicate("part", part.name.text, part.name.span, seen[part.name.text]))
            seen.setdefault(part.name.text, part.name.span)
            for node in walk(part):
                if isinstance(node, n.Stage):
                    self.stage(node)
                elif isinstance(node, n.Carry):
                    self.carry(node)
                elif isinstance(node, n.FormCase) and node.requires is not None:
                    self.claim(node.requires, f"what `{node.name.text}` requires")

    def stage(self, node: n.Stage) -> None:
        where = f"stage `{node.name.text}`"
        own = self.target_indices(node.target, where, local=True)
        scope = self.graph_scope(where, {**self.names.outer, **own}, True)
        expect_number(node.body, scope, self.findings, f"the value of `{node.target.name.text}`")
        if node.scan is not None and node.scan.text not in own:
            self.findings.add(unknown_name("index", node.scan.text, node.scan.span, own, f" of {where}"))

    def carry(self, node: n.Carry) -> None:
        where = f"carry `{node.tensor.name.text}`"
        own = self.target_indices(node.tensor, where, local=True)
        sequential = [name for name, mode in self.names.modes.items() if mode == "sequential"]
        if node.over.text not in sequential:
            self.findings.add(unknown_name("sequential index", node.over.text, node.over.span, sequential))
        if node.within is not None:
            cuts = [x.text for line in self.block("indices") if line.by is not None
                    and isinstance(line.extent, n.Name) and line.extent.text == node.over.text
                    for x in line.names]  # fmt: skip
            if node.within.text not in cuts:
                what = f"index that cuts `{node.over.text}`"
                self.findings.add(unknown_name(what, node.within.text, node.within.span, cuts))
        scope = self.graph_scope(where, {**self.names.outer, **own}, True)
        expect_number(node.start, scope, self.findings, f"the start of `{node.tensor.name.text}`")
        if node.end is not None:
            infer(node.end, scope, self.findings)
        if node.next.text not in self.names.tensors:
            self.findings.add(unknown_name("tensor", node.next.text, node.next.span, self.names.tensors))
        elif self.names.tensors[node.next.text].rank != len(node.tensor.indices):
            self.findings.add(Diagnostic("E112",
                                         f"`{node.next.text}` follows `{node.tensor.name.text}` and has "
                                         "another "
                                "rank", node.next.span, observed=str(self.names.tensors[node.next.text].rank),
                                         required=str(len(node.tensor.indices))))  # fmt: skip

    def acceptance(self) -> None:
        seen: dict[str, Span] = {}
        for item in (item for item in self.names.declaration.items if isinstance(item, n.Acceptance)):
            if item.name.text in seen:
                self.findings.add(
                    duplicate("acceptance", item.name.text, item.name.span, seen[item.name.text])
                )
            seen.setdefault(item.name.text, item.name.span)
            ports = {
                **self.names.outputs,
                **{k: v for k, v in self.names.inputs.items() if k in self.names.updated},
            }
            for claim in item.claims:
                for call in (c for c in walk(claim.predicate) if isinstance(c, n.Call)):
                    if call.function.text not in ("finite", "rms_error", "element_error", "min", "max"):
                        known = ("finite", "rms_error", "element_error", "min", "max")
                        self.findings.add(
                            unknown_name("measure", call.function.text, call.function.span, known)
                        )
                    elif call.function.text in ("finite", "rms_error"):
                        for argument in call.arguments:
                            if isinstance(argument, n.Name) and argument.text not in ports:
                                self.findings.add(unknown_name("output", argument.text, argument.span, ports))
