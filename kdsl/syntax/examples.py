"""A right line of every block, for messages that know no better help. A test parses each."""

from __future__ import annotations

LINES = {
    "sizes": "K in 16..256", "parameters": "C in [16, 32]", "inputs": "q : [B, T, K] of bf16, f32",
    "outputs": "o : [B, T, V] of like q", "options": "gate in [plain, bounded] default plain",
    "laws": "HV % H == 0", "indices": "n in B parallel", "define": "length(n) = cu[n + 1] - cu[n]",
    "views": "qx[d] = q[n, d]", "rounding": "u, w : bf16", "acceptance": "rms_error(o) <= 0.01",
    "part": "scale : y[d] = x[d] * 2.0", "either": "when split { ... }",
    "require": "K % 16 == 0 and V <= 256`, or `q, k : bf16, f16",
    "ensure": "spills == 0", "measure": "p95_latency <= 1 ms", "choose": "width in [8, 16] default 8",
    "form": "decay = factored", "grid": "x : n, h; y : e by 64", "roles": "math : 8 warps over e by 16",
    "place": "state, u : f32 in shared pad 8", "compute": "scale, update : fma.f32 vector e by 8 unroll j by 2",
    "pin": "scale before update",
}  # fmt: skip


def line_help(keyword: str) -> str:
    """How a line of this block reads; nothing for a word that opens no block of lines."""
    example = LINES.get(keyword)
    return f"a line of `{keyword}` reads `{example}`" if example else ""
