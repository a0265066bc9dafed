"""`expect pass` and `expect refuse` blocks: their form, and `kdsl test`."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from kdsl.check import check_source
from kdsl.cli.main import cli
from kdsl.source.span import SourceFile
from kdsl.syntax import nodes as n
from kdsl.syntax.parse import parse_source
from kdsl.syntax.print import format_text

TINY = "target tiny extends cpu {\n  stack_bytes_per_task = 64 KiB\n}\n"
RULE = """rule mine schedules kda.decode on TARGET {
  kernel step computes step {
    grid { task : n, h }
    place { state, state_next, sd, qn, kn, lg, b, sk, u, oq : f32 in stack }
  }
}"""


def block(header: str, target: str = "cpu") -> str:
    return f"expect {header} {{\n{RULE.replace('TARGET', target)}\n}}\n"


def run(tmp_path, text: str, *options: str):
    path = tmp_path / "a.kds"
    path.write_text(text, encoding="utf-8")
    return CliRunner().invoke(cli, ["test", str(path), *options])


def test_the_form():
    text = TINY + "\n" + block("refuse E302, W501", "tiny") + "\n" + block("pass")
    parsed = parse_source(SourceFile("a.kds", text))
    assert parsed.ok
    _, refused, passed = parsed.tree.declarations
    assert [code.text for code in refused.codes] == ["E302", "W501"] and passed.codes == ()
    assert isinstance(passed.items[0], n.Rule)
    once = format_text(text)
    assert format_text(once) == once
    assert parse_source(SourceFile("a.kds", once)).tree == parsed.tree


def test_a_check_does_not_look_inside():
    assert check_source(SourceFile("a.kds", TINY + block("refuse E302", "tiny"))) == ()


@pytest.mark.parametrize(
    "text", ["expect { }", "expect refuse { }", "expect pass E302 { }", "expect pass { expect pass { } }"]
)
def test_other_forms_are_syntax_errors(text):
    assert not parse_source(SourceFile("a.kds", text + "\n")).ok


def test_as_expected(tmp_path):
    done = run(tmp_path, TINY + block("refuse E302", "tiny") + block("pass"))
    assert done.exit_code == 0 and "2 as expected, 0 not" in done.output
    assert run(tmp_path, block("pass"), "-q").output == "1 as expected, 0 not\n"


@pytest.mark.parametrize(
    "text, said",
    [
        (block("refuse E302"), "FAILED: accepted"),
        (TINY + block("pass", "tiny"), "FAILED: found E302"),
        (TINY + block("refuse E101", "tiny"), "FAILED: E101 not found; found E302"),
        (block("refuse E999"), "there is no code E999"),
        ("expect pass {\n  target a {\n}\n", "FAILED: found E002"),
    ],
)
def test_not_as_expected(tmp_path, text, said):
    done = run(tmp_path, text)
    assert done.exit_code == 1 and said in done.output


def test_what_the_file_itself_has_wrong_is_not_the_block_s(tmp_path):
    text = "target odd extends nothing {\n  sms = 1\n}\n" + block("pass")
    assert run(tmp_path, text).exit_code == 0


def test_a_path_that_is_not_there(tmp_path):
    done = CliRunner().invoke(cli, ["test", str(tmp_path / "gone.kds")])
    assert done.exit_code == 2 and "there is no file" in done.output
