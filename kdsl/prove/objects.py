"""Compiled programs, by content: in this process, and as files in the user's cache folder."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import tempfile
import threading
from functools import lru_cache
from pathlib import Path

from kdsl.lower.toolchain import cc
from kdsl.source import cache

FLAGS = ("-x", "c", "-std=gnu17", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-builtin", "-w")
LIGHT = ("-Og",)
HEAVY = ("-Og", "-DRUN_FAST")  # operations in line; `-O1` takes twice as long to compile and runs no faster
GCC = ("-fira-region=one",)  # half the compilation of long functions
KEPT = 200  # object files in the cache folder; the oldest go first
BUILDING = threading.Lock()  # of the table below
_locks: dict[str, threading.Lock] = {}  # one for each text: two threads that want it compile it once


@lru_cache(maxsize=256)
def load(source: str, level: tuple[str, ...] = HEAVY, copy: int = 0) -> ctypes.CDLL:
    """The shared library of a C text, optimised as `level` says. Each `copy` has variables of its own, so that
    threads can run one each. Raises ToolMissing or CompilerFailed."""
    content = image(source, level)
    with tempfile.TemporaryDirectory(prefix="kdsl-prove-") as folder:
        file = Path(folder, f"program{copy}.so")
        file.write_bytes(content)
        return ctypes.CDLL(str(file))


def image(source: str, level: tuple[str, ...] = HEAVY) -> bytes:
    """The library as a file's content, compiled once."""
    compiler = cc.find()
    flags = (*level, *FLAGS, *(() if "clang" in compiler.version.lower() else GCC))
    key = cache.digest(source, compiler.name, compiler.version, *flags)
    with BUILDING:
        lock = _locks.setdefault(key, threading.Lock())
    with lock:
        content = _stored(key)
        if content is None:
            with tempfile.TemporaryDirectory(prefix="kdsl-prove-") as folder:
                content = _compile(compiler, source, flags, Path(folder)).read_bytes()
            _store(key, content)
    return content


def _compile(compiler, source: str, flags: tuple[str, ...], folder: Path) -> Path:
    (folder / "program.c").write_text(source, encoding="utf-8")
    command = [compiler.path, *flags, "program.c", "-o", "program.so", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise cc.CompilerFailed(" ".join([compiler.name, *command[1:]]), done.stderr.strip()[:4000])
    return folder / "program.so"


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
