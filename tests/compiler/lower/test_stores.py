"""Any expression may be stored in any dtype, and what TVM cannot lower is a finding on the rule."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from kdsl.driver.trial import view
from kdsl.lower.lowering import Lowering
from kdsl.lower.stir.schedule import CodeRefused, StepRefused, making_code
from kdsl.runtime.launch import launch
from kdsl.validate.bfloat16 import decode, encode

from ..workshop import library_of, plan, program, shipped

TEXT = """
operator test.store {
  sizes { N; W in 1..64 }
  inputs { x : [N, W] of bf16, f16, f32 }
  outputs { y : [N, W] of like x }
  indices { n in N parallel; w in W }
  views { xx[w] = x[n, w]; yy[w] = y[n, w] }
  part whole { write : yy[w] = EXPRESSION }
}
rule stores schedules test.store on cpu { kernel all computes whole { grid { task : n } } }
"""
VALUES = {
    "0.0": lambda x: 0 * x, "1.5": lambda x: 0 * x + 1.5, "xx[w]": lambda x: x, "xx[w] * 2.0": lambda x: 2 * x,
    "-xx[w]": lambda x: -x, "xx[w] / 3.0 + 1.0": lambda x: x / 3 + 1, "exp(xx[w])": np.exp,
    "if w == 3 then 0.0 else xx[w]": lambda x: np.where(np.arange(8) == 3, 0, x),
    "sigmoid(xx[w]) * (if n == 1 then 1.0 else xx[w])": lambda x:
        1 / (1 + np.exp(-x)) * np.where(np.arange(3)[:, None] == 1, 1, x),
}  # fmt: skip
STORED = {
    "bf16": (encode, decode, 2**-8), "f16": (lambda x: x.astype(np.float16), lambda x: x.astype(np.float64), 2**-10),
    "f32": (lambda x: x.astype(np.float32), lambda x: x.astype(np.float64), 2**-22),
}  # fmt: skip


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("expression", VALUES)
def test_any_value_in_any_dtype(expression, dtype, tmp_path):
    library = library_of(tmp_path, TEXT.replace("EXPRESSION", expression))
    opened = program(plan(library, "stores", dtypes={"x": dtype}, sizes={"W": 8}))
    store, read, step = STORED[dtype]
    x = store(np.random.default_rng(7).standard_normal((3, 8)).astype(np.float32))
    y = store(np.full((3, 8), np.nan, np.float32))
    read_too = {"x": view(x)} if "xx" in expression else {}
    launch(opened, {**read_too, "y": view(y)}, {"N": 3, "W": 8}, {})
    np.testing.assert_allclose(read(y), VALUES[expression](read(x).astype(np.float64)), rtol=step, atol=step / 16)


def test_what_tvm_cannot_lower_is_a_finding():
    """A plan that was never derived: a number in shared memory, which the derivation refuses."""
    made = plan(shipped(), "lane_columns", target="sm_90a", gate="bounded", use_qk_l2norm_in_kernel=True)
    (kernel,) = made.kernels
    tensors = {**kernel.tensors, "qq": evolve(kernel.tensors["qq"], memory="shared")}
    steps = tuple(evolve(s, scope="shared.dyn") if getattr(s, "scope", "") == "local" and s.sblock == "square_q" else s
                  for s in kernel.steps)  # fmt: skip
    with pytest.raises(StepRefused) as caught:
        Lowering(evolve(made, kernels=(evolve(kernel, tensors=tensors, steps=steps),))).sources  # noqa: B018
    found = caught.value.diagnostic
    assert isinstance(caught.value, CodeRefused) and found.code == "T102"
    assert found.span.text.startswith("kernel step") and "Check failed" not in found.message + "".join(found.notes)


def test_our_own_faults_stay_faults():
    (kernel,) = plan(shipped(), "cpu_stream", gate="precomputed").kernels
    with pytest.raises(KeyError), making_code(kernel):
        {}["nothing"]
