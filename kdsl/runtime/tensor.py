"""What a kernel needs to know of a tensor: where it is, its dtype, shape and strides. Nothing is copied."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import attrs

from kdsl.runtime.errors import ArgumentTypeError, ArgumentValueError

ITEM_BYTES = {"bf16": 2, "f16": 2, "f32": 4, "i32": 4, "i64": 8}
_NUMPY_NAMES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "int32": "i32", "int64": "i64"}
_TORCH_NAMES = {f"torch.{name}": dtype for name, dtype in _NUMPY_NAMES.items()}


@attrs.frozen
class TensorView:
    """A tensor in memory.

    `pointer` is the address of the first element (0 for an empty tensor that has none); `dtype` bf16, f16,
    f32, i32 or i64; `strides` in elements; `device` as PyTorch writes it ("cpu", "cuda:0"). `owner` keeps the
    memory alive.
    """

    pointer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: str = "cpu"
    owner: Any = attrs.field(default=None, eq=False, repr=False)

    @classmethod
    def from_numpy(cls, array: Any, dtype: str | None = None) -> TensorView:
        """View a NumPy array of float16, float32, int32, int64, or of uint16 with `dtype` "bf16" given.

        Raises ArgumentTypeError for another dtype or byte order, ArgumentValueError for strides that are not
        whole elements.
        """
        name = array.dtype.name
        own = _NUMPY_NAMES.get(name)
        if name == "uint16" and dtype == "bf16":
            own = "bf16"
        if own is None or not array.dtype.isnative or dtype not in (None, own):
            order = "" if array.dtype.isnative else " of foreign byte order"
            raise ArgumentTypeError(
                "array",
                f"NumPy dtype {name}{order} for {dtype or 'no dtype given'}",
                "float16, float32, int32 or int64, or uint16 with dtype='bf16'",
                "convert the array, or give the dtype of its bits",
            )
        size = ITEM_BYTES[own]
        if any(stride % size for stride in array.strides):
            raise ArgumentValueError(
                "array",
                f"strides of {array.strides} bytes",
                f"multiples of {size} bytes",
                "copy it with numpy.ascontiguousarray",
            )
        strides = tuple(stride // size for stride in array.strides)
        return cls(array.__array_interface__["data"][0], own, array.shape, strides, "cpu", array)

    @classmethod
    def from_torch(cls, tensor: Any) -> TensorView:
        """View a strided torch tensor of bfloat16, float16, float32, int32 or int64.

        Raises ArgumentTypeError for another dtype.
        """
        return cls(
            tensor.data_ptr(),
            dtype_name(tensor.dtype),
            tuple(tensor.shape),
            tensor.stride(),
            _device_name(tensor.device),
            tensor,
        )

    def with_last_axes_swapped(self) -> TensorView:
        """The same memory with its last two axes exchanged: a state [.., V, K] seen as [.., K, V]."""
        *outer, a, b = self.shape
        *outer_strides, x, y = self.strides
        return TensorView(
            self.pointer, self.dtype, (*outer, b, a), (*outer_strides, y, x), self.device, self.owner
        )

    def with_axis_split(self, outer: int, inner: int) -> TensorView:
        """A vector [outer * inner] seen as [outer, inner], whatever its stride."""
        (stride,) = self.strides
        return TensorView(
            self.pointer, self.dtype, (outer, inner), (stride * inner, stride), self.device, self.owner
        )


@lru_cache(maxsize=64)
def dtype_name(dtype: Any) -> str:
    """bf16, f16, f32, i32 or i64 for a torch dtype. Raises ArgumentTypeError for others."""
    name = _TORCH_NAMES.get(str(dtype))
    if name is None:
        raise ArgumentTypeError(
            "tensor", str(dtype), "bfloat16, float16, float32, int32 or int64", "convert it with .to(dtype)"
        )
    return name


@lru_cache(maxsize=64)
def _device_name(device: Any) -> str:
    return str(device)
