"""Differences at every level: equal things have none, a pad changes what it changes and nothing else."""

from __future__ import annotations

import subprocess

import pytest
from click.testing import CliRunner

from kdsl.bundle.load import read_bundle
from kdsl.cli.main import cli
from kdsl.driver.compile import build
from kdsl.review.difference import Side, difference, side_of
from kdsl.review.pull_request import markdown, text
from kdsl.review.subject import subject

from ..inspect.rules import file_of, padded

STATIC = ("meaning", "schedule", "tir")


def run(*arguments):
    return CliRunner().invoke(cli, ["diff", *map(str, arguments)])


def compared(old, new, levels=STATIC, target="sm_90a"):
    sides = [side_of(subject(str(file)), target, {}, levels) for file in (old, new)]
    return difference("padded", target, *sides, levels)


@pytest.fixture
def pair(tmp_path):
    """The same rule with pad 0 and with pad 8."""
    for pad in (0, 8):
        (tmp_path / str(pad)).mkdir()
    return padded(tmp_path / "0", 0), padded(tmp_path / "8", 8)


def test_equal_things(pair):
    found = compared(pair[0], pair[0])
    assert found.same and "no difference in meaning, schedule, tir" in text(found)
    assert "No difference" in markdown(found)
    done = run(pair[0], pair[0], "--target", "sm_90a", "--levels", "meaning,schedule,tir")
    assert done.exit_code == 0


def test_one_pad(pair):
    found = compared(*pair)
    (change,) = found.meaning
    assert (change.section, change.key) == ("recurrence place", "k_decayed") and "pad 8" in change.new
    (schedule,) = found.schedule
    assert schedule.kernel == "recurrence" and (schedule.added, schedule.dropped) == (1, 0)
    assert any("storagealign k_decayed_copy" in line for line in schedule.lines)
    assert [one.kernel for one in found.tir] == ["recurrence"]


def test_another_name_and_comments_are_no_difference(pair, tmp_path):
    other = tmp_path / "other.kds"
    text_ = pair[0].read_text(encoding="utf-8").replace("rule padded", "rule renamed")
    other.write_text(f"# a comment\n{text_}", encoding="utf-8")
    done = run(pair[0], other, "--target", "sm_90a", "--levels", "meaning,schedule,tir")
    assert done.exit_code == 0 and "padded -> renamed" in done.output


def test_the_machine_code(pair, compiler):
    done = run(*pair, "--target", "sm_90a", "--levels", "meaning,code", "--format", "markdown")
    assert done.exit_code == 1
    assert "| recurrence | worst bank conflict | 8 | 1 | -7 |" in done.output
    assert "+ k_decayed : bf16 in shared pad 8" in done.output and "**The schedule**" not in done.output


def test_a_revision_with_the_library_it_had(tmp_path, pair, monkeypatch):
    monkeypatch.chdir(tmp_path)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "init", "-q"], check=True)
    (tmp_path / "rule.kds").write_bytes(pair[0].read_bytes())
    subprocess.run([*git, "add", "rule.kds"], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    (tmp_path / "rule.kds").write_bytes(pair[1].read_bytes())
    done = run("HEAD:rule.kds", "rule.kds", "--target", "sm_90a", "--levels", "meaning")
    assert done.exit_code == 1 and "pad 8" in done.output
    assert run("HEAD:rule.kds", "HEAD:rule.kds", "--target", "sm_90a", "--levels", "meaning").exit_code == 0
    for wrong, said in (("HEAD:no.kds", "has no no.kds"), ("nowhere:rule.kds", "git says"), ("no.kds", "no such file")):
        done = run(wrong, "rule.kds")
        assert done.exit_code == 2 and said in done.output


def test_rules_that_only_one_side_has(tmp_path, pair):
    for name, rules in (("a", ("lane_columns", "mma_bounded")), ("b", ("mma_bounded", "mma_any_gate"))):
        (tmp_path / name).mkdir()
        for rule in rules:
            (tmp_path / name / f"{rule}.kds").write_bytes(file_of(rule).read_bytes())
    done = run(tmp_path / "a", tmp_path / "b", "--target", "sm_90a", "--levels", "meaning")
    assert done.exit_code == 1
    assert "rule `lane_columns` is in" in done.output and "rule `mma_any_gate` is in" in done.output


def test_what_could_not_be_lowered_is_not_called_the_same():
    one = Side("a", absent={"tir": "a is refused: no"})
    found = difference("r", "sm_90a", one, Side("b"), ("meaning", "tir"))
    assert "The TIR: not compared: a is refused: no" in text(found)
    assert "was not compared" in markdown(found)


def test_bundles(tmp_path, compiler):
    rule = subject(str(file_of("lane_columns")))
    paths = [
        build([rule.lowering("sm_90a", {"columns": columns}).plan], tmp_path / f"{columns}.kdsb")
        for columns in (128, 64)
    ]
    assert run(paths[0], paths[0]).exit_code == 0
    done = run(*paths)
    assert done.exit_code == 1 and "columns = 64" in done.output and "registers" in done.output
    assert read_bundle(paths[0]).manifest.rule.name == "lane_columns"


def test_a_bundle_without_its_rule(tmp_path, compiler):
    file = tmp_path / "own.kds"
    file.write_text(file_of("lane_columns").read_text(encoding="utf-8").replace("rule lane_columns", "rule own"))
    paths = [
        build([subject(str(file)).lowering("sm_90a", {"columns": columns}).plan], tmp_path / f"{columns}.kdsb")
        for columns in (128, 64)
    ]
    done = run(*paths)
    assert done.exit_code == 1 and "columns = 64" in done.output
    assert "keeps no schedule" in done.output and "instructions" in done.output
