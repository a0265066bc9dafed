"""What holds of every manifest beyond the types of its fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kdsl.bundle import manifest as m
from kdsl.bundle.errors import ManifestError


def verify(manifest: m.Manifest) -> None:
    """Check a manifest's invariants. Raises ManifestError for the first that fails.

    Variant ids differ; kernels' files are listed; arguments name declared tensors and workspaces with their
    dtypes; a host_range kernel takes grid_begin and grid_end once each; nothing holds on unknown evidence.
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
    if kernel.launch == "host_range":
        kinds = Counter(argument.kind for argument in kernel.arguments)
        for kind in ("grid_begin", "grid_end"):
            if kinds[kind] != 1:
                raise ManifestError(
                    f"{path}.arguments", f"{kinds[kind]} arguments of kind {kind}", "exactly one"
                )


def _distinct(path: str, what: str, names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ManifestError(path, f"{count} times the {what} `{name}`", f"every {what} once")
