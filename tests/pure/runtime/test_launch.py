"""Loading a variant and launching it, on two kernels that scale each task's row by its number."""

import ctypes

import attrs
import numpy as np
import pytest
import torch

from kdsl.bundle import ExpressionError, load_bundle, this_machine, write_bundle
from kdsl.bundle import manifest as m
from kdsl.runtime import LaunchError, TensorView, launch, open_variant, workspace
from kdsl.runtime.workspace import Workspace, allocate

SOURCE = """
#include <stdint.h>
#include <stddef.h>
/* First: scratch[task, j] = x[task, j] * task. Second: y = scratch * factor + offset + bias, if given. */
void first(float *x, int64_t x_0, int64_t x_1, float *scratch, int64_t W, int64_t begin, int64_t end) {
  for (int64_t task = begin; task < end; ++task)
    for (int64_t j = 0; j < W; ++j) scratch[task * W + j] = x[task * x_0 + j * x_1] * task;
}
void second(int64_t begin, int64_t end, float *scratch, float *bias, int64_t bias_0, int32_t has_bias,
            float factor, int64_t offset, float *y, int64_t y_0, int64_t y_1, int64_t W) {
  for (int64_t task = begin; task < end; ++task)
    for (int64_t j = 0; j < W; ++j) {
      float shift = has_bias && bias ? bias[j * bias_0] : 0;
      y[task * y_0 + j * y_1] = scratch[task * W + j] * factor + offset + shift;
    }
}
void only_second(int64_t begin, int64_t end, float *scratch, float *y, int64_t W) {
  for (int64_t at = begin * W; at < end * W; ++at) y[at] = scratch[at];
}
"""
T, S = m.TensorArgument, m.StrideArgument
FIRST = m.Kernel(
    "first",
    "rows.so",
    "first",
    [T("x", "f32"), S("x", 0), S("x", 1), m.WorkspaceArgument("scratch"), m.SizeArgument("W")]
    + [m.GridBegin(), m.GridEnd()],
    {"tasks": "N"},
)
SECOND = m.Kernel(
    "second",
    "rows.so",
    "second",
    [m.GridBegin(), m.GridEnd(), m.WorkspaceArgument("scratch"), T("bias", "f32"), S("bias", 0)]
    + [m.GivenArgument("bias"), m.ScalarArgument("factor", "f32"), m.ScalarArgument("offset", "i64")]
    + [T("y", "f32"), S("y", 0), S("y", 1), m.SizeArgument("W")],
    {"tasks": "N"},
)
READER = m.Kernel(
    "only_second",
    "rows.so",
    "only_second",
    [m.GridBegin(), m.GridEnd(), m.WorkspaceArgument("scratch"), T("y", "f32"), m.SizeArgument("W")],
    {"tasks": "N"},
)
VARIANT = m.Variant(
    id="abcd",
    target="cpu",
    machine=attrs.evolve(this_machine(), features=[]),
    dtypes={"x": "f32", "y": "f32", "bias": "f32"},
    options={},
    sizes={},
    form={},
    choices={},
    kernels=[FIRST, SECOND],
    workspace=[m.Workspace("scratch", "f32", "N * W * 4")],
)


@pytest.fixture
def program(tmp_path, gcc):
    """Open a variant as a program; by default the one of both kernels."""

    def open_program(variant=VARIANT):
        manifest = m.Manifest(
            "0.1.0",
            "test.rows",
            m.Rule("rows", "rows.kds", "0" * 64),
            m.MadeWith("3", "0", "0", "gcc", []),
            [variant],
        )
        path = write_bundle(tmp_path / "rows.kdsb", manifest, {"rows.so": gcc(SOURCE)}, replace=True)
        bundle = load_bundle(path)
        return open_variant(bundle, bundle.variant(variant.id))

    return open_program


SCALARS = {"factor": 0.5, "offset": 3}


def rows(count=5, width=4, **more):
    x = np.arange(count * width, dtype=np.float32).reshape(count, width)
    y = np.full_like(x, np.nan)
    return (
        x,
        y,
        {"x": TensorView.from_numpy(x), "y": TensorView.from_numpy(y), **more},
        {"N": count, "W": width},
    )


def test_kernels_run_in_order_over_a_workspace(program):
    x, y, tensors, sizes = rows()
    launch(program(), tensors, sizes, SCALARS)
    np.testing.assert_array_equal(y, x * np.arange(5, dtype=np.float32)[:, None] * 0.5 + 3)


def test_an_optional_tensor_is_there_or_not(program):
    bias = np.arange(8, dtype=np.float32)[::2]
    x, y, tensors, sizes = rows(bias=TensorView.from_numpy(bias))
    launch(program(), tensors, sizes, SCALARS, {"bias": True})
    np.testing.assert_array_equal(y, x * np.arange(5, dtype=np.float32)[:, None] * 0.5 + 3 + bias)
    x, y, tensors, sizes = rows()
    launch(program(), tensors, sizes, SCALARS, {"bias": False})
    np.testing.assert_array_equal(y, x * np.arange(5, dtype=np.float32)[:, None] * 0.5 + 3)


def test_strides_of_numpy_and_torch(program):
    x = np.arange(40, dtype=np.float32).reshape(4, 10)[:, ::-2].T
    y = torch.full((5, 8), torch.nan)[:, ::2]
    tensors = {"x": TensorView.from_numpy(x), "y": TensorView.from_torch(y)}
    launch(program(), tensors, {"N": 5, "W": 4}, SCALARS)
    np.testing.assert_array_equal(y.numpy(), x * np.arange(5, dtype=np.float32)[:, None] * 0.5 + 3)


def test_the_result_does_not_depend_on_the_threads(program):
    opened, results = program(), []
    for threads in (1, 2, 3, 16):
        _, y, tensors, sizes = rows(201, 7)
        launch(opened, tensors, sizes, SCALARS, threads=threads)
        results.append(y.tobytes())
    assert len(set(results)) == 1
    _, y, tensors, sizes = rows(201, 7)
    launch(opened, tensors, sizes, {**SCALARS, "factor": 0.25})
    assert y.tobytes() != results[0]


def test_nothing_to_do(program):
    _, y, tensors, _ = rows()
    launch(program(), tensors, {"N": 0, "W": 4}, SCALARS)
    assert np.isnan(y).all()


def test_a_workspace_is_full_of_nan_on_request(program, monkeypatch):
    zeros = ctypes.create_string_buffer(1024)
    monkeypatch.setattr(workspace, "_malloc", lambda size: ctypes.addressof(zeros))
    monkeypatch.setattr(workspace, "_free", lambda block: None)
    reader = program(attrs.evolve(VARIANT, kernels=[READER], dtypes={"y": "f32"}))
    for poison, share in (("0", 0.0), ("1", 1.0)):
        monkeypatch.setenv("KDSL_POISON", poison)
        _, y, tensors, sizes = rows()
        launch(reader, {"y": tensors["y"]}, sizes, {})
        assert np.isnan(y).mean() == share


def test_workspaces_are_aligned_and_given_back(program, monkeypatch):
    for size in (0, 1, 63, 4096, 1 << 22):
        memory = allocate(size)
        assert memory.address % 64 == 0
        memory.free()
    with pytest.raises(MemoryError, match="found no 4611686018427387904 bytes"):
        allocate(2**62)
    freed = []
    monkeypatch.setattr(Workspace, "free", lambda self: freed.append(self))
    _, _, tensors, sizes = rows()
    opened = program()
    launch(opened, tensors, sizes, SCALARS)
    assert len(freed) == 1

    def fail(frame):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        launch(attrs.evolve(opened, kernels=(fail,)), tensors, sizes, SCALARS)
    assert len(freed) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": None}, "variant abcd, x: found no tensor; needed a f32 tensor; give it"),
        ({"y": TensorView(1, "bf16", (5, 4), (4, 1))}, "variant abcd, y: found bf16; needed f32"),
        (
            {"x": TensorView(1, "f32", (5, 4), (4, 1), "cuda:0")},
            "x: found device cuda:0; needed cpu; move it",
        ),
        (
            {"z": TensorView(1, "f32", (5, 4), (4, 1))},
            "variant abcd, z: found a tensor; needed none of this name",
        ),
        ({"bias": None}, "bias: found no tensor"),
    ],
)
def test_wrong_tensors(program, change, message):
    _, _, tensors, sizes = rows()
    with pytest.raises(LaunchError, match=message):
        launch(program(), {**tensors, **change}, sizes, SCALARS)


def test_wrong_sizes_scalars_and_flags(program):
    opened = program()
    _, _, tensors, sizes = rows()
    with pytest.raises(LaunchError, match="N, W: found no size"):
        launch(opened, tensors, {}, SCALARS)
    with pytest.raises(LaunchError, match="offset: found no scalar"):
        launch(opened, tensors, sizes, {"factor": 1.0})
    with pytest.raises(LaunchError, match="bias: found the flag given = True and no tensor"):
        launch(opened, tensors, sizes, SCALARS, {"bias": True})
    launch(opened, tensors, {**sizes, "more": 1}, {**SCALARS, "more": 1})


def test_a_tensor_that_is_needed_cannot_be_left_out(program):
    _, _, tensors, sizes = rows()
    with pytest.raises(LaunchError, match="y: found no tensor"):
        launch(program(), {"x": tensors["x"]}, sizes, SCALARS)


def test_workspace_sizes_that_make_no_sense(program):
    _, _, tensors, sizes = rows()
    less = attrs.evolve(VARIANT, workspace=[m.Workspace("scratch", "f32", "N - 100")])
    with pytest.raises(LaunchError, match="workspace scratch: found -95 bytes; needed 0 or more"):
        launch(program(less), tensors, sizes, SCALARS)
    zero = attrs.evolve(VARIANT, workspace=[m.Workspace("scratch", "f32", "N / (W - 4)")])
    with pytest.raises(ExpressionError, match="division by zero"):
        launch(program(zero), tensors, sizes, SCALARS)


def test_a_library_that_does_not_load(tmp_path, program, gcc):
    absent = attrs.evolve(VARIANT, kernels=[attrs.evolve(FIRST, symbol="third")])
    with pytest.raises(LaunchError, match="library rows.so: found .*third.*; needed a shared library"):
        program(absent)
    broken = m.Manifest(
        "0.1.0",
        "test.rows",
        m.Rule("rows", "rows.kds", "0" * 64),
        m.MadeWith("3", "0", "0", "gcc", []),
        [VARIANT],
    )
    bundle = load_bundle(write_bundle(tmp_path / "broken.kdsb", broken, {"rows.so": b"no library"}))
    with pytest.raises(LaunchError, match="kdsl lower"):
        open_variant(bundle, VARIANT)
