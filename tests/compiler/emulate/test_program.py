"""A program of hand-made kernels through `try_program` and the command line."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from kdsl.cli import emulate as command
from kdsl.emulate import calls
from kdsl.emulate.launches import Buffer, Launch
from kdsl.emulate.program import Bound, try_program
from kdsl.validate import bfloat16

# The recurrence token by token, a thread for each channel of v, K = V = 32; norms and gates in the kernel.
TOKEN_BY_TOKEN = r"""
extern "C" __global__ void __launch_bounds__(32) recur(
    nv_bfloat16* q, nv_bfloat16* k, nv_bfloat16* v, nv_bfloat16* g, nv_bfloat16* beta, float* A_log,
    float* dt_bias, float* s0, int64_t* cu, nv_bfloat16* o, float* s1, int H) {
  __shared__ alignas(16) float row[96];
  int e = (int)threadIdx.x;
  int h = (int)blockIdx.x;
  int n = (int)blockIdx.y;
  alignas(64) float S[32];
  for (int d = 0; d < 32; ++d) {
    S[d] = s0[((n * H + h) * 32 + d) * 32 + e];
  }
  for (int64_t t = cu[n]; t < cu[n + 1]; ++t) {
    int at = ((int)t * H + h) * 32 + e;
    float qx = ((float)q[at]);
    float kx = ((float)k[at]);
    float qq = (qx * qx);
    float kk = (kx * kx);
    for (int by = 16; by > 0; by = by / 2) {
      qq = (qq + __shfl_xor_sync(0xffffffff, qq, by, 32));
      kk = (kk + __shfl_xor_sync(0xffffffff, kk, by, 32));
    }
    __syncthreads();
    row[e] = ((qx * rsqrtf(qq + 1e-6f)) * 0x1.6a09e6p-3f);
    row[32 + e] = (kx * rsqrtf(kk + 1e-6f));
    row[64 + e] = expf(-5.0f / (1.0f + expf(-(expf(A_log[h]) * (((float)g[at]) + dt_bias[h * 32 + e])))));
    __syncthreads();
    float sk = 0.0f;
    for (int d = 0; d < 32; ++d) {
      S[d] = (S[d] * row[64 + d]);
      sk = (sk + (S[d] * row[32 + d]));
    }
    float delta = (1.0f / (1.0f + expf(-((float)beta[(int)t * H + h])))) * (((float)v[at]) - sk);
    float sum = 0.0f;
    for (int d = 0; d < 32; ++d) {
      S[d] = (S[d] + (row[32 + d] * delta));
      sum = (sum + (S[d] * row[d]));
    }
    o[at] = ((nv_bfloat16)sum);
  }
  for (int d = 0; d < 32; ++d) {
    s1[((n * H + h) * 32 + d) * 32 + e] = S[d];
  }
}
"""
SHAPE = "H=2,K=32,V=32"


class TokenByToken:
    operator = "kda.chunk_forward"

    def __init__(self, source: str, settings=None):
        self.source = source
        self.settings = {"K": 32, "V": 32, **(settings or {})}

    def bind(self, call):
        sequences, heads = call["initial_state"].shape[:2]
        o, state = np.zeros_like(call["v"]), np.zeros_like(call["initial_state"])
        names = ("q", "k", "v", "g", "beta", "A_log", "dt_bias", "initial_state", "cu_seqlens")
        inputs = [Buffer(call[name], "input", name) for name in names]
        arguments = (*inputs, Buffer(o, "output"), Buffer(state, "output"), heads)
        return Bound(
            (Launch(self.source, "recur", (heads, sequences, 1), (32, 1, 1), 0, arguments),), o, state
        )


def call(lengths=(9, 0, 1, 20)):
    return calls.chunk_call(np.random.default_rng(1), {"H": 2, "K": 32, "V": 32}, lengths, {})


@pytest.mark.parametrize("seed", [0, 1])
def test_a_right_program_passes(seed):
    trial = try_program(TokenByToken(TOKEN_BY_TOKEN), call(), target="sm_80", seed=seed)
    assert trial.verdict == "pass", trial.explain()
    assert trial.acceptance.final_state.rms_ratio < 1e-4


@pytest.mark.parametrize(
    "wrong, right", [("cu[n]; t", "cu[n] + 1; t"), ("1e-6f", "1.0f"), ("S[d] = s0[", "S[d] = 0.0f * s0[")]
)
def test_a_wrong_program_fails(wrong, right):
    assert wrong in TOKEN_BY_TOKEN
    trial = try_program(TokenByToken(TOKEN_BY_TOKEN.replace(wrong, right)), call(), target="sm_80")
    assert trial.verdict == "fail"
    assert not trial.acceptance.accepted


def test_a_refused_program_is_unknown():
    trial = try_program(TokenByToken(TOKEN_BY_TOKEN.replace("expf(-5", "expq(-5")), call(), target="sm_80")
    assert (trial.verdict, trial.acceptance) == ("unknown", None)
    assert "`expq`" in trial.explain()


def run(monkeypatch, source, *arguments):
    monkeypatch.setattr(command, "lowering", lambda: lambda rule, target, settings: TokenByToken(source, settings))
    return CliRunner().invoke(command.emulate, [__file__, "--target", "sm_90a", "--shape", SHAPE, *arguments])


def test_command(monkeypatch):
    done = run(monkeypatch, TOKEN_BY_TOKEN, "--lengths", "5,0,3")
    assert done.exit_code == 0, done.output
    assert "pass (simulated" in done.output.splitlines()[-1]


def test_command_with_a_finding_as_json(monkeypatch):
    source = TOKEN_BY_TOKEN.replace("    __syncthreads();\n    float sk", "    float sk")
    done = run(monkeypatch, source, "--lengths", "5,0,3", "--format", "json")
    assert done.exit_code == 1
    found = json.loads(done.output)
    assert found["verdict"] == "fail" and "race" in {f["kind"] for f in found["findings"]}
    assert found["results"]["o"]["accepted"] in (True, False)


def test_command_usage(monkeypatch):
    assert run(monkeypatch, TOKEN_BY_TOKEN, "--lengths", "5,x").exit_code == 2
    assert run(monkeypatch, TOKEN_BY_TOKEN, "--set", "gate=other").exit_code == 2
    assert run(monkeypatch, TOKEN_BY_TOKEN, "--target", "cpu").exit_code == 2


@pytest.mark.parametrize("settings", [
    {}, {"gate": "softplus", "q": "f16"}, {"gate": "precomputed", "g": "f32", "state_v_first": "true"},
])  # fmt: skip
def test_drawn_calls_are_calls_of_the_oracle(settings):
    from kdsl.validate import oracle
    from kdsl.validate.call import reference

    sizes = {"H": 1, "HV": 2, "K": 16, "V": 32, "N": 3, "T": 2}
    drawn = calls.chunk_call(np.random.default_rng(0), sizes, (3, 0, 2), settings)
    o, state = reference(drawn)
    assert o.shape == drawn["v"].shape and state.shape == drawn["initial_state"].shape
    assert (drawn["q"].dtype == np.float16) == (settings.get("q") == "f16")
    drawn = calls.decode_call(np.random.default_rng(0), sizes, settings)
    o, pool = oracle.decode(**drawn)
    assert pool.shape == drawn["pool"].shape and not o[1].any()
    assert np.isfinite(bfloat16.decode(drawn["v"]) if drawn["v"].dtype == np.uint16 else drawn["v"]).all()
