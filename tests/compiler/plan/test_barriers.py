"""Which shared elements a lane has from itself, and which from others: barriers stand before the latter alone."""

from __future__ import annotations

import re

import numpy as np
import pytest
from attrs import evolve

from kdsl.driver.emulation import LoweredProgram, Operands
from kdsl.emulate.launches import Buffer
from kdsl.emulate.run import emulate
from kdsl.lower.lowering import Lowering

from ..workshop import library_of, plan

TEXT = """
operator test.owners {
  sizes { N; C, K in 16..64 }
  inputs { x : [N, C, K] of f32 }
  outputs { y : [N, C, K] of f32 }
  indices { n in N parallel; i, j in C; d, p in K }
  views { xx[i, d] = x[n, i, d]; yx[j, d] = y[n, j, d] }
  part whole {
    double : r[i, d] = 2.0 * xx[i, d]
    keep   : a[i, d] = r[i, d]
    take   : b[j, d] = READ
    put    : yx[j, d] = b[j, d]
  }
}
rule owners schedules test.owners on sm_90a {
  kernel all computes whole {
    grid { x : n }
    roles { all : 2 warps }
    place {
      r, b : f32 in registers lanes d by 1
      a    : f32 in shared
    }
  }
  ensure { spills == 0 }
}
"""
OWN, OTHERS = "a[j, d] + 1.0", "a[j, d] + sum over p of a[j, p]"


def made(folder, read: str) -> Lowering:
    text = TEXT.replace("READ", read)
    return Lowering(plan(library_of(folder, text), "owners", sizes={"C": 16, "K": 64}, target="sm_90a"))


def ran(lowering: Lowering, source):
    x = np.random.default_rng(3).standard_normal((2, 16, 64)).astype(np.float32)
    y = np.full_like(x, np.nan)
    operands = Operands({"x": x, "y": y}, {"x": "input", "y": "output"}, {"N": 2, "C": 16, "K": 64}, {}, False)
    buffers = {"x": Buffer(x, "input", "x"), "y": Buffer(y, "output", "y")}
    (kernel,) = lowering.plan.kernels
    launch = LoweredProgram(lowering).launch(kernel, source, (2, 1, 1), buffers, {}, operands)
    return emulate([launch], seed=2), x, y


@pytest.mark.parametrize("read, barriers", [(OWN, ()), (OTHERS, ("take",))], ids=["own", "others"])
def test_a_lane_waits_for_other_lanes_alone(tmp_path, read, barriers):
    """Rows are called i where they are written and j where they are read: a lane has all rows of its column."""
    lowering = made(tmp_path, read)
    assert lowering.plan.kernels[0].barriers == barriers
    (source,) = lowering.sources
    result, x, y = ran(lowering, source)
    assert result.verdict == "pass", result.explain()
    sums = 2.0 * x.sum(axis=2, dtype=np.float64, keepdims=True)
    np.testing.assert_allclose(y, 2.0 * x + (1.0 if read == OWN else sums), rtol=1e-4, atol=1e-4)


def test_the_barrier_before_what_other_lanes_wrote_is_needed(tmp_path):
    lowering = made(tmp_path, OTHERS)
    (source,) = lowering.sources
    ((start, end),) = (found.span() for found in re.finditer(r"__syncthreads\(\);", source.source))
    result, *_ = ran(lowering, evolve(source, source=source.source[:start] + ";" + source.source[end:]))
    assert {finding.kind for finding in result.findings} & {"race", "uninitialised"}, result.explain()
