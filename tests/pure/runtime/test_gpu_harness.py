"""tests/gpu/run.py from end to end, with the host as the device, kernels in C, and a GPU that is none."""

import json
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from kdsl import kda
from kdsl.bench import device, measure
from kdsl.bench.cases import Case
from kdsl.bench.outcome import Unknown
from kdsl.bundle import write_bundle
from kdsl.bundle.load import read_bundle
from kdsl.runtime import NoVariant

from . import fake_torch_cuda
from .conftest import kda_flags, kda_source, kda_variant, simple_manifest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tests" / "gpu" / "run.py"
CHUNK, DECODE = "kda.chunk_forward", "kda.decode"
OPTIONS = {
    "gate": "bounded",
    "use_qk_l2norm_in_kernel": True,
    "use_beta_sigmoid_in_kernel": True,
    "allow_neg_eigval": False,
}
DECODE_OPTIONS = {**OPTIONS, "slot_zero_is_real": True}
DTYPES = dict.fromkeys(("q", "k", "v", "g", "beta"), "bf16")
pytestmark = pytest.mark.usefixtures("gcc")


def harness(folder, output, *words, seconds=200):
    """Run the script; (exit status, what it printed, report)."""
    command = [sys.executable, SCRIPT, folder, "--device", "cpu", "--seed", "5", "--output", output, *words]
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, cwd=folder.parent, timeout=seconds
    )
    report = output / "report.json"
    found = json.loads(report.read_text()) if report.exists() else None
    return done.returncode, done.stdout + done.stderr, found


def statuses(report, section):
    return {c["name"].split()[0]: c["status"] for c in report["checks"] if c["section"] == section}


@pytest.fixture
def broken(tmp_path, gcc):
    """Write a bundle of chunk_kda whose C text was changed: broken(old, new)."""

    def build(old, new, name="broken"):
        text = kda_source(CHUNK)
        assert text.count(old) == 1
        dtypes = {**DTYPES, "o": "bf16", "A_log": "f32", "dt_bias": "f32", "initial_state": "f32"}
        dtypes |= {"final_state": "f32", "cu_seqlens": "i64"}
        library = gcc(text.replace(old, new), *kda_flags(CHUNK, dtypes, OPTIONS))
        variant = kda_variant(CHUNK, "lib/all.so", dtypes, OPTIONS, {})
        manifest = simple_manifest(CHUNK, variant)
        return write_bundle(tmp_path / "bundles" / f"{name}.kdsb", manifest, {"lib/all.so": library})

    return build


def test_an_honest_kernel_passes_everything_that_its_rule_takes(tmp_path, build_kda):
    build_kda(tmp_path / "b" / "chunk.kdsb", CHUNK, DTYPES, OPTIONS)
    build_kda(tmp_path / "b" / "decode.kdsb", DECODE, DTYPES, DECODE_OPTIONS)
    status, text, report = harness(tmp_path / "b", tmp_path / "out", "--quick", "--seconds", "180")
    assert status == 0, text
    assert report["count"]["passed"] > 60 and report["count"]["failed"] == report["count"]["unknown"] == 0
    assert report["seed"] == 5 and report["environment"]["device"] == "cpu"
    assert "PASSED: " in text and "bounded_layer3" in (tmp_path / "out" / "report.txt").read_text()
    found = statuses(report, "cases")
    assert found["K03"] == "refused" and found["K04"] == found["K18"] == found["K10"] == "passed"
    assert "gate is 'softplus', the variant was built for 'bounded'" in text
    timed = [check for check in report["checks"] if check["section"] == "times"]
    assert {check["bundle"] for check in timed} == {"chunk", "decode"}
    assert len(timed[0]["numbers"]["samples_us"]) == 20


def test_a_bundle_for_softplus_gets_calls_with_softplus(tmp_path, build_kda):
    build_kda(tmp_path / "b" / "chunk.kdsb", CHUNK, DTYPES, OPTIONS | {"gate": "softplus"})
    status, text, report = harness(tmp_path / "b", tmp_path / "out", "--quick", "--sections", "relations,repeats,times")
    assert status == 0, text
    assert report["count"]["refused"] == 0 and report["count"]["passed"] > 7
    assert any("softplus" in check["name"] for check in report["checks"] if check["section"] == "times")


def test_a_bound_that_overflows_is_refused_by_a_bundle_for_softplus(modules):
    from kdsl.runtime import NoVariant

    def run(call):
        raise NoVariant("a call", ("x variant y: gate is 'bounded', the variant was built for 'softplus'",), "")

    for gate, raised in (("softplus", True), ("bounded", False)):
        context = types.SimpleNamespace(gate=gate, run=run, rng=lambda *key: np.random.default_rng(1))
        if raised:
            with pytest.raises(NoVariant):
                modules("numerics")._low_bound(context)
        else:
            assert not modules("numerics")._low_bound(context).passed


def test_a_kernel_that_drops_the_initial_state_fails(tmp_path, broken):
    broken("has_initial_state ? LOAD_STATE", "0 ? LOAD_STATE")
    status, text, report = harness(tmp_path / "bundles", tmp_path / "out", "--sections", "cases")
    assert status == 1 and report["verdict"] == "failed" and "FAILED: " in text
    assert statuses(report, "cases")["K01"] == "failed" and statuses(report, "cases")["K07"] == "passed"


def test_a_kernel_that_writes_its_input_and_leaves_results_out_fails(tmp_path, broken):
    broken("o[AT4(o, row, t, hv, j)] =", "if (q[0] = 0, t != 40) o[AT4(o, row, t, hv, j)] =")
    status, _, report = harness(tmp_path / "bundles", tmp_path / "out", "--sections", "relations")
    found = {check["name"]: check["status"] for check in report["checks"]}
    assert status == 1 and found["inputs unchanged"] == found["outputs complete"] == "failed"


def test_a_kernel_whose_result_changes_from_run_to_run_fails(tmp_path, broken):
    broken("float *S = state", "static int runs; scale *= 1 + 0.01f * (runs++ / 8); float *S = state")
    status, text, report = harness(tmp_path / "bundles", tmp_path / "out", "--sections", "repeats")
    assert status == 1 and statuses(report, "repeats")["repetitions"] == "failed" and "a race" in text


def test_a_kernel_that_ends_the_process_costs_one_section(tmp_path, broken):
    broken("float *S = state", "if (T == 130) __builtin_trap(); float *S = state")
    status, text, report = harness(tmp_path / "bundles", tmp_path / "out", "--sections", "cases,relations")
    assert status == 1
    rest = [c for c in report["checks"] if c["name"] == "the rest of the section"]
    assert len(rest) == 1 and rest[0]["status"] == "failed" and "ended with status -4" in rest[0]["detail"]
    assert len(statuses(report, "relations")) > 3, text


def test_bundles_that_cannot_be_read(tmp_path, broken, build_kda):
    path = broken("float *S = state", "float *S = state")
    (path / "lib" / "all.so").write_bytes(b"changed")
    build_kda(tmp_path / "bundles" / "decode.kdsb", DECODE, DTYPES, DECODE_OPTIONS)
    status, text, report = harness(tmp_path / "bundles", tmp_path / "out", "--sections", "cases")
    assert status == 1 and "lib/all.so with sha256" in text
    assert [c["bundle"] for c in report["checks"] if c["section"] == "bundles"] == ["broken"]
    status, text, _ = harness(tmp_path, tmp_path / "none", "--sections", "case")
    assert status == 2 and "no section case; there are cases" in text


def test_nothing_to_do(tmp_path):
    (tmp_path / "empty").mkdir()
    status, text, report = harness(tmp_path / "empty", tmp_path / "out")
    assert status == 2 and report is None and "found no NAME.kdsb below" in text and "kdsl precompile" in text


def test_the_small_calls_of_the_sanitizer(tmp_path, build_kda):
    for count, operator, options in ((5, CHUNK, OPTIONS), (3, DECODE, DECODE_OPTIONS)):
        path = build_kda(tmp_path / f"{count}.kdsb", operator, DTYPES, options)
        status, text, _ = harness(tmp_path, tmp_path / "out", "--small-calls", path)
        assert status == 0 and text.strip() == f"small calls done: {count}", text


@pytest.fixture
def modules(monkeypatch):
    """The harness, imported here; `modules("timing")`."""
    import importlib

    monkeypatch.syspath_prepend(str(ROOT / "tests" / "gpu"))
    return lambda name: importlib.import_module(f"harness.{name}")


def test_what_a_sanitizer_says(modules):
    judged = modules("sanitizing").judged
    clean = "small calls done: 3\n========= ERROR SUMMARY: 0 errors\n"
    assert judged("memcheck", 0, clean).passed
    races = "small calls done: 3\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
    assert judged("racecheck", 0, races).passed
    bad = "========= Invalid __global__ write\nsmall calls done: 3\n========= ERROR SUMMARY: 2 errors\n"
    found = judged("memcheck", 86, bad)
    assert not found.passed and "found 2" in found.detail
    assert not judged("racecheck", 0, races.replace("0 hazards", "4 hazards")).passed
    for status, text in ((0, "small calls done: 3\n"), (255, "Device not supported\n"), (1, clean),
                         (0, clean.replace("done: 3", "done: 0"))):  # fmt: skip
        with pytest.raises(Unknown):
            judged("memcheck", status, text)


def test_a_worker_that_hangs_is_ended_and_another_goes_on(modules, broken):
    loop = "for (int64_t task = begin;"
    path = str(broken(loop, f"for (volatile int on = T == 0; on;) ; {loop}"))
    supervisor, worker = modules("supervisor"), modules("worker")
    plan = (("cases", path), ("relations", path))
    order = worker.Order(
        plan=plan, device="cpu", seed=1, quick=True, baseline="none", seconds=0, section_seconds=2
    )
    said, kept = [], []
    findings = supervisor.supervise(order, 100, said.append, kept.append, grace=1)
    rest = next(check for check in findings.checks if check.name == "the rest of the section")
    assert (rest.section, rest.status) == ("cases", "unknown") and "the device hangs" in rest.detail
    assert "relations" in {check.section for check in findings.checks} and kept
    late = supervisor.supervise(order, 0, said.append, kept.append)
    assert [check.detail for check in late.checks] == ["not run: no time was left"] * 2


def small(monkeypatch, modules):
    """The sizes of the GPU's checks, cut down for the host."""
    decoding, repeating, timing = map(modules, ("decoding", "repeating", "timing"))
    cases = {
        "a": Case("a", "H = 2, one sequence", 2, (20,)), "b": Case("b", "H = 2, mixed lengths", 2, (9, 0, 14)),
        "c": Case("c", "decode N = 1, H = 2", 2, rows=1), "d": Case("d", "decode N = 2, H = 2", 2, rows=2),
    }  # fmt: skip
    bandwidth = device.copy_bandwidth
    changes = (
        (device, "copy_bandwidth", lambda *a: 1e3 * bandwidth(*a, nbytes=1 << 20)),  # no floor on a busy host
        (decoding, "FAR", 2**18),
        (decoding, "ROWS", 6), (decoding, "HEADS", 2), (decoding, "ROWS_AT_ONCE", 4),
        (repeating, "HEADS", 2), (repeating, "REPETITIONS", 4), (repeating, "LENGTHS", (9, 0, 14)),
        (repeating, "MORE_LENGTHS", (14, 9, 0)), (timing, "CASES", cases), (timing, "RUNS", 20),
        (measure, "CALLS_IN_GRAPH", 5),
    )  # fmt: skip
    for module, name, value in changes:
        monkeypatch.setattr(module, name, value)


def flash_linear_attention(monkeypatch):
    """A stand-in for FLA with a narrower signature: no sigmoid of its own, a flat bias."""

    def chunk_kda(q, k, v, g, beta, A_log, dt_bias, initial_state, output_final_state, cu_seqlens=None,
                  use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, lower_bound=None):  # fmt: skip
        given = dict(locals(), use_beta_sigmoid_in_kernel=True)
        assert dt_bias.dim() == 1 and (beta > 0).all()
        given["beta"] = (beta.float() / (1 - beta.float())).log().bfloat16()
        return kda.chunk_kda(**given)

    ops = types.ModuleType("fla.ops.kda")
    def fused_recurrent_kda(q, k, v, g, beta, A_log, dt_bias, initial_state, lower_bound, use_qk_l2norm_in_kernel,
                            use_gate_in_kernel, **more):  # fmt: skip
        raise RuntimeError("an error of its own")

    ops.chunk_kda, ops.fused_recurrent_kda = chunk_kda, fused_recurrent_kda
    for name, module in (("fla", types.ModuleType("fla")), ("fla.ops", types.ModuleType("fla.ops"))):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "fla.ops.kda", ops)
    monkeypatch.setattr(sys.modules["fla.ops"], "kda", ops, raising=False)
    monkeypatch.setattr(sys.modules["fla"], "ops", sys.modules["fla.ops"], raising=False)


def worked(modules, mode, plan, capsys, baseline="none"):
    """The checks that a worker makes, run here under `mode`."""
    worker = modules("worker")
    order = worker.Order(plan=plan, device="cuda", seed=3, quick=False, baseline=baseline, seconds=120)
    capsys.readouterr()
    with mode:
        status = worker.work(order)
    lines = capsys.readouterr().out.splitlines()
    events = [json.loads(line[len(worker.MARK) :]) for line in lines if line.startswith(worker.MARK)]
    return status, [event for event in events if event["event"] == "check"]


@pytest.fixture
def stand_in(monkeypatch, modules, gpu):
    """The mode to run under as if on a GPU, with sizes that the host can do."""
    monkeypatch.delenv("KDSL_POISON")
    mode = fake_torch_cuda.install(monkeypatch, gpu)
    small(monkeypatch, modules)
    monkeypatch.setenv("KDSL_COMPILE", "0")
    return mode


def test_the_checks_that_need_a_gpu(tmp_path, build_cuda, stand_in, modules, monkeypatch, capsys):
    flash_linear_attention(monkeypatch)
    chunk = str(build_cuda(tmp_path / "chunk.kdsb", CHUNK, DTYPES, OPTIONS))
    decode = str(build_cuda(tmp_path / "decode.kdsb", DECODE, DTYPES, DECODE_OPTIONS))
    plan = [("decoding", decode)]
    plan += [(section, path) for section in ("repeats", "times") for path in (chunk, decode)]
    status, checks = worked(modules, stand_in, plan, capsys, "one")
    found = {check["name"]: check for check in checks}
    assert status == 0
    assert found["CUDA graph of chunk_kda"]["status"] == "passed", found["CUDA graph of chunk_kda"]
    assert found["CUDA graph of fused_recurrent_kda"]["status"] == "passed"
    assert found["slots beyond 2^31 elements"]["status"] == "passed"
    assert found["K11 2048 rows of 32 heads"]["status"] == "passed"
    theirs = found["H = 2, one sequence, fla"]
    assert theirs["status"] == "passed", theirs["traceback"]
    assert theirs["numbers"]["o_rms"] < 0.02
    ours = found["decode N = 1, H = 2, kdsl"]["numbers"]
    assert ours["calls_per_run"] >= 5 and ours["sets"] >= 2
    theirs = found["decode N = 1, H = 2, fla"]
    assert theirs["status"] == "unknown" and "fla failed: RuntimeError: an error of its" in theirs["detail"]
    wrong = [(check["name"], check["detail"]) for check in checks if check["status"] == "failed"]
    assert wrong == []


def test_a_graph_that_keeps_old_boundaries(tmp_path, build_cuda, stand_in, modules, monkeypatch, capsys):
    """A call that reads its boundaries when it is captured, not when it is replayed."""
    from kdsl.runtime import chunk

    made, alive = chunk._cu_seqlens, []

    def frozen(torch, given, sizes, check_values):
        tape, stand_in.tape = stand_in.tape, None
        try:
            alive.append(made(torch, given, sizes, check_values))
        finally:
            stand_in.tape = tape
        return alive[-1]

    monkeypatch.setattr(chunk, "_cu_seqlens", frozen)
    path = str(build_cuda(tmp_path / "chunk.kdsb", CHUNK, DTYPES, OPTIONS))
    _, checks = worked(modules, stand_in, [("repeats", path)], capsys)
    assert [check["status"] for check in checks] == ["passed", "failed"]
    assert "differs from the call on the same inputs" in checks[1]["detail"]


def test_a_lost_device_ends_the_worker(tmp_path, build_cuda, stand_in, modules, gpu, capsys, monkeypatch):
    import torch

    path = str(build_cuda(tmp_path / "chunk.kdsb", CHUNK, DTYPES, OPTIONS))
    gpu.fail["cuLaunchKernel"] = 700

    def lost():
        if gpu.count("cuLaunchKernel"):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", lost)
    status, checks = worked(modules, stand_in, [("cases", path), ("repeats", path)], capsys)
    assert status == modules("worker").STICKY and len(checks) == 1
    assert checks[0]["status"] == "failed" and "the device is lost" in checks[0]["detail"]
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in checks[0]["traceback"]


def test_the_script_needs_no_compiler_and_no_lark(tmp_path, build_kda):
    path = build_kda(tmp_path / "a.kdsb", DECODE, DTYPES, DECODE_OPTIONS)
    assert read_bundle(path)
    code = (
        f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import run; "
        "print([n for n in ('tvm', 'lark', 'click', 'platformdirs', 'torch') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_rule_for_many_heads_gets_the_same_heads_several_times(modules, monkeypatch):
    """And another refusal stays one, as do results that differ from head to head."""
    (runner,) = map(modules, ("runner",))
    taken, other = [], []

    def many(**call):
        heads = call["v"].shape[2]
        if heads < 96 or other:
            why = other or [f"0123: HV = {heads}, N = 1, the variant needs 3 * HV * N > 264: fewer heads have others"]
            raise NoVariant("kda.chunk_forward on sm_90a", tuple(why), "")
        taken.append(heads)
        return call["v"] + call["A_log"][:, None], call["initial_state"]

    monkeypatch.setattr(runner.kda, "chunk_kda", many)
    call = {
        "q": torch.ones(1, 5, 2, 4), "v": torch.arange(40.0).view(1, 5, 2, 4), "A_log": torch.tensor([1.0, 2.0]),
        "initial_state": torch.zeros(1, 2, 4, 4), "dt_bias": None,
    }  # fmt: skip
    arguments, (o, _) = runner.taken(call)
    assert taken == [96] and arguments["v"].shape[2] == 96 == o.shape[2] and arguments["dt_bias"] is None
    o, state = runner.repeated(call, refused(many, call))
    assert torch.equal(o, call["v"] + call["A_log"][:, None]) and state.shape == (1, 2, 4, 4)
    call["A_log"] = torch.arange(96.0)  # not the same for all
    monkeypatch.setitem(runner.HEAD_AXIS, "A_log", None)
    with pytest.raises(ValueError, match="other results in another place"):
        runner.repeated(call, refused(many, call))
    other.append("0123: v is f16, the variant was built for bf16")
    with pytest.raises(NoVariant):
        runner.taken(call)


def refused(function, call):
    with pytest.raises(NoVariant) as caught:
        function(**call)
    return caught.value
