"""The command: verdicts, exit statuses, JSON, usage errors; never a traceback."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from kdsl.cli.prove import prove

RULE = """
rule graph schedules kda.decode on cpu {
  kernel all computes step { grid { task : n, h } }
}
"""
QUICK = [
    "--trials",
    "1",
    "--set",
    "gate=bounded",
    "--set",
    "use_qk_l2norm_in_kernel=true",
    "--set",
    "use_beta_sigmoid_in_kernel=true",
    "--set",
    "allow_neg_eigval=false",
    "--set",
    "state_v_first=false",
    "--set",
    "slot_zero_is_real=true",
    "--shape",
    "K=16,V=16",
]


@pytest.fixture
def rule(tmp_path):
    file = tmp_path / "graph.kds"
    file.write_text(RULE)
    return str(file)


def run(*arguments):
    result = CliRunner().invoke(prove, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_proved(rule):
    result = run(rule, *QUICK)
    assert result.exit_code == 0 and result.stdout.startswith("field") and "1 of 1 proved" in result.stderr


def test_json(rule):
    result = run(rule, *QUICK, "--format", "json")
    document = json.loads(result.stdout)
    (proof,) = document["proofs"]
    assert document["proved"] == 1 and proof["verdict"] == "field" and proof["cases"] and proof["assumptions"]


def test_rejected(rule, tmp_path, monkeypatch):
    """A wrong operator beside the rule, under the operator's own name."""
    from kdsl.data import data_root

    text = (data_root() / "stdlib" / "operators" / "kda.decode.kds").read_text()
    (tmp_path / "decode.kds").write_text(text.replace("sd[d, e] + kn[d] * u[e]", "sd[d, e] - kn[d] * u[e]"))
    result = run(str(tmp_path), *QUICK)
    assert result.exit_code == 1 and ("P101" in result.stdout or "error" in result.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--target", "no_such"],
        ["--set", "gate=open"],
        ["--shape", "T"],
        ["--trials", "0"],
        ["--choose", "depth=3"],
        ["--shape", "Q=3"],
    ],
)
def test_usage(rule, arguments):
    result = run(rule, *arguments)
    assert result.exit_code == 2 and "Traceback" not in result.output


def test_no_such_file():
    assert run("nowhere.kds").exit_code == 2


def test_a_rule_with_findings(tmp_path):
    file = tmp_path / "bad.kds"
    file.write_text("rule x schedules kda.nothing on cpu { }\n")
    assert run(str(file)).exit_code == 1


def test_no_compiler(rule, monkeypatch):
    from kdsl.lower.toolchain import cc
    from kdsl.prove import objects

    cc.find.cache_clear()
    objects.load.cache_clear()
    monkeypatch.setenv("CC", "no-such-compiler")
    result = run(rule, *QUICK, "--fresh")
    cc.find.cache_clear()
    assert result.exit_code == 3 and "no-such-compiler" in result.stderr


def test_a_table(rule):
    result = run(rule, *QUICK, "--format", "markdown")
    head, rule_line, row = result.stdout.splitlines()
    assert result.exit_code == 0 and head.startswith("| subject | targets |") and set(rule_line) == {"|", "-"}
    assert row.count("|") == head.count("|") and "| field |" in row and "| cpu |" in row
