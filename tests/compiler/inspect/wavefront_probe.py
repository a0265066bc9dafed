"""A CUDA program of shared accesses whose wavefronts Nsight Compute counts, to compare with the model.

    python wavefront_probe.py emit probe.cu
    nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a probe.cu -o probe        (on a machine with a GPU)
    ncu --csv --metrics METRICS ./probe > ncu.csv                                  (METRICS: `... metrics`)
    python wavefront_probe.py compare ncu.csv

One kernel of one warp for each access, so that a kernel's metric is the access's. Both use the same index.
"""

from __future__ import annotations

import csv
import sys

from kdsl.inspect.access import SharedAccess, index, judge

LD, ST = (f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st"))
COPY = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
METRICS = (LD, ST, COPY)
HALF = 0x0000FFFF

# Name, kind, byte offset of the lane, width or matrices, mask of lanes.
ACCESSES = (
    ("ld32_row", "ld", "lane * 4", 4, ~0), ("ld32_stride2", "ld", "lane * 8", 4, ~0),
    ("ld32_stride4", "ld", "lane * 16", 4, ~0), ("ld32_stride8", "ld", "lane * 32", 4, ~0),
    ("ld32_column", "ld", "lane * 128", 4, ~0), ("ld32_padded", "ld", "lane * 132", 4, ~0),
    ("ld32_broadcast", "ld", "lane * 0", 4, ~0), ("ld32_two_words", "ld", "lane % 2 * 128", 4, ~0),
    ("ld32_half_mask", "ld", "lane * 128", 4, HALF), ("ld16_row", "ld", "lane * 2", 2, ~0),
    ("ld16_column", "ld", "lane * 64", 2, ~0), ("ld8_row", "ld", "lane", 1, ~0),
    ("ld64_row", "ld", "lane * 8", 8, ~0), ("ld64_stride2", "ld", "lane * 16", 8, ~0),
    ("ld64_column", "ld", "lane * 128", 8, ~0), ("ld64_broadcast", "ld", "lane * 0", 8, ~0),
    ("ld64_pairs1", "ld", "lane / 2 * 8", 8, ~0),
    ("ld64_pairs2", "ld", "(lane / 4 * 2 + lane % 2) * 8", 8, ~0),
    ("ld64_halves_clash", "ld", "lane % 16 * 8 + lane / 16 * 128", 8, ~0),
    ("ld128_row", "ld", "lane * 16", 16, ~0), ("ld128_stride2", "ld", "lane * 32", 16, ~0),
    ("ld128_column", "ld", "lane * 128", 16, ~0), ("ld128_broadcast", "ld", "lane * 0", 16, ~0),
    ("ld128_pairs1", "ld", "lane / 2 * 16", 16, ~0), ("ld128_half_mask", "ld", "lane * 16", 16, HALF),
    ("ld128_swizzled", "ld", "lane % 8 * 128 + ((lane / 8 ^ lane % 8) * 16)", 16, ~0),
    ("st32_row", "st", "lane * 4", 4, ~0), ("st32_stride8", "st", "lane * 32", 4, ~0),
    ("st16_row", "st", "lane * 2", 2, ~0), ("st64_row", "st", "lane * 8", 8, ~0),
    ("st64_pairs1", "st", "lane / 2 * 8", 8, ~0), ("st128_row", "st", "lane * 16", 16, ~0),
    ("st128_column", "st", "lane * 128", 16, ~0), ("st128_pairs1", "st", "lane / 2 * 16", 16, ~0),
    ("ldmatrix_rows128", "ldmatrix", "lane % 16 * 128 + lane / 16 * 16", 4, ~0),
    ("ldmatrix_padded", "ldmatrix", "lane % 16 * 144 + lane / 16 * 16", 4, ~0),
    ("ldmatrix_rows32", "ldmatrix", "lane % 16 * 32 + lane / 16 * 16", 4, ~0),
    ("ldmatrix_rows48", "ldmatrix", "lane % 16 * 48 + lane / 16 * 16", 4, ~0),
    ("ldmatrix_swizzled", "ldmatrix", "lane % 16 * 128 + (lane / 16 ^ lane % 8) * 16", 4, ~0),
    ("ldmatrix_x1", "ldmatrix", "lane % 8 * 128", 1, ~0),
    ("ldmatrix_x2", "ldmatrix", "lane % 16 * 64", 2, ~0),
    ("stmatrix_rows128", "stmatrix", "lane % 16 * 128 + lane / 16 * 16", 4, ~0),
    ("stmatrix_padded", "stmatrix", "lane % 16 * 144 + lane / 16 * 16", 4, ~0),
    ("copy16_row", "cp.async", "lane * 16", 16, ~0), ("copy16_column", "cp.async", "lane * 128", 16, ~0),
    ("copy4_row", "cp.async", "lane * 4", 4, ~0),
)  # fmt: skip


def access(row) -> SharedAccess:
    name, kind, offset, size, mask = row
    matrices = size if kind.endswith("matrix") else 4
    return SharedAccess(name, kind, index(offset), size, matrices, mask & 0xFFFFFFFF)


def instruction(kind: str, size: int) -> str:
    """Inline assembly of one access at `at`, into or out of r[0..3]."""
    if kind.endswith("matrix"):
        words = [f"%{n}" for n in range(size)] if kind == "ldmatrix" else [f"%{n + 1}" for n in range(size)]
        head = f"{kind}.sync.aligned.m8n8.x{size}.shared.b16"
        outs = ", ".join(f'"=r"(r[{n}])' for n in range(size))
        if kind == "ldmatrix":
            return f'asm volatile("{head} {{{",".join(words)}}}, [%{size}];" : {outs} : "r"(at));'
        ins = ", ".join(f'"r"(r[{n}])' for n in range(size))
        return f'asm volatile("{head} [%0], {{{",".join(words)}}};" :: "r"(at), {ins});'
    if kind == "cp.async":
        cache = "cg" if size == 16 else "ca"
        copy = f'asm volatile("cp.async.{cache}.shared.global [%0], [%1], {size};"'
        return f'{copy} :: "r"(at), "l"(in + lane * 4)); asm volatile("cp.async.wait_all;");'
    lanes = max(size // 4, 1)
    vector = f".v{lanes}" if lanes > 1 else ""
    kinds = {1: "u8", 2: "u16"}.get(size, "u32")
    if kind == "ld":
        words = ",".join(f"%{n}" for n in range(lanes))
        outs = ", ".join(f'"=r"(r[{n}])' for n in range(lanes))
        shown = f"{{{words}}}" if lanes > 1 else words
        return f'asm volatile("ld.shared{vector}.{kinds} {shown}, [%{lanes}];" : {outs} : "r"(at));'
    words = ",".join(f"%{n + 1}" for n in range(lanes))
    ins = ", ".join(f'"r"(r[{n}])' for n in range(lanes))
    shown = f"{{{words}}}" if lanes > 1 else words
    return f'asm volatile("st.shared{vector}.{kinds} [%0], {shown};" :: "r"(at), {ins});'


def program() -> str:
    """Every access as a kernel of one warp, and a main that launches each once."""
    parts = ["#include <cstdio>", "#include <cuda_runtime.h>"]
    for name, kind, offset, size, mask in ACCESSES:
        guard = "" if kind.endswith("matrix") else f"if (0x{mask & 0xFFFFFFFF:x}u >> lane & 1) "
        parts.append(f"""extern "C" __global__ void {name}(unsigned* out, const unsigned* in) {{
  extern __shared__ __align__(1024) unsigned char memory[];
  unsigned lane = threadIdx.x, r[4] = {{lane, lane, lane, lane}};
  unsigned at = (unsigned)__cvta_generic_to_shared(memory) + ({offset});
  {guard}{{ {instruction(kind, size)} }}
  out[lane] = r[0] + r[1] + r[2] + r[3];
}}""")
    launches = "\n".join(f"  {name}<<<1, 32, 32768>>>(out, in);" for name, *_ in ACCESSES)
    parts.append(f"""int main() {{
  unsigned *out, *in;
  cudaMalloc(&out, 4096); cudaMalloc(&in, 4096); cudaMemset(in, 0, 4096);
{launches}
  cudaError_t fault = cudaDeviceSynchronize();
  printf("%s\\n", cudaGetErrorString(fault));
  return fault != cudaSuccess;
}}""")
    return "\n\n".join(parts) + "\n"


def predictions() -> dict[str, tuple[int, int, int]]:
    """For each access: wavefronts, wavefronts with paired lanes, the ideal."""
    found = {}
    for row in ACCESSES:
        plain, paired = judge(access(row)).wavefronts, judge(access(row), paired=True).wavefronts
        found[row[0]] = (plain.count, paired.count, plain.ideal)
    return found


def compare(path: str) -> int:
    """Print the table of predicted and measured wavefronts; the number of accesses that differ from both."""
    measured: dict[str, dict[str, float]] = {}
    with open(path, encoding="utf-8") as file:
        lines = [line for line in file if line.startswith('"')]
    for row in csv.DictReader(lines):
        name = row["Kernel Name"].partition("(")[0]
        measured.setdefault(name, {})[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    kinds = {row[0]: row[1] for row in ACCESSES}
    wrong = 0
    print("| access | model | paired | ideal | measured |\n|---|---|---|---|---|")
    for name, (plain, paired, ideal) in predictions().items():
        metric = {"cp.async": COPY, "st": ST, "stmatrix": ST}.get(kinds[name], LD)
        seen = measured.get(name, {}).get(metric)
        wrong += seen not in (plain, paired)
        print(f"| {name} | {plain} | {paired} | {ideal} | {seen if seen is None else int(seen)} |")
    return wrong


if __name__ == "__main__":
    verb, *rest = sys.argv[1:] or ["metrics"]
    if verb == "emit":
        with open(rest[0], "w", encoding="utf-8") as target:
            target.write(program())
    elif verb == "compare":
        sys.exit(min(compare(rest[0]), 1))
    else:
        print(",".join(METRICS))
