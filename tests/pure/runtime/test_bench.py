"""`kdsl bench` with the host as the device, kernels in C, and a GPU that is none; what it must not do."""

import argparse
import importlib
import json
import subprocess
import sys
import types
from pathlib import Path
from xml.dom import minidom

import attrs
import pytest

from kdsl.bench import kernels, measure, program, subjects
from kdsl.bench.alone import alone
from kdsl.bench.cases import CASES, SMALL_CASES, Case, variant_for
from kdsl.bench.device import Device
from kdsl.bench.measure import Stand
from kdsl.bundle import write_bundle
from kdsl.bundle.load import read_bundle
from kdsl.validate.gpu_report import Check
from kdsl.validate.latency import chunk_bytes

from . import fake_torch_cuda
from .conftest import kda_flags, kda_source, kda_variant, simple_manifest
from .test_gpu_harness import DECODE_OPTIONS, DTYPES, OPTIONS, flash_linear_attention

CHUNK, DECODE = "kda.chunk_forward", "kda.decode"
CHUNK_DTYPES = {
    **DTYPES, "o": "bf16", "A_log": "f32", "dt_bias": "f32", "initial_state": "f32", "final_state": "f32",
    "cu_seqlens": "i64",
}  # fmt: skip
pytestmark = pytest.mark.usefixtures("gcc")


def bench(*words):
    """`kdsl bench WORDS` on the host; its exit status."""
    return program.main([*map(str, words), "--device", "cpu", "--runs", "20", "--seed", "5"])


@pytest.fixture
def changed(tmp_path, gcc):
    """Write a bundle of chunk_kda whose C text was changed: changed(old, new)."""

    def build(old, new, name="changed"):
        text = kda_source(CHUNK)
        assert text.count(old) == 1
        library = gcc(text.replace(old, new), *kda_flags(CHUNK, CHUNK_DTYPES, OPTIONS))
        variant = kda_variant(CHUNK, "lib/all.so", CHUNK_DTYPES, OPTIONS, {})
        return write_bundle(tmp_path / "bundles" / f"{name}.kdsb", simple_manifest(CHUNK, variant),
                            {"lib/all.so": library})  # fmt: skip

    return build


def test_a_folder_of_bundles(tmp_path, build_kda, capsys):
    build_kda(tmp_path / "b" / "chunk.kdsb", CHUNK, DTYPES, OPTIONS)
    build_kda(tmp_path / "b" / "decode.kdsb", DECODE, DTYPES, DECODE_OPTIONS)
    assert bench(tmp_path / "b", "--output", tmp_path / "out") == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["verdict"] == "passed" and report["environment"]["seed"] == 5
    assert report["environment"]["floor"].endswith("a copy measured in the same run")
    assert [check["bundle"] for check in report["checks"]] == ["chunk", "decode"]
    for check in report["checks"]:
        assert len(check["numbers"]["samples_us"]) == 20 and check["numbers"]["o_rms"] < 0.01
    minidom.parse(str(tmp_path / "out" / "times.svg"))
    text = capsys.readouterr().out
    assert "PASSED: 2 passed" in text and "TB/s" in text
    assert (tmp_path / "out" / "report.txt").read_text() in text


def test_a_wrong_result_is_not_timed(tmp_path, changed, capsys):
    changed("has_initial_state ? LOAD_STATE", "0 ? LOAD_STATE")
    assert bench(tmp_path / "bundles", "--output", tmp_path / "out") == 1
    (check,) = json.loads((tmp_path / "out" / "report.json").read_text())["checks"]
    assert check["status"] == "failed" and check["detail"].startswith("not timed, because it is wrong")
    assert "median_us" not in check["numbers"] and "o_rms" in check["numbers"]
    assert "us of 20 runs" not in capsys.readouterr().out


def test_a_result_that_is_left_out_is_seen_through_the_nan(tmp_path, changed):
    changed("o[AT4(o, row, t, hv, j)] =", "if (t != 40) o[AT4(o, row, t, hv, j)] =")
    assert bench(tmp_path / "bundles", "--output", tmp_path / "out") == 1
    assert "not timed" in (tmp_path / "out" / "report.txt").read_text()


class Sudden:
    """A device's clock on which every call is over at once, or takes as long as it is told to."""

    def __init__(self, microseconds):
        self.microseconds = microseconds

    def hold(self, duration):
        pass

    def mark(self):
        return 0.0

    def between(self, begin, end):
        return self.microseconds

    def wait(self):
        pass


@pytest.mark.parametrize(("microseconds", "passed"), [(0.01, False), (1e6, True)])
def test_a_time_below_the_floor_is_refused(tmp_path, build_kda, microseconds, passed):
    bundle = read_bundle(build_kda(tmp_path / "chunk.kdsb", CHUNK, DTYPES, OPTIONS))
    device = Device("cpu")
    device.__dict__.update(clock=Sudden(microseconds), bandwidth=4e12)
    stand = Stand(device, seed=1, runs=20)
    case = Case("a", "H = 2, one sequence", 2, (20,))
    with alone(bundle), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stand, "small", False)  # a host has no floor
        patch.setattr(device, "__class__", type("Counted", (Device,), {"l2_bytes": 0}))
        found = measure.measure(stand, case)
    assert found.passed is passed and ("refused: median" in found.detail) is not passed
    assert found.numbers["floor_us"] == pytest.approx(case.nbytes / 4e12 * 1e6)


def test_what_cannot_be_used_is_named(tmp_path, build_kda, capsys):
    for words, status, said in (
        ([tmp_path / "none"], 2, "there is nothing at"),
        ([tmp_path], 2, "found neither bundles (NAME.kdsb) nor rules (NAME.kds)"),
        ([tmp_path, "--cases", "h95"], 2, "no case h95; there are h2, n2"),
        ([tmp_path, "--output", "/proc/kdsl"], 2, "cannot write to /proc/kdsl"),
    ):
        assert bench(*words) == status and said in capsys.readouterr().err
    path = build_kda(tmp_path / "b" / "chunk.kdsb", CHUNK, DTYPES, OPTIONS)
    (path / "lib" / "all.so").write_bytes(b"changed")
    assert bench(tmp_path / "b", "--output", tmp_path / "out") == 2
    assert "lib/all.so with sha256" in capsys.readouterr().err


def test_no_gpu_and_a_bundle_for_another(tmp_path, build_cuda, monkeypatch, capsys):
    import torch

    build_cuda(tmp_path / "b" / "chunk.kdsb", CHUNK, DTYPES, OPTIONS, targets=("sm_100a",))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert program.main([str(tmp_path / "b"), "--output", str(tmp_path / "out")]) == 3
    assert "no device here runs code for a GPU: PyTorch sees no GPU here" in capsys.readouterr().err
    assert bench(tmp_path / "b", "--output", tmp_path / "out") == 3
    said = capsys.readouterr().err
    assert "chunk is left out: it is for sm_100a, the device here is cpu" in said and "nothing that was given" in said


def test_rules_without_a_compiler(tmp_path, monkeypatch):
    (tmp_path / "a.kds").write_text("")
    monkeypatch.setattr(subjects.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(subjects.NoCompiler, match="lark and tvm .* is not installed here; on a machine with"):
        subjects.subjects([tmp_path / "a.kds"], "sm_90a", list(CASES.values()))


def test_an_interruption_keeps_what_was_measured(tmp_path, build_kda, monkeypatch, capsys):
    build_kda(tmp_path / "b" / "chunk.kdsb", CHUNK, DTYPES, OPTIONS)
    build_kda(tmp_path / "b" / "decode.kdsb", DECODE, DTYPES, DECODE_OPTIONS)
    real = program.measure

    def broken_off(stand, case, variant):
        if case.rows:
            raise KeyboardInterrupt
        return real(stand, case, variant)

    monkeypatch.setattr(program, "measure", broken_off)
    assert bench(tmp_path / "b", "--output", tmp_path / "out") == 130
    assert "interrupted after 1 of 2 times" in capsys.readouterr().err
    assert len(json.loads((tmp_path / "out" / "report.json").read_text())["checks"]) == 1


def test_a_baseline_that_is_not_installed(tmp_path, build_kda, monkeypatch, capsys):
    build_kda(tmp_path / "b" / "chunk.kdsb", CHUNK, DTYPES, OPTIONS)
    monkeypatch.setitem(sys.modules, "fla", None)
    assert bench(tmp_path / "b", "--baseline", "fla", "--output", tmp_path / "out") == 3
    assert "flash-linear-attention is not installed" in capsys.readouterr().err


def test_as_if_on_a_gpu(tmp_path, build_cuda, monkeypatch, gpu, capsys):
    import torch

    flash_linear_attention(monkeypatch)
    mode = fake_torch_cuda.install(monkeypatch, gpu)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    bandwidth = sys.modules["kdsl.bench.device"].copy_bandwidth
    monkeypatch.setattr("kdsl.bench.device.copy_bandwidth", lambda *a: 1e3 * bandwidth(*a, nbytes=1 << 20))
    monkeypatch.setattr(measure, "CALLS_IN_GRAPH", 5)
    small = {"h2": Case("h2", "H = 2, mixed", 2, (20, 0, 9)), "n2": Case("n2", "decode N = 2", 2, rows=2)}
    monkeypatch.setattr(program, "CASES", small)
    chunk = build_cuda(tmp_path / "b" / "chunk.kdsb", CHUNK, DTYPES, OPTIONS)
    build_cuda(tmp_path / "b" / "decode.kdsb", DECODE, DTYPES, DECODE_OPTIONS)
    monkeypatch.setenv("KDSL_BUNDLES", str(chunk))  # what the library's stand-in computes with
    monkeypatch.setattr(measure, "kernel_times", lambda device, call, sets: {"kdsl_all_cuda": (5.0, 7.0, 6.0)})
    words = [tmp_path / "b", "--output", tmp_path / "out", "--runs", "20", "--baseline", "fla"]
    with mode:
        status = program.main([*map(str, words)])
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    found = {check["name"]: check for check in report["checks"]}
    assert status == 1 and found["decode N = 2, fla"]["status"] == "unknown"  # the stand-in has an error of its own
    assert found["H = 2, mixed, kdsl"]["status"] == found["H = 2, mixed, fla"]["status"] == "passed"
    ours = found["decode N = 2, kdsl"]["numbers"]
    assert ours["calls_per_run"] >= 5 and ours["o_rms"] < 0.01
    (kernel,) = ours["kernels"]
    assert kernel["kernel"] == "all" and kernel["median_us"] == 6.0 and kernel["launches"] == 3
    assert "kernels, us" in capsys.readouterr().out


def test_bytes_of_kernels_and_calls():
    case = Case("a", "a", 3, (100, 29))
    needed = chunk_bytes(129, 2, 3, 3, 128, 128)
    tensors = ("q", "k", "v", "g", "beta", "o", "A_log", "dt_bias", "initial_state", "final_state", "cu_seqlens")
    assert sum(map(case.moved, tensors)) == needed == case.nbytes
    decode = CASES["n64"]
    moved = sum(map(decode.moved, ("q", "k", "v", "g", "beta", "o", "A_log", "dt_bias", "pool")))
    assert decode.nbytes - moved == 8 * 64  # a table of slots, which the floor counts
    variant = kda_variant(CHUNK, "lib/all.so", CHUNK_DTYPES, OPTIONS, {})
    whole = kernels.kernel_bytes(case, variant, variant.kernels[0])
    assert whole == needed + 2 * 3 * 128 * 128 * 4  # its workspace


def test_which_variant_takes_a_case():
    variant = kda_variant(CHUNK, "a.so", CHUNK_DTYPES, OPTIONS, {}, target="sm_90")
    best = attrs.evolve(variant, target="sm_90a")
    turned = attrs.evolve(best, options={**OPTIONS, "state_v_first": True})
    half = attrs.evolve(best, dtypes={**CHUNK_DTYPES, "q": "f16"})
    case = SMALL_CASES["h2"]
    assert variant_for([turned, half, variant, best], case, "sm_90a") is best
    assert variant_for([turned, half, variant], case, "sm_90a") is variant
    assert variant_for([turned, half], case, "sm_90a") is None
    assert variant_for([best], case, "sm_100a") is None
    assert variant_for([best], attrs.evolve(case, gate="softplus"), "sm_90a") is None


def test_the_cases_of_the_table():
    chunk = [case for case in CASES.values() if case.operator == CHUNK]
    assert [case.heads for case in chunk] == [96] * 3 + [64] * 3 + [32, 16, 8]
    assert {sum(case.lengths) for case in chunk} == {8192, 32768}
    assert [case.rows for case in CASES.values() if case.in_graph] == [1, 8, 64, 256]
    assert all(key == case.key for key, case in CASES.items())


def test_needs_neither_click_nor_a_compiler():
    code = (
        "import sys\n"
        "for name in ('click', 'lark', 'tvm', 'platformdirs'): sys.modules[name] = None\n"
        "sys.argv = ['kdsl', 'bench', '--help']\n"
        "import runpy; runpy.run_module('kdsl', run_name='__main__')"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0 and "usage: kdsl bench" in done.stdout, done.stderr
    done = subprocess.run([sys.executable, "-c", code.replace("'bench'", "'check'")], capture_output=True, text=True,
                          cwd=root)  # fmt: skip
    assert done.returncode == 1 and "Without it there are: bench" in done.stderr


@pytest.mark.parametrize("name", ["bench", "tune"])
def test_one_command_line_for_both_ways(name, tmp_path):
    """click gets every word of argparse, with its default, and tells the program the same."""
    from click.testing import CliRunner

    from kdsl.cli.main import cli

    parser = importlib.import_module(f"kdsl.{name}.program").parser()
    actions = {a.dest: a for a in parser._actions if not isinstance(a, argparse._HelpAction)}
    command = cli.get_command(None, name)
    assert {p.name for p in command.params} == set(actions)
    for parameter in command.params:
        assert parameter.name in ("paths", "subject") or parameter.default == actions[parameter.name].default
    more = ["--device", "cpu", "--output", str(tmp_path)] if name == "bench" else []
    done = CliRunner().invoke(cli, [name, "nowhere", "--runs", "20", *more])
    assert done.exit_code == 2 and f"kdsl {name}: there is nothing at nowhere" in done.output


def test_a_profiler_that_is_not_there():
    assert kernels.kernel_times(types.SimpleNamespace(is_gpu=False), None, 1) == {}


def test_a_plot_of_nothing():
    minidom.parseString(program.plot([Check("times", "a", "x", "failed")], "a <GPU>"))
