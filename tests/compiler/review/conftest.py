"""Without a CUDA compiler the tests of machine code are skipped, unless KDSL_REQUIRE_CUDA is set."""

from __future__ import annotations

import os

import pytest

from kdsl.lower.toolchain import cuda, nvcc
from kdsl.lower.toolchain.cc import ToolMissing


@pytest.fixture(scope="session")
def compiler():
    try:
        cuda.nvdisasm(), cuda.cuobjdump()
        return nvcc.find()
    except ToolMissing as missing:
        if os.environ.get("KDSL_REQUIRE_CUDA"):
            raise
        pytest.skip(str(missing))
