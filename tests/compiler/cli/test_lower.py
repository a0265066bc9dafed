"""`kdsl lower`: every stage, its files, its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from kdsl.bundle.load import load_bundle
from kdsl.cli.main import cli
from kdsl.data import data_root

RULES = data_root() / "rules"
CPU_SPLIT = str(RULES / "kda.chunk_forward" / "cpu_split.kds")
STAGES = {
    "ast": '"kind": "Rule"',
    "decisions": "all.order = ",
    "plan": "split state_key loop='e' factors=(None, 8)",
    "schedule": "sch.vectorize(",
    "tir": 'T.sblock("state_update_update")',
    "c": "void kdsl_all(",
    "report": "stack_bytes <= target.stack_bytes_per_task: holds (proved)",
}


def kdsl(*arguments: str):
    return CliRunner().invoke(cli, arguments, prog_name="kdsl")


def lower(*arguments: str):
    return kdsl("lower", CPU_SPLIT, "--target", "cpu", *arguments)


@pytest.mark.parametrize("stage", STAGES)
def test_text_stages_go_to_the_terminal(stage):
    done = lower("--emit", stage)
    assert done.exit_code == 0, done.output
    assert STAGES[stage] in done.stdout
    if stage == "ast":
        json.loads(done.stdout)
    if stage in ("schedule", "tir"):
        compile(done.stdout, stage, "exec")


def test_all_stages_as_files(tmp_path):
    stages = ",".join([*STAGES, "so", "bundle"])
    done = lower("--emit", stages, "--output", str(tmp_path), "--set", "gate=bounded")
    assert done.exit_code == 0, done.output
    files = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    own = {f.removeprefix("cpu_split/cpu/") for f in files if not f.startswith("cpu_split.kdsb/")}
    assert own == {"ast.json", "decisions.kds", "plan.txt", "all.schedule.py", "all.schedule.json",
                   "all.tir.py", "all.c", "all.so", "report.txt"}  # fmt: skip
    assert done.stdout.strip() == str(tmp_path / "cpu_split.kdsb")
    assert load_bundle(tmp_path / "cpu_split.kdsb").manifest.variants[0].options["gate"] == "bounded"


CUDA_STAGES = {
    "cuda": ("recurrence.cu", b"__global__"),
    "ptx": ("recurrence.ptx", b"mma.sync.aligned.m16n8k16"),
    "cubin": ("recurrence.cubin", b"\x7fELF"),
    "sass": ("recurrence.sass", b"HMMA.16816.F32"),
}


def test_all_stages_of_a_gpu_as_files(tmp_path):
    rule = str(RULES / "kda.chunk_forward" / "mma_bounded.kds")
    done = kdsl("lower", rule, "--target", "sm_90a", "--emit", ",".join(CUDA_STAGES), "--output", str(tmp_path))
    assert done.exit_code == 0, done.output
    for name, content in CUDA_STAGES.values():
        assert content in (tmp_path / "mma_bounded" / "sm_90a" / name).read_bytes()


def test_a_folder_lowers_every_rule_that_is_for_the_target(tmp_path):
    """The rules of a folder that name the GPU, all stages at once, on a machine without one."""
    stages = ("schedule", "tir", "cuda", "ptx", "cubin", "sass", "report")
    folder = str(RULES / "kda.decode")
    done = kdsl("lower", folder, "--target", "sm_100a", "--emit", ",".join(stages), "--output", str(tmp_path))
    assert done.exit_code == 0, done.output
    files = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    names = ("schedule.py", "schedule.json", "tir.py", "cu", "ptx", "cubin", "sass")
    assert files == {"lane_columns/sm_100a/report.txt", *(f"lane_columns/sm_100a/step.{name}" for name in names)}
    report = (tmp_path / "lane_columns" / "sm_100a" / "report.txt").read_text(encoding="utf-8")
    made_with = report[report.index("made with") :]
    assert "nvcc 13.0.88" in made_with and "code=sm_100a" in made_with and "sm_90a" not in made_with


def test_values_with_a_bar_are_variants(tmp_path):
    rule = str(RULES / "kda.decode" / "cpu_stream.kds")
    settings = ("--set", "gate=bounded|precomputed", "--shape", "K=16,V=16")
    done = kdsl("lower", rule, "--target", "cpu", "--emit", "bundle", "--output", str(tmp_path), *settings)
    assert done.exit_code == 0, done.output
    variants = load_bundle(tmp_path / "cpu_stream.kdsb").manifest.variants
    assert [v.options["gate"] for v in variants] == ["bounded", "precomputed"]
    assert all(v.sizes == {"K": 16, "V": 16} for v in variants)


@pytest.mark.parametrize(("arguments", "said"), [
    (("--emit", "so"), "so cannot go to the terminal: add --output DIR"),
    (("--emit", "c,bundle"), "bundle cannot go to the terminal"),
    (("--emit", "assembly"), "`assembly` is no stage"),
    (("--emit", "cuda"), "target cpu has no stage `cuda`"),
    (("--choose", "chunk=64"), "cannot choose chunk = 64"),
    (("--choose", "depth=2"), "cannot choose depth = 2"),
    (("--set", "gate=open"), "gate = open"),
    (("--set", "q=f64"), "q = f64"),
    (("--set", "gate"), "is not NAME=VALUE"),
    (("--shape", "K=512"), "K = 512"),
    (("--shape", "T=128"), "T = 128"),
    (("--rule", "no_such"), "no rule for cpu; rules found: cpu_split (cpu)"),
])  # fmt: skip
def test_wrong_usage_is_exit_2(arguments, said):
    done = lower(*arguments)
    assert done.exit_code == 2 and said in done.output, done.output


@pytest.mark.parametrize("arguments", [
    (CPU_SPLIT, "--target", "sm_1000"),
    ("no_such_file.kds", "--target", "cpu"),
    (CPU_SPLIT,),
])  # fmt: skip
def test_wrong_targets_and_paths_are_exit_2(arguments):
    assert kdsl("lower", *arguments).exit_code == 2


def test_a_rule_that_does_not_check_is_exit_1(tmp_path):
    text = (RULES / "kda.chunk_forward" / "cpu_split.kds").read_text(encoding="utf-8")
    file = tmp_path / "wrong.kds"
    file.write_text(text.replace("grid { task : n, h }", "grid { task : n, h, c }"), encoding="utf-8")
    done = kdsl("lower", str(file), "--target", "cpu", "--emit", "c")
    assert done.exit_code == 1 and "error[E125]" in done.output and "void kdsl_all" not in done.output


def test_a_refusal_of_the_plan_is_exit_1_with_its_line(tmp_path):
    text = (RULES / "kda.chunk_forward" / "cpu_split.kds").read_text(encoding="utf-8")
    file = tmp_path / "tiled.kds"
    file.write_text(text.replace("grid { task : n, h }", "grid { task : n, h, e by 48 }"), encoding="utf-8")
    done = kdsl("lower", str(file), "--target", "cpu", "--emit", "c")
    assert done.exit_code == 1 and "error[E120]" in done.output and "tiled.kds:17" in done.output
    assert "Traceback" not in done.output


def test_a_missing_compiler_is_exit_3(tmp_path):
    command = [sys.executable, "-m", "kdsl.cli.main", "lower", CPU_SPLIT, "--target", "cpu", "--emit", "so",
               "--output", str(tmp_path)]  # fmt: skip
    environment = os.environ | {"CC": "no-such-compiler"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 3 and "no-such-compiler is missing: install gcc or clang" in done.stderr


def test_an_operator_of_ones_own_becomes_a_bundle(tmp_path, monkeypatch):
    """From `kdsl new` to code; an error that nothing can judge is no promise, and the refusal says so."""
    monkeypatch.chdir(tmp_path)
    for arguments in (("operator", "scale"), ("rule", "fast", "--schedules", "scale", "--use", "scale.kds")):
        assert kdsl("new", *arguments).exit_code == 0
    done = kdsl("lower", "fast.kds", "--target", "cpu", "--emit", "bundle", "--output", "build")
    assert done.exit_code == 0, done.output
    assert load_bundle(tmp_path / "build" / "fast.kdsb").manifest.variants
    text = (tmp_path / "fast.kds").read_text("utf-8")
    (tmp_path / "fast.kds").write_text(
        text.replace("ensure {", "ensure {\n    error within scale.acceptance"), encoding="utf-8"
    )
    refused = kdsl("lower", "fast.kds", "--target", "cpu", "--emit", "bundle", "--output", "other")
    assert refused.exit_code == 1 and "kdsl has no oracle for scale: leave the clause out" in refused.output
    assert not (tmp_path / "other").exists() or not list((tmp_path / "other").glob("*.kdsb"))
