"""What one file sees: itself, the files it uses, the standard library, then the rest of the workspace.

A name that the first three do not declare and one file of the workspace does is taken from there, as
`kdsl check FOLDER` would; so a workspace needs no `use` to be checked in the editor.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from attrs import define, field

from kdsl.check.declarations import KINDS
from kdsl.check.files import Loaded, follow_uses
from kdsl.check.model import walk
from kdsl.lsp.bind import occurrences
from kdsl.lsp.names import Found, Lookup, Occurrence, OperatorTable, operator_table
from kdsl.lsp.session import Session, standard_files
from kdsl.source.span import SourceFile
from kdsl.syntax import nodes as n
from kdsl.syntax.parse import Parsed


@define
class Followed(Loaded):
    """A file and what it uses, read from open documents where there are any."""

    session: Session | None = None

    def take(self, source: SourceFile) -> Parsed:
        parsed = self.session.take(source)
        self.add(parsed)
        return parsed

    def add(self, parsed: Parsed) -> None:
        self.trees.append(parsed.tree)
        self.paths.append(parsed.tree.source.path)
        self.diagnostics += parsed.diagnostics
        self.partial |= {id(parsed.tree.declarations[i]) for i in parsed.partial}


def follow(session: Session, path: str) -> Followed | None:
    """The file at `path` with all it uses; None if it cannot be read."""
    parsed = session.parsed(path)
    if parsed is None:
        return None
    loaded = Followed(session=session)
    loaded.add(parsed)
    follow_uses(loaded, parsed.tree, Path(path), [])
    return loaded


@define(eq=False)
class Scope(Lookup):
    """The declarations that one file sees. Answers are kept: a scope lives until a text changes."""

    session: Session
    path: str
    loaded: Followed
    bound: Bound
    _known: dict[str, dict[str, Found]] = field(factory=dict)
    _tables: dict[str, OperatorTable | None] = field(factory=dict)
    _features: frozenset[str] | None = None

    def sources(self) -> Iterable[tuple[str, n.Tree]]:
        """Trees in the order in which names are looked up."""
        seen = set(self.loaded.paths)
        for tree in self.loaded.trees:
            yield tree.source.path, tree
        for path, tree in standard_files().items():
            if path not in seen:
                seen.add(path)
                parsed = self.session.parsed(path)
                yield path, parsed.tree if parsed is not None else tree
        for path in self.session.files():
            if path not in seen:
                parsed = self.session.parsed(path)
                if parsed is not None:
                    yield path, parsed.tree

    def names(self, kind: str) -> dict[str, Found]:
        """Every declaration of a kind, the nearest of each name."""
        if not self._known:
            known: dict[str, dict[str, Found]] = {k: {} for k in (*KINDS.values(), "acceptance")}
            for path, tree in self.sources():
                for declaration in tree.declarations:
                    self._declare(known, path, declaration)
            self._known = known
        return self._known[kind]

    def _declare(self, known, path: str, declaration: n.Node) -> None:
        kind = KINDS.get(type(declaration))
        if kind is None:
            return
        known[kind].setdefault(declaration.name.text, (path, declaration))
        if isinstance(declaration, n.Operator):
            for item in declaration.items:
                if isinstance(item, n.Acceptance):
                    known["acceptance"].setdefault(item.name.text, (path, item))

    @property
    def features(self) -> frozenset[str]:
        """What some target has."""
        if self._features is None:
            targets = (node for _, node in self.names("target").values())
            self._features = frozenset(
                name.text
                for target in targets
                for item in target.items
                if isinstance(item, n.Has)
                for name in item.names
            )
        return self._features

    # ---- Lookup ----
    def find(self, kind: str, name: str) -> Found | None:
        if kind == "feature":
            return (self.path, None) if name in self.features else None
        return self.names(kind).get(name)

    def table(self, name: str) -> OperatorTable | None:
        if name not in self._tables:
            found = self.find("operator", name)
            self._tables[name] = operator_table(*found) if found is not None else None
        return self._tables[name]

    def users(self, tactic: str) -> Iterable[str]:
        applying = [
            rule.operator.text for _, rule in self.names("rule").values()
            if any(isinstance(node, n.Apply) and node.tactic.text == tactic for node in walk(rule))
        ]  # fmt: skip
        return list(dict.fromkeys((*applying, *self.names("operator"))))

    # ---- occurrences ----
    def occurrences(self) -> list[Occurrence]:
        """Every occurrence in the file itself, in the order of the text."""
        tree = self.loaded.trees[0]
        memo = self.bound
        found: list[Occurrence] = []
        for declaration in tree.declarations:
            found += memo.of(self, declaration)
        found.sort(key=lambda o: (o.span.first, o.span.last))
        return found


@define(eq=False)
class Bound:
    """Occurrences by declaration, kept while what its names were looked up as is the same."""

    _kept: dict[int, tuple] = field(factory=dict)

    def of(self, scope: Scope, declaration: n.Node) -> tuple[Occurrence, ...]:
        known = self._kept.get(id(declaration))
        if (
            known is not None
            and known[0] is declaration
            and all(_identity(scope, question) is answer for question, answer in known[1].items())
        ):
            return known[2]
        asked = _Asked(scope)
        found = occurrences(scope.path, declaration, asked)
        self._kept[id(declaration)] = (declaration, asked.answers, found)
        if len(self._kept) > 20_000:
            self._kept.clear()
        return found


def _identity(scope: Scope, question: tuple[str, str]):
    found = scope.find(*question)
    return found[1] if found is not None else None


@define(eq=False)
class _Asked(Lookup):
    """Passes questions on and remembers the answers."""

    scope: Scope
    answers: dict[tuple[str, str], object] = field(factory=dict)

    def find(self, kind: str, name: str) -> Found | None:
        self.answers[kind, name] = _identity(self.scope, (kind, name))
        return self.scope.find(kind, name)

    def table(self, name: str) -> OperatorTable | None:
        self.answers["operator", name] = _identity(self.scope, ("operator", name))
        return self.scope.table(name)

    def users(self, tactic: str) -> Iterable[str]:
        return self.scope.users(tactic)
