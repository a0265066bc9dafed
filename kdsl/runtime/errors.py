"""What can be wrong with a call. Every error says what was found, what was needed and what to do.

Not frozen: Python itself writes to an exception, and so does unpickling one.
"""

from __future__ import annotations

import attrs


@attrs.define(slots=False)
class ArgumentValueError(ValueError):
    """An argument of the right type whose shape, device, value or combination does not fit."""

    argument: str
    found: str
    needed: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.argument}: found {self.found}; needed {self.needed}; {self.remedy}"


@attrs.define(slots=False)
class ArgumentTypeError(TypeError):
    """An argument of the wrong type or dtype."""

    argument: str
    found: str
    needed: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.argument}: found {self.found}; needed {self.needed}; {self.remedy}"


@attrs.define(slots=False)
class LaunchError(RuntimeError):
    """A launch whose tensors, sizes, scalars or flags are not what the variant's kernels take."""

    variant: str
    argument: str
    found: str
    needed: str
    remedy: str

    def __str__(self) -> str:
        what = f"variant {self.variant}, {self.argument}"
        return f"{what}: found {self.found}; needed {self.needed}; {self.remedy}"


@attrs.define(slots=False)
class CudaError(RuntimeError):
    """A call of the CUDA driver that failed. `what` was being done; `name` and `text` are the driver's.

    Kernels run after the call that launches them has returned, so a call can also report what an earlier
    kernel did.
    """

    call: str
    status: int
    name: str
    text: str
    what: str

    @property
    def sticky(self) -> bool:
        """Whether the device's context is lost: every later call of this process fails too."""
        return self.name in _STICKY

    @property
    def remedy(self) -> str:
        """What to do."""
        if self.sticky:
            return (
                "this kernel or an earlier one did something illegal, and the process cannot use the device "
                "any more; find it with compute-sanitizer, or with CUDA_LAUNCH_BLOCKING=1"
            )
        return _REMEDIES.get(self.name, "check the driver's version and that the device is free")

    def __str__(self) -> str:
        return f"{self.what}: {self.call} returned {self.name} ({self.status}: {self.text}); {self.remedy}"


_STICKY = frozenset(
    f"CUDA_ERROR_{name}"
    for name in (
        "ILLEGAL_ADDRESS",
        "LAUNCH_TIMEOUT",
        "ASSERT",
        "HARDWARE_STACK_ERROR",
        "ILLEGAL_INSTRUCTION",
        "MISALIGNED_ADDRESS",
        "INVALID_ADDRESS_SPACE",
        "INVALID_PC",
        "LAUNCH_FAILED",
        "ECC_UNCORRECTABLE",
        "UNKNOWN",
    )
)
_OTHER_CODE = "build the bundle for this device with `kdsl lower --target`"
_REMEDIES = {
    "CUDA_ERROR_NO_BINARY_FOR_GPU": _OTHER_CODE,
    "CUDA_ERROR_INVALID_IMAGE": "the file is no cubin; rebuild the bundle with `kdsl lower`",
    "CUDA_ERROR_INVALID_SOURCE": "the file is no cubin; rebuild the bundle with `kdsl lower`",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "update the driver, or " + _OTHER_CODE,
    "CUDA_ERROR_NOT_FOUND": "the file lacks the kernel; rebuild the bundle with `kdsl lower`",
    "CUDA_ERROR_OUT_OF_MEMORY": "free memory of the device, or make the call smaller",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "the block needs more registers or shared memory than there are; "
    "rebuild the bundle with a smaller block",
    "CUDA_ERROR_INVALID_VALUE": "the device does not take this geometry; " + _OTHER_CODE,
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": "call once before the capture of the graph, and capture again",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": "call once before the capture of the graph, and capture again",
}


@attrs.define(slots=False)
class MissingCuda(RuntimeError):
    """Tensors on a GPU need the CUDA driver, and cuda-bindings to call it. `needed` is which of them is missing."""

    needed: str
    found: str
    remedy: str

    def __str__(self) -> str:
        return (
            f"found no {self.needed} ({self.found}); needed for tensors on a GPU; {self.remedy}, or move the "
            "tensors with .cpu()"
        )


@attrs.define(slots=False)
class MissingTorch(ImportError):
    """The functions on tensors need PyTorch."""

    found: str

    def __str__(self) -> str:
        return (
            f"found no PyTorch ({self.found}); needed torch for the tensor functions; pip install kdsl[run]"
        )


@attrs.define(slots=False)
class NoVariant(RuntimeError):
    """No variant takes the call. `refusals` has one line for each variant that was looked at."""

    request: str
    refusals: tuple[str, ...]
    remedy: str

    def __str__(self) -> str:
        if self.refusals:
            tried = "".join(f"\n  {line}" for line in self.refusals)
            return (
                f"no variant takes the call {self.request}; each variant and why not:{tried}\n{self.remedy}"
            )
        return f"no variant takes the call {self.request}: found no bundle; {self.remedy}"
