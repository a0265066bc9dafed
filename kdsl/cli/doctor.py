"""`kdsl doctor`: what of this machine kdsl can use, what is missing or not as pinned, and how to get it."""

from __future__ import annotations

import ctypes
import json
import platform
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

import click
from attrs import asdict, frozen

OK, DIFFERS, MISSING, ABSENT = "ok", "differs", "missing", "none"
MARKS = {OK: "ok", DIFFERS: "differs", MISSING: "missing", ABSENT: "-"}
STYLES = {OK: "green", DIFFERS: "yellow", MISSING: "red", ABSENT: None}
EXIT_DIFFERS, EXIT_MISSING = 1, 3
OLDEST, NEWEST = (3, 10), (3, 14)  # the Pythons from, and before, which kdsl is tested
PURPOSES = {
    "check": "check, fmt, explain, select, test", "compile": "lower for the CPU, prove",
    "cuda": "lower for NVIDIA GPUs",
    "run": "kernels from PyTorch", "lsp": "editors",
}  # fmt: skip
REQUIREMENT = re.compile(r"([\w.-]+)\s*(?:<[^,;]*,)?\s*(==|>=)\s*([^;,\s]+)[^;]*(?:;(?:.*\s)?extra == '([^']+)')?")


@frozen
class Finding:
    """One thing that kdsl uses: `found` is its version, `wanted` the pin, `remedy` how to get it."""

    purpose: str
    name: str
    status: str
    found: str = ""
    wanted: str = ""
    remedy: str = ""


@click.command()
@click.argument("purposes", nargs=-1, type=click.Choice(tuple(PURPOSES)))
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True)
def doctor(purposes: tuple[str, ...], form: str) -> None:
    """Look at Python, packages, compilers, CUDA tools and the GPU; name PURPOSES to look at these alone.

    Imports no compiler. Exit: 0 all there, 1 a version other than pinned, 3 something is missing. A GPU may
    be missing: all but running on it works without.
    """
    found = [finding for finding in examine() if not purposes or finding.purpose in purposes]
    if form == "json":
        click.echo(json.dumps({"schema": 1, "findings": [asdict(finding) for finding in found]}, indent=2))
    else:
        click.echo(text(found), nl=False)
    states = {finding.status for finding in found}
    sys.exit(EXIT_MISSING if MISSING in states else EXIT_DIFFERS if DIFFERS in states else 0)


def examine() -> Iterator[Finding]:
    """Every finding, purpose by purpose."""
    yield python()
    yield from packages("check", None)
    yield cache()
    yield from packages("compile", "compile")
    yield c_compiler()
    yield from packages("cuda", "cuda", optional=("nvidia-",))
    yield from cuda_tools()
    yield from packages("run", "run")
    yield gpu()
    yield from packages("lsp", "lsp")


def text(found: list[Finding]) -> str:
    """One line each, the remedy below what needs one."""
    lines, purpose = [], None
    width = max((len(finding.name) for finding in found), default=0)
    for finding in found:
        if finding.purpose != purpose:
            purpose = finding.purpose
            lines += ([""] if lines else []) + [f"{purpose} ({PURPOSES[purpose]})"]
        mark = click.style(MARKS[finding.status].ljust(7), fg=STYLES[finding.status])
        wanted = (
            f", wanted {finding.wanted}" if finding.status in (DIFFERS, MISSING) and finding.wanted else ""
        )
        lines.append(f"  {mark}  {finding.name.ljust(width)}  {finding.found}{wanted}".rstrip())
        if finding.remedy and finding.status != OK:
            lines.append(f"{' ' * (13 + width)}{finding.remedy}")
    bad = sum(finding.status in (DIFFERS, MISSING) for finding in found)
    return "\n".join([*lines, "", f"{bad} to mend" if bad else "all there"]) + "\n"


# ---- Python and packages ----


def python() -> Finding:
    found = sys.version_info[:2]
    wanted = f">= {'.'.join(map(str, OLDEST))}, < {'.'.join(map(str, NEWEST))}"
    status = OK if OLDEST <= found < NEWEST else DIFFERS
    return Finding("check", "Python", status, f"{platform.python_version()} on {platform.machine()}", wanted,
                   "make a virtual environment with a Python that kdsl is tested on")  # fmt: skip


def packages(purpose: str, extra: str | None, optional: tuple[str, ...] = ()) -> Iterator[Finding]:
    """The packages of an extra against its pins. `optional` ones may come from elsewhere."""
    for line in requires("kdsl") or ():
        match = REQUIREMENT.match(line)
        if match is None or match[4] != extra:
            continue
        name, sign, wanted, _ = match.groups()
        remedy = f'pip install "kdsl[{extra}]"' if extra else "pip install --force-reinstall kdsl"
        try:
            found = version(name)
        except PackageNotFoundError:
            status = ABSENT if name.startswith(optional or ("\0",)) else MISSING
            yield Finding(purpose, name, status, "not installed", f"{sign}{wanted}", remedy)
            continue
        fits = found.partition("+")[0] == wanted if sign == "==" else release(found) >= release(wanted)
        yield Finding(purpose, name, OK if fits else DIFFERS, found, f"{sign}{wanted}", remedy)


def release(text: str) -> tuple[int, ...]:
    """The numbers of a version, for comparison."""
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:4])


def cache() -> Finding:
    """The folder for derived files: kdsl works without, slower."""
    import os

    from kdsl.source.cache import VARIABLE, folder

    place = folder()
    known = next((parent for parent in (place, *place.parents) if parent.exists()), None)
    if known is not None and os.access(known, os.W_OK):
        return Finding("check", "cache folder", OK, "can be written")
    return Finding("check", "cache folder", DIFFERS, "cannot be written", "a folder to keep derived files in",
                   f"set {VARIABLE} to a folder of yours")  # fmt: skip


# ---- programs ----


def c_compiler() -> Finding:
    from kdsl.lower.toolchain import cc

    try:
        found = cc.find()
    except cc.ToolMissing as missing:
        return Finding("compile", "C compiler", MISSING, "not found", "gcc or clang", missing.remedy)
    return Finding("compile", "C compiler", OK, f"{found.name}: {found.version}")


def cuda_tools() -> Iterator[Finding]:
    """nvcc with ptxas, the disassemblers and the C++ compiler that nvcc needs."""
    from kdsl.lower.toolchain import cuda
    from kdsl.lower.toolchain.cc import ToolMissing

    looks = (
        (
            "nvcc, ptxas",
            lambda: f"{(kit := cuda.toolkit()).nvcc.version}, {kit.ptxas.version} ({kit.nvcc.origin})",
        ),
        ("cuobjdump", lambda: str(cuda.cuobjdump().version)),
        ("nvdisasm", lambda: str(cuda.nvdisasm().version)),
        ("C++ compiler", lambda: str(cuda.host_compiler().version)),
    )
    for name, look in looks:
        try:
            yield Finding("cuda", name, OK, look())
        except ToolMissing as missing:
            yield Finding("cuda", name, MISSING, "not found", "", missing.remedy)


# ---- GPU ----


def gpu() -> Finding:
    """The GPUs that the driver lists, with the targets that fit them."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return Finding(
            "run", "GPU", ABSENT, "no NVIDIA driver", "", "rules still check, lower, emulate and prove"
        )
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return Finding(
            "run", "GPU", ABSENT, "a driver and no GPU", "", "rules still check, lower, emulate and prove"
        )
    return Finding("run", "GPU", OK, "; ".join(device(driver, index) for index in range(count.value)))


def device(driver, index: int) -> str:
    """`NVIDIA H200 (sm_90, target sm_90a)`."""
    handle, name = ctypes.c_int(), ctypes.create_string_buffer(128)
    driver.cuDeviceGet(ctypes.byref(handle), index)
    driver.cuDeviceGetName(name, len(name), handle)
    numbers = []
    for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle)
        numbers.append(value.value)
    arch = f"sm_{numbers[0]}{numbers[1]}"
    return f"{name.value.decode('utf-8', 'replace')} ({arch}, {fitting(arch)})"


def fitting(arch: str) -> str:
    from kdsl.check.library import load

    found = [target for target in load().targets if target.rstrip("af") == arch]
    return f"target {', '.join(found)}" if found else "no target describes it: kdsl new target"
