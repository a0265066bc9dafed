"""`kdsl check`: exit status, formats, and a fault that is no traceback."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from texts import CPU, RULES

from kdsl.cli.check import check

BAD = CPU.replace("vector j by 8", "vector p by 8")


@pytest.fixture
def bad(tmp_path):
    path = tmp_path / "bad.kds"
    path.write_text(BAD, encoding="utf-8")
    return path


def run(*arguments):
    return CliRunner().invoke(check, [str(a) for a in arguments])


def test_clean_and_warnings_are_0(tmp_path):
    assert run(RULES).exit_code == 0
    path = tmp_path / "warns.kds"
    path.write_text(
        CPU.replace("width in [8, 16]  default 8", "width in [8, 16]; idle in 1..2"), encoding="utf-8"
    )
    result = run(path)
    assert result.exit_code == 0 and "W502" in result.output and "1 warning in 1 file" in result.output


def test_findings_are_1(bad):
    result = run(bad)
    assert result.exit_code == 1 and "error[E124] vector-refused" in result.output


def test_usage_is_2(tmp_path, bad):
    assert run().exit_code == 2
    assert run(tmp_path / "none").exit_code == 2
    assert run(bad, "--format", "xml").exit_code == 2
    result = run(bad, "--target", "sm_91")
    assert result.exit_code == 2 and "no target `sm_91`" in result.output


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github"])
def test_what_is_not_there_is_a_finding_in_every_format(tmp_path, bad, form):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "none.kds", tmp_path / "empty"):
        result = run(bad, path, "--format", form)
        assert result.exit_code == 2 and "E030" in result.output and "E124" in result.output
    user = tmp_path / "user.kds"
    user.write_text('use "none.kds"\n', encoding="utf-8")
    assert run(user, "--format", form).exit_code == 1  # a file that is used is a finding of the file that uses it


@pytest.mark.parametrize("form", ["json", "sarif", "github"])
def test_formats(bad, form):
    result = run(bad, "--format", form)
    assert result.exit_code == 1 and "E124" in result.output
    if form != "github":
        json.loads(result.output.partition("\nerror")[0])
