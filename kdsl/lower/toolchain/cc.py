"""The C compiler of this machine: found, named with its version, asked for a shared library."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from attrs import field, frozen

from kdsl.bundle.machine import Machine, this_machine

CANDIDATES = ("cc", "gcc", "clang", "g++", "clang++")
BASE_FLAGS = (
    "-x", "c", "-std=gnu17", "-O3", "-fPIC", "-shared", "-fno-strict-aliasing", "-ffp-contract=fast", "-fno-math-errno",
    "-fvisibility=hidden", "-ffile-prefix-map=.=", "-w",
)  # fmt: skip
# The level of the x86-64 psABI that has AVX2 and FMA, with what a CPU must list for it.
X86_64_V3 = ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "abm", "xsave")


@frozen
class ToolMissing(Exception):
    """A program that a stage needs is not on this machine."""

    tool: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.tool} is missing: {self.remedy}"


@frozen
class CompilerFailed(Exception):
    """The compiler refused generated code: a fault of kdsl, never of the rule."""

    command: str
    output: str = field(repr=False)

    def __str__(self) -> str:
        return f"`{self.command}` failed on generated code:\n{self.output}"


@frozen
class CCompiler:
    """`name` and `version` without paths, for manifests; `flags` in order; `machine` what its code needs."""

    path: str
    name: str
    version: str
    flags: tuple[str, ...]
    machine: Machine


@lru_cache(maxsize=1)
def find() -> CCompiler:
    """$CC, or the first C compiler on the path. Raises ToolMissing."""
    asked = os.environ.get("CC")
    for candidate in (asked,) if asked else CANDIDATES:
        path = shutil.which(candidate)
        if path is not None:
            level, features = _level(this_machine())
            machine = Machine(this_machine().system, this_machine().arch, features)
            return CCompiler(path, Path(candidate).name, _version(path), BASE_FLAGS + level, machine)
    raise ToolMissing(asked or "a C compiler", "install gcc or clang (Debian: apt install build-essential), or set CC")


def _level(machine: Machine) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if machine.arch != "x86_64":
        return (), ()
    if set(X86_64_V3) <= set(machine.features):
        return ("-march=x86-64-v3",), X86_64_V3
    return ("-march=x86-64",), ()


@lru_cache(maxsize=4)
def _version(path: str) -> str:
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[0].strip() if done.stdout else "unknown version"


def shared_library(source: str) -> bytes:
    """The source as a shared library. Raises ToolMissing or CompilerFailed."""
    compiler = find()
    with tempfile.TemporaryDirectory(prefix="kdsl-") as folder:
        Path(folder, "kernel.c").write_text(source, encoding="utf-8")
        command = [compiler.path, *compiler.flags, "kernel.c", "-o", "kernel.so", "-lm"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompilerFailed(" ".join([compiler.name, *command[1:]]), done.stderr.strip()[:4000])
        return Path(folder, "kernel.so").read_bytes()
