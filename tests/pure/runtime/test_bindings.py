"""The calls of the driver through cuda-bindings itself, with a libcuda that records them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a stand-in for libcuda.so.1")
TEXT = Path(__file__).with_name("libcuda.c").read_text(encoding="utf-8")
CALLS = """
import struct, ctypes
from kdsl.runtime.cuda_driver import open_driver
from kdsl.runtime.errors import CudaError
driver = open_driver()
context = driver.context(1)
with driver.current(context, "test"), driver.allowed_while_capturing("test"):
    function = driver.load(context, b"\\x7fELF and more", "kernel", 5, "loading")
    driver.allow_shared(function, 70000, "test")
    try:
        driver.load(context, b"\\x7fELF", "absent", 0, "loading")
    except CudaError as failure:
        print(failure.status, failure.call)
print(function.max_threads, function.registers, function.local_bytes, function.static_shared_bytes)
print(function.parameter_bytes, driver.shared_limit(1, "test"), flush=True)
memory = ctypes.create_string_buffer(32)
base = ctypes.addressof(memory)
struct.pack_into("=qi4xQQ", memory, 0, 2**40, -7, base, base + 8)
status, call = driver.launch(function, (4, 5, 6), (32, 4, 1), 70000, 0x5001, base + 16)
print(int(status), repr(call), flush=True)
status, call = driver.launch(function, (101, 1, 1), (32, 1, 1), 0, 0, base + 16)
print(driver.error(status, call, "launching"))
"""
SEEN = """mode 2
set 8 70000
set 9 100
500 cuModuleGetFunction
mode 0
256 260 259 257
(8, 4) 232448
launch 0x2 grid 4 5 6 block 32 4 1 shared 70000 stream 0x5001 context 0xc1: 1099511627776 -7 (nil)
0 ''
launch 0x2 grid 101 1 1 block 32 1 1 shared 0 stream (nil) context 0xc1: 1099511627776 -7 (nil)
launching: cuLaunchKernel returned CUDA_ERROR_ILLEGAL_ADDRESS (700: what the driver says); this kernel or an earlier \
one did something illegal, and the process cannot use the device any more; find it with compute-sanitizer, or with \
CUDA_LAUNCH_BLOCKING=1
"""


def run(folder: Path):
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True, env=environment, check=False)


def test_every_call_reaches_the_driver_as_it_is_meant(tmp_path, gcc):
    (tmp_path / "libcuda.so.1").write_bytes(gcc(TEXT, "-Wno-unused-parameter").read_bytes())
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(SEEN.splitlines())
