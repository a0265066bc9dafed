"""The derivation as a part of the check: done for rules that are new, remembered for the others.

A rule that derives is kept by the digest of everything that decides it (its text, tactics, operator, targets, this
compiler) in the user's cache folder, so that a check of files that did not change derives nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from attrs import define, evolve, field

from kdsl import __version__
from kdsl.check.driver import CheckResult, check_paths
from kdsl.check.library import Library
from kdsl.check.model import Rule
from kdsl.source import cache
from kdsl.source.diagnostic import Diagnostic, Severity

KIND = "derives"
MOST = 1024  # digests kept, the latest


def check_and_derive(paths: Iterable[str | Path], target: str | None = None) -> CheckResult:
    """`check_paths`, and the derivation of every rule in which it found no error."""
    return derived(check_paths(paths, target), target)


def derived(result: CheckResult, target: str | None = None) -> CheckResult:
    """A check with what the derivation refuses; `library` keeps the rules that derive."""
    memory = Remembered.load()
    pending = [rule for rule in result.library.rules.values() if not memory.derives(result.library, rule)]
    if not pending:
        return result
    from kdsl.plan.derivable import derivations  # loaded only where something is new

    found: list[Diagnostic] = []
    right = dict(result.library.rules)
    for rule in pending:
        own = derivations(result.library, (rule,), target)
        found += own
        if any(d.severity is Severity.ERROR for d in own):
            del right[rule.name]
        elif not own and target is None:
            memory.add(result.library, rule)
    memory.save()
    diagnostics = sorted((*result.diagnostics, *found), key=lambda d: d.order)
    return evolve(result, diagnostics=tuple(diagnostics), library=evolve(result.library, rules=right))


@define
class Remembered:
    known: dict[str, None] = field(factory=dict)
    changed: bool = False

    @classmethod
    def load(cls) -> Remembered:
        text = cache.load(KIND, stamp())
        return cls(dict.fromkeys((text or "").split()))

    def derives(self, library: Library, rule: Rule) -> bool:
        return key(library, rule) in self.known

    def add(self, library: Library, rule: Rule) -> None:
        self.known[key(library, rule)] = None
        self.changed = True

    def save(self) -> None:
        if self.changed:
            cache.save(KIND, stamp(), "\n".join([*self.known][-MOST:]))


def key(library: Library, rule: Rule) -> str:
    """Everything that decides whether a rule derives."""
    tactics = [t.span.text for t in library.tactics.values()]
    targets = [repr((t.name, t.family, sorted(t.fields.items(), key=str)))
               for t in (library.targets[name] for name in rule.targets)]  # fmt: skip
    operator = library.operators[rule.operator].declaration
    return cache.digest(stamp(), rule.declaration.span.text, operator.span.text, *targets, *tactics)


@lru_cache(maxsize=1)
def stamp() -> str:
    """This compiler up to the plan: its version and the dates of its files."""
    package = Path(__file__).resolve().parent.parent
    files = [file for folder in ("syntax", "check", "plan") for file in sorted((package / folder).rglob("*.py"))]
    dates = [f"{file.name} {status.st_size} {status.st_mtime_ns}" for file in files for status in (file.stat(),)]
    return cache.digest(__version__, *dates)
