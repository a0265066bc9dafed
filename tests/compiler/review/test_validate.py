"""Clauses that wait for a device are decided on this CPU; wrong results fail, what was not measured stays pending."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from kdsl.bench.baselines import NoBaseline, accepted, baseline_call
from kdsl.bundle.load import read_bundle
from kdsl.cli.main import cli
from kdsl.contract.decide import decide_claim
from kdsl.contract.verdict import Fact, Status
from kdsl.driver.compile import build
from kdsl.review import timing
from kdsl.review.bench import Bench
from kdsl.review.profiler import METRICS, NoProfiler, facts_of, profile
from kdsl.review.settle import claim_of
from kdsl.review.subject import subject

from ..inspect.rules import file_of

CLAUSES = """  measure {
    error within kda.acceptance
    p95_latency <= 60000 ms
    p95_latency <= 100 * baseline previous
    p95_latency <= 0.001 * baseline fla
    p95_latency <= 2 * baseline flashkda
    achieved_occupancy at all >= 0.1
    l1_hit_rate >= 0.5
  }
"""
IN_KERNEL = {"gate": "bounded", "use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True}


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Short calls where time is taken."""
    monkeypatch.setattr(timing, "HOST_TOKENS", 32)
    monkeypatch.setattr(timing, "HEADS", 2)


@pytest.fixture(scope="module")
def waiting(tmp_path_factory):
    """A bundle for the CPU whose clauses all wait: error, latencies, a profiler's metric."""
    folder = tmp_path_factory.mktemp("waiting")
    text = file_of("cpu_split").read_text(encoding="utf-8").replace("rule cpu_split", "rule waiting")
    text = text.replace("    error within kda.acceptance\n", "").replace("  ensure {", f"{CLAUSES}  ensure {{")
    (folder / "waiting.kds").write_text(text, encoding="utf-8")
    plan = subject(str(folder / "waiting.kds")).lowering("cpu", IN_KERNEL).plan
    return build([plan], folder / "waiting.kdsb")


def run(*arguments):
    return CliRunner().invoke(cli, ["validate", *map(str, arguments)])


def like_theirs(q, k, v, g, beta, initial_state, use_qk_l2norm_in_kernel, use_gate_in_kernel, lower_bound, **rest):
    """Stands in for the library: its signature, and as good as no time."""
    assert "use_beta_sigmoid_in_kernel" not in rest and set(rest) == {"A_log", "dt_bias"}, rest


def verdicts(path) -> dict:
    return {v.clause: (v.verdict, v.evidence) for v in read_bundle(path).manifest.variants[0].verdicts}


def test_what_can_be_measured_is_settled_in_a_copy(waiting, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")  # no ncu
    monkeypatch.setitem(sys.modules, "fla", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "fla.ops.kda", SimpleNamespace(chunk_kda=like_theirs))
    digest = read_bundle(waiting).digest
    done = run(waiting, "--output", tmp_path / "settled.kdsb", "--runs", 3, "--baseline", waiting)
    assert done.exit_code == 1, done.output  # some stay pending, one fails
    found = verdicts(tmp_path / "settled.kdsb")
    assert found["error within kda.acceptance"] == ("holds", "measured")
    assert found["p95_latency <= 60000 ms"] == ("holds", "measured")
    assert found["p95_latency <= 100 * baseline previous"] == ("holds", "measured")
    assert found["p95_latency <= 0.001 * baseline fla"] == ("fails", "measured")
    assert found["l1_hit_rate >= 0.5"][0] == "pending" and "ncu" in done.output
    assert found["achieved_occupancy at all >= 0.1"][0] == "pending"
    assert found["p95_latency <= 2 * baseline flashkda"][0] == "pending" and "FlashKDA computes" in done.output
    (late,) = (line for line in done.output.splitlines() if "0.001 * baseline fla`" in line)
    assert re.search(r"fails \(measured\), [\d.]+ m?s on this .*, needed <= 0.001 \* baseline fla = [\d.]+ us", late)
    assert read_bundle(waiting).digest == digest and verdicts(waiting)["p95_latency <= 60000 ms"][0] == "pending"
    assert run(waiting, "--output", tmp_path / "settled.kdsb").exit_code == 2  # never over something


def test_wrong_results_fail(waiting, tmp_path, monkeypatch):
    honest = Bench.chunk

    def wrong(self, call):
        o, state = honest(self, call)
        return o * 1.05, state

    monkeypatch.setattr(Bench, "chunk", wrong)
    done = run(waiting, "--output", tmp_path / "settled.kdsb", "--runs", 1)
    assert done.exit_code == 1
    assert verdicts(tmp_path / "settled.kdsb")["error within kda.acceptance"] == ("fails", "measured")


def test_without_the_gpu_it_says_so(tmp_path, compiler):
    bundle = build([subject(str(file_of("lane_columns"))).lowering("sm_90a").plan], tmp_path / "gpu.kdsb")
    done = run(bundle)
    assert done.exit_code == 3 and "no device here runs code for sm_90a" in done.output
    done = run(bundle, "--target", "sm_80")
    assert done.exit_code == 2 and "no variant for sm_80" in done.output


def test_decode_is_run_on_its_own_calls(tmp_path):
    text = file_of("cpu_stream").read_text(encoding="utf-8").replace("rule cpu_stream", "rule waiting")
    text = text.replace("    error within kda.acceptance\n", "")
    text = text.replace("  ensure {", "  measure { error within kda.acceptance }\n  ensure {")
    (tmp_path / "waiting.kds").write_text(text, encoding="utf-8")
    plan = subject(str(tmp_path / "waiting.kds")).lowering("cpu", {"gate": "softplus"}).plan
    done = run(build([plan], tmp_path / "decode.kdsb"))
    assert done.exit_code == 0 and "2 calls" in done.output, done.output


def test_a_library_that_would_compute_something_else_is_no_baseline(monkeypatch):
    with pytest.raises(NoBaseline, match="does not have use_qk_l2norm_in_kernel"):
        accepted(lambda q: None, {"q": 1, "use_qk_l2norm_in_kernel": True, "allow_neg_eigval": False})
    assert accepted(lambda q: None, {"q": 1, "safe_gate": True, "allow_neg_eigval": False}) == {"q": 1}
    monkeypatch.setitem(sys.modules, "fla.ops.kda", None)
    with pytest.raises(NoBaseline, match="flash-linear-attention is not installed"):
        baseline_call("fla", "kda.decode", {})
    with pytest.raises(NoBaseline, match="FlashKDA has nothing for kda.decode"):
        baseline_call("flashkda", "kda.decode", {})


def test_clauses_of_a_manifest_are_read():
    assert claim_of("error within kda.acceptance").predicate.acceptance.text == "kda.acceptance"
    assert claim_of("p95_latency <= 0.9 * baseline fla") is not None
    assert claim_of("p95_latency <= <= 3") is None


def test_metrics_of_the_profiler(tmp_path, compiler):
    bundle = build([subject(str(file_of("lane_columns"))).lowering("sm_90a").plan], tmp_path / "gpu.kdsb")
    variant = read_bundle(bundle).manifest.variants[0]
    (kernel,) = variant.kernels
    head = '==PROF== Connected\n"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
    hits = "l1tex__t_sector_hit_rate.pct"
    rows = f'"0","{kernel.symbol}","{hits}","%","61.5"\n"1","other","{hits}","%","2"\n'
    found = facts_of(head + rows, variant, "a GPU", ["l1_hit_rate"])
    assert found["l1_hit_rate"].value == pytest.approx(0.615) == found[f"l1_hit_rate at {kernel.name}"].value
    with pytest.raises(NoProfiler, match="sm__warps_active"):
        facts_of(head + rows, variant, "a GPU", ["achieved_occupancy"])
    with pytest.raises(NoProfiler, match="l1tex__t_sector_hit_rate"):
        facts_of(head + rows.replace("61.5", "n/a"), variant, "a GPU", ["l1_hit_rate"])


def test_bytes_beside_those_that_must_be_moved(tmp_path, compiler):
    bundle = build([subject(str(file_of("lane_columns"))).lowering("sm_90a").plan], tmp_path / "gpu.kdsb")
    variant = read_bundle(bundle).manifest.variants[0]
    (kernel,) = variant.kernels
    rows = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
    rows += f'"0","{kernel.symbol}","dram__bytes.sum","byte","150,000"\n'
    facts = facts_of(rows, variant, "a GPU", ["dram_bytes"])
    assert (facts["dram_bytes"].value, facts["dram_bytes"].unit) == (150000, "bytes")
    call = timing.timed_call("kda.decode", variant, "cuda")
    rows, heads, state = timing.ROWS, timing.HEADS, 128 * 128 * 4
    small = sum(call[name].nbytes for name in ("q", "k", "v", "g", "beta", "v", "ssm_state_indices"))
    assert timing.compulsory_bytes(call) >= 2 * rows * heads * state + small
    claim = claim_of("dram_bytes <= 1.5 * compulsory")
    known = {**facts, "compulsory": Fact(100000, "bytes")}
    assert decide_claim(claim, known, {}, ("step",)).status is Status.HOLDS
    assert decide_claim(claim, {**known, "compulsory": Fact(99999, "bytes")}, {}, ("step",)).status is Status.FAILS


def test_a_metric_that_the_gpu_lacks_hides_no_other(tmp_path, compiler, monkeypatch):
    """A stand-in for ncu: it fails for one metric and answers for the other."""
    bundle = read_bundle(build([subject(str(file_of("lane_columns"))).lowering("sm_90a").plan], tmp_path / "gpu.kdsb"))
    variant = bundle.manifest.variants[0]
    symbol, hits = variant.kernels[0].symbol, METRICS["l1_hit_rate"]
    (tmp_path / "ncu").write_text(
        f"""#!/bin/sh
case "$*" in
  *tensor*) echo "==ERROR== Failed to find metric of tensor"; exit 1;;
  *"--clock-control none"*) ;;
  *) exit 1;;
esac
echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
echo '"0","{symbol}","{hits}","%","12.5"'
"""
    )
    (tmp_path / "ncu").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    facts, notes = profile(bundle, variant, "a GPU", ["l1_hit_rate", "tensor_core_utilisation"])
    assert facts["l1_hit_rate"].value == 0.125 and list(notes) == ["tensor_core_utilisation"]
    assert notes["tensor_core_utilisation"] == "ncu failed: Failed to find metric of tensor"
