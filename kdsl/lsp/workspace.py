"""One editor's view of its files: texts, scopes and checks, each made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from attrs import define, field

from kdsl.lsp.analysis import Analysis
from kdsl.lsp.names import Occurrence, Symbol
from kdsl.lsp.positions import UTF16
from kdsl.lsp.scope import Bound, Scope, follow
from kdsl.lsp.session import Session
from kdsl.source.diagnostic import Diagnostic
from kdsl.source.span import SourceFile

Refusals = tuple[Diagnostic, ...]
Compute = Callable[[], Refusals]


@define(eq=False)
class Workspace:
    """`encoding` is the unit of columns that client and server agreed on."""

    session: Session = field(factory=Session)
    encoding: str = UTF16
    bound: Bound = field(factory=Bound)
    _scopes: dict[str, Scope] = field(factory=dict)
    _analyses: dict[str, Analysis] = field(factory=dict)
    _fresh: set[str] = field(factory=set)  # paths whose analysis has seen the texts as they are

    # ---- texts ----
    def open(self, uri: str, text: str) -> str:
        path = self.session.open(uri, text)
        self._forget()
        return path

    def change(self, path: str, text: str) -> None:
        self.session.change(path, text)
        self._forget()

    def close(self, uri: str) -> str:
        path = self.session.close(uri)
        self._analyses.pop(path, None)
        self._forget()
        return path

    def disk_changed(self) -> None:
        self.session.forget_listing()
        self._forget()

    def _forget(self) -> None:
        self._scopes.clear()
        self._fresh.clear()

    # ---- derived ----
    def scope(self, path: str) -> Scope | None:
        scope = self._scopes.get(path)
        if scope is None:
            loaded = follow(self.session, path)
            if loaded is None:
                return None
            scope = self._scopes[path] = Scope(self.session, path, loaded, self.bound)
        return scope

    def source(self, path: str) -> SourceFile | None:
        parsed = self.session.parsed(path)
        return parsed.tree.source if parsed is not None else None

    def analysis(self, path: str) -> Analysis:
        """The check of a file as far as it is done, at least its names and what was edited last."""
        if path not in self._fresh:
            next(self.check(path), None)
        return self._analyses.setdefault(path, Analysis())

    def check(self, path: str) -> Iterator[Analysis]:
        """Check a file in steps; each gives the analysis as it stands."""
        scope = self.scope(path)
        if scope is None:
            return
        self._fresh.add(path)
        analysis = self.analysis(path)
        for _ in analysis.update(scope):
            yield analysis
        yield analysis

    def settled(self, path: str) -> Analysis:
        """The check of a file, done to its end."""
        for _ in self.check(path):
            pass
        return self.analysis(path)

    def derivations(self, path: str) -> Iterator[tuple[Compute, Callable[[Refusals], None]]]:
        """For every rule of a file that was not derived yet: what to compute, in a thread if you like, and where to
        put it, in the thread that checks."""
        from kdsl.plan.derivable import derivations

        analysis = self.analysis(path)
        for kept in analysis.underived():
            yield partial(derivations, analysis.library, (kept.value,)), partial(analysis.add_derivation, kept)

    # ---- names ----
    def at(self, path: str, offset: int) -> Occurrence | None:
        """The name at a character, or right before it."""
        scope = self.scope(path)
        if scope is None:
            return None
        touching = [o for o in scope.occurrences() if o.span.first <= offset <= o.span.last]
        inside = [o for o in touching if offset < o.span.last]
        return min(inside or touching, key=lambda o: o.span.last - o.span.first, default=None)

    def everywhere(self, symbol: Symbol) -> Iterator[Occurrence]:
        """Every occurrence of what a symbol stands for, file by file."""
        for path in self.reachable():
            scope = self.scope(path)
            if scope is not None:
                yield from (o for o in scope.occurrences() if o.symbol == symbol)

    def reachable(self) -> list[str]:
        """Files that a name may occur in: the workspace, what open documents use, the standard library."""
        paths = dict.fromkeys(self.session.files())
        for path in self.session.opened:
            scope = self.scope(path)
            if scope is not None:
                paths.update(dict.fromkeys(source for source, _ in scope.sources()))
        return list(paths)
