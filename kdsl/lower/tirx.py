"""A TIRx function to the CUDA that TVM generates for it: programs with warp roles, mbarriers and wgmma, which are
written for the threads they run on and have no schedule."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from attrs import field, frozen

from kdsl.lower.cuda import plain_source
from kdsl.lower.tvm import TvmTarget, structural_walk, t_transform, tirx, tvm

PIPELINE = "tirx"
AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")
LAUNCH, SHARED = "tirx.kernel_launch_params", "tirx.use_dyn_shared_memory"


@frozen
class TirxSource:
    """CUDA of one TIRx function. `parameters` in the order of the device function: a name, and whether it points to a
    buffer. `launch` has the TIR expressions of blocks and threads along `AXES`, and of bytes of shared memory."""

    symbol: str
    source: str = field(repr=False)
    parameters: tuple[tuple[str, bool], ...]
    launch: Mapping[str, object] = field(repr=False)

    def extents(self) -> tuple[object, ...]:
        return tuple(self.launch.get(axis, 1) for axis in AXES)

    @property
    def shared_bytes(self) -> int:
        return int(self.launch.get(SHARED, 0))


def tirx_source(func, arch: str) -> TirxSource:
    """The text of a TIRx function for `arch` (as nvcc names it: sm_90a)."""
    target = TvmTarget({"kind": "cuda", "arch": arch}, host="llvm")
    build = importlib.import_module(f"{tirx.__name__}.build")
    passes, _, finish = tirx.get_tir_pipeline(PIPELINE)
    module = passes(t_transform.BindTarget(target)(tvm.IRModule({str(func.attrs["global_symbol"]): func})))
    host, devices = build.split_host_device_mods(module)
    (device,) = devices.values()
    device = finish()(device)
    (lowered,) = device.functions.values()
    symbol = str(lowered.attrs["global_symbol"])
    source = tvm.get_global_func("target.build.cuda")(device, target).inspect_source()
    parameters = tuple((str(p.name).removesuffix("_ptr"), str(p.name).endswith("_ptr")) for p in lowered.params)
    return TirxSource(symbol, plain_source(source, symbol), parameters, launch_of(host, lowered, symbol))


def launch_of(host, lowered, symbol: str) -> dict[str, object]:
    """What the host passes on at the launch: the last arguments of its call, named by the kernel's attribute."""
    names = [str(name) for name in lowered.attrs[LAUNCH]]
    calls: list = []

    def visit(node) -> None:
        arguments = getattr(node, "args", None)
        if arguments and str(getattr(arguments[0], "value", "")) == symbol:
            calls.append(arguments)

    for func in host.functions.values():
        structural_walk(func.body, visit)
    (arguments,) = calls
    return dict(zip(names, list(arguments)[-len(names) :], strict=True))
