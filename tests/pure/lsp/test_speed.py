"""From an edit to the findings of the edited rule: under 50 ms of work at 2,000 lines."""

from __future__ import annotations

from kdsl.lsp.semantic import tokens
from kdsl.lsp.workspace import Workspace

from ..pace import Paced
from .texts import large

BOUND = 0.050  # seconds
COLD = 3.0  # seconds, 10,000 lines
LINES = 2000


def opened(lines: int = LINES) -> tuple[Workspace, str, str]:
    workspace = Workspace()
    text = large(lines)
    path = workspace.open("untitled:large", text)
    assert workspace.settled(path).diagnostics == ()
    return workspace, path, text


def edited(workspace: Workspace, path: str, text: str) -> float:
    """Seconds of work from the new text to the first findings."""
    with Paced() as took:
        workspace.change(path, text)
        next(workspace.check(path))
    return took.seconds


def test_an_edit_is_checked_at_once():
    workspace, path, text = opened()
    middle = text.index("rule rule30 ")
    wrong = text[:middle] + text[middle:].replace("chunk in [16, 32]", "chunk in [16, 31]", 1)
    misspelt = text[:middle] + text[middle:].replace("qn, kn, lg", "qn, kn, lgg", 1)
    broken = text[:middle] + text[middle:].replace("place {", "place", 1)
    seconds = []
    for variant in (wrong, misspelt, broken, text) * 2:
        seconds.append(edited(workspace, path, variant))
        analysis = workspace.analysis(path)
        assert bool(analysis.diagnostics) == (variant is not text)
        assert analysis.rechecked <= 1
        assert all(d.span.line > 30 * 20 for d in analysis.diagnostics)
        workspace.settled(path)
    typical = sorted(seconds)[len(seconds) // 2]
    assert typical < BOUND, f"{typical * 1000:.0f} ms"


def test_tokens_and_names_follow_an_edit_at_once():
    workspace, path, text = opened()
    tokens(workspace.scope(path), "utf-16")
    seconds = []
    for variant in (text.replace("width in", "width  in", 1), text) * 3:
        workspace.change(path, variant)
        with Paced() as took:
            assert tokens(workspace.scope(path), "utf-16")
            workspace.at(path, len(variant) // 2)
        seconds.append(took.seconds)
    assert sorted(seconds)[3] < BOUND


def test_an_operator_rechecks_the_rules_that_schedule_it_and_no_others():
    workspace, path, text = opened(400)
    other = text.replace("gl[d] = gc[C - 1, d]", "gl[d] = gc[C - 1, d] * 1.0")
    workspace.change(path, other)
    assert workspace.settled(path).rechecked == 1
    mine = other.replace("rule rule1 schedules kda.", "rule rule1 schedules my.")
    workspace.change(path, mine)
    workspace.settled(path)
    workspace.change(path, mine.replace(" * 1.0", ""))
    assert workspace.settled(path).rechecked == 2


def test_an_update_agrees_with_a_fresh_check():
    from kdsl.check import check_source
    from kdsl.source.span import SourceFile

    workspace, path, text = opened(400)
    variants = (
        text.replace("chain = split", "chain = splt", 1),
        text.replace("T == 2", "T == 1"),
        text.replace("decay = pairwise", "decay = factored", 1),
        text.replace("operator my.", "operator"),
        text + "\ntactic vector_products(width) { }\n",
        text + "\ntarget small extends cpu { stack_bytes_per_task = 1 KiB }\n",
        text[: len(text) // 2],
        text,
    )
    for variant in variants:
        workspace.change(path, variant)
        found = workspace.settled(path).diagnostics
        fresh = check_source(SourceFile(path, variant))
        assert [(d.code, d.span.first, d.message) for d in found] == [(d.code, d.span.first, d.message) for d in fresh]


def test_a_large_file_is_checked_cold_in_seconds():
    """10,000 lines that nobody saw before."""
    text = large(10000)
    with Paced() as took:
        workspace = Workspace()
        path = workspace.open("untitled:cold", text)
        assert workspace.settled(path).diagnostics == ()
    assert took.seconds < COLD, f"{took.seconds:.1f} s"
