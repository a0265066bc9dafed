"""Compiled programs, by content: in this process, and as files in the user's cache folder."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from kdsl.lower.toolchain import cc
from kdsl.source import cache

FLAGS = ("-x", "c", "-std=gnu17", "-fPIC", "-fvisibility=hidden", "-fno-builtin", "-w", "-Wno-psabi", "-c")
LIGHT = ("-Og",)  # of programs: `-O1` takes twice as long to compile and runs no faster
HEAVY = ("-O2",)  # of what all programs call
GCC = ("-fira-region=one",)  # half the compilation of long functions
CORES = 2
KEPT = 600  # files in the cache folder, objects of kernels and libraries; the oldest go first
BUILDING = threading.Lock()  # of the tables below
_locks: dict[str, threading.Lock] = {}  # one for each text: two threads that want it compile it once
_begun: dict[tuple[str, tuple[str, ...]], Future] = {}
_meanwhile = ThreadPoolExecutor(1)


@lru_cache(maxsize=256)
def load(parts: tuple[str, ...], runtime: str = "", copy: int = 0) -> ctypes.CDLL:
    """The shared library of a program's C texts and of the runtime's, which programs share. Each `copy` has variables
    of its own, so that threads can run one each. Raises ToolMissing or CompilerFailed."""
    content = image(parts, runtime)
    with tempfile.TemporaryDirectory(prefix="kdsl-prove-") as folder:
        file = Path(folder, f"program{copy}.so")
        file.write_bytes(content)
        return ctypes.CDLL(str(file))


def image(parts: tuple[str, ...], runtime: str) -> bytes:
    """The library as a file's content, compiled once: the parts side by side, then linked."""
    compiler = cc.find()

    def linked(folder: Path) -> None:
        texts = [(part, LIGHT) for part in parts] + [(runtime, HEAVY)] * bool(runtime)
        with ThreadPoolExecutor(CORES) as workers:
            objects = list(workers.map(lambda each: object_of(*each), texts))
        names = [f"part{number}.o" for number in range(len(objects))]
        for name, content in zip(names, objects, strict=True):
            (folder / name).write_bytes(content)
        _run(compiler, ["-shared", *names, "-lm"], folder)

    flags = (*LIGHT, *HEAVY, *_flags(compiler))
    return _once(cache.digest("library", *parts, runtime, compiler.name, compiler.version, *flags), linked)


def begin(text: str, level: tuple[str, ...] = LIGHT) -> None:
    """Have a text compiled meanwhile, one after the other: another core is at work with what comes next. What goes
    wrong is told where the object is asked for."""
    with BUILDING:
        if (text, level) not in _begun:
            _begun[text, level] = _meanwhile.submit(_compiled, text, level)


def forget() -> None:
    """Begin no more of what was asked for: nobody waits for it."""
    with BUILDING:
        for future in _begun.values():
            future.cancel()
        _begun.clear()


def object_of(text: str, level: tuple[str, ...] = LIGHT) -> bytes:
    """One C text compiled, as a file's content."""
    with BUILDING:
        future = _begun.pop((text, level), None)
    return _compiled(text, level) if future is None or future.cancel() else future.result()


def _compiled(text: str, level: tuple[str, ...]) -> bytes:
    compiler = cc.find()
    flags = (*level, *_flags(compiler))

    def make(folder: Path) -> None:
        (folder / "text.c").write_text(text, encoding="utf-8")
        _run(compiler, [*flags, "text.c"], folder)

    return _once(cache.digest("object", text, compiler.name, compiler.version, *flags), make)


def _flags(compiler: cc.CCompiler) -> tuple[str, ...]:
    return (*FLAGS, *(() if "clang" in compiler.version.lower() else GCC))


def _once(key: str, make: Callable[[Path], None]) -> bytes:
    """What `make` leaves in a folder as `out`, from the cache if it is there."""
    with BUILDING:
        lock = _locks.setdefault(key, threading.Lock())
    with lock:
        content = _stored(key)
        if content is None:
            with tempfile.TemporaryDirectory(prefix="kdsl-prove-") as folder:
                make(Path(folder))
                content = Path(folder, "out").read_bytes()
            _store(key, content)
    return content


def _run(compiler: cc.CCompiler, arguments: list[str], folder: Path) -> None:
    command = [compiler.path, *arguments, "-o", "out"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise cc.CompilerFailed(" ".join([compiler.name, *command[1:]]), done.stderr.strip()[:4000])


def _folder() -> Path:
    return cache.folder() / "prove"


def _stored(key: str) -> bytes | None:
    """The object of this key if it is this user's and whole: its name carries the digest of its content."""
    try:
        for path in _folder().glob(f"{key[:32]}-*.so"):
            content = path.read_bytes()
            own = not hasattr(os, "getuid") or path.stat().st_uid == os.getuid()
            if own and path.stem.partition("-")[2] == cache.digest(content.hex())[:32]:
                return content
    except OSError:
        pass
    return None


def _store(key: str, content: bytes) -> None:
    """Keep an object; a cache that cannot be written is no error."""
    with contextlib.suppress(OSError):
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".new-")
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.replace(temporary, folder / f"{key[:32]}-{cache.digest(content.hex())[:32]}.so")
        kept = sorted(folder.glob("*.so"), key=lambda p: p.stat().st_mtime)
        for old in kept[:-KEPT]:
            old.unlink(missing_ok=True)
