"""A CUDA program of shared accesses whose wavefronts Nsight Compute counts, to compare with the model.

    python wavefront_probe.py emit probe.cu
    nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a probe.cu -o probe        (on a machine with a GPU)
    ncu --csv --metrics METRICS ./probe > ncu.csv                                  (METRICS: `... metrics`)
    python wavefront_probe.py compare ncu.csv

One kernel of one warp for each access, so that a kernel's metric is the access's. Both use the same indices.
"""

from __future__ import annotations

import csv
import sys

from kdsl.inspect.access import SharedAccess, index, judge
from kdsl.inspect.banks import COPY_ISSUE, PAST_L1

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
)  # fmt: skip
# Byte offsets of a lane's W bytes, written in shared memory and read from global memory.
WRITTEN = {
    "row": "lane * W", "col": "lane * 128", "two": "lane * W * 2", "same": "lane / 2 * W * 4 + lane % 2 * W",
    "r272": "lane * W / 256 * 272 + lane * W % 256", "r48": "lane * W / 32 * 48 + lane * W % 32",
    "r64p80": "lane * W / 64 * 80 + lane * W % 64", "p128": "lane * W / 16 * 128 + lane * W % 16",
    "p132": "lane * (W + 128)",
}  # fmt: skip
READ = {
    "row": "lane * W", "x16": "lane * 16", "x32": "lane * 32", "x128": "lane * 128", "off": "lane * W + 32",
    "r32": "lane * W / 32 * 1024 + lane * W % 32", "r256": "lane * W / 256 * 4096 + lane * W % 256",
    "mix": "(lane * 5 % 32) * W",
}  # fmt: skip
# Of a copy: name, where it writes, its width, where it reads. Width 16 goes past L1, the others through it.
COPIES = tuple(
    (f"copy{width}_{to}_{of}", WRITTEN[to].replace("W", str(width)), width, READ[of].replace("W", str(width)))
    for width in (4, 8, 16) for to in WRITTEN for of in READ if to in ("row", "col", "p132") or of == "row"
)  # fmt: skip


def accesses() -> list[SharedAccess]:
    """Every access of the program, as the model has it."""
    found = []
    for name, kind, offset, size, mask in ACCESSES:
        matrices = size if kind.endswith("matrix") else 4
        found.append(SharedAccess(name, kind, index(offset), size, matrices, mask & 0xFFFFFFFF))
    for name, to, width, of in COPIES:
        found.append(SharedAccess(name, "cp.async", index(to), width, source=index(of)))
    return found


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


def copied(width: int, source: str) -> str:
    """Inline assembly of a copy to `at`, and the wait for it."""
    copy = f'asm volatile("cp.async.{"cg" if width == 16 else "ca"}.shared.global [%0], [%1], {width};"'
    return f'{copy} :: "r"(at), "l"(in + ({source}))); asm volatile("cp.async.wait_all;");'


def kernel(name: str, offset: str, body: str) -> str:
    return f"""extern "C" __global__ void {name}(unsigned* out, const unsigned char* in) {{
  extern __shared__ __align__(1024) unsigned char memory[];
  unsigned lane = threadIdx.x, r[4] = {{lane, lane, lane, lane}};
  unsigned at = (unsigned)__cvta_generic_to_shared(memory) + ({offset});
  {body}
  out[lane] = r[0] + r[1] + r[2] + r[3];
}}"""


def program() -> str:
    """Every access as a kernel of one warp, and a main that launches each once."""
    parts = ["#include <cstdio>", "#include <cuda_runtime.h>"]
    for name, kind, offset, size, mask in ACCESSES:
        guard = "" if kind.endswith("matrix") else f"if (0x{mask & 0xFFFFFFFF:x}u >> lane & 1) "
        parts.append(kernel(name, offset, f"{guard}{{ {instruction(kind, size)} }}"))
    parts += [kernel(name, to, copied(width, of)) for name, to, width, of in COPIES]
    launches = "\n".join(f"  {one.name}<<<1, 32, 32768>>>(out, in);" for one in accesses())
    parts.append(f"""int main() {{
  unsigned* out;
  unsigned char* in;
  cudaMalloc(&out, 4096); cudaMalloc(&in, 65536); cudaMemset(in, 0, 65536);
{launches}
  cudaError_t fault = cudaDeviceSynchronize();
  printf("%s\\n", cudaGetErrorString(fault));
  return fault != cudaSuccess;
}}""")
    return "\n\n".join(parts) + "\n"


def predictions() -> dict[str, tuple[int, int, int]]:
    """For each access: wavefronts as the profiler counts them, those with paired lanes, the ideal."""
    found = {}
    for one in accesses():
        issue = COPY_ISSUE if one.kind == "cp.async" and one.width != PAST_L1 else 0
        plain, paired = judge(one).wavefronts, judge(one, paired=True).wavefronts
        found[one.name] = (issue + plain.count, issue + paired.count, issue + plain.ideal)
    return found


def compare(path: str) -> int:
    """Print the table of predicted and measured wavefronts; the number of accesses that differ from both."""
    measured: dict[str, dict[str, float]] = {}
    with open(path, encoding="utf-8") as file:
        lines = [line for line in file if line.startswith('"')]
    for row in csv.DictReader(lines):
        name = row["Kernel Name"].partition("(")[0]
        measured.setdefault(name, {})[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    kinds = {one.name: one.kind for one in accesses()}
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
