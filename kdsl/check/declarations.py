"""Every declaration in scope, right or wrong, by kind and name."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, field

from kdsl.check.findings import Findings, duplicate, recursion
from kdsl.check.model import Instruction, Operator, Target, walk
from kdsl.check.operator_names import OperatorNames
from kdsl.syntax import nodes as n

KINDS = {
    n.Operator: "operator", n.Target: "target", n.Instruction: "instruction", n.Tactic: "tactic",
    n.Rule: "rule",
}  # fmt: skip


@define
class Declarations:
    """Declarations by name, and what is resolved of those that are right.

    A name that is declared and not resolved has findings of its own: who uses it says nothing.
    """

    operators: dict[str, n.Operator] = field(factory=dict)
    targets: dict[str, n.Target] = field(factory=dict)
    instructions: dict[str, n.Instruction] = field(factory=dict)
    tactics: dict[str, n.Tactic] = field(factory=dict)
    rules: dict[str, n.Rule] = field(factory=dict)
    right_operators: dict[str, Operator] = field(factory=dict)
    operator_names: dict[str, OperatorNames] = field(factory=dict)
    right_targets: dict[str, Target] = field(factory=dict)
    right_instructions: dict[str, Instruction] = field(factory=dict)
    broken_tactics: set[str] = field(factory=set)

    def table(self, kind: str) -> dict:
        return getattr(self, f"{kind}s")

    def add(self, declarations: Iterable[n.Declaration], findings: Findings) -> None:
        """Later declarations of a name are findings and are left out."""
        for declaration in declarations:
            kind = KINDS.get(type(declaration))
            if kind is None:
                continue
            table = self.table(kind)
            first = table.setdefault(declaration.name.text, declaration)
            if first is not declaration:
                findings.add(duplicate(kind, declaration.name.text, declaration.name.span, first.name.span))

    @property
    def features(self) -> set[str]:
        """Everything that some target has: instructions, copy engines, abilities."""
        return {name.text for target in self.targets.values() for item in target.items
                if isinstance(item, n.Has)
                for name in item.names}  # fmt: skip


def tactic_circles(declarations: Declarations, findings: Findings) -> None:
    """Tactics that apply themselves, each circle once."""
    for name, tactic in declarations.tactics.items():
        path = _circle(name, declarations)
        if path is not None:
            declarations.broken_tactics.add(name)
            if name == min(path):
                spans = [declarations.tactics[step].name.span for step in path[1:]]
                findings.add(recursion("tactic", [*path, name], tactic.name.span, spans))


def _circle(start: str, declarations: Declarations) -> list[str] | None:
    stack: list[tuple[str, tuple[str, ...]]] = [(start, (start,))]
    seen: set[str] = set()
    while stack:
        at, path = stack.pop()
        for apply in (node for node in walk(declarations.tactics[at]) if isinstance(node, n.Apply)):
            following = apply.tactic.text
            if following == start:
                return list(path)
            if following in declarations.tactics and following not in seen:
                seen.add(following)
                stack.append((following, (*path, following)))
    return None
