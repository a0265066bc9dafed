"""CUDA kernels of these tests, compiled once a session.

Without a CUDA compiler the tests are skipped with the reason, unless KDSL_REQUIRE_CUDA is set.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kdsl.check.library import load
from kdsl.lower.toolchain import cuda, nvcc
from kdsl.lower.toolchain.cc import ToolMissing

KERNELS = Path(__file__).parent / "kernels"


@pytest.fixture(scope="session")
def compiler() -> nvcc.Nvcc:
    try:
        cuda.nvdisasm(), cuda.cuobjdump()
        return nvcc.find()
    except ToolMissing as missing:
        if os.environ.get("KDSL_REQUIRE_CUDA"):
            raise
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def compiled(compiler):
    """`compiled(name, arch, **options)`: the objects of kernels/NAME.cu."""
    made = {}

    def compile(name: str, arch: str, **options) -> nvcc.CudaObjects:
        key = (name, arch, tuple(sorted(options.items())))
        if key not in made:
            made[key] = compiler.compile(source(name), arch, nvcc.Options(**options))
        return made[key]

    return compile


@pytest.fixture(scope="session")
def targets():
    return load().targets


def source(name: str) -> str:
    return (KERNELS / f"{name}.cu").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def line_of():
    """`line_of(name, mark)`: the line of kernels/NAME.cu with that mark."""

    def find(name: str, mark: str) -> int:
        return next(n for n, line in enumerate(source(name).splitlines(), 1) if mark in line)

    return find


@pytest.fixture(scope="session")
def text_of():
    return source
