"""Every declaration in scope: the standard library and the files at hand, by name."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from attrs import define, field

from kdsl.check.model import Instruction, Operator, Rule, Target
from kdsl.check.operators import resolve_operator
from kdsl.check.rules import resolve_rule
from kdsl.check.targets import resolve_instruction, resolve_target
from kdsl.data import data_root
from kdsl.syntax import nodes as n
from kdsl.syntax.parse import parse_file


@define
class Library:
    operators: dict[str, Operator] = field(factory=dict)
    targets: dict[str, Target] = field(factory=dict)
    instructions: dict[str, Instruction] = field(factory=dict)
    tactics: dict[str, n.Tactic] = field(factory=dict)
    rules: dict[str, Rule] = field(factory=dict)

    def add(self, declarations: Iterable[n.Declaration]) -> None:
        declarations = tuple(declarations)
        known = {d.name.text: d for d in declarations if isinstance(d, n.Target)}
        known = {**{name: t.declaration for name, t in self.targets.items()}, **known}
        for declaration in declarations:
            if isinstance(declaration, n.Operator):
                self.operators[declaration.name.text] = resolve_operator(declaration)
            elif isinstance(declaration, n.Target):
                self.targets[declaration.name.text] = resolve_target(declaration, known)
            elif isinstance(declaration, n.Instruction):
                self.instructions[declaration.name.text] = resolve_instruction(declaration)
            elif isinstance(declaration, n.Tactic):
                self.tactics[declaration.name.text] = declaration
            elif isinstance(declaration, n.Rule):
                self.rules[declaration.name.text] = resolve_rule(declaration)


@lru_cache(maxsize=1)
def standard_declarations() -> tuple[n.Declaration, ...]:
    files = sorted((data_root() / "stdlib").rglob("*.kds"))
    return tuple(declaration for file in files for declaration in parse_file(file).declarations)


def load(paths: Iterable[Path] = ()) -> Library:
    """The standard library and the declarations of these files."""
    library = Library()
    library.add(standard_declarations())
    for path in paths:
        library.add(parse_file(path).declarations)
    return library
