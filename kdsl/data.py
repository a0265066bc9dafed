"""Where the grammar, the standard library and the shipped rules lie: in a checkout or inside the wheel."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=1)
def data_root() -> Path:
    """The folder that holds `grammar/`, `stdlib/` and `rules/`."""
    package = Path(__file__).resolve().parent
    inside = package / "_data"
    return inside if (inside / "grammar").is_dir() else package.parent
