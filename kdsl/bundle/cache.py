"""A cache of bundles in the user's cache folder, keyed by the content of everything that makes a bundle.

An entry appears by one rename and is checked whenever it is asked for; two builders of one key wait for each
other; the least recently used entries leave when the cache is over its bound. Where the folder cannot be
written, entries go to a temporary folder of this process, with a warning.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import attrs

from kdsl.bundle.errors import BundleError
from kdsl.bundle.load import read_bundle
from kdsl.bundle.lock import exclusive
from kdsl.bundle.write import sibling_folder

FOLDER_VARIABLE = "KDSL_CACHE_DIR"
SUFFIX = ".kdsb"
_LEFTOVER_SECONDS = 24 * 3600.0
_log = logging.getLogger("kdsl.bundle.cache")


@attrs.define(slots=False)
class CacheKeyError(BundleError, ValueError):
    """A key that is no sha256 in hex."""

    found: str

    def __str__(self) -> str:
        return (
            f"cache key: found {self.found!r}; needed 64 hexadecimal digits; "
            "pass the sha256 of everything that makes the bundle"
        )


def default_root() -> Path:
    """KDSL_CACHE_DIR if it is set, else `bundles` in the user's cache folder for kdsl."""
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        return Path(given)
    import platformdirs  # a machine that only loads bundles needs no cache, and may lack this

    return platformdirs.user_cache_path("kdsl", appauthor=False) / "bundles"


@attrs.frozen
class Cache:
    """Bundles by key (sha256 in hex of everything that makes a bundle).

    `root` is the folder; `largest` bounds the bytes of all entries together; an entry used within the last
    `spared` seconds is never evicted, because its user may be about to load it.
    """

    root: Path = attrs.field(factory=default_root, converter=Path)
    largest: int = 1 << 30
    spared: float = 60.0

    def get(self, key: str) -> Path | None:
        """The bundle of `key`, checked, or None. A damaged entry is removed and counts as absent."""
        _check_key(key)
        for root in (self.root, _overflow.get(self.root)):
            if root is not None and (path := _checked(root / (key + SUFFIX))) is not None:
                return path
        return None

    def put(self, key: str, build: Callable[[Path], None]) -> Path:
        """The bundle of `key`; if there is none, `build(path)` has to make it at `path`, which does not
        exist.

        Builders of one key wait for each other, and the later ones get the first one's bundle. Raises
        whatever `build` raises, and BundleError if what it made is not a whole bundle; the cache is unchanged
        then.
        """
        if (path := self.get(key)) is not None:
            return path
        root = _writable(self.root)
        with _locked(root / f".{key}.lock"):
            if (path := _checked(root / (key + SUFFIX))) is not None:
                return path
            target = root / (key + SUFFIX)
            with sibling_folder(target) as folder:
                made = folder / (key + SUFFIX)
                build(made)
                read_bundle(made)
                try:
                    made.rename(target)
                except OSError:
                    # Without working locks another builder may have been first: its bundle has the same key.
                    if _checked(target) is None:
                        raise
        self._evict(root, target)
        return target

    def _evict(self, root: Path, kept: Path) -> None:
        now = time.time()
        entries = []
        for path in _listed(root):
            with contextlib.suppress(OSError):
                used = path.stat().st_mtime
                if path.suffix == SUFFIX:
                    entries.append((used, path, _bytes_of(path)))
                elif path.suffix == ".tmp" and now - used > _LEFTOVER_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)
        total = sum(size for _, _, size in entries)
        for used, path, size in sorted(entries):
            if total <= self.largest:
                return
            if path != kept and now - used > self.spared:
                _log.info(
                    "%s: removed, %d bytes in all are beyond the bound of %d", path, total, self.largest
                )
                _remove(path)
                total -= size


_overflow: dict[Path, Path] = {}


def _check_key(key: str) -> None:
    if re.fullmatch(r"[0-9a-f]{64}", key) is None:
        raise CacheKeyError(key)


def _checked(path: Path) -> Path | None:
    try:
        if not path.is_dir():
            return None
        read_bundle(path)
    except BundleError as failure:
        _log.warning("cache entry dropped and to be built again: %s", failure)
        _remove(path)
        return None
    except OSError as failure:
        _log.warning("%s: cache entry that cannot be read (%s); built again", path, failure)
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return path


def _writable(root: Path) -> Path:
    """`root` if files can be made in it, else a temporary folder that this process keeps for `root`."""
    if root in _overflow:
        return _overflow[root]
    try:
        root.mkdir(parents=True, exist_ok=True)
        descriptor, probe = tempfile.mkstemp(prefix=".probe.", dir=root)
        os.close(descriptor)
        os.unlink(probe)
        return root
    except OSError as failure:
        folder = _temporary_root(os.getpid())
        _overflow[root] = folder
        _log.warning(
            "%s cannot be written (%s): bundles built now stay in %s and go with this process; "
            "to keep them, set %s to a folder that can be written",
            root, failure, folder, FOLDER_VARIABLE,
        )  # fmt: skip
        return folder


@lru_cache(maxsize=1)
def _temporary_root(process: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="kdsl-bundles-"))
    atexit.register(_remove_if_own, folder, process)
    return folder


def _remove_if_own(folder: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path):
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(exclusive(path))
        except OSError as failure:
            _log.warning("%s: no lock (%s); two builders may both build, one result is kept", path, failure)
        yield


def _listed(root: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(root.iterdir())
    return []


def _bytes_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _remove(path: Path) -> None:
    """Remove an entry so that nobody sees half of it."""
    with contextlib.suppress(OSError), sibling_folder(path) as folder:
        path.rename(folder / "dropped")
