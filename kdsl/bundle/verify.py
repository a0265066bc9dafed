"""What holds of every manifest beyond the types of its fields."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable

from kdsl.bundle import manifest as m
from kdsl.bundle.errors import ManifestError

# What every CUDA GPU takes (CUDA C++ Programming Guide, technical specifications per compute capability).
LARGEST_BLOCK = (1024, 1024, 64)
MOST_THREADS = 1024
# PyTorch's allocator aligns to 512 bytes; no access of a kernel is wider than a line of 128.
LARGEST_ALIGNMENT = 128


def verify(manifest: m.Manifest) -> None:
    """Check a manifest's invariants. Raises ManifestError for the first that fails.

    Variant ids differ; kernels' files are listed; arguments name declared tensors and workspaces with their
    dtypes; all kernels of a variant launch in one way; a host_range kernel takes grid_begin and grid_end once
    each; a cuda kernel takes neither, has a block that fits every GPU and a variant for an architecture;
    layout demands name tensors of the variant; nothing holds on unknown evidence.
    """
    _distinct("$.variants", "variant id", (variant.id for variant in manifest.variants))
    for index, variant in enumerate(manifest.variants):
        path = f"$.variants[{index}]"
        if not variant.kernels:
            raise ManifestError(f"{path}.kernels", "no kernel", "one kernel or more")
        _distinct(f"{path}.kernels", "kernel name", (kernel.name for kernel in variant.kernels))
        _distinct(f"{path}.workspace", "workspace name", (buffer.name for buffer in variant.workspace))
        for position, kernel in enumerate(variant.kernels):
            _verify_kernel(f"{path}.kernels[{position}]", kernel, variant, manifest)
        _verify_launch(path, variant)
        _verify_layout(path, variant)
        for position, verdict in enumerate(variant.verdicts):
            if verdict.verdict == "holds" and verdict.evidence == "unknown":
                raise ManifestError(
                    f"{path}.verdicts[{position}]",
                    "the verdict holds with evidence unknown",
                    "evidence for a verdict that holds, or the verdict unknown",
                )


def _verify_kernel(path: str, kernel: m.Kernel, variant: m.Variant, manifest: m.Manifest) -> None:
    if kernel.file not in manifest.files:
        raise ManifestError(f"{path}.file", f"`{kernel.file}`", "a file of $.files")
    buffers = {buffer.name for buffer in variant.workspace}
    tensors = {argument.name for argument in kernel.arguments if isinstance(argument, m.TensorArgument)}
    for position, argument in enumerate(kernel.arguments):
        place = f"{path}.arguments[{position}]"
        if isinstance(argument, m.TensorArgument) and variant.dtypes.get(argument.name) != argument.dtype:
            declared = variant.dtypes.get(argument.name, "nothing")
            raise ManifestError(
                place,
                f"{argument.name} as {argument.dtype} and {declared} in the variant's dtypes",
                "the same dtype in both",
            )
        if isinstance(argument, m.WorkspaceArgument) and argument.name not in buffers:
            raise ManifestError(place, f"`{argument.name}`", "a workspace of the variant")
        if isinstance(argument, m.StrideArgument) and argument.tensor not in tensors:
            raise ManifestError(place, f"a stride of `{argument.tensor}`", "a tensor argument of this kernel")
    kinds = Counter(argument.kind for argument in kernel.arguments)
    times, needed = (1, "exactly one") if kernel.launch == "host_range" else (0, "none for this launch")
    for kind in ("grid_begin", "grid_end"):
        if kinds[kind] != times:
            raise ManifestError(f"{path}.arguments", f"{kinds[kind]} arguments of kind {kind}", needed)
    if kernel.launch == "cuda":
        _verify_block(f"{path}.block", kernel.block)
    elif kernel.block is not None or kernel.shared_bytes:
        raise ManifestError(path, "a block or shared memory", f"neither for the launch {kernel.launch}")


def _verify_block(path: str, block: tuple[int, ...] | None) -> None:
    needed = f"threads along x, y and z, each 1 or more, at most {LARGEST_BLOCK}, {MOST_THREADS} in all"
    if block is None or len(block) != 3:
        raise ManifestError(path, "nothing" if block is None else f"{len(block)} numbers", needed)
    fits = all(1 <= extent <= most for extent, most in zip(block, LARGEST_BLOCK, strict=True))
    if not fits or math.prod(block) > MOST_THREADS:
        raise ManifestError(path, str(list(block)), needed)


def _verify_launch(path: str, variant: m.Variant) -> None:
    ways = sorted({kernel.launch for kernel in variant.kernels})
    if len(ways) > 1:
        raise ManifestError(f"{path}.kernels", f"launches {' and '.join(ways)}", "one way of launching")
    if ways == ["cuda"]:
        if re.fullmatch(m.CUDA_TARGET, variant.target) is None:
            raise ManifestError(f"{path}.target", f"`{variant.target}`", "an architecture such as sm_90a")
    elif variant.machine is None:
        raise ManifestError(f"{path}.machine", "null", "the machine that code for a host needs")


def _verify_layout(path: str, variant: m.Variant) -> None:
    tensors = variant.tensors
    _distinct(f"{path}.unit_stride", "tensor", variant.unit_stride)
    _distinct(f"{path}.dense", "tensor", variant.dense)
    for key in ("unit_stride", "dense", "alignment"):
        for name in getattr(variant, key):
            if name not in tensors:
                raise ManifestError(f"{path}.{key}", f"`{name}`", "a tensor that its kernels take")
    for name, size in variant.alignment.items():
        if size < 1 or size & (size - 1) or size > LARGEST_ALIGNMENT:
            needed = f"a power of two of bytes, at most {LARGEST_ALIGNMENT}"
            raise ManifestError(f"{path}.alignment.{name}", str(size), needed)


def _distinct(path: str, what: str, names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ManifestError(path, f"{count} times the {what} `{name}`", f"every {what} once")
