from __future__ import annotations

import os
import stat

import pytest
from click.testing import CliRunner

from kdsl.cli.explain import explain
from kdsl.cli.fmt import fmt

UGLY = "target a{sms=1 ;  has x,y }\n"
PRETTY = "target a { sms = 1; has x, y }\n"
WRONG = "target a { sms == 1 }\n"


def run(command, *arguments, **options):
    return CliRunner().invoke(command, [str(argument) for argument in arguments], **options)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.kds").write_text(UGLY)
    (tmp_path / "sub" / "b.kds").write_text(PRETTY)
    (tmp_path / "sub" / "c.txt").write_text(UGLY)
    return tmp_path


def test_rewrites_what_is_not_canonical(folder):
    os.chmod(folder / "a.kds", 0o640)
    result = run(fmt, folder)
    assert result.exit_code == 0 and "1 rewritten, 1 unchanged" in result.stderr
    assert (folder / "a.kds").read_text() == PRETTY and (folder / "sub" / "c.txt").read_text() == UGLY
    assert stat.S_IMODE((folder / "a.kds").stat().st_mode) == 0o640
    assert sorted(path.name for path in folder.iterdir()) == ["a.kds", "sub"]
    assert run(fmt, folder).exit_code == 0


def test_check_and_diff_write_nothing(folder):
    result = run(fmt, folder, "--check")
    assert result.exit_code == 1 and "would reformat" in result.stdout and "a.kds" in result.stdout
    result = run(fmt, folder, "--diff")
    assert result.exit_code == 1 and f"-{UGLY}+{PRETTY}" in result.stdout
    assert (folder / "a.kds").read_text() == UGLY
    assert run(fmt, folder / "sub", "--check").exit_code == 0


def test_a_file_with_an_error_is_left_alone_and_the_others_are_not(folder):
    (folder / "sub" / "w.kds").write_text(WRONG)
    result = run(fmt, folder)
    assert result.exit_code == 1 and "E011" in result.stderr and "1 left alone" in result.stderr
    assert (folder / "sub" / "w.kds").read_text() == WRONG and (folder / "a.kds").read_text() == PRETTY


def test_stdin():
    result = run(fmt, "-", input=UGLY)
    assert (result.exit_code, result.stdout) == (0, PRETTY)
    result = run(fmt, "-", input=WRONG)
    assert result.exit_code == 1 and result.stdout == "" and "<stdin>:1:16" in result.stderr
    assert run(fmt, "-", "--check", input=UGLY).exit_code == 1
    assert run(fmt, "-", "a.kds").exit_code == 2


def test_paths_that_are_wrong(folder):
    result = run(fmt, folder / "none.kds")
    assert result.exit_code == 2 and "E030" in result.stderr
    assert run(fmt).exit_code == 2


def test_links_are_followed(folder):
    (folder / "link.kds").symlink_to(folder / "a.kds")
    assert run(fmt, folder / "link.kds").exit_code == 0
    assert (folder / "link.kds").is_symlink() and (folder / "a.kds").read_text() == PRETTY


def test_line_ends_and_marks_become_canonical(folder):
    (folder / "a.kds").write_bytes(b"\xef\xbb\xbftarget a {\r\n  sms = 1\r\n}\r\n")
    assert run(fmt, folder / "a.kds", "--check").exit_code == 1
    run(fmt, folder / "a.kds")
    assert (folder / "a.kds").read_bytes() == b"target a {\n  sms = 1\n}\n"


def test_explain():
    result = run(explain, "E008")
    assert result.exit_code == 0 and result.stdout.startswith("# E008 misspelt-keyword")
    assert run(explain, "e008").stdout == run(explain, "misspelt-keyword").stdout == result.stdout
    listing = run(explain, "--list")
    assert listing.exit_code == 0 and "E001" in listing.stdout and "syntax and files" in listing.stdout
    result = run(explain, "E08")
    assert result.exit_code == 2 and "Did you mean" in result.stderr
    assert run(explain, "zzzzzz").exit_code == 2 and run(explain).exit_code == 2
