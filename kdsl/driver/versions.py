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


def tool_lines(family: str) -> list[str]:
    from kdsl.lower.toolchain import cc

    lines = [f"{name} {found}" for name, found in versions().items()]
    if family == "cpu":
        compiler = cc.find()
        lines += [f"{compiler.name}: {compiler.version}", "flags " + " ".join(compiler.flags)]
    return lines
