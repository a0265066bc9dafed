"""A GPU that is none: tensors of the host that say they are on a device, and a driver that records its calls
and runs "kernels" compiled for the host.

A stand-in cubin is a shared library. Its kernel `symbol` is `void symbol(const unsigned *grid, void
**parameters)`, and `symbol_parameters` holds the number of parameters and their sizes.
"""

import ctypes
import types

import attrs
import torch
from torch.overrides import TorchFunctionMode, resolve_name

from kdsl.bundle import manifest as m

WAITING = {"tolist", "item", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__", "nonzero"}
NOT_FOUND, INVALID_VALUE = 500, 1
NAMES = {1: "CUDA_ERROR_INVALID_VALUE", 209: "CUDA_ERROR_NO_BINARY_FOR_GPU", 500: "CUDA_ERROR_NOT_FOUND",
         700: "CUDA_ERROR_ILLEGAL_ADDRESS", 701: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}  # fmt: skip
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
    """One function of the library: callable, and with attributes as ctypes sets them."""

    def __init__(self, library, name):
        self.library, self.name = library, name

    def __call__(self, *arguments):
        self.library.calls.append((self.name, arguments))
        return self.library.fail.get(self.name) or getattr(self.library, f"_{self.name}")(*arguments)


class FakeLibrary:
    """The functions of libcuda that the runtime calls. `fail` maps a name to the status that it returns;
    while there is a `tape`, kernels are put on it and not run.
    """

    def __init__(self, folder, optional=True):
        self.folder = folder
        self.calls, self.launches, self.fail = [], [], {}
        self.attributes = {0: 1024, 1: 0, 3: 0, 4: 40}
        self.shared_limit = 227 << 10
        self.current = []
        self.objects = {}
        self.tape = None
        names = [name[1:] for name in dir(type(self)) if name.startswith("_cu")]
        for name in names:
            if optional or name not in ("cuFuncGetParamInfo", "cuFuncLoad"):
                setattr(self, name, _Call(self, name))

    def count(self, name):
        return sum(1 for called, _ in self.calls if called == name)

    def _handle(self, thing):
        handle = 0x1000 + 0x10 * len(self.objects)
        self.objects[handle] = thing
        return handle

    def _cuInit(self, flags):
        return 0

    def _cuDeviceGet(self, out, ordinal):
        out._obj.value = ordinal
        return 0

    def _cuDeviceGetAttribute(self, out, attribute, device):
        assert attribute == 97
        out._obj.value = self.shared_limit
        return 0

    def _cuDevicePrimaryCtxRetain(self, out, device):
        out._obj.value = 0xC0 + device
        return 0

    def _cuCtxGetCurrent(self, out):
        out._obj.value = self.current[-1] if self.current else None
        return 0

    def _cuCtxPushCurrent_v2(self, context):
        self.current.append(context)
        return 0

    def _cuCtxPopCurrent_v2(self, out):
        out._obj.value = self.current.pop()
        return 0

    def _cuThreadExchangeStreamCaptureMode(self, mode):
        mode._obj.value = 2 - mode._obj.value
        return 0

    def _cuModuleLoadData(self, out, image):
        file = self.folder / f"module{len(self.objects)}.so"
        file.write_bytes(image.raw[:-1])
        out._obj.value = self._handle(ctypes.CDLL(str(file)))
        return 0

    def _cuModuleGetFunction(self, out, module, symbol):
        library = self.objects[module.value]
        try:
            function = getattr(library, symbol.decode())
        except AttributeError:
            return NOT_FOUND
        sizes = (ctypes.c_int * 200).in_dll(library, f"{symbol.decode()}_parameters")
        function.sizes = list(sizes[1 : 1 + sizes[0]])
        out._obj.value = self._handle(function)
        return 0

    def _cuFuncLoad(self, function):
        return 0

    def _cuFuncGetAttribute(self, out, attribute, function):
        out._obj.value = self.attributes[attribute]
        return 0

    def _cuFuncSetAttribute(self, function, attribute, value):
        return 0

    def _cuFuncGetParamInfo(self, function, index, offset, size):
        sizes = self.objects[function].sizes
        if index >= len(sizes):
            return INVALID_VALUE
        size._obj.value = sizes[index]
        return 0

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
        return 0

    def _cuGetErrorName(self, status, out):
        out._obj.value = NAMES.get(status, "CUDA_ERROR_OTHER").encode()
        return 0

    def _cuGetErrorString(self, status, out):
        out._obj.value = b"what the driver says"
        return 0


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

