"""The derivation knows no operator: KDA under other names with a stage more runs right, a sum does too."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kdsl.check.model import Operator
from kdsl.data import data_root
from kdsl.driver.trial import chunk_runner, view
from kdsl.runtime.launch import launch
from kdsl.syntax import nodes as n
from kdsl.validate.acceptance import acceptance
from kdsl.validate.bfloat16 import decode, encode
from kdsl.validate.call import reference
from kdsl.validate.probes import random_call

from ..workshop import library_of, plan, program, shipped

SOURCE = data_root() / "stdlib" / "operators" / "kda.chunk_forward.kds"
NEW_STAGE = "    halve_v     : half[i, e] = 0.5 * vx[i, e]\n"
OTHER_RULE = """
rule other_cpu schedules test.other_delta on cpu {
  require { K % 16 == 0 and V % 16 == 0 else "pad" }
  form {
    C = 16
    decay = pairwise
    chain = split
  }
  kernel whole computes z_prepare, z_recur {
    grid { task : n, h }
    place { half, z_u, z_state : f32 in stack }
    compute {
      halve_v                      : vector e by 8
      z_state_key, z_solve_apply   : fma.f32 vector e by 8
    }
  }
  ensure { stack_bytes <= target.stack_bytes_per_task }
}
"""


def graph_names(operator: Operator) -> set[str]:
    """Names of parts, stages and the tensors that stages make; ports and views keep theirs."""
    found: set[str] = set()
    for item in operator.declaration.items:
        if isinstance(item, n.Part):
            found.add(item.name.text)
            collect(item.nodes, found)
    return found - set(operator.views) - set(operator.ports)


def collect(items, found: set[str]) -> None:
    for item in items:
        if isinstance(item, n.Stage):
            found |= {item.name.text, item.target.name.text}
        elif isinstance(item, n.Carry):
            found |= {item.tensor.name.text, item.next.text}
        elif isinstance(item, n.Either):
            for case in item.cases:
                collect(case.nodes, found)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """KDA with z_ before every name of its graph, and values halved by a stage of its own."""
    text = SOURCE.read_text(encoding="utf-8")
    names = graph_names(shipped().operators["kda.chunk_forward"])
    assert {"prepare", "recur", "inverse", "inv", "state", "state_next", "u", "sw"} <= names
    text = re.sub(rf"\b({'|'.join(sorted(names))})\b(?! acceptance)", r"z_\1", text)
    text = text.replace("operator kda.chunk_forward", "operator test.other_delta", 1)
    before, part, after = text.partition("  part z_prepare {\n")
    assert part
    after, count = re.subn(r"\(vx\[j, e\]", "(half[j, e]", after)
    assert count == 2  # the residual of the split chain: from the state, and of a run from none
    return library_of(tmp_path_factory.mktemp("other"), before + part + NEW_STAGE + after + OTHER_RULE)


def test_names_and_stages_of_its_own(other):
    made = plan(other, "other_cpu", gate="bounded", use_qk_l2norm_in_kernel=True,
                use_beta_sigmoid_in_kernel=True, sizes={"K": 128, "V": 128})  # fmt: skip
    stages = [stage.name for stage in made.kernels[0].stages]
    assert "halve_v" in stages and "z_inverse" in stages
    assert not set(stages) & {"inverse", "state_update", "decay_sum"}
    run = chunk_runner(program(made))
    call = random_call(np.random.default_rng(3), 83, lengths=(37, 46))
    found = run(call)
    half = call | {"v": encode(decode(call["v"]) * 0.5)}
    result = acceptance(*found, *reference(half))
    assert result.accepted, result.explain()
    assert not acceptance(*found, *reference(call)).accepted


RUNNING_SUM = """
operator test.running_sum {
  \"\"\"A sum that forgets: s <- sigmoid(g) * s + x; y = s / sqrt(1 + sum of s * s).\"\"\"
  sizes {
    N, T
    W in 1..512
  }
  inputs {
    x, g  : [N, T, W] of bf16, f32 strided
    start : [N, W] of f32 optional
  }
  outputs {
    y    : [N, T, W] of like x strided
    last : [N, W] of f32 optional strided
  }
  options { inverted in bool default false }
  indices {
    n in N parallel
    t in T sequential
    w, z in W
  }
  views {
    xx[w] = x[n, t, w]
    gg[w] = g[n, t, w]
    s0[w] = start[n, w] where given(start) else 0.0
    s1[w] = last[n, w] where given(last)
    yy[w] = y[n, t, w]
  }
  part whole {
    carry total[w] over t from s0[w] to s1[w] next total_next
    either inverted {
      when true  { keep : kept[w] = (1.0 - sigmoid(gg[w])) * total[w] }
      when false { keep : kept[w] = sigmoid(gg[w]) * total[w] }
    }
    add   : total_next[w] = kept[w] + xx[w]
    size  : square[] = sum over z of total_next[z] * total_next[z]
    write : yy[w] = total_next[w] * rsqrt(1.0 + square[])
  }
}
rule running_cpu schedules test.running_sum on cpu {
  require { W % 8 == 0 else "pad the channels to a multiple of 8" }
  choose { width in [4, 8] default 8 }
  kernel all computes whole {
    grid { task : n }
    place { total, total_next : f32 in stack }
    compute { keep, add, write : vector w by width }
  }
  ensure { stack_bytes <= 8 KiB }
}
"""


def running_sum(x, g, start, inverted):
    total, y = start.astype(np.float64), np.empty(x.shape)
    for t in range(x.shape[1]):
        keep = 1 / (1 + np.exp(-g[:, t].astype(np.float64) * (-1 if inverted else 1)))
        total = keep * total + x[:, t]
        y[:, t] = total / np.sqrt(1 + (total**2).sum(-1, keepdims=True))
    return y, total


@pytest.fixture(scope="module")
def summing(tmp_path_factory):
    return library_of(tmp_path_factory.mktemp("summing"), RUNNING_SUM)


@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("width", [4, 8])
def test_a_different_operator(summing, inverted, width):
    dtypes = {"x": "f32", "g": "f32"}
    made = plan(summing, "running_cpu", {"width": width}, dtypes, {"W": 40}, inverted=inverted)
    opened = program(made)
    rng = np.random.default_rng(4)
    wide = rng.standard_normal((3, 11, 80)).astype(np.float32)
    x, g = wide[:, :, ::2], rng.standard_normal((3, 11, 40)).astype(np.float32)  # x is strided
    start = rng.standard_normal((3, 40)).astype(np.float32)
    y, last = np.full((3, 11, 40), np.nan, np.float32), np.full((3, 40), np.nan, np.float32)
    tensors = {"x": x, "g": g, "start": start, "y": y, "last": last}
    launch(opened, {name: view(a) for name, a in tensors.items()}, {"N": 3, "T": 11, "W": 40}, {})
    needed_y, needed_last = running_sum(x, g, start, inverted)
    np.testing.assert_allclose(y, needed_y, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(last, needed_last, rtol=2e-6, atol=2e-6)
    wrong, _ = running_sum(x, g, start, not inverted)
    assert not np.allclose(y, wrong, rtol=1e-2)
