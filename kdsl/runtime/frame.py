"""One launch as its kernels see it, and how each kind of argument reads its value from it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from kdsl.bundle import manifest as m
from kdsl.runtime.tensor import TensorView

Reader = Callable[["Frame"], Any]


@attrs.frozen(eq=False)
class Frame:
    """One launch: the tensors given, sizes, scalars, addresses of the workspaces, the device as PyTorch
    writes it, and the number of threads on the host.
    """

    tensors: Mapping[str, TensorView]
    sizes: Mapping[str, int]
    scalars: Mapping[str, float]
    workspaces: Mapping[str, int]
    device: str
    threads: int


def c_type(argument: m.Argument) -> Any:
    """The C type of an argument, as ctypes names it."""
    if isinstance(argument, m.TensorArgument | m.WorkspaceArgument):
        return ctypes.c_void_p
    if isinstance(argument, m.GivenArgument):
        return ctypes.c_int32
    if isinstance(argument, m.ScalarArgument):
        return {"f32": ctypes.c_float, "i32": ctypes.c_int32, "i64": ctypes.c_int64}[argument.dtype]
    return ctypes.c_int64


def reader(argument: m.Argument) -> Reader:
    """The function that reads the argument's value from a frame; 0 for the grid's begin and end."""
    match argument:
        case m.TensorArgument(name=name):
            return lambda frame: view.pointer if (view := frame.tensors.get(name)) is not None else 0
        case m.StrideArgument(tensor=name, axis=axis):
            return lambda frame: view.strides[axis] if (view := frame.tensors.get(name)) is not None else 0
        case m.WorkspaceArgument(name=name):
            return lambda frame: frame.workspaces[name]
        case m.SizeArgument(name=name):
            return lambda frame: frame.sizes[name]
        case m.GivenArgument(name=name):
            return lambda frame: 1 if name in frame.tensors else 0
        case m.ScalarArgument(name=name):
            return lambda frame: frame.scalars[name]
    return lambda frame: 0
