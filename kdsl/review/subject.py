"""What is reviewed: rules of files, of a git revision, or of texts that nobody has written to disk."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import field, frozen

from kdsl.check.driver import CheckResult, check_loaded
from kdsl.check.files import Loaded, listed_files, load_text
from kdsl.check.library import Library
from kdsl.check.model import Rule
from kdsl.check.rules import resolve_rule
from kdsl.data import data_root
from kdsl.driver.emulation import plan_for
from kdsl.lower.lowering import Lowering
from kdsl.source.diagnostic import Severity
from kdsl.source.render.text import render_text
from kdsl.source.span import SourceFile
from kdsl.syntax import nodes as n

STDLIB = "stdlib"
PROMISES = ("E501",)  # codes of clauses of `ensure` that do not hold


@frozen
class NotReviewable(Exception):
    """What was given is no rule: no file, no revision, a text with errors, or no rule for the target."""

    given: str
    reason: str

    def __str__(self) -> str:
        return f"{self.given}: {self.reason}"


@frozen
class Subject:
    """One rule of one text. `texts` are all that were given, by path; those of the standard library replace it."""

    given: str
    rule: Rule
    library: Library = field(repr=False)
    texts: Mapping[str, str] = field(repr=False)

    def lowering(self, target: str, settings: Mapping[str, object] | None = None) -> Lowering:
        """For the target, with options, dtypes, sizes and choices by name. Raises NotReviewable, PlanRefused."""
        if target not in self.rule.targets:
            targets = ", ".join(self.rule.targets)
            raise NotReviewable(self.given, f"rule `{self.rule.name}` is for {targets}, not for {target}")
        try:
            return Lowering(plan_for(self.library, [self.rule], target, settings or {}))
        except ValueError as wrong:
            raise NotReviewable(self.given, str(wrong)) from None


def subjects(given: str) -> list[Subject]:
    """Every rule of a file, a folder or `REV:path`. Raises NotReviewable."""
    return list(subjects_of(given, texts_of(given)))


def subject(given: str, name: str | None = None) -> Subject:
    """The rule of that name, or the only one. Raises NotReviewable."""
    found = subjects(given)
    chosen = [one for one in found if name in (None, one.rule.name)]
    if len(chosen) == 1:
        return chosen[0]
    names = ", ".join(one.rule.name for one in found) or "none"
    reason = f"there is no rule `{name}`" if name is not None and not chosen else "name one rule with --rule"
    raise NotReviewable(given, f"{reason}; rules: {names}")


def subjects_of(given: str, texts: Mapping[str, str]) -> Iterator[Subject]:
    """Every rule of these texts. A broken promise is a reason to look at the rule, not to refuse it; with other errors
    raises NotReviewable with the findings."""
    result = checked(texts)
    if wrong(result):
        raise NotReviewable(given, "it does not check:\n" + render_text(result.diagnostics))
    for rule in result.library.rules.values():
        if rule.declaration.span.path in texts:
            yield Subject(given, rule, result.library, texts)


def wrong(result: CheckResult) -> bool:
    """Whether anything but promises is wrong."""
    return any(d.severity is Severity.ERROR and d.code not in PROMISES for d in result.diagnostics)


def checked(texts: Mapping[str, str]) -> CheckResult:
    """The check of texts that need not be on disk; what they use is. Rules that break a promise, and have no other
    error, are in the library too."""
    whole = Loaded()
    for path, text in texts.items():
        part = load_text(SourceFile(path, text))
        known = set(whole.paths)
        for tree, name in zip(part.trees, part.paths, strict=True):
            if name not in known:
                whole.trees.append(tree)
                whole.paths.append(name)
        whole.diagnostics += part.diagnostics
        whole.partial |= part.partial
    result = check_loaded(whole, None)
    for declaration in (d for tree in whole.trees for d in tree.declarations if isinstance(d, n.Rule)):
        if declaration.name.text not in result.library.rules and not wrong(result):
            result.library.rules[declaration.name.text] = resolve_rule(declaration)
    return result


# ---- texts


def texts_of(given: str) -> dict[str, str]:
    """Texts by path. Raises NotReviewable."""
    path = Path(given)
    if path.exists():
        files = listed_files([path])
        if not files:
            raise NotReviewable(given, "a folder without .kds files")
        return {str(file): file.read_text(encoding="utf-8-sig") for file in files}
    revision, colon, inside = given.partition(":")
    if not colon or not inside:
        raise NotReviewable(given, "there is no such file or folder; a revision is written as HEAD~1:rules/x.kds")
    return revision_texts(given, revision, inside)


def revision_texts(given: str, revision: str, path: str) -> dict[str, str]:
    """Files of a git revision, with the standard library of that revision where it lies in the repository."""
    root = Path(_git(given, "rev-parse", "--show-toplevel").strip())
    prefix = _git(given, "rev-parse", "--show-prefix").strip()
    asked = path if path.startswith("/") else f"{prefix}{path}"
    names = _git(given, "-C", str(root), "ls-tree", "-r", "--name-only", revision, "--", asked).split()
    if not names:
        raise NotReviewable(given, f"revision {revision} has no {asked}")
    show = lambda name: _git(given, "-C", str(root), "show", f"{revision}:{name}")  # noqa: E731
    found = {f"{revision}:{name}": show(name) for name in names if name.endswith(".kds")}
    if data_root().resolve() == root.resolve():
        library = _git(given, "-C", str(root), "ls-tree", "-r", "--name-only", revision, "--", STDLIB).split()
        found |= {str(data_root() / name): show(name) for name in library if name.endswith(".kds")}
    return found


def _git(given: str, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NotReviewable(given, "no such file, and git is not here to look for a revision") from None
    if done.returncode:
        raise NotReviewable(given, f"no such file, and git says: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout
