"""CUDA C++ as PTX and a cubin, on a machine that needs neither a GPU nor a CUDA driver.

nvcc makes the PTX and ptxas the cubin, as two commands: between them every path of this machine is taken
out of the line table and out of the module's internal names, so that equal sources give equal bytes in any
folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from attrs import field, frozen

from kdsl.lower.toolchain import cuda
from kdsl.lower.toolchain.cc import CompilerFailed, ToolMissing
from kdsl.lower.toolchain.ptxas import PtxasLog, parse

SOURCE_NAME = "kernel.cu"
# 177: the preamble of generated code declares functions that this kernel may not call.
NVCC_FLAGS = ("-std=c++17", "-O3", "-diag-suppress=177", "-allow-unsupported-compiler")
# Variables that would change what is compiled behind the back of the flags that a result records.
UNSET = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
# How nvcc spells the way to its headers: from its own folder, and in a full toolkit through one for the host.
BELOW_ROOT = ("/bin/..//", "/bin/../", "/")
HEADER_TREES = ("targets/x86_64-linux/", "targets/sbsa-linux/", "")
UNKNOWN_ARCH = ("Unsupported gpu architecture", "is not defined for option 'gpu-name'")
_ARCH = re.compile(r"sm_(\d+[af]?)")
_FILE = re.compile(r'^(\s*\.file\s+\d+\s+)"([^"]*)"(?:,\s*\d+,\s*\d+)?', re.MULTILINE)
# Internal names hold a hash of the source's path: _INTERNAL_87507a3b_9_kernel_cu_93d9faa0. They stand in
# the text and, as bytes, in the strings of the line table.
_MODULE_ID = re.compile(r"_[0-9a-f]{8}_9_kernel_cu_")
_STRING = re.compile(r"^(\$L__info_string\d+:\n)((?:\.b8 [\d,]+\n)+)", re.MULTILINE)


@frozen
class Options:
    """How to compile: `max_registers` caps registers per thread (ptxas spills beyond it), `line_info` keeps
    the way from an instruction back to a `#line`, `defines` are macros, `ptxas` further flags of ptxas."""

    line_info: bool = True
    max_registers: int | None = None
    fast_math: bool = False
    defines: tuple[str, ...] = ()
    ptxas: tuple[str, ...] = ()


@frozen
class CudaObjects:
    """One source compiled for one architecture. `flags` are nvcc's, then ptxas'; `version` names both."""

    arch: str
    ptx: str = field(repr=False)
    cubin: bytes = field(repr=False)
    log: PtxasLog = field(repr=False)
    flags: tuple[str, ...]
    version: str
    host: str

    @property
    def warnings(self):
        """Warnings of ptxas and its coded advisories, in the order it gave them."""
        return self.log.messages


@frozen
class Nvcc:
    """The CUDA compiler of this machine with the C++ compiler it preprocesses with."""

    toolkit: cuda.Toolkit
    host: cuda.HostCompiler

    @property
    def version(self) -> str:
        return f"{self.toolkit.nvcc}, {self.toolkit.ptxas}"

    def compile(self, source: str, arch: str, options: Options | None = None) -> CudaObjects:
        """PTX and cubin of the source for `arch` (sm_90a). Raises CompilerFailed, or ToolMissing for an
        architecture that this nvcc does not know."""
        options = options or Options()
        front, back = front_flags(arch, options), back_flags(arch, options)
        with tempfile.TemporaryDirectory(prefix="kdsl-") as name:
            folder, assembly = Path(name).resolve(), Path(name).resolve() / "ptx"
            assembly.mkdir()  # of its own: ptxas writes down the time stamps of sources that lie beside it
            Path(folder, SOURCE_NAME).write_text(source, encoding="utf-8")
            said = self._run(self.toolkit.nvcc, [*front, SOURCE_NAME, "-o", "raw.ptx"], folder, arch)
            raw = Path(folder, "raw.ptx").read_text(encoding="utf-8")
            ptx = without_paths(raw, source, self._places(folder))
            Path(assembly, "kernel.ptx").write_text(ptx, encoding="utf-8")
            said += self._run(self.toolkit.ptxas, [*back, "kernel.ptx", "-o", "kernel.cubin"], assembly, arch)
            cubin = Path(assembly, "kernel.cubin").read_bytes()
        flags = ("nvcc", *front, "ptxas", *back)
        return CudaObjects(arch, ptx, cubin, parse(said), flags, self.version, self.host.version)

    def _places(self, folder: Path) -> tuple[tuple[str, str], ...]:
        inside = (f"{self.toolkit.root}{middle}{part}" for part in HEADER_TREES for middle in BELOW_ROOT)
        return (*((place, "cuda/") for place in inside), (f"{folder}/", ""))

    def _run(self, program: cuda.Program, arguments: list[str], folder: Path, arch: str) -> str:
        environment = {name: value for name, value in os.environ.items() if name not in UNSET}
        environment |= {"TMPDIR": str(folder), "LC_ALL": "C"}
        host = ("-ccbin", self.host.path) if program.name == "nvcc" else ()
        done = subprocess.run(
            [program.path, *host, *arguments],
            cwd=folder, capture_output=True, text=True, errors="replace", check=False, env=environment,
        )  # fmt: skip
        said = done.stdout + done.stderr
        for place, name in self._places(folder):
            said = said.replace(place, name)
        if done.returncode == 0:
            return said
        if any(sign in said for sign in UNKNOWN_ARCH):
            raise ToolMissing(f"an nvcc that knows {arch}", f"{program} does not; {cuda.PIP_LINE}")
        raise CompilerFailed(" ".join([program.name, *arguments]), said.strip()[:4000])


@lru_cache(maxsize=1)
def find() -> Nvcc:
    """The wheel's nvcc, or that of CUDA_HOME, or the one on PATH. Raises ToolMissing."""
    return Nvcc(cuda.toolkit(), cuda.host_compiler())


def compile(source: str, arch: str, options: Options | None = None) -> CudaObjects:
    """`find().compile(...)`. Raises ToolMissing or CompilerFailed."""
    return find().compile(source, arch, options)


def front_flags(arch: str, options: Options) -> tuple[str, ...]:
    """Flags of nvcc, CUDA C++ to PTX."""
    number = _ARCH.fullmatch(arch)
    if number is None:
        raise ValueError(f"{arch!r} is no architecture; it is written as sm_90a")
    flags = [*NVCC_FLAGS, f"-gencode=arch=compute_{number[1]},code={arch}", "-ptx"]
    flags += ["-lineinfo"] * options.line_info + ["-use_fast_math"] * options.fast_math
    if options.max_registers is not None:
        flags.append(f"-maxrregcount={options.max_registers}")
    return (*flags, *(f"-D{define}" for define in options.defines))


def back_flags(arch: str, options: Options) -> tuple[str, ...]:
    """Flags of ptxas, PTX to cubin."""
    flags = [f"-arch={arch}", "-m64", "-O3", "-v"] + ["--generate-line-info"] * options.line_info
    if options.max_registers is not None:
        flags.append(f"--maxrregcount={options.max_registers}")
    return (*flags, *options.ptxas)


def without_paths(ptx: str, source: str, places: tuple[tuple[str, str], ...]) -> str:
    """The PTX with `places` of its `.file` names replaced and module names made of the source's hash."""

    def renamed(found: re.Match) -> str:
        name = found[2]
        for place, short in places:
            if name.startswith(place):
                name = short + name[len(place) :]
                break
        return f'{found[1]}"{name}"'

    digest = hashlib.sha256(source.encode()).hexdigest()
    module = f"_{digest[:8]}_9_kernel_cu_"
    ptx = _MODULE_ID.sub(module, _FILE.sub(renamed, ptx))
    return _STRING.sub(lambda found: found[1] + _string_with(found[2], module), ptx)


def _string_with(lines: str, module: str) -> str:
    """`.b8` lines of one string with its module name replaced by one of the same length."""
    rows = [[int(number) for number in line.removeprefix(".b8 ").split(",")] for line in lines.splitlines()]
    text = _MODULE_ID.sub(module, bytes(number for row in rows for number in row).decode("latin-1"))
    numbers = iter(text.encode("latin-1"))
    return "".join(".b8 " + ",".join(str(next(numbers)) for _ in row) + "\n" for row in rows)
