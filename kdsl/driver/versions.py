"""The versions of everything that takes part in making code."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from kdsl import __version__


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


def compiler_of(family: str, arch: str = "sm_90a") -> tuple[str, tuple[str, ...]]:
    """The native compiler with its version, and its flags. Raises ToolMissing."""
    if family == "cuda":
        from kdsl.lower.lowering import CUDA_OPTIONS
        from kdsl.lower.toolchain import nvcc

        found = nvcc.find()
        return found.version, (*nvcc.front_flags(arch, CUDA_OPTIONS), *nvcc.back_flags(arch, CUDA_OPTIONS))
    from kdsl.lower.toolchain import cc

    compiler = cc.find()
    return f"{compiler.name}: {compiler.version}", compiler.flags


def compiler_lines(family: str) -> list[str]:
    name, flags = compiler_of(family)
    return [name, "flags " + " ".join(flags)]


def tool_lines(family: str) -> list[str]:
    return [*(f"{name} {found}" for name, found in versions().items()), *compiler_lines(family)]
