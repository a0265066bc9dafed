"""A variant made ready to run, and its launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from kdsl.bundle import manifest as m
from kdsl.bundle.expression import Expression, parse_number
from kdsl.bundle.load import Bundle
from kdsl.runtime.errors import LaunchError
from kdsl.runtime.frame import Frame
from kdsl.runtime.launchers import LAUNCHERS, Memory
from kdsl.runtime.tensor import TensorView
from kdsl.runtime.threads import thread_count


@attrs.frozen(eq=False)
class Program:
    """A variant whose code is at hand.

    `device` is the type of device it runs on; `tensors` has (name, dtype, optional) for every tensor; `sizes`
    and `scalars` are the names a launch needs; `allocate(bytes, device)` takes memory for its workspaces.
    """

    bundle: Bundle
    variant: m.Variant
    device: str
    tensors: tuple[tuple[str, str, bool], ...]
    sizes: frozenset[str]
    scalars: frozenset[str]
    workspaces: tuple[tuple[str, Expression], ...]
    allocate: Callable[[int, str], Memory]
    kernels: tuple[Callable[[Frame], None], ...]


def open_variant(bundle: Bundle, variant: m.Variant) -> Program:
    """Make a variant of `bundle` ready to run. Raises LaunchError if a file cannot be read, or if a library
    does not load or lacks its symbol.
    """
    ways = [LAUNCHERS[kernel.launch] for kernel in variant.kernels]
    optional = variant.optional_tensors
    workspaces = tuple((buffer.name, parse_number(buffer.bytes)) for buffer in variant.workspace)
    grids = [parse_number(text) for kernel in variant.kernels for text in kernel.grid.values()]
    arguments = [argument for kernel in variant.kernels for argument in kernel.arguments]
    names = {argument.name for argument in arguments if isinstance(argument, m.SizeArgument)}
    return Program(
        bundle=bundle,
        variant=variant,
        device=ways[0].device,
        tensors=tuple((name, dtype, name in optional) for name, dtype in variant.tensors.items()),
        sizes=frozenset(names).union(*(size.names for size in (*grids, *(size for _, size in workspaces)))),
        scalars=frozenset(argument.name for argument in arguments if isinstance(argument, m.ScalarArgument)),
        workspaces=workspaces,
        allocate=ways[0].allocate,
        kernels=tuple(
            way.prepare(bundle.file(kernel.file), kernel)
            for way, kernel in zip(ways, variant.kernels, strict=True)
        ),
    )


# Bytes that workspaces start at multiples of: a line of a cache, and more than any access is wide.
APART = 256


def launch(
    program: Program,
    tensors: Mapping[str, TensorView],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
    given: Mapping[str, bool] | None = None,
    threads: int | None = None,
) -> None:
    """Run all kernels of a variant in order: on the host and wait for them, or enqueue them on PyTorch's
    current stream of the tensors' GPU.

    `tensors` has the tensors that are given, inputs and outputs alike; `given`, if passed, has to say the
    same of the optional ones. `threads` of the host defaults to KDSL_THREADS, else the CPUs of this process.
    The shapes are the caller's word: a kernel reads what `sizes` and the strides say. Raises LaunchError,
    ExpressionError; for a GPU also CudaError, MissingCuda and torch.OutOfMemoryError.
    """
    device = _check(program, tensors, sizes, scalars, given)
    places, total = {}, 0
    for name, size in program.workspaces:
        places[name] = total
        total += -(-_bytes(program, name, size, sizes) // APART) * APART
    memory = program.allocate(total, device) if places else None  # one piece for all: an allocation costs microseconds
    try:
        addresses = {name: memory.address + place for name, place in places.items()}  # none without memory
        workers = thread_count() if threads is None and program.device == "cpu" else threads or 1
        frame = Frame(tensors, sizes, scalars, addresses, device, workers)
        for kernel in program.kernels:
            kernel(frame)
    finally:
        if memory is not None:
            memory.free()


def _bytes(program: Program, name: str, size: Expression, sizes: Mapping[str, int]) -> int:
    value = size.evaluate(sizes)
    if value < 0:
        raise LaunchError(
            program.variant.id,
            f"workspace {name}",
            f"{value} bytes",
            "0 or more",
            "check the sizes of the call",
        )
    return value


def _check(
    program: Program,
    tensors: Mapping[str, TensorView],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
    given: Mapping[str, bool] | None,
) -> str:
    """Check a launch against the program and return the device that its tensors are on."""
    seen, device = 0, ""
    for name, dtype, optional in program.tensors:
        view = tensors.get(name)
        if view is None:
            if not optional or name in tensors:
                raise LaunchError(program.variant.id, name, "no tensor", f"a {dtype} tensor", "give it")
        else:
            seen += 1
            if view.dtype != dtype:
                raise LaunchError(
                    program.variant.id, name, view.dtype, dtype, "convert it or pick another variant"
                )
            if view.device != device:
                if device or view.device.partition(":")[0] != program.device:
                    needed = f"{device}, where the others are" if device else program.device
                    raise LaunchError(
                        program.variant.id, name, f"device {view.device}", needed, "move it there"
                    )
                device = view.device
        if optional and given is not None and bool(given.get(name)) != (view is not None):
            raise LaunchError(
                program.variant.id,
                name,
                f"the flag given = {given.get(name)} and {'a' if view is not None else 'no'} tensor",
                "a flag that says whether the tensor is there",
                "pass both or neither",
            )
    if seen < len(tensors):
        known = {name for name, _, _ in program.tensors}
        extra = ", ".join(name for name in tensors if name not in known)
        raise LaunchError(program.variant.id, extra, "a tensor", "none of this name", "leave it out")
    for what, needed, have in (("size", program.sizes, sizes), ("scalar", program.scalars, scalars)):
        if not needed <= have.keys():
            missing = ", ".join(sorted(needed - have.keys()))
            raise LaunchError(program.variant.id, missing, f"no {what}", f"a {what} of this name", "give it")
    return device or program.device
