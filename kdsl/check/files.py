"""Files and folders to trees: what `kdsl check` was given, what `use` adds, the standard library."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from attrs import define, field

from kdsl.check.findings import closest
from kdsl.data import data_root
from kdsl.source.diagnostic import Diagnostic
from kdsl.source.span import Origin, SourceFile, Span
from kdsl.syntax import nodes as n
from kdsl.syntax.parse import Parsed, parse_source, read_source


@define
class Loaded:
    """Trees in the order read. `partial` holds declarations of which the parser left something out."""

    trees: list[n.Tree] = field(factory=list)
    paths: list[str] = field(factory=list)
    diagnostics: list[Diagnostic] = field(factory=list)
    partial: set[int] = field(factory=set)

    def take(self, source: SourceFile) -> Parsed:
        parsed = parse_source(source)
        self.trees.append(parsed.tree)
        self.paths.append(source.path)
        self.diagnostics += parsed.diagnostics
        self.partial |= {id(parsed.tree.declarations[i]) for i in parsed.partial}
        return parsed


def load_text(source: SourceFile) -> Loaded:
    """One text. What it uses is looked up beside its path."""
    loaded = Loaded()
    parsed = loaded.take(source)
    follow_uses(loaded, parsed.tree, Path(source.path), [])
    return loaded


def load_files(paths: Iterable[str | Path]) -> Loaded:
    given = list(map(Path, paths))
    loaded = Loaded()
    for path in listed_files(given):
        _read(loaded, path, [])
    for path in given:
        if path.is_dir() and not listed_files([path]):
            place = Span(Origin(SourceFile(str(path), "")), 0, 0)
            message = f"there is no .kds file in the folder `{path}` or below it"
            loaded.diagnostics.append(Diagnostic("E030", message, place, help=("check the path",)))
    return loaded


def listed_files(paths: Iterable[str | Path]) -> list[Path]:
    """Files as given; of a folder, every .kds below it in the order of names."""
    found: dict[Path, None] = {}
    for given in map(Path, paths):
        for path in sorted(given.rglob("*.kds")) if given.is_dir() else [given]:
            found.setdefault(path, None)
    return list(found)


def _read(loaded: Loaded, path: Path, users: list[Path]) -> None:
    if _resolved(path) in {_resolved(Path(known)) for known in loaded.paths}:
        return
    source = read_source(path)
    if isinstance(source, Diagnostic):
        loaded.diagnostics.append(source)
        return
    parsed = loaded.take(source)
    follow_uses(loaded, parsed.tree, path, users)


def follow_uses(loaded: Loaded, tree: n.Tree, path: Path, users: list[Path]) -> None:
    """What a file uses, relative to it. A file that uses itself through others is a finding."""
    chain = [*users, path]
    for use in (d for d in tree.declarations if isinstance(d, n.Use)):
        target = path.parent / use.path.value
        if _resolved(target) in [_resolved(step) for step in chain]:
            names = " -> ".join(
                step.name for step in chain[[_resolved(s) for s in chain].index(_resolved(target)) :]
            )
            loaded.diagnostics.append(Diagnostic(
                "E106", f"the files use each other in a circle: {names} -> {target.name}", use.path.span,
                label="closes the circle", help=("move what both need into a third file",)))  # fmt: skip
        elif not target.is_file():
            found = "a folder" if target.is_dir() else "no such file"
            loaded.diagnostics.append(Diagnostic(
                "E105", f"there is no file `{use.path.value}` to use", use.path.span, label=found,
                observed=found,
                required="a .kds file, relative to this one",
                help=_path_help(use.path.value, target)))  # fmt: skip
        else:
            _read(loaded, target, chain)


def _path_help(path: str, target: Path) -> tuple[str, ...]:
    """The file that was likely meant, or that the line is not needed."""
    try:
        beside = sorted(p.name for p in target.parent.glob("*.kds"))
    except OSError:
        beside = []
    near = closest(target.name, beside)
    if near is not None:
        return (f"did you mean `{path.removesuffix(target.name)}{near}`?",)
    known = any(p.name == target.name for p in standard_files())
    return ("remove the line: the standard library, its tactics and targets included, needs no `use`"
            if known or "std" in path else
            "write the file, or remove the line: the standard library needs no `use`",)  # fmt: skip


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path


@lru_cache(maxsize=1)
def standard_files() -> tuple[Path, ...]:
    return tuple(sorted((data_root() / "stdlib").rglob("*.kds")))


@lru_cache(maxsize=64)
def _standard_tree(path: Path) -> n.Tree:
    return parse_source(SourceFile(str(path), path.read_text("utf-8"))).tree


def standard_trees(besides: Iterable[str]) -> list[n.Tree]:
    """The standard library, without the files that are checked themselves."""
    given = {_resolved(Path(path)) for path in besides if not path.startswith("<")}
    return [_standard_tree(path) for path in standard_files() if _resolved(path) not in given]
