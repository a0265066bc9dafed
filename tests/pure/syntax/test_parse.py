"""Any text gives a tree or diagnostics; every independent error is found, none that follows from another."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kdsl.data import data_root
from kdsl.source.diagnostic import Diagnostic
from kdsl.source.span import SourceFile
from kdsl.syntax import nodes as n
from kdsl.syntax.machine import DEEPEST
from kdsl.syntax.parse import SyntaxErrors, parse, parse_file, parse_source, read_source

from ..pace import Paced

RULE = """rule a schedules kda.decode on cpu {
  require {
    K == 128
    V == 128
  }
  kernel k computes step {
    grid { task : n, h }
    place {
      state, sd : f32 in stack
      qn, kn    : f32 in stack
    }
    compute {
      decay : vector e by 8
    }
  }
  ensure {
    spills == 0
  }
}
"""
TARGET = "target b {\n  sms = 108\n}\n"


def errors(text: str) -> list[tuple[str, int]]:
    return [(d.code, d.span.line) for d in parse_source(SourceFile("t.kds", text)).diagnostics]


def tree(text: str) -> n.Tree:
    return parse_source(SourceFile("t.kds", text)).tree


# ---- texts of every kind (S09) -----------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "\n", "# only a comment", "\ufeff", ";;\n;", " \t\r\n", "\f"])
def test_nothing_to_read(text):
    parsed = parse_source(SourceFile("t.kds", text))
    assert parsed.ok and parsed.tree.declarations == ()


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.rstrip("\n"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("  ", "\t"),
        lambda text: "\ufeff" + text,
        lambda text: "\n\n# first\n\n" + text + "\n# last",
        lambda text: "  " + text.replace("\n", "\n  "),
    ],
    ids=["no final newline", "CRLF", "tabs", "BOM", "comments around", "indented"],
)
def test_layout_does_not_matter(change):
    assert errors(change(RULE + TARGET)) == []
    assert tree(change(RULE + TARGET)) == tree(RULE + TARGET)


LARGE = {
    "open braces": "{" * 10**6, "closing braces": "}" * 200_000,
    "parentheses": "target a { x = " + "(" * 200_000,
    "signs": "target a { x = " + "-" * 200_000, "sum": "target a { x = " + "a+" * 100_000 + "a }",
    "list": "target a { has " + "a, " * 60_000 + "a }", "quotes": '"' * 10**6, "doc quotes": '"""' * 300_000,
    "dollars": "$" * 200_000, "declarations": "target a {\n" * 90_000, "NUL": "\0" * 200_000,
    "lines": "a\n" * 100_000, "stray braces": "} a\n" * 50_000,
    "commas": "target a { has " + "a b, " * 40_000,
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_large_texts_take_linear_time(name):
    with Paced() as took:
        parse_source(SourceFile("t.kds", LARGE[name]))
    assert took.seconds < 10


def test_depth_is_bounded():
    for body in ("(" * 200 + "1" + ")" * 200, "+".join("a" * 200), "-" * 200 + "1", "a ** " * 200 + "1"):
        assert errors(f"target a {{\n  x = {body}\n  y 3\n}}\n") == [("E019", 2), ("E022", 3)]
    assert errors("a {" * 40 + "}" * 40) == [("E019", 1)]
    assert sys.getrecursionlimit() / 5 > DEEPEST


# ---- recovery ----------------------------------------------------------------------------------------------


def test_errors_in_one_declaration_hide_none_in_others():
    text = "target a {\n  x = = 1\n}\n" + RULE + "target b {\n  y 3\n}\n"
    assert errors(text) == [("E001", 2), ("E022", 24)]
    assert [type(node).__name__ for node in tree(text).declarations] == ["Target", "Rule", "Target"]


def test_several_errors_in_one_declaration():
    text = (
        RULE.replace("K == 128", "K = 128")
        .replace("qn, kn ", "qn kn ")
        .replace("spills == 0", "spills == ) 0")
    )
    text = text.replace("grid {", "gird {").replace("vector e by 8", "vector e by")
    assert errors(text) == [("E011", 3), ("E008", 7), ("E021", 10), ("E020", 13), ("E005", 17)]


def test_a_broken_item_is_left_out_and_the_rest_kept():
    parsed = parse_source(SourceFile("t.kds", RULE.replace("K == 128", "K within")))
    assert len(parsed.diagnostics) == 1 and parsed.partial == {0}
    (rule,) = parsed.tree.declarations
    assert len(rule.items[0].items) == 1 and len(rule.items) == 3


def test_a_missing_brace_costs_one_declaration():
    lines = RULE.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.strip() == "}":
            text = "".join(lines[:number] + lines[number + 1 :]) + TARGET
            found = errors(text)
            assert [code for code, _ in found] == ["E002"], (number, found)
            assert len(tree(text).declarations) == 2
        if line.rstrip().endswith("{"):
            text = (
                "".join([*lines[:number], line.rstrip()[:-1].rstrip() + "\n", *lines[number + 1 :]]) + TARGET
            )
            assert errors(text) == [("E004", number + 1)], number
        if line.strip() == "}" and number < len(lines) - 1:
            text = "".join([*lines[:number], line, *lines[number:]]) + TARGET
            found = errors(text)
            assert found and found[0][0] == "E003" and len(found) <= 3, (number, found)
            assert isinstance(tree(text).declarations[-1], n.Target)


def test_header_errors_do_not_hide_the_block():
    assert errors("rule a b c d {\n  form { C == 16 }\n}\n")[-1] == ("E011", 2)


def test_a_thousand_errors_are_enough():
    parsed = parse_source(SourceFile("t.kds", "target a { x }\n" * 3000))
    assert len(parsed.diagnostics) == 1000 and "first 1000" in parsed.diagnostics[-1].notes[0]


# ---- reading -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"a\0b", "E034"), (b"\xff\xfea\0", "E033"), (b"rule \xe9", "E033"), (b"\x80", "E033")],
)
def test_bytes_that_are_no_text(tmp_path, data, code):
    path = tmp_path / "a.kds"
    path.write_bytes(data)
    found = read_source(path)
    assert isinstance(found, Diagnostic) and found.code == code
    with pytest.raises(SyntaxErrors):
        parse_file(path)


def test_paths_that_are_no_files(tmp_path):
    assert read_source(tmp_path / "none.kds").code == "E030"
    assert read_source(tmp_path).code == "E031"
    assert read_source("a\0b").code == "E032"


def test_bom_and_line_ends_are_read(tmp_path):
    path = tmp_path / "a.kds"
    path.write_bytes(b"\xef\xbb\xbf" + TARGET.replace("\n", "\r\n").encode())
    source = read_source(path)
    assert source.text.startswith("target") and "\r\n" in source.text
    assert parse(source) == tree(TARGET)


def test_comments_are_kept_in_order():
    text = "# 1\ntarget a { # 2\n  # 3\n  x = 1 # 4\n} # 5\n# 6\n"
    assert [c.text for c in tree(text).comments] == [f"# {i}" for i in range(1, 7)]
    assert all(c.span.text == c.text for c in tree(text).comments)


def test_spans_are_places_in_the_text():
    text = "# x\n" + TARGET + "\n" + RULE
    target, rule = tree(text).declarations
    assert target.span.text == TARGET.strip() and rule.span.text == RULE.strip()
    assert target.items[0].value.span.text == "108" and target.items[0].span.line == 3


# ---- speed -------------------------------------------------------------------------------------------------


def test_ten_thousand_lines():
    texts = [path.read_text(encoding="utf-8") for path in sorted((data_root() / "stdlib").rglob("*.kds"))]
    text = "\n".join(texts)
    text *= 10_000 // text.count("\n") + 1
    with Paced() as took:
        assert parse_source(SourceFile("t.kds", text)).ok
    assert took.seconds < 3


def test_parsing_imports_no_lark():
    code = (
        "import sys; from kdsl.syntax.parse import parse_file; from kdsl.data import data_root;"
        "parse_file(data_root() / 'stdlib/targets/cpu.kds');"
        "assert not {'lark', 'tvm', 'difflib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", "from kdsl.syntax.tables import tables; tables()"], check=True)
    subprocess.run([sys.executable, "-c", code], check=True)
