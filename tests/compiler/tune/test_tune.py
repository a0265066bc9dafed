"""`kdsl tune` with the compiler: points discarded by their contracts, folders that go on, and the diff of a rule."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from kdsl.bench.cases import CASES, SMALL_CASES
from kdsl.bench.compiled import library_of
from kdsl.bench.subjects import NotUsable
from kdsl.check import check_source
from kdsl.cli.main import cli
from kdsl.data import data_root
from kdsl.syntax.print import format_text
from kdsl.tune import program
from kdsl.tune.log import Entry, Log
from kdsl.tune.patch import diff, edited
from kdsl.tune.prepare import Space
from kdsl.tune.prepared import LOG, read

RULES = data_root() / "rules"
CPU = (RULES / "kda.chunk_forward" / "cpu_split.kds").read_text("utf-8")
DECODE = (RULES / "kda.decode" / "lane_columns.kds").read_text("utf-8")


def tune(*words):
    return program.main([*map(str, words)])


@pytest.fixture
def rule(tmp_path, monkeypatch):
    """Write a rule, in a folder that is the current one: rule(text)."""
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> Path:
        (tmp_path / "r.kds").write_text(text, "utf-8")
        return Path("r.kds")

    return write


def narrowed(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)


def test_from_a_rule_to_a_diff_that_applies(rule, capsys):
    text = format_text(narrowed(CPU, "chunk in [16, 32] default 16", "chunk in [16] default 16"))
    path = rule(text)
    assert tune(path, "--target", "cpu", "--runs", "20") == 0
    said = capsys.readouterr()
    assert "2 of 2 points of cpu_split for cpu" in said.out and "2 measured now" in said.out
    folder = Path("build/tune/r-cpu")
    log = Log.read(folder / LOG)
    assert {tuple(entry.choices.items()) for entry in log.entries.values()} == {
        (("chunk", 16), ("width", 8)), (("chunk", 16), ("width", 16))
    }  # fmt: skip
    default, other = read(folder).points
    for point, median in ((default, 200.0), (other, 100.0)):  # as if the other were twice as fast
        log.add(Entry(point.code, "h2", "cpu", "passed", dict(point.choices), "", {"median_us": median}))
    assert tune(path, "--target", "cpu", "--from", folder, "--output", "r.patch") == 0
    said = capsys.readouterr()
    assert "chunk = 16, width = 16: 0.500 of the default's time on cpu; r.patch: review it" in said.err
    assert path.read_text("utf-8") == text  # never applied by itself
    subprocess.run(["git", "apply", "r.patch"], check=True)
    after = path.read_text("utf-8")
    assert "width in [8, 16] default 8, 16 on cpu" in after and format_text(after) == after
    # The rule changed: what was prepared is out of date, and the times of the same code are kept.
    assert tune(path, "--target", "cpu", "--from", folder) == 1
    assert "2 of 2 points come from an earlier text of the rule" in capsys.readouterr().err
    assert tune(path, "--target", "cpu", "--prepare", folder) == 0 and tune(folder) == 0
    assert "0 measured now" in capsys.readouterr().out
    assert tune(path, "--target", "cpu", "--from", folder) == 0
    assert "no diff: the default is the fastest" in capsys.readouterr().err


def test_a_folder_goes_on_and_a_changed_rule_is_prepared_again(rule, monkeypatch, capsys):
    path = rule(narrowed(CPU, "chunk in [16, 32] default 16", "chunk in [16]     default 16"))
    assert tune(path, "--target", "cpu", "--prepare", "d") == 0
    before = [point.code for point in read(Path("d")).points]
    made = []
    real = __import__("kdsl.tune.prepare", fromlist=["build"]).build

    def counted(plans, *rest, **more):
        made.append(dict(plans[0].point.choices))
        return real(plans, *rest, **more)

    monkeypatch.setattr("kdsl.tune.prepare.build", counted)
    assert tune(path, "--target", "cpu", "--prepare", "d") == 0 and made == []
    (Path("d") / "tune.json").unlink()  # as if killed on the way, behind both bundles or within one
    assert tune(path, "--target", "cpu", "--prepare", "d") == 0 and made == []
    assert [point.code for point in read(Path("d")).points] == before
    (Path("d") / read(Path("d")).points[1].bundle / "manifest.json").unlink()
    assert tune(path, "--target", "cpu", "--prepare", "d") == 0 and made == [{"chunk": 16, "width": 16}]
    rule(path.read_text("utf-8").replace("vector j by 8", "vector j by 16"))
    assert tune(path, "--target", "cpu", "--from", "d") == 1
    assert "come from an earlier text of the rule or an earlier compiler; prepare it again" in capsys.readouterr().err
    made.clear()
    assert tune(path, "--target", "cpu", "--prepare", "d") == 0 and len(made) == 2
    assert not set(before) & {point.code for point in read(Path("d")).points}


def test_a_point_whose_contract_fails_has_no_bundle(rule, capsys):
    path = rule(narrowed(DECODE, "spills == 0", "spills == 0\n    registers_per_thread <= 200"))
    assert tune(path, "--target", "sm_90a", "--prepare", "d") == 0
    found = {point.choices["columns"]: point for point in read(Path("d")).points}
    assert found[128].bundle == "" and "registers_per_thread <= 200`: fails (binary), found 2" in found[128].reasons[0]
    assert found[64].bundle and not (Path("d") / "points/columns_128.kdsb").exists()
    assert "1 of 2 points of lane_columns for sm_90a are in d, 1 discarded" in capsys.readouterr().out


def test_a_point_that_refuses_the_call_is_not_lowered(rule):
    text = narrowed(CPU, "K % 16 == 0 and V % 16 == 0 else", "K % 16 == 0 and V % (16 * width) == 0 else")
    library = library_of([rule(text)])
    space = Space(library, library.rules["cpu_split"], "cpu", [SMALL_CASES["h2"]])
    assert space.refused({"chunk": 16, "width": 8}) == []
    (reason,) = space.refused({"chunk": 16, "width": 16})
    assert "V = 128 is not a multiple of (16 * width) = 256" in reason


def test_values_that_are_walked_alone(rule):
    library = library_of([rule(CPU)])
    space = Space(library, library.rules["cpu_split"], "cpu", [SMALL_CASES["h2"]], program.chosen(["chunk=32"]))
    assert [tuple(choices.values()) for choices in space] == [(16, 8), (32, 8), (32, 16)]
    assert program.chosen(["a=1|-2", "b=x"]) == {"a": [1, -2], "b": ["x"]}


def test_what_cannot_be_done_is_named(rule, capsys):
    path = rule(CPU)
    for words, status, said in (
        ([path, "--prepare", "d"], 2, "say the GPU with --target; rule cpu_split is for cpu"),
        ([path, "--prepare", "d", "--target", "sm_90a"], 2, "rule cpu_split is not for sm_90a; it is for cpu"),
        ([path, "--prepare", "d", "--target", "cpu", "--rule", "x"], 2, "r.kds has no rule x; it has cpu_split"),
        ([path, "--prepare", "d", "--target", "cpu", "--cases", "n2"], 2, "none of the cases n2 is of kda.chunk"),
        ([path, "--prepare", "/proc/kdsl", "--target", "cpu"], 2, "cannot write to /proc/kdsl"),
        ([path, "--prepare", "d", "--target", "cpu", "--choose", "width=9"], 2, "cannot choose width = [9]"),
        ([path, "--prepare", "d", "--target", "cpu", "--choose", "width"], 2, "is not NAME=VALUE, as in depth=2|3"),
        ([path, "--from", "none", "--target", "cpu"], 2, "none has no tune.json; prepare it"),
        ([path], 3, "no device here runs code for a GPU: PyTorch sees no GPU here"),
    ):
        assert tune(*words) == status and said in capsys.readouterr().err, words
    rule(CPU.replace("fma.f32", "fma.f23"))
    assert tune(path, "--prepare", "d", "--target", "cpu") == 1 and "E101" in capsys.readouterr().err
    rule(CPU + CPU.replace("rule cpu_split", "rule other").replace("K % 16 == 0 and", "K % 32 == 16 and"))
    assert tune(path, "--prepare", "d", "--target", "cpu") == 2
    assert "name one with --rule" in capsys.readouterr().err


# ---- the edit


def winner_of(text: str, target: str, **values) -> str:
    """The text with values as the target's defaults."""
    Path("r.kds").write_text(text, "utf-8")
    (found,) = library_of([Path("r.kds")]).rules.values()
    return edited(text, found, target, {**found.defaults_on(target), **values})


MMA = (RULES / "kda.chunk_forward" / "mma_bounded.kds").read_text("utf-8")
CHOOSE = re.search(r"  choose \{.*?\n  \}\n", MMA, re.DOTALL)[0]


@pytest.mark.parametrize(
    ("before", "values", "after"),
    [
        ("v_tile in [32, 64] default 64", {"v_tile": 32}, "v_tile in [32, 64] default 64, 32 on sm_90a"),
        ("v_tile in [32, 64] default 64, 32 on sm_80", {"v_tile": 32},
         "v_tile in [32, 64] default 64, 32 on sm_80, 32 on sm_90a"),
        ("v_tile in [32, 64] default 64, 32 on sm_90a", {"v_tile": 64}, "v_tile in [32, 64] default 64"),
        ("v_tile in [32, 64] default 64, 32 on sm_90a, 32 on sm_80", {"v_tile": 64},
         "v_tile in [32, 64] default 64, 32 on sm_80"),
        ("v_tile in [32, 64]", {"v_tile": 64}, "v_tile in [32, 64] default 32, 64 on sm_90a"),
        ("v_tile in [32, 64] default 64", {}, "v_tile in [32, 64] default 64"),
    ],
)
def test_the_edit_of_a_line(rule, before, values, after):
    text = MMA.replace(CHOOSE, f"  choose {{\n    {before}\n    depth in 2..3 default 2 # slots\n  }}\n")
    found = winner_of(text, "sm_90a", **values)
    lines = [" ".join(line.split()) for line in found.splitlines()]
    assert after in lines and "depth in 2..3 default 2 # slots" in lines
    assert (found == text) is (not values)
    assert check_source(found, "r.kds") == ()


def test_a_line_of_several_choices_becomes_one_for_each(rule):
    text = CPU.replace("chunk in [16, 32] default 16\n    width in [8, 16]  default 8", "chunk, width in [16, 32]")
    found = winner_of(text, "cpu", width=32)
    lines = [" ".join(line.split()) for line in found.splitlines()]
    assert "chunk in [16, 32] default 16" in lines and "width in [16, 32] default 16, 32 on cpu" in lines
    assert "chunk, width in [16, 32] default 16, 32 on cpu" in winner_of(text, "cpu", chunk=32, width=32)


def test_values_that_do_not_check_are_no_diff(rule):
    library = library_of([rule(CPU)])
    with pytest.raises(NotUsable, match="does not check: E142"):
        edited(CPU, library.rules["cpu_split"], "cpu", {"chunk": 16, "width": 12})


def test_a_diff_names_the_file_from_here(rule, tmp_path):
    text = diff(str(tmp_path / "rules" / "r.kds"), "a\n", "b\n")
    assert text.splitlines()[:2] == ["--- a/rules/r.kds", "+++ b/rules/r.kds"]


def test_bench_of_a_rule_compiles_it(rule, tmp_path, capsys):
    from kdsl.bench.program import main

    path = rule(CPU)
    assert main([str(path), "--device", "cpu", "--runs", "20", "--output", "out"]) == 0
    assert "cpu_split H = 2, two sequences, kdsl" in capsys.readouterr().out
    rule(CPU.replace("fma.f32", "fma.f23"))
    assert main([str(path), "--device", "cpu", "--runs", "20", "--output", "out"]) == 1
    assert "E101" in capsys.readouterr().err
    assert main([str(RULES / "kda.decode" / "lane_columns.kds"), "--device", "cpu", "--output", "out"]) == 2
    assert "no rule takes one of the cases on cpu; rules found: lane_columns (sm_80" in capsys.readouterr().err


def test_the_cases_are_calls_that_shipped_rules_take():
    from kdsl.bench.compiled import plan_for_cases

    library = library_of([RULES])
    for name, target, gate in (
        ("mma_bounded", "sm_90a", "bounded"), ("mma_any_gate", "sm_90a", "softplus"),
        ("lane_columns", "sm_90a", "bounded"), ("cpu_stream", "cpu", "bounded"),
    ):  # fmt: skip
        rule = library.rules[name]
        plan = plan_for_cases(library, rule, target, [c for c in CASES.values() if c.operator == rule.operator])
        assert plan.rule.name == name and plan.specialization.options["gate"] == gate
    assert set(cli.list_commands(None)) >= {"bench", "tune"}
