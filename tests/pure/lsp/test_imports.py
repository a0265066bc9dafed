"""The server starts without a compiler, and highlighting without pygls."""

from __future__ import annotations

import subprocess
import sys


def loaded(module: str) -> set[str]:
    code = f"import sys, {module}; print(' '.join(name.split('.')[0] for name in sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_the_server_imports_no_compiler():
    assert not {"tvm", "tvm_ffi", "torch", "numpy"} & loaded("kdsl.lsp.server")


def test_keywords_and_classes_need_no_pygls():
    assert not {"pygls", "lsprotocol"} & loaded("kdsl.lsp.classes")
