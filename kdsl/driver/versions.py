"""The versions of everything that takes part in making code."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from kdsl import __version__
from kdsl.check.model import Target


def package(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def versions() -> dict[str, str]:
    return {
        "kdsl": __version__, "python": platform.python_version(), "tvm": package("apache-tvm"),
        "tvm_ffi": package("apache-tvm-ffi"),
    }  # fmt: skip


def compiler_of(family: str, arch: str) -> tuple[str, tuple[str, ...]]:
    """The native compiler with its version, and its flags for `arch`, as the compiler calls it. Raises ToolMissing."""
    if family == "cuda":
        from kdsl.lower.lowering import CUDA_OPTIONS
        from kdsl.lower.toolchain import nvcc

        found = nvcc.find()
        return found.version, (*nvcc.front_flags(arch, CUDA_OPTIONS), *nvcc.back_flags(arch, CUDA_OPTIONS))
    from kdsl.lower.toolchain import cc

    compiler = cc.find()
    return f"{compiler.name}: {compiler.version}", compiler.flags


def compilers_of(targets: Iterable[Target]) -> tuple[str, tuple[str, ...]]:
    """The compiler of targets of one family, and the flags of all, each once in the order of their first use."""
    found = [compiler_of(target.family, str(target.fields["tool"])) for target in targets]
    return found[0][0], tuple(dict.fromkeys(flag for _, flags in found for flag in flags))


def compiler_lines(target: Target) -> list[str]:
    name, flags = compilers_of([target])
    return [name, "flags " + " ".join(flags)]


def tool_lines(target: Target) -> list[str]:
    return [*(f"{name} {found}" for name, found in versions().items()), *compiler_lines(target)]
