"""A GPU that is none: tensors of the host that say they are on a device, and a driver that records its calls
and runs "kernels" compiled for the host.

A stand-in cubin is a shared library. Its kernel `symbol` is `void symbol(const unsigned *grid, void
**parameters)`, and `symbol_parameters` holds the number of parameters and their sizes.
"""

import ctypes
import types

import attrs
import torch
from cuda.bindings.driver import CUdevice_attribute, CUfunction_attribute, CUresult, CUstreamCaptureMode
from torch.overrides import TorchFunctionMode, resolve_name

from kdsl.bundle import manifest as m

WAITING = {"tolist", "item", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__", "nonzero"}
NOT_FOUND, INVALID_VALUE = 500, 1
NAMES = {1: "CUDA_ERROR_INVALID_VALUE", 209: "CUDA_ERROR_NO_BINARY_FOR_GPU", 500: "CUDA_ERROR_NOT_FOUND",
         700: "CUDA_ERROR_ILLEGAL_ADDRESS", 701: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}  # fmt: skip
# Results beside the status, where the runtime unpacks them.
RESULTS = {"cuCtxGetCurrent": 1, "cuFuncGetParamInfo": 2}
C_NAMES = {"stride": "int64_t", "size": "int64_t", "given": "int32_t"}
SCALARS = {"f32": "float", "i32": "int32_t", "i64": "int64_t"}


class Waited(AssertionError):
    """The host looked at memory of the device."""


class DeviceTensors(TorchFunctionMode):
    """Within it every tensor says it is on `cuda:index`, and to look at one's contents is an error."""

    def __init__(self, index=0):
        super().__init__()
        self.index = index

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function == torch.Tensor.device.__get__:
            return torch.device("cuda", self.index)
        name = (resolve_name(function) or "").rpartition(".")[2]
        if name in WAITING:
            raise Waited(name)
        if kwargs.get("device") is not None:
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)


class _Call:
    """One function of cuda.bindings.driver: a tuple of its status and its results."""

    def __init__(self, driver, name):
        self.driver, self.name = driver, name

    def __call__(self, *arguments):
        self.driver.calls.append((self.name, arguments))
        if self.name in self.driver.missing:
            raise RuntimeError(f'Function "{self.name}" not found')
        failure = self.driver.fail.get(self.name)
        if failure:
            return (CUresult(failure), *[None] * RESULTS.get(self.name, 0))
        status, *results = getattr(self.driver, f"_{self.name}")(*arguments)
        return (CUresult(status), *results)


class FakeDriver:
    """The functions of cuda.bindings.driver that the runtime calls, and its enumerations. `fail` maps a name to
    the status that it returns; while there is a `tape`, kernels are put on it and not run.
    """

    CUresult, CUfunction_attribute, CUdevice_attribute = CUresult, CUfunction_attribute, CUdevice_attribute
    CUstreamCaptureMode = CUstreamCaptureMode

    def __init__(self, folder, missing=()):
        self.folder, self.missing = folder, missing
        self.calls, self.launches, self.fail = [], [], {}
        self.attributes = {0: 1024, 1: 0, 3: 0, 4: 40}
        self.shared_limit = 227 << 10
        self.current = []
        self.mode = CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        self.objects = {}
        self.tape = None
        for name in [name[1:] for name in dir(type(self)) if name.startswith("_cu")]:
            setattr(self, name, _Call(self, name))

    def count(self, name):
        return sum(1 for called, _ in self.calls if called == name)

    def _handle(self, thing):
        handle = 0x1000 + 0x10 * len(self.objects)
        self.objects[handle] = thing
        return handle

    def _cuInit(self, flags):
        return (0,)

    def _cuDeviceGet(self, ordinal):
        return 0, ordinal

    def _cuDeviceGetAttribute(self, attribute, device):
        assert attribute == 97
        return 0, self.shared_limit

    def _cuDevicePrimaryCtxRetain(self, device):
        return 0, 0xC0 + device

    def _cuCtxGetCurrent(self):
        return 0, self.current[-1] if self.current else 0

    def _cuCtxPushCurrent(self, context):
        self.current.append(context)
        return (0,)

    def _cuCtxPopCurrent(self):
        return 0, self.current.pop()

    def _cuThreadExchangeStreamCaptureMode(self, mode):
        before, self.mode = self.mode, mode
        return 0, before

    def _cuModuleLoadData(self, image):
        file = self.folder / f"module{len(self.objects)}.so"
        file.write_bytes(image)
        return 0, self._handle(ctypes.CDLL(str(file)))

    def _cuModuleGetFunction(self, module, symbol):
        library = self.objects[module]
        try:
            function = getattr(library, symbol.decode())
        except AttributeError:
            return NOT_FOUND, None
        sizes = (ctypes.c_int * 200).in_dll(library, f"{symbol.decode()}_parameters")
        function.sizes = list(sizes[1 : 1 + sizes[0]])
        return 0, self._handle(function)

    def _cuFuncLoad(self, function):
        return (0,)

    def _cuFuncGetAttribute(self, attribute, function):
        return 0, self.attributes[int(attribute)]

    def _cuFuncSetAttribute(self, function, attribute, value):
        return (0,)

    def _cuFuncGetParamInfo(self, function, index):
        sizes = self.objects[function].sizes
        return (0, 8 * index, sizes[index]) if index < len(sizes) else (INVALID_VALUE, None, None)

    def _cuLaunchKernel(self, function, *rest):
        grid, block, (shared, stream, parameters, _extra) = rest[:3], rest[3:6], rest[6:]
        self.launches.append(
            types.SimpleNamespace(
                grid=grid, block=block, shared=shared, stream=stream, context=self.current[-1]
            )
        )
        kernel = self.objects[function]
        pointers = (ctypes.c_void_p * len(kernel.sizes)).from_address(parameters)
        values = [ctypes.string_at(at, size) for at, size in zip(pointers, kernel.sizes, strict=True)]

        def run():
            held = [ctypes.create_string_buffer(value, len(value)) for value in values]
            kernel((ctypes.c_uint * 3)(*grid), (ctypes.c_void_p * len(held))(*map(ctypes.addressof, held)))

        if self.tape is None:
            run()
        else:
            self.tape.append(run)
        return (0,)

    def _cuGetErrorName(self, status):
        return 0, NAMES.get(int(status), "CUDA_ERROR_OTHER").encode()

    def _cuGetErrorString(self, status):
        return 0, b"what the driver says"


def kernel_text(source, symbol, arguments):
    """C of a stand-in cubin whose kernel calls `host_range` code: all tasks of a grid, in one call."""
    read, sizes = [], []
    for index, argument in enumerate(arguments):
        name = C_NAMES.get(argument.kind, "void *")
        if isinstance(argument, m.ScalarArgument):
            name = SCALARS[argument.dtype]
        read.append(f"*({name} *)p[{index}]")
        sizes.append("4" if name in ("int32_t", "float") else "8")
    return (
        f"{source}\nconst int {symbol}_cuda_parameters[200] = {{{len(sizes)}, {', '.join(sizes)}}};\n"
        f"void {symbol}_cuda(const unsigned *grid, void **p) {{\n"
        f"  {symbol}({', '.join(read)}, 0, (int64_t)grid[0] * grid[1] * grid[2]);\n}}\n"
    )


def as_cuda(variant, target="sm_90a", block=(32, 1, 1), shared_bytes=0, grid=None, **changes):
    """A variant of one host_range kernel as the same kernel launched through CUDA."""
    (kernel,) = variant.kernels
    kept = [a for a in kernel.arguments if not isinstance(a, m.GridBegin | m.GridEnd)]
    kernel = attrs.evolve(
        kernel, launch="cuda", symbol=f"{kernel.symbol}_cuda", arguments=kept, block=block,
        file=kernel.file.replace(".so", ".cubin"), shared_bytes=shared_bytes,
        grid={"x": kernel.grid["tasks"], "y": "1", "z": "1", **(grid or {})},
    )  # fmt: skip
    return attrs.evolve(variant, target=target, machine=None, kernels=[kernel], **changes)

