"""Where this machine's CUDA programs are: the wheels of the `cuda` extra, else CUDA_HOME, else PATH.

The wheels come first because they are pinned: the same source then gives the same machine code everywhere.
A compiler found elsewhere serves only where the extra is absent, and every result names the version that
made it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from attrs import field, frozen

from kdsl.lower.toolchain.cc import ToolMissing

PIP_LINE = "pip install 'kdsl[cuda]'"
WHEEL_ROOT = "nvidia/cu13"  # where NVIDIA's CUDA 13 wheels put their common tree
HOST_COMPILERS = ("g++", "clang++", "c++")
# What nvcc needs to turn a kernel into PTX, beside itself, and the wheel that holds it. cuda_fp16.h includes
# nv/target. A toolkit from elsewhere may spread its tree otherwise; it is taken as whole.
WHEEL_PARTS = (
    ("nvvm/bin/cicc", "nvidia-nvvm"),
    ("include/crt/host_config.h", "nvidia-cuda-crt"),
    ("include/cuda_runtime.h", "nvidia-cuda-runtime"),
    ("include/cccl/nv/target", "nvidia-cuda-cccl"),
)


@frozen
class Program:
    """One program: `version` as 13.0.88, `origin` one of "wheel", "CUDA_HOME" and "PATH"."""

    name: str
    path: str = field(repr=False)
    version: str
    origin: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@frozen
class Toolkit:
    """A CUDA tree that can compile: `root` holds bin/, nvvm/ and include/."""

    root: str = field(repr=False)
    nvcc: Program
    ptxas: Program


@frozen
class HostCompiler:
    """The C++ compiler that nvcc preprocesses with; `version` is its own first line, without paths."""

    path: str = field(repr=False)
    version: str


@lru_cache(maxsize=1)
def toolkit() -> Toolkit:
    """The CUDA compiler of this machine. Raises ToolMissing."""
    for root, origin in _roots("nvidia-cuda-nvcc", "nvcc"):
        if not (root / "bin/nvcc").is_file():
            continue
        for part, wheel in WHEEL_PARTS if origin == "wheel" else ():
            if not (root / part).exists():
                raise ToolMissing(f"{part} of the CUDA compiler", f"{PIP_LINE} ({wheel})")
        if not (root / "bin/ptxas").is_file():
            raise ToolMissing(f"ptxas beside the nvcc of {origin}", PIP_LINE)
        return Toolkit(str(root), _program("nvcc", root, origin), _program("ptxas", root, origin))
    raise ToolMissing("nvcc", f"{PIP_LINE}, or set CUDA_HOME")


@lru_cache(maxsize=1)
def nvdisasm() -> Program:
    """NVIDIA's disassembler. Raises ToolMissing."""
    return _alone("nvdisasm", "nvidia-cuda-nvdisasm")


@lru_cache(maxsize=1)
def cuobjdump() -> Program:
    """NVIDIA's reader of cubins. Raises ToolMissing."""
    return _alone("cuobjdump", "nvidia-cuda-cuobjdump")


@lru_cache(maxsize=1)
def host_compiler() -> HostCompiler:
    """NVCC_CCBIN, or the first C++ compiler on the path. Raises ToolMissing."""
    asked = os.environ.get("NVCC_CCBIN")
    for candidate in (asked,) if asked else HOST_COMPILERS:
        path = shutil.which(candidate)
        if path is not None:
            done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            return HostCompiler(path, done.stdout.partition("\n")[0].strip() or Path(path).name)
    remedy = "install g++ or clang++ (Debian: apt install g++), or set NVCC_CCBIN: nvcc preprocesses with it"
    raise ToolMissing(asked or "a C++ compiler", remedy)


def forget() -> None:
    """Look again at the next call: the environment has changed."""
    for cached in (toolkit, nvdisasm, cuobjdump, host_compiler):
        cached.cache_clear()


def _alone(name: str, wheel: str) -> Program:
    for root, origin in _roots(wheel, name):
        if (root / "bin" / name).is_file():
            return _program(name, root, origin)
    raise ToolMissing(name, f"{PIP_LINE} ({wheel})")


def _roots(wheel: str, name: str):
    """Trees that may hold bin/`name`, in order of preference."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        yield Path(str(importlib.metadata.distribution(wheel).locate_file(WHEEL_ROOT))), "wheel"
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]), "CUDA_HOME"
    found = shutil.which(name)
    if found is not None:
        yield _root_of(found), "PATH"


def _root_of(found: str) -> Path:
    """The tree of a program on the path: nvcc may be a script that starts another, so it is asked."""
    if Path(found).name == "nvcc":
        asked = [found, "--dryrun", "-ptx", "-x", "cu", os.devnull]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        here = re.search(r"^#\$ _HERE_=(.+)$", done.stderr + done.stdout, re.MULTILINE)
        if here is not None:
            return Path(here[1].strip()).resolve().parent
    return Path(found).resolve().parent.parent


def _program(name: str, root: Path, origin: str) -> Program:
    path = str(root / "bin" / name)
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    version = re.search(r"\bV(\d+\.\d+\.\d+)\b", done.stdout)
    return Program(name, path, version[1] if version else "unknown version", origin)
