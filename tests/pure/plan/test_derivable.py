"""`kdsl check` derives every rule: at each choose point, for each option and dtype; what derives is remembered."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from kdsl.check import check_paths
from kdsl.cli.main import cli
from kdsl.data import data_root
from kdsl.plan import remembered
from kdsl.plan.derivable import derivations, settings
from kdsl.plan.remembered import check_and_derive
from kdsl.source import cache

RULES = data_root() / "rules"
LANES = (RULES / "kda.decode" / "lane_columns.kds").read_text("utf-8")
SPLIT = (RULES / "kda.chunk_forward" / "cpu_split.kds").read_text("utf-8")


@pytest.fixture
def found(tmp_path, monkeypatch):
    """`found(text)`: the findings of a file with a cache folder of its own."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))

    def findings(text: str):
        file = tmp_path / "rule.kds"
        file.write_text(text, encoding="utf-8")
        return check_and_derive([file]).diagnostics

    return findings


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


def test_every_shipped_rule_derives():
    library = check_paths([RULES]).library
    assert derivations(library, library.rules.values()) == ()
    rule = library.rules["lane_columns"]
    tried = {setting for _, setting in settings(library.operators[rule.operator], rule)}
    assert {"", "with gate = bounded", "with use_qk_l2norm_in_kernel = true", "with q = f16"} <= tried


def test_a_refusal_names_the_setting_that_it_needs(found):
    (finding,) = found(replaced(LANES, " lanes d by 4 via shuffle", ""))
    assert finding.code == "D340" and finding.span.line == 21
    assert "with use_qk_l2norm_in_kernel = true" in finding.notes


def test_a_refusal_names_the_points(found):
    """Sixteen lanes over a row of 16 leave no outer loop to pin."""
    pin = "    pin { inverse.loop_order = j.outer, j.inner }\n"
    text = replaced(SPLIT, "vector j by 8 }", "vector j by width }")
    (finding,) = found(replaced(text, "    apply vector", pin + "    apply vector"))
    assert finding.code == "D136"
    assert finding.notes == ("at choose chunk = 16, width = 16; 3 of 4 points hold",)
    assert found(text) == ()


def test_a_refusal_in_a_tactic_shows_where_it_is_applied(found):
    tactic = "\n\ntactic lanes(count) {\n  compute { square_q, square_k : fma.f32 }\n}\n"
    line = "    compute { square_q, square_k : fma.f32 lanes d by 4 via shuffle }"
    text = replaced(LANES, line, "    apply lanes(4)")
    (finding,) = [d for d in found(text + tactic) if d.code == "D340"]
    assert any("applied by rule `lane_columns`" in label.text for label in finding.labels)


def test_more_points_than_are_derived_are_said(found):
    text = replaced(SPLIT, "width in [8, 16]  default 8", "width, a, b in [1, 2, 4, 8, 16] default 8")
    text = replaced(text, "vector j by 8 }", "vector j by a; mask_kk : vector j by b }")
    (warning,) = found(text)
    assert warning.code == "W507" and "derived at 64 of 250 points" in warning.message


def test_what_derives_is_remembered_until_something_changes(found, monkeypatch):
    calls = []
    honest = derivations

    def counted(library, rules, target=None):
        calls.append([rule.name for rule in rules])
        return honest(library, rules, target)

    monkeypatch.setattr("kdsl.plan.derivable.derivations", counted)
    assert found(LANES) == () and found(LANES) == ()
    assert calls == [["lane_columns"]]
    assert found(LANES.replace("8 KiB", "9 KiB")) == () and len(calls) == 2
    wrong = replaced(LANES, " lanes d by 4 via shuffle", "")
    assert [d.code for d in found(wrong)] == [d.code for d in found(wrong)] == ["D340"] and len(calls) == 4
    monkeypatch.setattr(remembered, "stamp", lambda: "another compiler")
    assert found(LANES) == () and len(calls) == 5


def test_a_rule_that_does_not_derive_is_not_asked(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    file = tmp_path / "rule.kds"
    call = ["--target", "sm_90a", "--shape", "N=1,T=1,H=1,HV=1,SLOTS=1,W=1,K=128,V=128", "--set", "gate=precomputed"]
    file.write_text(LANES, encoding="utf-8")
    done = CliRunner().invoke(cli, ["select", str(file), *call])
    assert done.exit_code == 0 and "lane_columns claims it" in done.output
    file.write_text(replaced(LANES, " lanes d by 4 via shuffle", ""), encoding="utf-8")
    done = CliRunner().invoke(cli, ["select", str(file), *call])
    assert done.exit_code == 1 and "D340" in done.output and "claims it" not in done.output


def test_the_command_exits_with_it_and_loads_no_compiler(tmp_path):
    file = tmp_path / "rule.kds"
    file.write_text(replaced(LANES, " lanes d by 4 via shuffle", ""), encoding="utf-8")
    environment = {**os.environ, cache.VARIABLE: str(tmp_path / "cache")}
    code = ("import sys\nfrom kdsl.cli.main import main\nsys.argv[0] = 'kdsl'\ntry:\n    main()\nfinally:\n"
            "    print(sorted({'tvm', 'numpy', 'torch', 'kdsl.plan.derive'} & set(sys.modules)))\n")  # fmt: skip

    def run(*paths):
        command = [sys.executable, "-c", code, "check", *map(str, paths)]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    first = run(file)
    assert first.returncode == 1 and "error[D340]" in first.stdout and "['kdsl.plan.derive']" in first.stdout
    assert run(RULES).returncode == 0
    again = run(RULES)
    assert again.returncode == 0 and again.stdout.strip().endswith("[]"), again.stdout + again.stderr


PRODUCTS = "compute { state_key, solve_apply, state_query, within, state_update : mma.m16n8k16 }"
BOUNDED = (RULES / "kda.chunk_forward" / "mma_bounded.kds").read_text("utf-8")
TACTIC = (data_root() / "stdlib" / "tactics" / "mma.kds").read_text("utf-8").replace("tactic ", "tactic own_")


@pytest.mark.parametrize("left_out", ["state_key", "solve_apply", "state_query", "within", "state_update", "all"])
def test_a_stage_that_reads_a_fragment_without_its_instruction(found, left_out):
    """Elements of a fragment lie in other lanes: TVM would stop in the middle of making code."""
    kept = [s for s in ("state_key", "solve_apply", "state_query", "within", "state_update") if s != left_out]
    line = f"compute {{ {', '.join(kept)} : mma.m16n8k16 }}" if left_out != "all" else ""
    text = BOUNDED.replace("apply ", "apply own_") + replaced(TACTIC, PRODUCTS, line)
    findings = found(text)
    assert {d.code for d in findings} <= {"D342", "D343"} and findings, findings
    assert all(d.help for d in findings)


@pytest.mark.parametrize("name", ["qq, kk, b", "kk", "b"])
def test_numbers_that_a_rule_does_not_place(found, name):
    """They are in registers, where every thread has them; in shared memory they cannot be."""
    line = "      qq, kk, b             : f32 in registers\n"
    kept = ", ".join(x for x in ("qq", "kk", "b") if x not in name.split(", "))
    assert found(replaced(LANES, line, f"      {kept} : f32 in registers\n" if kept else "")) == ()
    moved = line.replace("registers", "shared")
    assert {d.code for d in found(replaced(LANES, line, moved))} == {"D358"}
