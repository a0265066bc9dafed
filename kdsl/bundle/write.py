"""Write a bundle: all files into a sibling folder, then one rename, so that a reader sees a whole bundle or
none.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from kdsl.bundle.codec import encode
from kdsl.bundle.errors import BundleExists
from kdsl.bundle.load import check_name
from kdsl.bundle.manifest import MANIFEST_NAME, Manifest


def write_bundle(
    path: Path | str, manifest: Manifest, files: Mapping[str, Path | bytes], *, replace: bool = False
) -> Path:
    """Write `manifest` and `files` (relative name to content, or to a file to copy) as the bundle at `path`.

    The manifest's `files` are set to the sha256 of what is written. Returns `path`. Raises BundleExists if
    there is something at `path` and `replace` is false; UnsafePath for a name that leaves the bundle;
    ManifestError; OSError. With `replace` an existing bundle is moved aside first: a reader may for a moment
    see none.
    """
    path = Path(path)
    contents = {
        name: content if isinstance(content, bytes) else content.read_bytes()
        for name, content in files.items()
    }
    for name in contents:
        check_name(path, name)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    text = encode(attrs.evolve(manifest, files=hashes))
    if path.exists() and not replace:
        raise BundleExists(str(path))
    with sibling_folder(path) as folder:
        whole = folder / "new"
        for name, content in contents.items():
            file = whole / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        whole.mkdir(exist_ok=True)
        (whole / MANIFEST_NAME).write_text(text, encoding="utf-8", newline="\n")
        if replace and path.exists():
            path.rename(folder / "old")
        try:
            whole.rename(path)
        except OSError as failure:
            if not path.exists():
                raise
            raise BundleExists(str(path)) from failure
    return path


@contextlib.contextmanager
def sibling_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path`, on the same file system, gone afterwards."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name[:40]}.", suffix=".tmp", dir=path.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
