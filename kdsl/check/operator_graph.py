"""Laws of an operator's graph: every tensor made once, every output written, no circle, one reduction a
stage.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, field

from kdsl.check.blueprint import (
    Blueprint,
    GuardedStage,
    Guards,
    blueprint,
    compatible,
    possible,
    said,
    uncovered,
)
from kdsl.check.evaluate import decide
from kdsl.check.findings import Findings, a, duplicate, listed, unknown_name, wrong_place
from kdsl.check.graph import split_reduction, strip
from kdsl.check.model import Operator, walk
from kdsl.check.steps import check_steps
from kdsl.source.diagnostic import Diagnostic, Label
from kdsl.syntax import nodes as n


def check_operator_graph(operator: Operator, findings: Findings) -> None:
    """For an operator whose lines are right."""
    laws = _Laws(operator, blueprint(operator), findings)
    before = len(findings)
    laws.alternatives()
    laws.shapes()
    if len(findings) > before:
        return  # who makes what follows from the alternatives
    for step in (laws.stage_names, laws.producers, laws.reads, laws.outputs, laws.cycles):
        step()
    if len(findings) == before:
        check_steps(operator, laws.graph, findings)


@define
class _Laws:
    operator: Operator
    graph: Blueprint
    findings: Findings
    unmade: set[str] = field(factory=set)

    # ---- alternatives ----
    def alternatives(self) -> None:
        first: dict[str, n.Either] = {}
        for found in self.graph.eithers:
            node = found.node
            name = node.name.text
            self.case_names(node)
            option = self.operator.options.get(name)
            self.default(node, option)
            if option is not None:
                self.option_cases(node, option)
                continue
            earlier = first.setdefault(name, node)
            theirs = {case.name.text for case in earlier.cases}
            ours = {case.name.text for case in node.cases}
            if theirs != ours:
                missing = sorted(theirs ^ ours)
                self.findings.add(Diagnostic("E207", f"form `{name}` has other alternatives here than before",
                                             node.name.span, label=f"differs in {listed(missing)}",
                                             labels=(Label(earlier.name.span, "first here"),),
                                             observed=listed(sorted(ours)),
                                             required=listed(sorted(theirs)),
                                             help=("give every `either` of one form the same cases; a case "
                                                   "may be "
                                                   "empty",)))  # fmt: skip

    def default(self, node: n.Either, option) -> None:
        """The alternative of a rule that does not choose is one of the form's, the same wherever the form stands."""
        default = node.default
        if default is None:
            return
        cases = [case.name.text for case in node.cases]
        if option is not None:
            self.findings.add(wrong_place("default", default.text, default.span, f"`{option.name}` is an option",
                                          "its default stands in `options`"))  # fmt: skip
        elif default.text not in cases:
            self.findings.add(unknown_name("alternative", default.text, default.span, cases))
        elif self.graph.defaults[node.name.text] != default.text:
            self.findings.add(Diagnostic("E207", f"form `{node.name.text}` has two defaults", default.span,
                                         observed=default.text, required=self.graph.defaults[node.name.text],
                                         help=("one `default`, where the form stands first, is enough",)))  # fmt: skip

    def case_names(self, node: n.Either) -> None:
        seen: dict[str, n.Id] = {}
        for case in node.cases:
            if case.name.text in seen:
                self.findings.add(
                    duplicate("case", case.name.text, case.name.span, seen[case.name.text].span)
                )
            seen.setdefault(case.name.text, case.name)

    def option_cases(self, node: n.Either, option) -> None:
        if option.kind == "scalar":
            self.findings.add(Diagnostic("E207", f"`{option.name}` is a scalar and has no cases",
                                         node.name.span,
                                         labels=(Label(option.span, "declared here"),)))  # fmt: skip
            return
        values = [str(v).lower() for v in option.values]
        names = [case.name.text for case in node.cases]
        for case in node.cases:
            if case.name.text not in values:
                self.findings.add(Diagnostic("E113", f"`{option.name}` is never `{case.name.text}`",
                                             case.name.span,
                                             observed=case.name.text, required=listed(values),
                                             labels=(Label(option.span, "declared here"),)))  # fmt: skip
        missing = [v for v in values if v not in names]
        if missing:
            self.findings.add(Diagnostic("E207", f"`either {option.name}` says nothing for {listed(missing)}",
                                         node.name.span, label="not every value of the option has a case",
                                         observed=listed(names), required=listed(values),
                                         labels=(Label(option.span, "declared here"),),
                                         help=(f"add `when {missing[0]} {{ ... }}`",)))  # fmt: skip

    def stage_names(self) -> None:
        by_name: dict[str, list[GuardedStage]] = {}
        for found in self.graph.stages:
            for other in by_name.setdefault(found.stage.name, []):
                if compatible(found.guards, other.guards):
                    self.findings.add(
                        duplicate("stage", found.stage.name, found.node.name.span, other.node.name.span)
                    )
                    break
            by_name[found.stage.name].append(found)

    # ---- shape of a stage ----
    def shapes(self) -> None:
        for found in self.graph.stages:
            self.reductions(found)
            self.scan(found)

    def reductions(self, found: GuardedStage) -> None:
        every = [node for node in walk(found.node.body) if isinstance(node, n.Reduction)]
        _, _, reduction = split_reduction(found.node.body)
        extra = [node for node in every if node is not reduction]
        if extra:
            reason = "a second reduction" if reduction is not None else "a reduction inside an expression"
            self.findings.add(Diagnostic(
                "E205", f"stage `{found.stage.name}` has {reason}", extra[0].span,
                label="not the last term of the sum",
                labels=(Label(reduction.span, "the reduction of this stage"),) if reduction is not None
                else (),
                required="`initial + sum over ... of ...`",
                help=("make the inner value a stage of its own and read its tensor here",)))  # fmt: skip
        for binder in (b for node in every for b in node.binders):
            if binder.name.text in found.stage.indices:
                self.findings.add(Diagnostic("E205",
                                             f"`{binder.name.text}` is an index of `{found.stage.tensor}` "
                                             "and "
                                             "cannot be reduced as well", binder.name.span,
                                       help=("reduce over another index with the same extent",)))  # fmt: skip

    def scan(self, found: GuardedStage) -> None:
        own = [node for node in walk(found.node.body)
               if isinstance(node, n.Reference) and node.name.text == found.stage.tensor]  # fmt: skip
        if not own:
            if found.stage.scan is not None:
                self.findings.add(Diagnostic("E206",
                                             f"stage `{found.stage.name}` is a scan and reads nothing of its "
                                             "own",
                                found.node.scan.span, help=(f"drop `scan {found.stage.scan}`",)))  # fmt: skip
            return
        if found.stage.scan is None:
            self.findings.add(Diagnostic("E204", f"stage `{found.stage.name}` reads the tensor that it makes",
                                         own[0].span,
                                         label=f"`{found.stage.tensor}` is not made yet",
                            help=("say along which index earlier elements are read: `scan i`",)))  # fmt: skip
            return
        for read in own:
            reason = self.not_earlier(found, read)
            if reason:
                scan = found.stage.scan
                self.findings.add(Diagnostic("E206",
                                             f"`{read.span.text}` is not an earlier element along `{scan}`",
                                             read.span, label=reason, labels=(Label(found.node.scan.span,
                                                                                    "scans here"),),
                                             required=f"`{scan} - 1` or a binder `p < {scan}`, all else "
                                                      "unchanged"))  # fmt: skip

    def not_earlier(self, found: GuardedStage, read: n.Reference) -> str | None:
        bounds = {b.name.text: b.bound for node in walk(found.node.body) if isinstance(node, n.Reduction)
                  for b in node.binders}  # fmt: skip
        for index, at in zip(found.stage.indices, read.indices, strict=False):
            at = strip(at)
            if index != found.stage.scan:
                if not (isinstance(at, n.Name) and at.text == index):
                    return f"`{index}` must stay as it is"
                continue
            bound = bounds.get(at.text) if isinstance(at, n.Name) else None
            if bound is not None and isinstance(strip(bound), n.Name) and strip(bound).text == index:
                continue
            step = decide(at.right, {}) if isinstance(at, n.Binary) and at.operator == "-" else None
            left = strip(at.left) if isinstance(at, n.Binary) else None
            if not (isinstance(left, n.Name) and left.text == index and isinstance(step, int) and step > 0):
                return f"`{at.span.text}` may be this element or a later one"
        return None

    # ---- producers ----
    def makers(self, tensor: str) -> list[tuple[Guards, object]]:
        made = [(s.guards, s.node.target) for s in self.graph.stages if s.stage.tensor == tensor]
        made += [(c.guards, c.node.tensor) for c in self.graph.carries if c.carry.tensor == tensor]
        ends = (c for c in self.graph.carries if c.carry.end is not None and c.carry.end.tensor == tensor)
        return made + [(c.guards, c.node.end) for c in ends]

    def producers(self) -> None:
        tensors = dict.fromkeys(
            [s.stage.tensor for s in self.graph.stages] + [c.carry.tensor for c in self.graph.carries]
            + [c.carry.end.tensor for c in self.graph.carries if c.carry.end is not None]
        )
        for tensor in tensors:
            if tensor not in self.operator.views:
                self.once(f"tensor `{tensor}`", self.makers(tensor))

    def once(self, what: str, makers: list[tuple[Guards, n.Node]]) -> None:
        for position, (guards, node) in enumerate(makers):
            for other_guards, other in makers[:position]:
                if compatible(guards, other_guards):
                    together = said({**dict(guards), **dict(other_guards)})
                    self.findings.add(Diagnostic("E202", f"{what} is written twice{together}", node.span,
                                                 label="again here", labels=(Label(other.span,
                                                                                   "first here"),),
                                                 help=("write another tensor, or put the two in different "
                                                       "cases of one "
                                                       "`either`",)))  # fmt: skip
                    return

    def reads(self) -> None:
        for found in self.graph.stages:
            for read in found.stage.reads:
                if read.tensor != found.stage.tensor:
                    self.readable(read.tensor, read.span, found.guards, f"stage `{found.stage.name}`")
        for found in self.graph.carries:
            name = f"carry `{found.carry.tensor}`"
            for read in found.carry.reads:
                self.readable(read.tensor, read.span, found.guards, name)
            self.readable(found.carry.next, found.node.next.span, found.guards, name)

    def readable(self, tensor: str, span, guards: Guards, reader: str) -> None:
        view = self.operator.views.get(tensor)
        if view is not None:
            self.readable_view(view, span)
            return
        missing = uncovered(guards, [g for g, _ in self.makers(tensor)], self.graph.cases)
        if missing is not None and possible(guards) and tensor not in self.unmade:
            self.unmade.add(tensor)
            made = [Label(node.span, "made here") for _, node in self.makers(tensor)]
            self.findings.add(Diagnostic("E201",
                                         f"nothing makes `{tensor}`{said(missing)}, and {reader} reads it",
                                         span,
                                         label="read here", labels=tuple(made[:3]),
                                         help=(f"add a stage that makes `{tensor}` there",)))  # fmt: skip

    def readable_view(self, view, span) -> None:
        port = self.operator.ports.get(view.port)
        if port is None:
            return
        if port.direction == "output":
            self.findings.add(Diagnostic("E203",
                                         f"`{view.name}` is a window of the output `{port.name}` and cannot "
                                         "be read",
                                         span, labels=(Label(view.span, "declared here"),),
                                         help=("read the tensor that is written to it",)))  # fmt: skip
        elif view.condition is not None and view.otherwise is None:
            self.findings.add(Diagnostic("E214", f"`{view.name}` has no value where its condition fails",
                                         span,
                                         labels=(Label(view.span, "declared without `else`"),),
                                         help=("add `else 0.0` to the view",)))  # fmt: skip

    # ---- outputs ----
    def outputs(self) -> None:
        writers: dict[str, list[tuple[Guards, n.Node]]] = {}
        targets = [(s.stage.tensor, s.guards, s.node.target) for s in self.graph.stages]
        targets += [
            (c.carry.end.tensor, c.guards, c.node.end) for c in self.graph.carries if c.carry.end is not None
        ]
        for tensor, guards, node in targets:
            view = self.operator.views.get(tensor)
            if view is None or view.port not in self.operator.ports:
                continue
            port = self.operator.ports[view.port]
            if not port.written:
                self.findings.add(Diagnostic("E203",
                                             f"`{tensor}` is a window of the input `{port.name}`, which is "
                                             "never "
                                             "written", node.span, labels=(Label(port.span,
                                                                                 "declared as an input"),),
                                             help=("mark the input `updated` if the operator writes it in "
                                                   "place",)))  # fmt: skip
                continue
            writers.setdefault(port.name, []).append((guards, node))
        for port in self.operator.ports.values():
            if port.written:
                found = writers.get(port.name, [])
                self.once(f"{a(port.direction)} `{port.name}`".partition(" ")[2], found)
                missing = uncovered((), [guards for guards, _ in found], self.graph.cases)
                if missing is not None:
                    self.findings.add(Diagnostic("E203",
                                                 f"{port.direction} `{port.name}` is not "
                                                 f"written{said(missing)}",
                                                 port.span, label="declared here",
                                                 labels=tuple(Label(node.span, "written here") for _,
                                                              node in found[:3]),
                                          help=("write it from a stage, or end a carry in it",)))  # fmt: skip

    # ---- circles ----
    def cycles(self) -> None:
        edges: dict[int, list[int]] = {}
        makers: dict[str, list[int]] = {}
        for number, found in enumerate(self.graph.stages):
            makers.setdefault(found.stage.tensor, []).append(number)
        for number, found in enumerate(self.graph.stages):
            edges[number] = [m for read in found.stage.reads if read.tensor != found.stage.tensor
                             for m in makers.get(read.tensor, ())]  # fmt: skip
        reported: set[int] = set()
        for start in edges:
            path = self.circle(start, edges)
            if path and not reported & set(path):
                reported |= set(path)
                stages = [self.graph.stages[i] for i in path]
                names = " -> ".join(s.stage.name for s in [*stages, stages[0]])
                guards = said({k: v for s in stages for k, v in s.guards})
                self.findings.add(Diagnostic("E204", f"the graph has a circle{guards}: {names}",
                                             stages[0].node.name.span,
                                             label="reads what follows from it",
                                             labels=tuple(Label(s.node.name.span, "in the circle")
                                                          for s in stages[1:]),
                                help=("carry a tensor over a sequential index, or `scan` one",)))  # fmt: skip

    def circle(self, start: int, edges: dict[int, list[int]]) -> list[int] | None:
        """A way from a stage back to itself whose conditions can all hold together."""
        stack: list[tuple[int, tuple[int, ...], Guards]] = [
            (start, (start,), self.graph.stages[start].guards)
        ]
        seen: set[tuple[int, Guards]] = set()
        while stack:
            at, path, guards = stack.pop()
            for following in edges[at]:
                theirs = self.graph.stages[following].guards
                if not compatible(guards, theirs):
                    continue
                if following == start:
                    return list(path)
                merged = tuple(sorted({*guards, *theirs}))
                if (following, merged) not in seen and following > start and len(seen) < 20000:
                    seen.add((following, merged))
                    stack.append((following, (*path, following), merged))
        return None


def stage_names(stages: Iterable[GuardedStage]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(s.stage.name for s in stages))
