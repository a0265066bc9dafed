"""Launch "cuda": a kernel of a cubin, on PyTorch's current stream of the tensors' device.

Nothing here waits for the device or reads its memory, and all memory comes from PyTorch's caching allocator,
so calls can be captured into a CUDA graph. A cubin is loaded once for each device, at its first launch there.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from kdsl.bundle import manifest as m
from kdsl.bundle.expression import parse_number
from kdsl.runtime.cuda_driver import Driver, Function, open_driver
from kdsl.runtime.errors import LaunchError
from kdsl.runtime.frame import Frame, c_type, reader
from kdsl.runtime.workspace import POISON_BYTE, poisoned

LARGEST_SIZE = 2**31 - 1  # kernels count tokens, heads and sequences in 32 bits, and offsets in 64
# Blocks of a grid along x, y and z (CUDA C++ Programming Guide, technical specifications).
LARGEST_GRID = {"x": 2**31 - 1, "y": 65535, "z": 65535}
# Shared memory of a block that needs no asking.
PLAIN_SHARED_BYTES = 48 << 10
_CODES = {ctypes.c_void_p: "Q", ctypes.c_int64: "q", ctypes.c_int32: "i4x", ctypes.c_float: "f4x"}


def torch_stream(index: int) -> int:
    """The handle of PyTorch's current stream on device `index`."""
    import torch

    return torch.cuda.current_stream(index).cuda_stream


@attrs.frozen(eq=False)
class DeviceMemory:
    """`address` of memory on a device, ordered on the stream that was current when it was taken."""

    address: int
    _tensor: Any

    def free(self) -> None:
        """Nothing to do: the allocator gives it to later work of the same stream once this object is gone."""


def allocate(size: int, device: str) -> DeviceMemory:
    """`size` bytes of unknown content on `device`. Raises torch.OutOfMemoryError."""
    import torch

    tensor = torch.empty(size, dtype=torch.uint8, device=torch.device(device))
    if poisoned():
        tensor.fill_(POISON_BYTE)
    return DeviceMemory(tensor.data_ptr(), tensor)


def device_index(device: str) -> int:
    """The number in "cuda:1"; 0 for "cuda"."""
    return int(device.partition(":")[2] or 0)


def prepare(file: Path, kernel: m.Kernel) -> Callable[[Frame], None]:
    """Read the cubin and return the function that enqueues `kernel` for a frame.

    Raises LaunchError if the file cannot be read. The returned function raises LaunchError for a grid that no
    GPU takes or code that is not what the manifest says, CudaError for what the driver refuses, MissingCuda.
    """
    try:
        image = file.read_bytes()
    except OSError as failure:
        raise LaunchError(
            kernel.name,
            f"file {file.name}",
            str(failure),
            f"a cubin with the kernel {kernel.symbol}",
            "copy the bundle again, or rebuild it with `kdsl lower`",
        ) from None
    return _Launch(kernel, image, f"kernel {kernel.name} ({kernel.symbol} of {file.parent.name}/{file.name})")


class _Launch:
    """A kernel ready to be launched on any device. Called with a frame, it enqueues the kernel."""

    def __init__(self, kernel: m.Kernel, image: bytes, name: str) -> None:
        self.kernel = kernel
        self.name = name
        self.block = kernel.block
        self._image = image
        self._grid = [(axis, parse_number(kernel.grid[axis])) for axis in ("x", "y", "z")]
        self._readers = [reader(argument) for argument in kernel.arguments]
        types = [c_type(argument) for argument in kernel.arguments]
        self._parameter_bytes = tuple(ctypes.sizeof(kind) for kind in types)
        # Each argument in eight bytes of its own, then the array of pointers to them.
        count = len(types)
        self._packing = struct.Struct("=" + "".join(_CODES[kind] for kind in types) + f"{count}Q")
        self._offsets = range(0, 8 * count, 8)
        self._loaded: dict[int, Function] = {}
        self._lock = threading.Lock()

    def __call__(self, frame: Frame) -> None:
        grid = self._blocks(frame)
        if 0 in grid:
            return
        driver = open_driver()
        index = device_index(frame.device)
        function = self._loaded.get(index)
        if function is None:
            function = self._load(driver, index)
        memory = ctypes.create_string_buffer(self._packing.size)
        base = ctypes.addressof(memory)
        values = [read(frame) for read in self._readers]
        try:
            self._packing.pack_into(memory, 0, *values, *[base + offset for offset in self._offsets])
        except struct.error:
            raise self._unfit(values) from None
        status, call = driver.launch(
            function, grid, self.block, self.kernel.shared_bytes, torch_stream(index), base + 8 * len(values)
        )
        if status:
            geometry = (
                f"launching {self.name} on {frame.device} with grid {grid}, block {self.block}, "
                f"{self.kernel.shared_bytes} bytes of dynamic shared memory, {function.registers} registers"
            )
            raise driver.error(status, call, geometry)

    def _blocks(self, frame: Frame) -> tuple[int, int, int]:
        """The grid for the sizes of a frame; 0 along some axis if there is nothing to do."""
        for name, size in frame.sizes.items():
            if size > LARGEST_SIZE:
                raise LaunchError(
                    self.kernel.name, f"size {name}", f"{name} = {size}", f"{name} <= {LARGEST_SIZE}", "split the call"
                )
        blocks = tuple([expression.evaluate(frame.sizes) for _, expression in self._grid])
        for count, (axis, expression) in zip(blocks, self._grid, strict=True):
            if not 0 <= count <= LARGEST_GRID[axis]:
                sizes = ", ".join(f"{name} = {frame.sizes[name]}" for name in sorted(expression.names))
                raise LaunchError(
                    self.kernel.name,
                    f"grid dimension {axis}",
                    f"{count} blocks from `{expression.text}`" + (f" with {sizes}" if sizes else ""),
                    f"0 to {LARGEST_GRID[axis]} along {axis}",
                    "split the call, or rebuild with a rule that puts this axis elsewhere in the grid",
                )
        return blocks

    def _load(self, driver: Driver, index: int) -> Function:
        with self._lock:
            function = self._loaded.get(index)
            if function is not None:
                return function
            what = f"loading {self.name} on cuda:{index}"
            context = driver.context(index)
            with driver.current(context, what), driver.allowed_while_capturing(what):
                # One more than there should be is asked for in tests alone: the driver's answer that there
                # is none is an error in the eyes of tools that watch its calls.
                asked = len(self._parameter_bytes) + poisoned()
                function = driver.load(context, self._image, self.kernel.symbol, asked, what)
                self._check(driver, index, function)
                shared = self.kernel.shared_bytes
                if shared and shared + function.static_shared_bytes > PLAIN_SHARED_BYTES:
                    driver.allow_shared(function, shared, f"{what} with {shared} bytes of shared memory")
            self._loaded[index] = function
            return function

    def _check(self, driver: Driver, index: int, function: Function) -> None:
        """The loaded code is what the manifest says, and the device has room for a block of it."""
        x, y, z = self.block
        if x * y * z > function.max_threads:
            self._mismatch("block", f"{x * y * z} threads", f"at most {function.max_threads}, as compiled")
        static, dynamic = function.static_shared_bytes, self.kernel.shared_bytes
        limit = driver.shared_limit(index, f"asking cuda:{index} for its shared memory")
        if static + dynamic > limit:
            found = f"{dynamic} bytes dynamic and {static} static"
            self._mismatch("shared memory", found, f"at most {limit} bytes on cuda:{index}")
        compiled = function.parameter_bytes
        if compiled is not None and compiled != self._parameter_bytes:
            listed = ", ".join(
                f"{getattr(argument, 'name', None) or getattr(argument, 'tensor', argument.kind)} {size}"
                for argument, size in zip(self.kernel.arguments, self._parameter_bytes, strict=True)
            )
            self._mismatch("arguments", f"{listed} bytes", f"{list(compiled)} bytes, as compiled")

    def _mismatch(self, argument: str, found: str, needed: str) -> None:
        remedy = "rebuild the bundle for this device with `kdsl lower --target`"
        raise LaunchError(self.kernel.name, argument, found, needed, remedy)

    def _unfit(self, values: list[Any]) -> LaunchError:
        listed = zip(self.kernel.arguments, values, strict=True)
        found = ", ".join(f"{argument.kind} {getattr(argument, 'name', '')} = {value!r}".replace("  ", " ")
                          for argument, value in listed)  # fmt: skip
        needed = "pointers and 64-bit integers, 32-bit flags and numbers"
        return LaunchError(self.kernel.name, "arguments", found, needed, "check the scalars of the call")
