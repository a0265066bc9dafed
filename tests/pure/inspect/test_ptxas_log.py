"""The ptxas log on fixed text: registers, spills, shared memory, warnings with and without a code."""

from __future__ import annotations

import pytest

from kdsl.inspect.overlap import injected_waits
from kdsl.lower.toolchain.ptxas import parse

LOG = """
kernel.cu(52): warning #177-D: function "f" was declared but never referenced
ptxas info    : 0 bytes gmem, 16 bytes cmem[4]
ptxas info    : Compiling entry function 'plain' for 'sm_80'
ptxas info    : Function properties for plain
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 145 registers, used 4 barriers, 400 bytes smem, 440 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Compile time = 105.514 ms
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to wgmma \
pipeline crossing function boundary at a function call in the function 'spilling'
ptxas info    : Compiling entry function 'spilling' for 'sm_90a'
ptxas info    : Function properties for spilling
    608 bytes stack frame, 372 bytes spill stores, 440 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 608 bytes cumulative stack size
ptxas info    : Function properties for _Z6calleev
    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas kernel.ptx, line 33; warning : Value of threads per SM for entry plain is out of range
ptxas info    : (C7517) warpgroup.wait is injected in around line 341 by compiler to allow use of \
registers defined by GMMA in function 'spilling'
ptxas info    : (C7519) warpgroup.arrive is injected in around line 341 by compiler to allow use of \
registers in GMMA in function 'spilling'
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine \
register count at entry.
"""


def test_use_of_each_function():
    log = parse(LOG)
    plain, spilling = log.of("plain"), log.of("spilling")
    assert (plain.registers, plain.barriers, plain.static_shared) == (145, 4, 400)
    assert plain.constant == ((0, 440), (2, 8))
    assert (plain.spill_stores, plain.spill_loads, plain.stack) == (0, 0, 0)
    assert (spilling.spill_stores, spilling.spill_loads, spilling.stack) == (372, 440, 608)
    callee = log.functions[2]
    assert not callee.entry and callee.stack == 16
    with pytest.raises(KeyError, match="plain, spilling"):
        log.of("_Z6calleev")


def test_messages_keep_code_text_and_place():
    messages = parse(LOG).messages
    assert [m.code for m in messages] == ["C7510", None, "C7517", "C7519", "C7508"]
    crossing, range_of_threads, injected, _, ignored = messages
    assert crossing.function == "spilling" and "serialized" in crossing.text
    assert (range_of_threads.level, range_of_threads.line) == ("warning", 33)
    assert injected.line == 341 and injected.function == "spilling"
    assert "setmaxnreg" in str(ignored)


def test_waits_that_ptxas_injected():
    log = parse(LOG)
    assert [m.code for m in injected_waits(log, "spilling")] == ["C7510", "C7517"]
    assert injected_waits(log, "plain") == ()


def test_a_new_code_is_known_by_its_text():
    text = "ptxas info    : (C7999) Potential Performance Loss: "
    text += "wgmma.mma_async instructions are serialized due to something new"
    assert parse(text).messages[0].waits


def test_an_empty_log_has_nothing():
    assert parse("").functions == () and parse("").messages == ()
