"""Names, types and units of the claims in `ensure` and `measure`."""

from __future__ import annotations

import re

from attrs import define, evolve, frozen

from kdsl.check.findings import closest, listed, unknown_name, wrong_arity
from kdsl.check.infer import expect_bool
from kdsl.check.kernel_lines import KernelLines
from kdsl.check.model import names_in, walk
from kdsl.check.operators import block
from kdsl.check.rule_lines import RuleNames, expanded
from kdsl.check.scope import Scope, Symbol
from kdsl.check.types import TIME
from kdsl.contract.predicates import BASELINES, ENSURE, MEASURE, TABLE, Mention, keyed
from kdsl.source.diagnostic import Diagnostic, Edit
from kdsl.syntax import nodes as n


@frozen
class Claims:
    """Claims without findings: of the rule (under None) and of each kernel."""

    ensure: dict[str | None, tuple[n.Claim, ...]]
    measure: tuple[n.Claim, ...]


def fact_names() -> dict[str, str]:
    """Why a predicate has no value in `require`."""
    return {name: f"it is a fact about the kernel, which {' or '.join(f'`{x}`' for x in entry.where)} may claim"
            for name, entry in TABLE.items()}  # fmt: skip


def check_claims(rule: RuleNames, kernels: list[KernelLines]) -> Claims:
    """Every claim of the rule, its tactics and its kernels."""
    items = expanded(rule, tuple(i for i in rule.declaration.items if not isinstance(i, n.Kernel)))
    ensure: dict[str | None, tuple[n.Claim, ...]] = {None: _kept(rule, items, ENSURE, None)}
    for kernel in kernels:
        ensure[kernel.declaration.name.text] = _kept(rule, kernel.declaration.items, ENSURE, kernel)
    stray = [
        i for i in items if isinstance(i, n.Block) and i.kind in ("grid", "roles", "place", "compute", "pin")
    ]
    for item in stray:
        rule.findings.add(Diagnostic("E107", f"`{item.kind}` belongs to a kernel", item.span,
                                     label="outside any kernel",
                                     help=("apply the tactic inside a kernel",)))  # fmt: skip
    return Claims(ensure, _kept(rule, items, MEASURE, None))


def _kept(
    rule: RuleNames, items: tuple[n.Node, ...], where: str, kernel: KernelLines | None
) -> tuple[n.Claim, ...]:
    found = []
    for claim in block(items, where):
        before = len(rule.findings)
        rule.used |= set(names_in(claim.predicate))
        _Claim(rule, where, kernel).check(claim.predicate)
        if len(rule.findings) == before:
            found.append(claim)
    return tuple(found)


@define
class _Claim:
    rule: RuleNames
    where: str
    kernel: KernelLines | None

    def check(self, predicate: n.Node) -> None:
        if isinstance(predicate, n.Typed):
            self.add(Diagnostic("E114", f"`{self.where}` does not ask for dtypes of a call", predicate.span,
                                help=("move the line to `require`",)))  # fmt: skip
        elif isinstance(predicate, n.Uses):
            self.uses(predicate)
        elif isinstance(predicate, n.Within):
            self.within(predicate)
        else:
            mentions: list[Mention] = []
            expr = keyed(predicate, mentions)
            before = len(self.rule.findings)
            for spoken in mentions:
                self.spoken(spoken, predicate)
            claims = [m for m in mentions if not TABLE[m.name.text].operand]
            expect_bool(expr, self.scope(mentions), self.rule.findings)
            if not claims and len(self.rule.findings) == before:
                self.nothing(predicate)

    def add(self, diagnostic: Diagnostic) -> None:
        self.rule.findings.add(diagnostic)

    def nothing(self, predicate: n.Node) -> None:
        """A claim without a fact: about a call, not about the kernel."""
        sizes = [x for x in names_in(predicate) if x in self.rule.names.values]
        if sizes:
            self.add(Diagnostic("E114", f"`{self.where}` says what holds of the code, and this asks about "
                                        "the call",
                                predicate.span, help=("move the line to `require`",)))  # fmt: skip

    def scope(self, mentions: list[Mention]) -> Scope:
        scope = self.rule.static_scope(f"`{self.where}`")
        names = {m.key: Symbol("predicate", TABLE[m.name.text].type, m.node.span) for m in mentions}
        names |= {f"baseline {name}": Symbol("baseline", TIME) for name in BASELINES}
        sizes = {name: s for name, s in self.rule.names.values.items() if s.kind == "size"}
        mine = (e for e in TABLE.values() if self.where in e.where and not e.arguments)
        known = {e.name: Symbol("predicate", e.type) for e in mine}  # for who misspells one
        return evolve(scope, names={**known, **scope.names, **sizes, **names})

    # ---- predicates ----
    def spoken(self, spoken: Mention, predicate: n.Node) -> None:
        entry = TABLE[spoken.name.text]
        if self.where not in entry.where:
            self.misplaced(spoken, entry, predicate)
        if entry.name == "error":
            self.add(Diagnostic("E110", "`error` is compared with an acceptance", spoken.node.span,
                                observed="a number", required="`error within ...`",
                                help=("write `error within kda.acceptance`",)))  # fmt: skip
        count, most = len(spoken.arguments), len(entry.arguments)
        if not most - entry.optional <= count <= most:
            needed = str(most) if not entry.optional else f"{most - entry.optional} to {most}"
            self.add(
                wrong_arity(
                    f"`{entry.name}`", count, f"{needed} argument{'s' * (needed != '1')}", spoken.node.span
                )
            )
        for kind, argument in zip(entry.arguments, spoken.arguments, strict=False):
            self.argument(entry.name, kind, argument)
        self.level(spoken, entry)

    def misplaced(self, spoken: Mention, entry, predicate: n.Node) -> None:
        right = entry.where[0]
        text = " ".join(predicate.span.text.split())
        move = f"write `{right} {{ {text} }}` after `{self.where}`, in the rule"
        if any(isinstance(item, n.Block) and item.kind == right for item in self.rule.declaration.items):
            move = f"move the line to `{right}`"
        who = "needs a GPU" if entry.decided == "gpu" else "is decided without a GPU"
        self.add(Diagnostic(
            "E114", f"`{entry.name}` {who} and cannot stand in `{self.where}`", spoken.node.span,
            label=f"not in `{self.where}`", observed=self.where, required=" or ".join(entry.where),
            help=(move,)))  # fmt: skip

    def argument(self, predicate: str, kind: str, argument: n.Expr) -> None:
        if not isinstance(argument, n.Name):
            self.add(Diagnostic("E110", f"`{predicate}` takes the name of a {kind}", argument.span,
                                observed="an expression", required=f"a {kind}"))  # fmt: skip
        elif kind == "stage" and argument.text not in self.rule.names.stages:
            self.add(unknown_name("stage", argument.text, argument.span, self.rule.names.stages))
        elif kind == "tensor":
            known = {**self.rule.names.views, **self.rule.names.tensors}
            if argument.text not in known:
                self.add(unknown_name("tensor", argument.text, argument.span, known))

    def level(self, spoken: Mention, entry) -> None:
        if spoken.level is None:
            if entry.level_needed:
                self.add(Diagnostic("E103", f"`{entry.name}` needs the code it counts in", spoken.node.span,
                                    required=" or ".join(f"at {x}" for x in entry.levels),
                                    help=(f"write `{spoken.key} at {entry.levels[0]}`",)))  # fmt: skip
            return
        level = spoken.level
        known = tuple(x for x in entry.levels if x not in ("role", "kernel"))
        if "kernel" in entry.levels:
            known += tuple(kernel.name.text for kernel in self.kernels())
        if "role" in entry.levels:
            kernels = [self.kernel.declaration] if self.kernel is not None else self.kernels()
            known += tuple(line.name.text for k in kernels for line in block(k.items, "roles"))
        if not entry.levels:
            self.add(
                Diagnostic(
                    "E114", f"`{entry.name}` is not counted at a level", level.span, help=("drop `at`",)
                )
            )
        elif level.text not in known:
            self.add(unknown_name("level", level.text, level.span, known))

    def kernels(self) -> list[n.Kernel]:
        return [item for item in self.rule.declaration.items if isinstance(item, n.Kernel)]

    def uses(self, predicate: n.Uses) -> None:
        if self.where != ENSURE:
            self.add(Diagnostic("E114", "`uses` is read from the binary and stands in `ensure`",
                                predicate.span,
                                help=("move the line to `ensure`",)))  # fmt: skip
        for stage in predicate.stages:
            if stage.text not in self.rule.names.stages:
                self.add(unknown_name("stage", stage.text, stage.span, self.rule.names.stages))

    def within(self, predicate: n.Within) -> None:
        subject = predicate.subject
        share = share_of_nothing(subject)
        if share is not None:
            self.add(Diagnostic("E020", f"`{share.text}%` does not say of what", share.span, label="a share of what?",
                                help=(f"write `{share.text}% of x`, where x is what 100% would be",)))  # fmt: skip
            return
        if not (isinstance(subject, n.Name) and subject.text == "error"):
            self.add(Diagnostic("E110", "only `error` is within an acceptance", subject.span,
                                observed=subject.span.text,
                                required="error"))  # fmt: skip
        acceptance = self.rule.operator.acceptance
        known = [acceptance.name.text] if acceptance is not None else []
        if predicate.acceptance.text not in known:
            near = closest(predicate.acceptance.text, known)
            edits = (Edit(predicate.acceptance.span, near, f"replace by `{near}`"),) if near else ()
            self.add(unknown_name("acceptance", predicate.acceptance.text, predicate.acceptance.span, known)
                     .with_(edits=edits))  # fmt: skip
        families = {t.name for t in self.rule.targets if t.family != "cpu"}
        if self.where == ENSURE and families:
            self.add(Diagnostic(
                "E114", f"`error` on {listed(sorted(families))} needs a GPU and cannot stand in `ensure`",
                predicate.span,
                label="not in `ensure`", observed=ENSURE,
                required=f"{MEASURE}; `ensure` on a cpu target only",
                help=("move the line to `measure`",)))  # fmt: skip


def share_of_nothing(subject: n.Expr) -> n.Number | None:
    """The `95` of a line that ends in `95%`: read as a remainder, it takes the next line for its divisor."""
    for node in walk(subject):
        if isinstance(node, n.Binary) and node.operator == "%" and isinstance(node.left, n.Number):
            between = subject.span.text[node.left.span.last - subject.span.first :]
            if re.match(r"%[ \t]*(#[^\n]*)?\r?\n", between):
                return node.left
    return None
