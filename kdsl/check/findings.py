"""The findings of one run, and the words in which the common ones are said."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, field

from kdsl.source.diagnostic import Diagnostic, Edit, Label, Severity
from kdsl.source.span import Span


@define
class Findings:
    """Diagnostics in the order found; the same one twice is kept once."""

    diagnostics: list[Diagnostic] = field(factory=list)
    _seen: set = field(factory=set)

    def add(self, diagnostic: Diagnostic) -> None:
        key = (
            diagnostic.code,
            diagnostic.span.path,
            diagnostic.span.first,
            diagnostic.span.last,
            diagnostic.message,
        )
        if key not in self._seen:
            self._seen.add(key)
            self.diagnostics.append(diagnostic)

    def __len__(self) -> int:
        return len(self.diagnostics)


def listed(names: Iterable[object], limit: int = 8) -> str:
    """`a, b, c and 4 more`."""
    shown = [str(name) for name in names]
    rest = len(shown) - limit
    return ", ".join(shown) if rest <= 0 else ", ".join(shown[:limit]) + f" and {rest} more"


def a(noun: str) -> str:
    """The noun with its article."""
    return ("an " if noun[:1] in "aeiou" else "a ") + noun


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `name` most likely misspells."""
    from difflib import get_close_matches  # only on the way to a finding

    known = list(dict.fromkeys(candidates))
    folded = {candidate.lower(): candidate for candidate in reversed(known)}
    if name.lower() in folded:
        return folded[name.lower()]
    found = get_close_matches(name, known, 1, 0.6)
    return found[0] if found else None


def unknown_name(kind: str, name: str, span: Span, candidates: Iterable[str], where: str = "") -> Diagnostic:
    """E101: `name` is no `kind` here; the nearest that is, or all there are."""
    candidates = list(dict.fromkeys(candidates))
    near = closest(name, candidates)
    help_, edits, notes = (), (), ()
    if near is not None:
        help_ = (f"did you mean `{near}`?",)
        edits = (Edit(span, near, f"replace `{name}` by `{near}`"),)
    elif candidates:
        notes = (f"known here: {listed(candidates, 12)}",)
    return Diagnostic(
        "E101",
        f"unknown {kind} `{name}`{where}",
        span,
        label=f"no such {kind}",
        help=help_,
        edits=edits,
        notes=notes,
    )


KINDS = ("gpu", "cuda", "nvidia")  # words for a kind of target, none of which misspells `cpu`


def unknown_target(name: str, span: Span, targets: Iterable[str]) -> Diagnostic:
    """E101 of a target, with all that there are."""
    targets = list(targets)
    found = unknown_name("target", name, span, targets)
    if name.lower() in KINDS:
        found = found.with_(help=(), edits=())
    return found.with_(notes=(f"the targets are {listed(targets, 12)}",))


def wrong_place(kind: str, name: str, span: Span, reason: str, help_: str | None = None) -> Diagnostic:
    """E107: `name` is known, and cannot stand here."""
    return Diagnostic("E107", f"`{name}` cannot be used as {a(kind)} here: {reason}", span,
                      label=reason, help=(help_,) if help_ else ())  # fmt: skip


def duplicate(kind: str, name: str, span: Span, first: Span, help_: str | None = None) -> Diagnostic:
    """E102: both places."""
    return Diagnostic("E102", f"{kind} `{name}` is declared twice", span, label="again here",
                      labels=(Label(first, "first here"),),
                      help=(help_ or "rename or remove one of them",))  # fmt: skip


def wrong_arity(what: str, found: int, needed: str, span: Span, declared: Span | None = None,
                help_: str = "") -> Diagnostic:  # fmt: skip
    """E103."""
    labels = (Label(declared, "declared here"),) if declared is not None else ()
    return Diagnostic("E103", f"{what} takes {needed}, found {found}", span, observed=str(found),
                      required=needed,
                      labels=labels, help=(help_,) if help_ else ())  # fmt: skip


def recursion(kind: str, cycle: list[str], span: Span, spans: Iterable[Span]) -> Diagnostic:
    """E104: a declaration that contains itself."""
    path = " -> ".join(cycle)
    labels = tuple(Label(s, "through here") for s in spans if s is not span)
    return Diagnostic("E104", f"{kind} `{cycle[0]}` contains itself: {path}", span, label="closes the circle",
                      labels=labels, help=("remove one step of the circle",))  # fmt: skip


def type_mismatch(message: str, span: Span, observed: str, required: str, help_: str | None = None,
                  labels: tuple[Label, ...] = (), edits: tuple[Edit, ...] = ()) -> Diagnostic:  # fmt: skip
    """E110."""
    return Diagnostic("E110", message, span, label=f"this is {observed}", observed=observed,
                      required=required,
                      help=(help_,) if help_ else (), labels=labels, edits=edits)  # fmt: skip


def warning(code: str, message: str, span: Span, **rest) -> Diagnostic:
    return Diagnostic(code, message, span, severity=Severity.WARNING, **rest)
