"""Read a bundle from disk and refuse whatever is not exactly what its manifest says.

The hashes guard against damage and mix-ups. They do not say who made the bundle: a bundle is code that will
run with the rights of this process, so use only bundles whose origin you trust.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path, PurePosixPath, PureWindowsPath

import attrs

from kdsl.bundle.codec import decode
from kdsl.bundle.errors import NotABundle, TamperedBundle, UnsafePath, WrongMachine
from kdsl.bundle.machine import Machine, shortfall, this_machine
from kdsl.bundle.manifest import MANIFEST_NAME, Manifest, Variant

LARGEST_MANIFEST = 16 << 20
_BLOCK = 1 << 20


@attrs.frozen
class Bundle:
    """A bundle whose files have been checked. `digest` is the sha256 of the manifest, which covers every
    file.
    """

    path: Path
    manifest: Manifest
    digest: str

    def file(self, name: str) -> Path:
        """Where a file of the manifest lies."""
        return self.path.joinpath(*PurePosixPath(name).parts)

    def variant(self, identity: str) -> Variant:
        """The variant of this id. Raises KeyError that lists the ids there are."""
        for variant in self.manifest.variants:
            if variant.id == identity:
                return variant
        ids = ", ".join(variant.id for variant in self.manifest.variants)
        raise KeyError(f"{self.path}: found no variant {identity}; needed one of {ids}")


def load_bundle(path: Path | str, here: Machine | None = None) -> Bundle:
    """Read the bundle at `path` and make sure that a variant of it runs on `here` (default: this machine).

    Raises what `read_bundle` raises, and WrongMachine with the reason for each variant.
    """
    bundle = read_bundle(path)
    here = this_machine() if here is None else here
    shortfalls = [(variant.id, shortfall(variant.machine, here)) for variant in bundle.manifest.variants]
    if all(reason for _, reason in shortfalls):
        reasons = tuple(f"variant {identity}: {reason}" for identity, reason in shortfalls)
        raise WrongMachine(str(bundle.path), reasons or ("found a bundle without variants",))
    return bundle


def read_bundle(path: Path | str) -> Bundle:
    """Read the bundle at `path` for any machine, checking every file.

    Raises NotABundle, ManifestError, UnsafePath (`..`, absolute names, symbolic links) or TamperedBundle
    (missing, extra and changed files, all of them).
    """
    path = Path(path).absolute()
    manifest_file = path / MANIFEST_NAME
    if not path.is_dir():
        raise NotABundle(str(path), "a file" if path.exists() else "nothing")
    present = _files_below(path)
    if MANIFEST_NAME not in present:
        raise NotABundle(str(path), "a folder without manifest.json")
    with manifest_file.open("rb") as stream:
        raw = stream.read(LARGEST_MANIFEST + 1)
    if len(raw) > LARGEST_MANIFEST:
        raise NotABundle(str(path), f"a manifest.json beyond {LARGEST_MANIFEST} bytes")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as failure:
        raise NotABundle(str(path), f"a manifest.json that is not UTF-8 ({failure})") from None
    manifest = decode(text)
    for name in manifest.files:
        check_name(path, name)
    _check_files(path, manifest, present - {MANIFEST_NAME})
    return Bundle(path, manifest, hashlib.sha256(raw).hexdigest())


def check_name(bundle: Path, name: str) -> None:
    """Raise UnsafePath unless `name` is a relative path with forward slashes that stays below the bundle."""
    parts = name.split("/")
    if PurePosixPath(name).is_absolute() or PureWindowsPath(name).anchor:
        raise UnsafePath(str(bundle), name, "an absolute path")
    if ".." in parts:
        raise UnsafePath(str(bundle), name, "a path with `..`")
    if "\\" in name or "\0" in name or "" in parts or "." in parts or name == MANIFEST_NAME:
        raise UnsafePath(str(bundle), name, "not a plain relative path of a file beside the manifest")


def _files_below(path: Path) -> set[str]:
    names: set[str] = set()

    def stop(failure: OSError) -> None:
        raise NotABundle(str(path), f"a folder that cannot be read ({failure.strerror})")

    for folder, folders, files in os.walk(path, onerror=stop):
        for name in (*folders, *files):
            entry = Path(folder, name)
            relative = entry.relative_to(path).as_posix()
            if entry.is_symlink():
                raise UnsafePath(str(path), relative, f"a symbolic link to {os.readlink(entry)}")
            if name in files:
                if not entry.is_file():
                    raise UnsafePath(str(path), relative, "no regular file")
                names.add(relative)
    return names


def _check_files(path: Path, manifest: Manifest, present: set[str]) -> None:
    changed = []
    for name, needed in manifest.files.items():
        if name in present:
            found = _sha256(path / name)
            if found != needed:
                changed.append((name, found, needed))
    missing = tuple(sorted(set(manifest.files) - present))
    extra = tuple(sorted(present - set(manifest.files)))
    if missing or extra or changed:
        raise TamperedBundle(str(path), missing, extra, tuple(changed))


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
