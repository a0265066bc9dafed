"""The CUDA driver through ctypes: the few calls that load a cubin and launch its kernels.

The driver's library comes with the GPU's driver itself, so nothing has to be installed beside PyTorch. Names
and numbers are those of cuda.h (CUDA Driver API reference).
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Iterator
from typing import Any

import attrs

from kdsl.runtime.errors import CudaError, MissingCuda

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
MAX_THREADS_PER_BLOCK = 0
STATIC_SHARED_BYTES = 1
LOCAL_BYTES = 3
REGISTERS = 4
MAX_DYNAMIC_SHARED_BYTES = 8
PREFERRED_SHARED_CARVEOUT = 9
ALL_SHARED = 100
DEVICE_MAX_SHARED_BYTES_OPTIN = 97
_CAPTURE_RELAXED = 2
_INVALID_VALUE = 1

_int, _uint, _pointer, _out = ctypes.c_int, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (_uint,),
    "cuDeviceGet": (_out, _int),
    "cuDeviceGetAttribute": (_out, _int, _int),
    "cuDevicePrimaryCtxRetain": (_out, _int),
    "cuCtxGetCurrent": (_out,),
    "cuCtxPushCurrent_v2": (_pointer,),
    "cuCtxPopCurrent_v2": (_out,),
    "cuThreadExchangeStreamCaptureMode": (_out,),
    "cuModuleLoadData": (_out, _pointer),
    "cuModuleGetFunction": (_out, _pointer, ctypes.c_char_p),
    "cuFuncGetAttribute": (_out, _int, _pointer),
    "cuFuncSetAttribute": (_pointer, _int, _int),
    "cuLaunchKernel": (_pointer, *[_uint] * 7, _pointer, _pointer, _pointer),
    "cuGetErrorName": (_int, _out),
    "cuGetErrorString": (_int, _out),
}
# From CUDA 12.4 on.
_OPTIONAL: dict[str, tuple[Any, ...]] = {
    "cuFuncLoad": (_pointer,),
    "cuFuncGetParamInfo": (_pointer, ctypes.c_size_t, _out, _out),
}


@attrs.frozen
class Function:
    """A kernel loaded into the context of one device; `handle` is its CUfunction.

    `max_threads` of a block, `registers` and `local_bytes` (stack and spills) of a thread, and
    `static_shared_bytes` of a block are what the driver says of the loaded code. `parameter_bytes` are the
    sizes of its first parameters in order, as many as were asked for or as it has; None where the driver does
    not tell.
    """

    handle: int
    context: int
    max_threads: int
    registers: int
    local_bytes: int
    static_shared_bytes: int
    parameter_bytes: tuple[int, ...] | None


class Driver:
    """The driver's calls, each checked. `library` is the loaded library, or a stand-in with the same
    functions.
    """

    def __init__(self, library: Any) -> None:
        for name, signature in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = signature, _int
            setattr(self, f"_{name}", function)
        for name, signature in _OPTIONAL.items():
            function = getattr(library, name, None)
            if function is not None:
                function.argtypes, function.restype = signature, _int
            setattr(self, f"_{name}", function)
        self._contexts: dict[int, int] = {}
        self._lock = threading.Lock()
        self._check(self._cuInit(0), "cuInit", "starting the CUDA driver")

    def context(self, index: int) -> int:
        """The primary context of device `index`, the one that PyTorch works in; retained once."""
        handle = self._contexts.get(index)
        if handle is None:
            with self._lock:
                what, device, found = f"opening cuda:{index}", _int(), _pointer()
                self._check(self._cuDeviceGet(ctypes.byref(device), index), "cuDeviceGet", what)
                status = self._cuDevicePrimaryCtxRetain(ctypes.byref(found), device.value)
                self._check(status, "cuDevicePrimaryCtxRetain", what)
                handle = self._contexts[index] = found.value
        return handle

    @contextlib.contextmanager
    def current(self, context: int, what: str) -> Iterator[None]:
        """Make `context` this thread's own for the block, unless it is already."""
        found = _pointer()
        self._check(self._cuCtxGetCurrent(ctypes.byref(found)), "cuCtxGetCurrent", what)
        if found.value == context:
            yield
            return
        self._check(self._cuCtxPushCurrent_v2(context), "cuCtxPushCurrent", what)
        try:
            yield
        finally:
            self._cuCtxPopCurrent_v2(ctypes.byref(found))

    @contextlib.contextmanager
    def allowed_while_capturing(self, what: str) -> Iterator[None]:
        """Let this thread load code while some thread captures a CUDA graph; nothing of it is captured."""
        mode = _int(_CAPTURE_RELAXED)
        exchange, name = self._cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode"
        self._check(exchange(ctypes.byref(mode)), name, what)
        try:
            yield
        finally:
            exchange(ctypes.byref(mode))

    def shared_limit(self, index: int, what: str) -> int:
        """The most shared memory of a block on device `index`, in bytes, with the opt-in."""
        device, value = _int(), _int()
        self._check(self._cuDeviceGet(ctypes.byref(device), index), "cuDeviceGet", what)
        status = self._cuDeviceGetAttribute(
            ctypes.byref(value), DEVICE_MAX_SHARED_BYTES_OPTIN, device.value
        )
        self._check(status, "cuDeviceGetAttribute", what)
        return value.value

    def load(self, context: int, image: bytes, symbol: str, parameters: int, what: str) -> Function:
        """Load a cubin into `context`, which is current, find the kernel `symbol` in it, and ask for the
        sizes of its first `parameters`.
        """
        module, function = _pointer(), _pointer()
        # The driver copies the image; ctypes ends it with a zero, as an ELF file need not.
        text = ctypes.create_string_buffer(image)
        self._check(self._cuModuleLoadData(ctypes.byref(module), text), "cuModuleLoadData", what)
        status = self._cuModuleGetFunction(ctypes.byref(function), module, symbol.encode())
        self._check(status, "cuModuleGetFunction", what)
        handle = function.value
        if self._cuFuncLoad is not None:
            # Not lazily, at a launch: that may be inside the capture of a graph.
            self._check(self._cuFuncLoad(handle), "cuFuncLoad", what)
        return Function(
            handle=handle,
            context=context,
            max_threads=self._attribute(handle, MAX_THREADS_PER_BLOCK, what),
            registers=self._attribute(handle, REGISTERS, what),
            local_bytes=self._attribute(handle, LOCAL_BYTES, what),
            static_shared_bytes=self._attribute(handle, STATIC_SHARED_BYTES, what),
            parameter_bytes=self._parameters(handle, parameters),
        )

    def allow_shared(self, function: Function, dynamic_bytes: int, what: str) -> None:
        """Let the function be launched with this much dynamic shared memory, beyond the 48 KiB that need no
        asking. Such a kernel keeps its data there, so L1 gives up what it can.
        """
        for attribute, value in (
            (MAX_DYNAMIC_SHARED_BYTES, dynamic_bytes),
            (PREFERRED_SHARED_CARVEOUT, ALL_SHARED),
        ):
            status = self._cuFuncSetAttribute(function.handle, attribute, value)
            self._check(status, "cuFuncSetAttribute", what)

    def launch(
        self,
        function: Function,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        stream: int,
        parameters: int,
    ) -> tuple[int, str]:
        """Enqueue the kernel on `stream`; `parameters` is the address of the array of pointers to its
        arguments, which the driver copies. Returns (status, the call that failed), (0, "") if none did.
        """
        found = _pointer()
        status = self._cuCtxGetCurrent(ctypes.byref(found))
        if status:
            return status, "cuCtxGetCurrent"
        other = found.value != function.context
        if other and (status := self._cuCtxPushCurrent_v2(function.context)):
            return status, "cuCtxPushCurrent"
        try:
            status = self._cuLaunchKernel(
                function.handle, *grid, *block, shared_bytes, stream, parameters, None
            )
        finally:
            if other:
                self._cuCtxPopCurrent_v2(ctypes.byref(found))
        return status, "cuLaunchKernel" if status else ""

    def error(self, status: int, call: str, what: str) -> CudaError:
        """The error for a status that is not 0."""
        return CudaError(call, status, *self._describe(status), what)

    def _check(self, status: int, call: str, what: str) -> None:
        if status:
            raise self.error(status, call, what)

    def _describe(self, status: int) -> tuple[str, str]:
        texts = []
        for describe in (self._cuGetErrorName, self._cuGetErrorString):
            found = ctypes.c_char_p()
            failed = describe(status, ctypes.byref(found))
            texts.append("" if failed or found.value is None else found.value.decode(errors="replace"))
        return texts[0] or f"status {status}", texts[1] or "the driver has no text for it"

    def _attribute(self, function: int, attribute: int, what: str) -> int:
        value = _int()
        status = self._cuFuncGetAttribute(ctypes.byref(value), attribute, function)
        self._check(status, "cuFuncGetAttribute", what)
        return value.value

    def _parameters(self, function: int, count: int) -> tuple[int, ...] | None:
        if self._cuFuncGetParamInfo is None:
            return None
        sizes: list[int] = []
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        for index in range(count):
            status = self._cuFuncGetParamInfo(function, index, ctypes.byref(offset), ctypes.byref(size))
            if status == _INVALID_VALUE:
                break
            if status:
                return None
            sizes.append(size.value)
        return tuple(sizes)


_lock = threading.Lock()
_opened: Driver | None = None


def open_driver() -> Driver:
    """The driver of this machine, opened once. Raises MissingCuda, CudaError."""
    global _opened
    if _opened is None:
        with _lock:
            if _opened is None:
                try:
                    library = ctypes.WinDLL(LIBRARY) if sys.platform == "win32" else ctypes.CDLL(LIBRARY)
                    _opened = Driver(library)
                except (OSError, AttributeError) as failure:
                    raise MissingCuda(LIBRARY, str(failure)) from failure
    return _opened
