"""Two kernels linked into one launch: their warps in one block, what passes between them in rings of shared memory.

Each was lowered as a kernel of its own. Here its function becomes a device function, its barriers named barriers of its
own warps, and its words about slots arrivals at mbarriers and waits for them:

    full[slot]   the warps of a group have written the slot     the other kernel's warps wait for it
    empty[slot]  the other kernel's warps have read it          the group waits before it writes the slot anew

The k-th use of a slot completes phase k of `full[slot]`, and a group waits for phase k - 1 of `empty[slot]`, which a new
mbarrier counts as complete (PTX ISA, "mbarrier.test_wait, mbarrier.try_wait": waits by phase parity).
"""

from __future__ import annotations

import re

from attrs import evolve, frozen

from kdsl.lower.cuda import CudaSource
from kdsl.lower.sourcemap import SourceMap
from kdsl.lower.tir.function import Argument
from kdsl.lower.tir.kernel import RING, SAY_EMPTY, SAY_FULL, WAIT_EMPTY, WAIT_FULL
from kdsl.plan.model import KernelPlan

GROUP = "kdsl_group"
APART = 128  # bytes that each warps' part of shared memory starts at multiples of
BARRIER_BYTES = 8
REGISTERS, STEP = 65536, 8  # of an SM, and what a warp's number is a multiple of
HELPERS = """\
__device__ __forceinline__ void kdsl_warps_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void kdsl_slot_init(unsigned long long* barrier, int warps) {
  unsigned place = (unsigned)__cvta_generic_to_shared(barrier);
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(place), "r"(warps) : "memory");
}
__device__ __forceinline__ void kdsl_slot_say(unsigned long long* barriers, int slot) {
  unsigned place = (unsigned)__cvta_generic_to_shared(barriers + slot);
  __syncwarp();
  if (threadIdx.x == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(place) : "memory");
}
__device__ __forceinline__ void kdsl_slot_wait(unsigned long long* barriers, int slot, int phase) {
  unsigned place = (unsigned)__cvta_generic_to_shared(barriers + slot);
  unsigned done = 0;
  while (!done) {
    asm volatile("{\\n .reg .pred p;\\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\\n selp.u32 %0, 1, 0, p;\\n}"
      : "=r"(done) : "r"(place), "r"(phase & 1) : "memory");
  }
}
"""
# A word about a slot and its turn, and the text that says it.
WORDS = {
    WAIT_FULL: "kdsl_slot_wait(kdsl_full, {0}, {1})",
    WAIT_EMPTY: "kdsl_slot_wait(kdsl_empty, {0}, ({1}) + 1)",
    SAY_FULL: "kdsl_slot_say(kdsl_full, {0})",
    SAY_EMPTY: "kdsl_slot_say(kdsl_empty, {0})",
}
OWN = "uchar* buf_dyn_shmem_ptr, int kdsl_warp, int kdsl_barrier, unsigned long long* kdsl_full, unsigned long long* kdsl_empty"
HEAD = re.compile(r'^extern "C" __global__ void __launch_bounds__\([^)]*\) (\w+)\(([^\n]*)\) \{\n', re.MULTILINE)
SHARED = re.compile(r"^  extern __shared__ [^\n]*buf_dyn_shmem_ptr\[\];\n", re.MULTILINE)
PLACE = re.compile(rf"^ *{RING}(\w+)\(\(&\(\(\((\w+)\*\)buf_dyn_shmem_ptr\)\[(\d+)\]\)\)\);\n", re.MULTILINE)


@frozen
class Role:
    """A kernel's function as one of the warps of a block: its helpers, its parameters by name, and where rings lie."""

    helpers: tuple[str, ...]
    name: str
    parameters: dict[str, str]  # name -> declaration
    text: str
    rings: dict[str, str]  # what is passed -> where, as an expression of the block's shared memory


def linked(giver: CudaSource, taker: CudaSource, given: KernelPlan, taken: KernelPlan) -> CudaSource:
    """One launch of both. Its lines are not of single stages."""
    groups = next(iter(given.passes.values())).ring
    warps = given.threads[1]
    first, second = role(giver, warps), role(taker, taken.threads[1])
    places, at = [], rounded(taker.shared_bytes)
    for _ in range(groups):
        places.append(at)
        at += rounded(giver.shared_bytes)
    barriers, total = at, at + 2 * groups * BARRIER_BYTES
    symbol = f"kdsl_{given.name}_{taken.name}_kernel"
    all_warps = taken.threads[1] + groups * warps
    inside = {f"{name}_ptr" for name in given.passes} | {GROUP}
    declared = {**second.parameters, **first.parameters}
    declared = {name: text for name, text in declared.items() if name not in inside}
    takes, gives = dealt(taken, given, groups)
    text = "\n".join([
        *dict.fromkeys((*second.helpers, *first.helpers)), HELPERS, first.text, second.text,
        f'extern "C" __global__ void __launch_bounds__({32 * all_warps}, 1) {symbol}({", ".join(declared.values())}) {{',
        "  extern __shared__ __align__(1024) uchar kdsl_shared[];",
        f"  unsigned long long* kdsl_full = (unsigned long long*)(kdsl_shared + {barriers});",
        f"  unsigned long long* kdsl_empty = kdsl_full + {groups};",
        "  int kdsl_warp = threadIdx.y;",
        f"  if (kdsl_warp == 0 && threadIdx.x < {groups}) {{",
        f"    kdsl_slot_init(kdsl_full + threadIdx.x, {warps});",
        f"    kdsl_slot_init(kdsl_empty + threadIdx.x, {taken.threads[1]});",
        "  }",
        "  __syncthreads();",
        f"  if (kdsl_warp < {taken.threads[1]}) {{",
        *takes,
        f"    {second.name}({arguments(second, {}, 'kdsl_shared', 'kdsl_warp', '1')});",
        "  } else {",
        *gives,
        f"    int kdsl_group = (kdsl_warp - {taken.threads[1]}) / {warps};",
        f"    {first.name}({arguments(first, second.rings, f'kdsl_shared + {places[0]} + kdsl_group * {rounded(giver.shared_bytes)}', f'(kdsl_warp - {taken.threads[1]}) % {warps}', '2 + kdsl_group')});",
        "  }",
        "}",
        "",
    ])  # fmt: skip
    by_name = {**labelled(taker, second), **labelled(giver, first)}
    return evolve(taker, kernel=taken.name, symbol=symbol, source=text, arguments=tuple(by_name[name] for name in declared),
                  shared_bytes=total, threads=(32, all_warps), lines=SourceMap())  # fmt: skip


def dealt(taken: KernelPlan, given: KernelPlan, groups: int) -> tuple[list[str], list[str]]:
    """Lines with which the one kernel's warps take the registers that the other's give back, where a role says how many.

    A block is given equal numbers for all, and deals out no more than that.
    """
    if taken.registers is None:
        return [], []
    takers, givers = taken.threads[1], groups * given.threads[1]
    each = REGISTERS // (32 * (takers + givers)) // STEP * STEP
    left = (each * (takers + givers) - taken.registers * takers) // givers // STEP * STEP
    more, less = (taken.registers, left) if taken.registers >= each else (left, taken.registers)
    lines = [f'    asm volatile("setmaxnreg.{way}.sync.aligned.u32 {count};");' for way, count in (("inc", more), ("dec", less))]
    return (lines[:1], lines[1:]) if taken.registers >= each else (lines[1:], lines[:1])


def arguments(of: Role, rings: dict[str, str], shared: str, warp: str, barrier: str) -> str:
    own = [rings.get(name.removesuffix("_ptr"), name) for name in of.parameters]
    return ", ".join([*own, shared, warp, barrier, "kdsl_full", "kdsl_empty"])


def labelled(source: CudaSource, of: Role) -> dict[str, Argument]:
    return dict(zip(of.parameters, source.arguments, strict=True))


def rounded(size: int) -> int:
    return -(-size // APART) * APART


def role(source: CudaSource, warps: int) -> Role:
    head = HEAD.search(source.source)
    body = SHARED.sub("", source.source[head.end() :])
    rings = {name: f"({kind}*)kdsl_shared + {place}" for name, kind, place in PLACE.findall(body)}
    body = PLACE.sub("", body)
    body = body.replace("((int)threadIdx.y)", "kdsl_warp")
    body = body.replace("__syncthreads();", f"kdsl_warps_barrier(kdsl_barrier, {32 * warps});")
    for word, says in WORDS.items():
        body = re.sub(rf"{word}\(([^;]*)\);", lambda found, says=says: says.format(*two(found[1])) + ";", body)
    parameters = {text.split()[-1]: text for text in head[2].split(", ")}
    name = f"{head[1]}_role"
    text = f"__device__ __forceinline__ void {name}({head[2]}, {OWN}) {{\n{body}"
    return Role(tuple(items(source.source[: head.start()])), name, parameters, text, rings)


def two(text: str) -> tuple[str, str]:
    """Two arguments, parted at the comma outside of all parentheses."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            return text[:at], text[at + 1 :].strip()
    raise ValueError(text)


def items(text: str) -> list[str]:
    """The declarations of a source, one by one; what a preprocessor's condition encloses is one."""
    found, lines, depth, conditions = [], [], 0, 0
    for line in text.splitlines():
        lines.append(line)
        plain = re.sub(r'"(\\.|[^"\\])*"', "", line)
        depth += plain.count("{") - plain.count("}")
        conditions += line.startswith("#if")
        conditions -= line.startswith("#endif")
        whole = line.startswith("#") or plain.rstrip().endswith((";", "}"))
        if not depth and not conditions and (whole or not line.strip()):
            if any(part.strip() for part in lines):
                found.append("\n".join(lines).strip("\n"))
            lines = []
    return found
