"""A small store of derived text in the user's cache folder.

Every entry carries the digest of its content, is written by rename, and is read only when the reader owns it.
A cache that cannot be read or written is no error: the work is done again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

VARIABLE = "KDSL_CACHE_DIR"


def folder() -> Path:
    """Where entries lie: `KDSL_CACHE_DIR`, else the user's cache folder."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen)
    import platformdirs

    return Path(platformdirs.user_cache_dir("kdsl", appauthor=False))


def digest(*parts: str) -> str:
    """A name for content: equal for equal parts, whatever their lengths."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        state.update(b"%d:" % len(data))
        state.update(data)
    return state.hexdigest()


def load(kind: str, key: str) -> str | None:
    """The stored text, or None when it is absent, damaged, or another user's."""
    try:
        path = folder() / f"{kind}-{key[:32]}"
        with open(path, "rb") as stream:
            if hasattr(os, "getuid") and os.fstat(stream.fileno()).st_uid != os.getuid():
                return None
            data = stream.read()
        head, _, body = data.partition(b"\n")
        if head.decode("ascii") != hashlib.sha256(body).hexdigest():
            return None
        return body.decode("utf-8")
    except (OSError, ValueError):
        return None


def save(kind: str, key: str, text: str) -> bool:
    """Store a text; False when the folder cannot be written."""
    try:
        import tempfile

        place = folder()
        place.mkdir(parents=True, exist_ok=True)
        body = text.encode("utf-8")
        handle, temporary = tempfile.mkstemp(dir=place, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(hashlib.sha256(body).hexdigest().encode("ascii") + b"\n" + body)
            os.replace(temporary, place / f"{kind}-{key[:32]}")
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        return True
    except (OSError, ValueError):
        return False
