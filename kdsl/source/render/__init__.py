"""Renderings of diagnostics: text for people, JSON, SARIF and workflow annotations for programs.

Every renderer takes the same list and gives text; `ordered` is the order of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kdsl.source.diagnostic import Diagnostic

FORMATS = ("text", "json", "sarif", "github")


def ordered(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """By file, place, code and message; the same list gives the same text."""
    return sorted(diagnostics, key=lambda diagnostic: diagnostic.order)


def render(diagnostics: Iterable[Diagnostic], form: str = "text", *, color: bool = False) -> str:
    """One of FORMATS. The text of no diagnostics is empty, the documents of none are still documents."""
    renderer: Callable[..., str]
    if form == "text":
        from kdsl.source.render.text import render_text

        return render_text(diagnostics, color=color)
    if form == "json":
        from kdsl.source.render.json import render_json as renderer
    elif form == "sarif":
        from kdsl.source.render.sarif import render_sarif as renderer
    elif form == "github":
        from kdsl.source.render.github import render_github as renderer
    else:
        raise ValueError(f"{form!r} is none of {', '.join(FORMATS)}")
    return renderer(diagnostics)
