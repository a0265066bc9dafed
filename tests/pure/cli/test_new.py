"""What `kdsl new` writes checks and is formatted, for every operator and every target."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from kdsl.check.library import load
from kdsl.cli.main import cli
from kdsl.syntax.print import format_text


def made(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["new", *arguments, "--output", "-"])
    assert done.exit_code == 0, done.output
    return done.output


def fine(text: str) -> bool:
    """As the command says: schedules are derived and proofs asked for too."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "new.kds"
        file.write_text(text, encoding="utf-8")
        done = CliRunner().invoke(cli, ["check", str(file)])
    return done.exit_code == 0 and done.stdout == "" and format_text(text) == text


@pytest.mark.parametrize("operator", sorted(load().operators))
def test_a_cpu_rule_for_every_operator(operator):
    assert fine(made("rule", "mine", "--schedules", operator))


def test_a_rule_for_a_gpu_begins_as_a_copy():
    text = made("rule", "mine", "--on", "sm_90a")
    assert text.startswith("# Begun as a copy of rule ") and "rule mine schedules kda.chunk_forward" in text
    assert fine(text)


def test_an_operator():
    assert fine(made("operator", "scale.rows"))


def test_a_rule_for_an_operator_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments in (
        ["operator", "scale.rows", "--output", "operators/scale.kds"],
        ["rule", "fast", "--schedules", "scale.rows", "--use", "operators/scale.kds", "--output", "rules/fast.kds"],
    ):
        assert CliRunner().invoke(cli, ["new", *arguments]).exit_code == 0
    assert Path("rules/fast.kds").read_text("utf-8").startswith('use "../operators/scale.kds"\n\nrule fast schedules')
    done = CliRunner().invoke(cli, ["check", "rules"])
    assert done.exit_code == 0 and done.stdout == ""
    Path("operators/scale.kds").write_text("operator scale.rows {", encoding="utf-8")
    again = CliRunner().invoke(cli, ["new", "rule", "r", "--schedules", "scale.rows", "--use", "operators/scale.kds"])
    assert again.exit_code == 2 and "has errors of its own" in again.output


@pytest.mark.parametrize("target", sorted(load().targets))
def test_a_target_that_extends(target):
    assert fine(made("target", "mine", "--extends", target))


def test_it_writes_a_file_once(tmp_path):
    path = tmp_path / "rules" / "mine.kds"
    arguments = ["new", "operator", "mine", "--output", str(path)]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert "operator mine {" in path.read_text("utf-8")
    again = CliRunner().invoke(cli, arguments)
    assert again.exit_code == 2 and "there already" in again.output


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["rule", "a b"], "no name"),
        (["rule", "a", "--schedules", "kda.chunk_foward"], "did you mean `kda.chunk_forward`?"),
        (["rule", "a", "--on", "sm_91"], "there is no target `sm_91`"),
        (["target", "a", "--on", "cpu"], "--on is not for a new target"),
        (["operator", "a", "--extends", "cpu"], "--extends is not for a new operator"),
    ],
)
def test_what_is_wrong_is_said(arguments, said):
    done = CliRunner().invoke(cli, ["new", *arguments])
    assert done.exit_code == 2 and said in done.output
