"""Without the extra [lsp] there is no server to test."""

from __future__ import annotations

import importlib

try:
    importlib.import_module("pygls")
except ModuleNotFoundError:
    collect_ignore_glob = ["test_*.py"]
