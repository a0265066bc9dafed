"""The CUDA driver through cuda-bindings: the few calls that load a cubin and launch its kernels, each checked.

Names are those of the CUDA Driver API reference. cuda-bindings is imported at the first launch on a GPU.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import attrs

from kdsl.runtime.errors import CudaError, MissingCuda

ALL_SHARED = 100  # per cent of the memory that L1 and shared memory divide


@attrs.frozen
class Function:
    """A kernel loaded into the context of one device; `handle` is its CUfunction.

    `max_threads` of a block, `registers` and `local_bytes` (stack and spills) of a thread, and
    `static_shared_bytes` of a block are what the driver says of the loaded code. `parameter_bytes` are the
    sizes of its first parameters in order, as many as were asked for or as it has; None where the driver does
    not tell.
    """

    handle: Any
    context: int
    max_threads: int
    registers: int
    local_bytes: int
    static_shared_bytes: int
    parameter_bytes: tuple[int, ...] | None


class Driver:
    """The driver's calls. `api` is the module `cuda.bindings.driver`, or a stand-in with the same functions."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self._contexts: dict[int, int] = {}
        self._lock = threading.Lock()
        self._get_current, self._launch = api.cuCtxGetCurrent, api.cuLaunchKernel
        self._call("cuInit", "starting the CUDA driver", 0)

    def context(self, index: int) -> int:
        """The primary context of device `index`, the one that PyTorch works in; retained once."""
        handle = self._contexts.get(index)
        if handle is None:
            with self._lock:
                what = f"opening cuda:{index}"
                device = self._call("cuDeviceGet", what, index)
                handle = self._contexts[index] = int(self._call("cuDevicePrimaryCtxRetain", what, device))
        return handle

    @contextlib.contextmanager
    def current(self, context: int, what: str) -> Iterator[None]:
        """Make `context` this thread's own for the block, unless it is already."""
        if int(self._call("cuCtxGetCurrent", what)) == context:
            yield
            return
        self._call("cuCtxPushCurrent", what, context)
        try:
            yield
        finally:
            self._api.cuCtxPopCurrent()

    @contextlib.contextmanager
    def allowed_while_capturing(self, what: str) -> Iterator[None]:
        """Let this thread load code while some thread captures a CUDA graph; nothing of it is captured."""
        exchange, relaxed = "cuThreadExchangeStreamCaptureMode", self._api.CUstreamCaptureMode
        before = self._call(exchange, what, relaxed.CU_STREAM_CAPTURE_MODE_RELAXED)
        try:
            yield
        finally:
            self._api.cuThreadExchangeStreamCaptureMode(before)

    def shared_limit(self, index: int, what: str) -> int:
        """The most shared memory of a block on device `index`, in bytes, with the opt-in."""
        device = self._call("cuDeviceGet", what, index)
        limit = self._api.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        return self._call("cuDeviceGetAttribute", what, limit, device)

    def load(self, context: int, image: bytes, symbol: str, parameters: int, what: str) -> Function:
        """Load a cubin into `context`, which is current, find the kernel `symbol` in it, and ask for the
        sizes of its first `parameters`.
        """
        module = self._call("cuModuleLoadData", what, image)  # the driver copies the image
        handle = self._call("cuModuleGetFunction", what, module, symbol.encode())
        # Not lazily, at a launch: that may be inside the capture of a graph.
        loaded = self._if_there("cuFuncLoad", handle)
        if loaded and loaded[0]:
            raise self.error(loaded[0], "cuFuncLoad", what)
        return Function(
            handle=handle,
            context=context,
            max_threads=self._attribute(handle, "MAX_THREADS_PER_BLOCK", what),
            registers=self._attribute(handle, "NUM_REGS", what),
            local_bytes=self._attribute(handle, "LOCAL_SIZE_BYTES", what),
            static_shared_bytes=self._attribute(handle, "SHARED_SIZE_BYTES", what),
            parameter_bytes=self._parameters(handle, parameters),
        )

    def allow_shared(self, function: Function, dynamic_bytes: int, what: str) -> None:
        """Let the function be launched with this much dynamic shared memory, beyond the 48 KiB that need no
        asking. Such a kernel keeps its data there, so L1 gives up what it can.
        """
        for name, value in (
            ("MAX_DYNAMIC_SHARED_SIZE_BYTES", dynamic_bytes),
            ("PREFERRED_SHARED_MEMORY_CARVEOUT", ALL_SHARED),
        ):
            self._call("cuFuncSetAttribute", what, function.handle, self._named(name), value)

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
        status, current = self._get_current()
        if status:
            return status, "cuCtxGetCurrent"
        other = int(current) != function.context
        if other:
            (status,) = self._api.cuCtxPushCurrent(function.context)
            if status:
                return status, "cuCtxPushCurrent"
        try:
            (status,) = self._launch(function.handle, *grid, *block, shared_bytes, stream, parameters, 0)
        finally:
            if other:
                self._api.cuCtxPopCurrent()
        return status, "cuLaunchKernel" if status else ""

    def error(self, status: int, call: str, what: str) -> CudaError:
        """The error for a status that is not 0."""
        return CudaError(call, int(status), *self._describe(status), what)

    def _call(self, name: str, what: str, *arguments: Any) -> Any:
        """The result of a call, None if it has none. Raises CudaError."""
        status, *results = getattr(self._api, name)(*arguments)
        if status:
            raise self.error(status, name, what)
        return results[0] if results else None

    def _if_there(self, name: str, *arguments: Any) -> tuple[Any, ...] | None:
        """What a call of CUDA 12.4 or later returns, None where the driver is older."""
        try:
            return getattr(self._api, name)(*arguments)
        except RuntimeError:  # of cuda-bindings: the driver has no such function
            return None

    def _describe(self, status: int) -> tuple[str, str]:
        texts = []
        for describe in (self._api.cuGetErrorName, self._api.cuGetErrorString):
            failed, text = describe(status)
            texts.append("" if failed or text is None else text.decode(errors="replace"))
        return texts[0] or f"status {int(status)}", texts[1] or "the driver has no text for it"

    def _named(self, attribute: str) -> Any:
        return getattr(self._api.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{attribute}")

    def _attribute(self, function: Any, attribute: str, what: str) -> int:
        return self._call("cuFuncGetAttribute", what, self._named(attribute), function)

    def _parameters(self, function: Any, count: int) -> tuple[int, ...] | None:
        """Sizes of the first `count` parameters, fewer if there are; None before CUDA 12.4."""
        sizes: list[int] = []
        for index in range(count):
            found = self._if_there("cuFuncGetParamInfo", function, index)
            if found and found[0] == self._api.CUresult.CUDA_ERROR_INVALID_VALUE:
                break
            if not found or found[0]:
                return None
            sizes.append(found[2])
        return tuple(sizes)


_lock = threading.Lock()
_opened: Driver | None = None


def open_driver() -> Driver:
    """The driver of this machine, opened once. Raises MissingCuda, CudaError."""
    global _opened
    if _opened is None:
        with _lock:
            if _opened is None:
                _opened = _open()
    return _opened


def _open() -> Driver:
    try:
        from cuda.bindings import driver
    except ImportError as failure:
        raise MissingCuda("cuda-bindings", str(failure), "pip install kdsl[run]") from failure
    try:
        return Driver(driver)
    except RuntimeError as failure:
        if isinstance(failure, CudaError):
            raise
        remedy = "install the NVIDIA driver, version 525 or later"
        raise MissingCuda("CUDA driver", " ".join(str(failure).split()), remedy) from failure
