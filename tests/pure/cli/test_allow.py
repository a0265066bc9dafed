"""`# kds: allow[CODE] reason`: what it silences, and what it says when it does not."""

from __future__ import annotations

import pytest

from kdsl.check import check_source
from kdsl.data import data_root
from kdsl.source.codes import page
from kdsl.source.span import SourceFile

RULE = (data_root() / "rules" / "kda.decode" / "cpu_stream.kds").read_text("utf-8")
LINE = "  choose {{ width in [8, 16] default 8; spare in [1, 2] default 1 }}{}\n"


def rule(comment: str = "", before: str = "") -> str:
    """A rule with a choice that nothing uses: W502."""
    start = RULE.index("  choose {")
    stop = RULE.index("\n", start) + 1
    return RULE[:start] + before + LINE.format(comment) + RULE[stop:]


def codes(text: str) -> list[str]:
    return [d.code for d in check_source(SourceFile("a.kds", text))]


def test_it_silences_its_line_or_the_next():
    assert codes(rule()) == ["W502"]
    assert codes(rule("  # kds: allow[W502] for a later kernel")) == []
    assert codes(rule(before="  # kds: allow[W502] for a later kernel\n")) == []
    assert codes(rule(before="  # kds: allow[W502] for a later kernel\n  # and more\n")) == []
    assert codes(rule("#kds:allow[ W502 ]why")) == []


def test_it_silences_no_other_line_and_no_other_code():
    assert codes(rule(before="  # kds: allow[W502] too far\n\n")) == ["W504", "W502"]
    assert codes(rule("  # kds: allow[W501] another")) == ["W502", "W504"]
    assert codes(rule("  # kds: allow[W501, W502] one of two")) == ["W504"]


@pytest.mark.parametrize(
    "comment, said",
    [
        ("# kds: allow", "an allow names the codes"),
        ("# kds: allow[] x", "an allow names the codes"),
        ("# kds: allow[E302] x", "E302 is an error, and only warnings can be allowed"),
        ("# kds: allow[W599] x", "there is no code `W599`"),
        ("# kds: allow[W502]", "an allow says why"),
        ("# kds: allow[W503] x", "nothing to allow: there is no W503 on line"),
    ],
)
def test_what_is_wrong_with_an_allow(comment, said):
    found = [d for d in check_source(SourceFile("a.kds", rule("  " + comment))) if d.code == "W504"]
    assert len(found) == 1 and said in found[0].message


def test_errors_stay():
    text = RULE.replace("on cpu {", "on cqu {  # kds: allow[E101] x", 1)
    assert "E101" in codes(text)


def test_only_comments_of_this_form_count():
    assert codes(rule("  # W502 is allowed: allow[W502]")) == ["W502"]


def test_the_edit_removes_what_silences_nothing():
    for comment, left in (
        ("  # kds: allow[W501] x", ""),
        ("  # kds: allow[W501, W502] x", "  # kds: allow[W502] x"),
        ("  # kds: allow[W502, W501] x", "  # kds: allow[W502] x"),
    ):
        text = rule(comment)
        edit = next(d for d in check_source(SourceFile("a.kds", text)) if d.code == "W504").edits[0]
        assert edit.safe
        assert text[: edit.span.first] + edit.replacement + text[edit.span.last :] == rule(left)
    text = rule(before="  # kds: allow[W501] x\n")
    edit = next(d for d in check_source(SourceFile("a.kds", text)) if d.code == "W504").edits[0]
    assert text[: edit.span.first] + text[edit.span.last :] == rule()


def test_the_examples_of_its_page():
    found = page("W504")
    assert all("W504" in codes(text) for text in found.failing) and all(codes(text) == [] for text in found.fixed)
