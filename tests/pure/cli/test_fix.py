"""`kdsl check --fix`: safe edits, likely edits, nothing by halves."""

from __future__ import annotations

import os
import stat

import pytest
from click.testing import CliRunner

from kdsl.cli.main import cli

TARGET = "target mine extends cpu {\n  vector_bytes = 64\n}\n"
ALLOW = TARGET.replace("64\n", "64  # kds: allow[W502] none here\n")
MISSPELT = TARGET.replace("extends cpu", "extends cqu")


def run(path, *options: str):
    return CliRunner().invoke(cli, ["check", str(path), *options])


def test_safe_edits(tmp_path):
    path = tmp_path / "a.kds"
    path.write_text(ALLOW)
    assert "W504" in run(path).output and path.read_text() == ALLOW
    done = run(path, "--fix")
    assert done.exit_code == 0 and "applied 1 edit in 1 file" in done.output
    assert path.read_text() == TARGET
    assert "no edits to apply" in run(path, "--fix").output


def test_likely_edits_are_asked_for(tmp_path):
    path = tmp_path / "a.kds"
    path.write_text(MISSPELT)
    assert run(path, "--fix").exit_code == 1 and path.read_text() == MISSPELT
    done = run(path, "--unsafe-fixes")
    assert done.exit_code == 0 and path.read_text() == TARGET


def test_an_edit_uncovers_the_next(tmp_path):
    path = tmp_path / "a.kds"
    path.write_text(MISSPELT.replace("target mine", "targte mine"))
    assert run(path, "--unsafe-fixes").exit_code == 0
    assert path.read_text() == TARGET


def test_line_ends_marks_and_permissions_stay(tmp_path):
    path = tmp_path / "a.kds"
    path.write_bytes(b"\xef\xbb\xbf" + MISSPELT.replace("\n", "\r\n").encode())
    os.chmod(path, 0o640)
    assert run(path, "--unsafe-fixes").exit_code == 0
    assert path.read_bytes() == b"\xef\xbb\xbf" + TARGET.replace("\n", "\r\n").encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_files_that_are_used_are_left_alone(tmp_path):
    used, user = tmp_path / "used.kds", tmp_path / "user.kds"
    used.write_text(MISSPELT)
    user.write_text('use "used.kds"\n')
    run(user, "--unsafe-fixes")
    assert used.read_text() == MISSPELT


def test_all_files_or_none(tmp_path, monkeypatch):
    from kdsl.cli import fix

    first, second = tmp_path / "a.kds", tmp_path / "b.kds"
    first.write_text(MISSPELT)
    second.write_text(MISSPELT.replace("mine", "yours"))
    prepared = fix._prepared

    def fail(path, text):
        if path.name == "b.kds":
            raise OSError(28, "No space left on device", str(path))
        return prepared(path, text)

    monkeypatch.setattr(fix, "_prepared", fail)
    done = run(tmp_path, "--unsafe-fixes")
    assert done.exit_code == 1 and "nothing was written: No space left" in done.output
    assert first.read_text() == MISSPELT and sorted(p.name for p in tmp_path.iterdir()) == ["a.kds", "b.kds"]


@pytest.mark.parametrize(
    "text", ["rule {\n", "target a {\n  b = = 1\n}\n", "operator x { part p { s : y[] = x[ } }\n", '"""']
)
def test_no_edit_makes_a_file_worse(tmp_path, text):
    from kdsl.source.span import SourceFile
    from kdsl.syntax.parse import parse_source

    path = tmp_path / "a.kds"
    path.write_text(text)
    before = len(parse_source(SourceFile("a.kds", text)).diagnostics)
    run(path, "--unsafe-fixes")
    assert len(parse_source(SourceFile("a.kds", path.read_text())).diagnostics) <= before
