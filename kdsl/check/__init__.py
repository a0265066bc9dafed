"""The checker: names, types, units, laws, placement and contracts of `.kds` texts, without any compiler."""

from __future__ import annotations

import importlib

_HOME = {
    "CheckResult": "driver",
    "check_paths": "driver",
    "check_source": "driver",
}

__all__ = ["CheckResult", "check_paths", "check_source"]


def __getattr__(name: str):
    """Loaded on first use, so that `kdsl.check.model` alone stays light."""
    if name in _HOME:
        return getattr(importlib.import_module(f"kdsl.check.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
