"""The C++ compiler of this machine, and what it made, kept in the user's cache folder by content."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from attrs import frozen

from kdsl.emulate.assembly import DEVICE
from kdsl.emulate.refusal import CannotEmulate, Refusal
from kdsl.source import cache

RUNTIME = DEVICE.parent / "runtime"
CANDIDATES = ("g++", "clang++", "c++")
# `-ffp-contract=off` and no vectorised reductions: a product and a sum round where the CUDA text says so.
FLAGS = (
    "-std=c++20", "-w", "-fno-strict-aliasing", "-ffp-contract=off", "-fno-exceptions", "-fno-rtti",
    "-fvisibility=hidden", "-U_FORTIFY_SOURCE",
    # Threads are coroutines: `longjmp` goes from stack to stack, which a shadow stack would forbid.
    *(("-fcf-protection=none",) if platform.machine() == "x86_64" else ()),
)  # fmt: skip
# Scalars that nobody wrote hold neither zeros by luck nor a value of an earlier use.
UNWRITTEN = "-ftrivial-auto-var-init=pattern"
LONG_TEXT = 500  # lines; beyond them compiling well takes longer than running slowly
LONGEST_SECONDS = 120
KEPT = 256  # entries of the cache folder; beyond that the oldest go
_MISSING = re.compile(r"[‘'`\"](\w+)[’'`\"] was not declared|undeclared identifier '(\w+)'")
_ERROR = re.compile(r"^kernel\.cu:(\d+):\d+: (?:fatal )?error: (.*)$", re.M)


@frozen
class Compiler:
    path: str
    version: str


@lru_cache(maxsize=1)
def find() -> Compiler:
    """$CXX, or the first C++ compiler on the path. Raises CannotEmulate."""
    asked = os.environ.get("CXX")
    for candidate in (asked,) if asked else CANDIDATES:
        path = shutil.which(candidate)
        if path:
            done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            return Compiler(path, (done.stdout.splitlines() or ["unknown version"])[0].strip())
    remedy = "install g++ 12 or clang++ 16 (Debian: apt install g++), or set CXX"
    raise CannotEmulate(Refusal(f"{asked or 'a C++ compiler'} is missing", remedy))


FIELD = ("-DKDSL_FIELD",)  # numbers are elements of finite fields: see device/field/cells.h


def runner(field: bool = False) -> Path:
    """The program that runs translated kernels, over numbers or over finite fields. Raises CannotEmulate."""
    files = sorted(RUNTIME.glob("*.cpp"))
    flags = (*FLAGS, "-O2", "-rdynamic", *(FIELD if field else ()))
    key = _key("runner", _headers(), *flags, *(file.read_text(encoding="utf-8") for file in files))

    def build(target: Path) -> None:
        # In one unit: the C++ library's headers, read once, are most of the work.
        whole = "".join(f'#include "{file}"\n' for file in files)
        (target.parent / "runner.cpp").write_text(whole, encoding="utf-8")
        _run([*flags, "runner.cpp", "-o", str(target), "-ldl"], target.parent)

    return _kept(f"runner-{key}", build)


def library(source: str, arch: int, field: bool = False) -> Path:
    """A translated kernel as a shared library for `runner(field)`; `arch` is `__CUDA_ARCH__`. Raises CannotEmulate."""
    level = "-O2" if source.count("\n") < LONG_TEXT else "-O1"
    flags = (*FLAGS, UNWRITTEN, level, "-fPIC", "-shared", f"-D__CUDA_ARCH__={arch}", *(FIELD if field else ()))
    key = _key("kernel", _headers(), *flags, source)

    def build(target: Path) -> None:
        (target.parent / "kernel.cpp").write_text(source, encoding="utf-8")
        places = [f"-I{DEVICE}", f"-I{DEVICE / 'stand_in'}"]
        if shutil.which("ld") and os.uname().sysname == "Darwin":
            places += ["-undefined", "dynamic_lookup"]
        _run([*flags, *places, "kernel.cpp", "-o", str(target)], target.parent)

    return _kept(f"kernel-{key}.so", build)


@lru_cache(maxsize=1)
def _headers() -> str:
    files = sorted([*DEVICE.rglob("*.h"), *RUNTIME.glob("*.h")])
    return cache.digest(*(file.read_text(encoding="utf-8") for file in files))


def _key(*parts: str) -> str:
    return cache.digest(find().version, *parts)[:32]


def _run(arguments: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            [find().path, *arguments], cwd=folder, capture_output=True, text=True, check=False,
            timeout=LONGEST_SECONDS, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise CannotEmulate(Refusal(f"the C++ compiler took more than {LONGEST_SECONDS} s")) from None
    if done.returncode:
        raise CannotEmulate(_refusal(done.stderr))


def _refusal(errors: str) -> Refusal:
    """The compiler's first complaint, as the name of what the emulator does not have."""
    found = _ERROR.search(errors)
    if found is None:
        return Refusal(f"the C++ compiler failed: {errors.strip()[:1000]}")
    line, message = int(found[1]), found[2]
    missing = _MISSING.search(message)
    if missing:
        return Refusal(
            f"`{missing[1] or missing[2]}`", "kdsl/emulate/device has no function or type of that name", line
        )
    return Refusal(f"C++ that does not compile: {message}", line=line)


def _kept(name: str, build) -> Path:
    """The entry `name` of the cache folder, built there if it is not there yet."""
    place = _folder()
    entry = place / name
    with contextlib.suppress(OSError):
        if entry.stat().st_uid == os.getuid():
            os.utime(entry)
            return entry
    with tempfile.TemporaryDirectory(prefix="building-", dir=place) as folder:
        made = Path(folder, name)
        build(made)
        os.replace(made, entry)
    _evict(place, entry)
    return entry


@lru_cache(maxsize=8)
def _writable(place: Path) -> Path:
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return place
    except OSError:
        own = Path(tempfile.gettempdir()) / f"kdsl-emulators-{os.getuid()}"
        own.mkdir(mode=0o700, exist_ok=True)
        if own.stat().st_uid != os.getuid():
            raise CannotEmulate(
                Refusal(f"no folder for compiled emulators: {own} is another user's")
            ) from None
        return own


def _folder() -> Path:
    return _writable(cache.folder() / "emulators")


def _evict(place: Path, kept: Path) -> None:
    with contextlib.suppress(OSError):
        entries = sorted(
            (e for e in place.iterdir() if e.is_file()), key=lambda e: e.stat().st_mtime, reverse=True
        )
        for entry in entries[KEPT:]:
            if entry != kept:
                entry.unlink(missing_ok=True)
