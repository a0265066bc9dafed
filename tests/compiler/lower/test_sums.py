"""Sums over channels for pairs of tokens read four channels at once: their condition stands outside of the loop."""

from __future__ import annotations

from collections import Counter

from kdsl.inspect.memory import access
from kdsl.inspect.sass import disassemble
from kdsl.lower.lowering import CUDA_OPTIONS, Lowering
from kdsl.lower.toolchain import nvcc

from ..workshop import plan, shipped


def test_gram_matrices_of_pairs_load_sixteen_bytes_a_lane():
    source = Lowering(plan(shipped(), "mma_any_gate", target="sm_90a", gate="softplus")).sources[0]
    lines = source.lines.lines("gram_kk_sum", "gram_qk_sum")
    objects = nvcc.compile(source.source, "sm_90a", CUDA_OPTIONS)
    (function,) = disassemble(objects.cubin).functions
    loads = Counter(
        found.width
        for instruction in function.instructions
        if any(place.file == nvcc.SOURCE_NAME and place.line in lines for place in instruction.places)
        and (found := access(instruction)) is not None
        and (found.space, found.kind) == ("shared", "load")
    )
    assert loads[16] >= 16 and loads[16] == sum(loads.values()), loads
