"""Views of NumPy and torch memory."""

import numpy as np
import pytest
import torch

from kdsl.runtime import ArgumentTypeError, ArgumentValueError, TensorView


@pytest.mark.parametrize(
    ("dtype", "name"), [("float16", "f16"), ("float32", "f32"), ("int32", "i32"), ("int64", "i64")]
)
def test_numpy_and_torch_agree(dtype, name):
    array = np.arange(24).astype(dtype).reshape(2, 3, 4)[:, ::2, 1:]
    one = TensorView.from_numpy(array)
    two = TensorView.from_torch(torch.from_numpy(array))
    assert one == two
    assert (one.dtype, one.shape, one.strides, one.device) == (name, (2, 2, 3), (12, 8, 1), "cpu")
    assert one.pointer == array.ctypes.data
    assert one != TensorView.from_numpy(array[1:])


def test_bits_of_bf16_are_said_to_be_so():
    bits = np.zeros((2, 3), np.uint16)
    assert TensorView.from_numpy(bits, "bf16").dtype == "bf16"
    assert TensorView.from_torch(torch.zeros(2, dtype=torch.bfloat16)).dtype == "bf16"
    for dtype in (None, "f16", "f32"):
        with pytest.raises(ArgumentTypeError, match="uint16 with dtype='bf16'"):
            TensorView.from_numpy(bits, dtype)


@pytest.mark.parametrize("array", [np.zeros(2), np.zeros(2, ">f4"), np.zeros(2, np.uint8), np.zeros(2, bool)])
def test_other_arrays_are_refused(array):
    with pytest.raises(ArgumentTypeError, match="found NumPy dtype"):
        TensorView.from_numpy(array)
    TensorView.from_numpy(array.astype(np.float32))


def test_a_dtype_that_contradicts_the_array_is_refused():
    with pytest.raises(ArgumentTypeError, match="found NumPy dtype float32 for bf16"):
        TensorView.from_numpy(np.zeros(2, np.float32), "bf16")
    TensorView.from_numpy(np.zeros(2, np.float32), "f32")


def test_strides_of_part_elements_are_refused():
    record = np.zeros(3, np.dtype([("a", "u1"), ("b", "<f4"), ("c", "u1")]))
    with pytest.raises(ArgumentValueError, match=r"strides of \(6,\) bytes; needed multiples of 4 bytes"):
        TensorView.from_numpy(record["b"])


def test_other_torch_dtypes_are_refused():
    with pytest.raises(ArgumentTypeError, match="torch.float64"):
        TensorView.from_torch(torch.zeros(2, dtype=torch.float64))


def test_negative_strides_point_at_the_first_element():
    array = np.arange(6, dtype=np.float32)
    view = TensorView.from_numpy(array[::-1])
    assert view.strides == (-1,) and view.pointer == array.ctypes.data + 20


def test_other_views_of_the_same_memory():
    state = torch.zeros(2, 3, 4, 5)
    assert TensorView.from_torch(state).with_last_axes_swapped() == TensorView.from_torch(
        state.transpose(-1, -2)
    )
    bias = torch.zeros(24)[::2]
    assert TensorView.from_torch(bias).with_axis_split(3, 4) == TensorView.from_torch(
        bias.unflatten(0, (3, 4))
    )


def test_a_view_keeps_its_memory_alive_and_is_frozen():
    view = TensorView.from_numpy(np.zeros(3, np.float32))
    assert view.owner is not None
    with pytest.raises(AttributeError):
        view.pointer = 0
