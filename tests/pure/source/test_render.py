"""The renderings of one list of diagnostics."""

from __future__ import annotations

import io
import json
from pathlib import Path

import jsonschema
import pytest

from kdsl.source import render as rendering
from kdsl.source.diagnostic import Diagnostic, Edit, Evidence, Label, Severity
from kdsl.source.render import FORMATS, render
from kdsl.source.render import json as json_form
from kdsl.source.render import sarif as sarif_form
from kdsl.source.render.text import summary, wants_color
from kdsl.source.span import Origin, SourceFile, Span

TEXT = "target a {\n\tsms = 日本 x # é\n  second = 2\n\n\n\n\n  third = 3\n}\n"
SCHEMA = json.loads(
    (Path(rendering.__file__).with_name("diagnostics.schema.json")).read_text(encoding="utf-8")
)


def at(text: str, what: str, path: str = "a.kds") -> Span:
    start = text.index(what)
    return Span(Origin(SourceFile(path, text)), start, start + len(what))


def full() -> Diagnostic:
    origin = Origin(SourceFile("rules/a b.kds", TEXT))
    place = TEXT.index("x #")
    span = Span(origin, place, place + 1)
    third = Span(origin, TEXT.index("third"), TEXT.index("third") + 5)
    other = Span(Origin(SourceFile("stdlib/b.kds", "one\ntwo\n")), 4, 7)
    return Diagnostic(
        "E008", "two things: 100%, of\nthem", span, label="here", observed="3", required="4",
        labels=(Label(third, "and here"), Label(other, "from here")), evidence=Evidence.PROVED,
        notes=("a note",), help=("do this", "or that"), edits=(Edit(span, "y", "write `y`", safe=True),),
    )  # fmt: skip


def test_text():
    assert render([full()]) == (
        "error[E008] misspelt-keyword: two things: 100%, of\\x0athem\n"
        " --> rules/a b.kds:2:11\n"
        "  |\n"
        "2 |     sms = 日本 x # é\n"
        "  |                ^ here\n"
        "...\n"
        "8 |   third = 3\n"
        "  |   ----- and here\n"
        " ::: stdlib/b.kds:2:1\n"
        "  |\n"
        "2 | two\n"
        "  | --- from here\n"
        "  = observed: 3\n"
        "  = required: 4\n"
        "  = evidence: proved\n"
        "  = note: a note\n"
        "  = help: do this\n"
        "  = help: or that\n"
        "\n"
    )


def test_labels_on_one_line_stand_below_each_other():
    text = "abc def ghi\n"
    first, second = at(text, "abc"), at(text, "ghi")
    second = Span(first.origin, second.start, second.stop)
    found = Diagnostic("E001", "m", first, label="one", labels=(Label(second, "two"),))
    assert "1 | abc def ghi\n  | ^^^     --- two\n  | one\n" in render([found])


def test_a_span_over_lines():
    span = at("a {\n  b\n}\n", "a {\n  b\n}")
    assert "1 | a {\n  | ^^^\n2 |   b\n  |   ^\n3 | }\n  | ^ all\n" in render(
        [Diagnostic("E001", "m", span, label="all")]
    )
    tall = "a {\n" + "  b\n" * 30 + "}\n"
    shown = render([Diagnostic("E001", "m", at(tall, tall.strip()), label="all")])
    assert shown.count("\n") < 12 and "...\n32 | }\n" in shown


def test_long_lines_are_cut_around_the_place():
    text = "x " * 500 + "wrong" + " y" * 500
    shown = render([Diagnostic("E001", "m", at(text, "wrong"), label="this")])
    rows = shown.splitlines()
    assert max(map(len, rows)) < 130
    line, marks = next((a, b) for a, b in zip(rows, rows[1:], strict=False) if "wrong" in a)
    assert marks[line.index("wrong") :].startswith("^^^^^ this")


@pytest.mark.parametrize("text", ["", "\n", "a", "a\n", "a\n\n"])
@pytest.mark.parametrize("form", FORMATS)
def test_places_at_the_ends(text, form):
    source = SourceFile("a.kds", text)
    for start in range(len(text) + 1):
        for stop in range(start, len(text) + 1):
            assert render([Diagnostic("E001", "m", Span(Origin(source), start, stop), label="l")], form)


def test_control_characters_do_not_reach_the_terminal():
    text = "a \x1b[31m \x07 \u202e b\n"
    shown = render([Diagnostic("E001", "m \x1b[0m", at(text, "b"), label="\x1b")])
    assert "\x1b" not in shown and "\x07" not in shown and "\u202e" not in shown


def test_color_only_when_wanted(monkeypatch):
    assert "\x1b[" in render([full()], color=True) and "\x1b[" not in render([full()])
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setenv("TERM", "xterm")
    assert wants_color(terminal) and not wants_color(io.StringIO()) and wants_color(io.StringIO(), True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_color(terminal)


def test_order_does_not_depend_on_the_list():
    text = "a b c\n"
    one = at(text, "a")
    items = [Diagnostic(code, "m", Span(one.origin, at(text, word).start, at(text, word).stop))
             for code, word in (("E001", "c"), ("E002", "a"), ("E001", "a"), ("E003", "b"))]  # fmt: skip
    for form in FORMATS:
        assert render(items, form) == render(items[::-1], form)


def test_json_is_valid():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for items in ([], [full()], [full(), full().with_(severity=Severity.NOTE, evidence=None, edits=())]):
        document = json.loads(render(items, "json"))
        jsonschema.validate(document, SCHEMA)
        assert document["schema"] == 1 and len(document["diagnostics"]) == len(items)
    place = json_form.place(full().span)
    assert place["start"] == {"offset": 21, "line": 2, "column": 11}


def test_sarif():
    document = sarif_form.document([full(), full().with_(code="Z999")])
    (run,) = document["runs"]
    assert document["version"] == "2.1.0"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["E008", "Z999"]
    result = run["results"][0]
    location = result["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == "rules/a%20b.kds"
    assert location["region"] == {"startLine": 2, "startColumn": 11, "endLine": 2, "endColumn": 12}
    assert result["fixes"][0]["artifactChanges"][0]["replacements"][0]["insertedContent"] == {"text": "y"}
    assert len(result["relatedLocations"]) == 2
    assert sarif_form.document([])["runs"][0]["results"] == []


def test_paths_in_sarif():
    for path, uri in (
        ("/a/b c.kds", "file:///a/b%20c.kds"),
        ("C:\\a\\b.kds", "file:///C:/a/b.kds"),
        ("a\\b", "a/b"),
    ):
        assert sarif_form._artifact(at("x", "x", path))["uri"] == uri


def test_annotations_are_escaped():
    (line,) = render([full().with_(labels=())], "github").splitlines()
    head, message = line.split("::", 2)[1:]
    assert head == "error file=rules/a b.kds,line=2,endLine=2,col=11,endColumn=11,title=E008 misspelt-keyword"
    assert message.startswith("two things: 100%25, of%0Athem%0Aobserved: 3")
    odd = render([Diagnostic("E001", "m", at("x", "x", "a,b:c%.kds"), Severity.WARNING)], "github")
    assert odd.startswith("::warning file=a%2Cb%3Ac%25.kds,")


def test_summary():
    assert (
        summary([full(), full().with_(severity=Severity.WARNING)]) == "1 error, 1 warning"
        and summary([]) == ""
    )
    with pytest.raises(ValueError):
        render([], "xml")
