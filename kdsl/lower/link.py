"""Two kernels linked into one launch: their warps in one block, what passes between them in rings of shared memory.

Each was lowered as a kernel of its own. Here its function becomes a device function, its barriers named barriers of its
own warps, and its words about slots arrivals at mbarriers and waits for them:

    full[slot]   the warps of a group have written the slot     the other kernel's warps wait for it
    empty[slot]  the other kernel's warps have read it          the group waits before it writes the slot anew

Every thread arrives for itself: that releases what it wrote or read (PTX ISA, "mbarrier.arrive": of the executing
thread). The k-th use of a slot completes phase k of `full[slot]`, and a group waits for phase k - 1 of `empty[slot]`,
which a new mbarrier counts as complete (PTX ISA, "mbarrier.test_wait, mbarrier.try_wait": waits by phase parity).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

from attrs import evolve, frozen

from kdsl.contract.linked import Shared
from kdsl.lower.cuda import CudaSource
from kdsl.lower.sourcemap import SourceMap
from kdsl.lower.tir.function import Argument
from kdsl.lower.tir.marks import GROUP, RING, SAY_EMPTY, SAY_FULL, WAIT_EMPTY, WAIT_FULL
from kdsl.plan.cuda.beside import KEPT, groups_of
from kdsl.plan.cuda.warp import LANES
from kdsl.plan.model import KernelPlan

FIRST_BARRIER = KEPT  # of the groups: barrier 0 is of all threads, 1 of the warps that take
HELPERS = """\
__device__ __forceinline__ void kdsl_warps_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void kdsl_slot_init(unsigned long long* barrier, int threads) {
  unsigned place = (unsigned)__cvta_generic_to_shared(barrier);
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(place), "r"(threads) : "memory");
}
__device__ __forceinline__ void kdsl_slot_say(unsigned long long* barriers, int slot) {
  unsigned place = (unsigned)__cvta_generic_to_shared(barriers + slot);
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(place) : "memory");
}
__device__ __forceinline__ void kdsl_slot_wait(unsigned long long* barriers, int slot, int phase) {
  unsigned place = (unsigned)__cvta_generic_to_shared(barriers + slot);
  unsigned done = 0;
  while (!done) {
    asm volatile("{\\n .reg .pred p;\\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\\n"
      " selp.u32 %0, 1, 0, p;\\n}" : "=r"(done) : "r"(place), "r"(phase & 1) : "memory");
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
OWN = (
    "uchar* buf_dyn_shmem_ptr, int kdsl_warp, int kdsl_barrier, unsigned long long* kdsl_full, "
    "unsigned long long* kdsl_empty"
)
HEAD = re.compile(r'^extern "C" __global__ void __launch_bounds__\([^)]*\) (\w+)\(([^\n]*)\) \{\n', re.MULTILINE)
SHARED = re.compile(r"  extern __shared__ .*buf_dyn_shmem_ptr\[\];$")
PLACE = re.compile(rf" *{RING}(\w+)\(\(&\(\(\((\w+)\*\)buf_dyn_shmem_ptr\)\[(\d+)\]\)\)\);$")


@frozen
class Role:
    """A kernel's function as one of the warps of a block: its helpers, its parameters by name, its text with the lines
    of the source that its lines are (0 of none), and where rings lie."""

    helpers: tuple[str, ...]
    name: str
    parameters: dict[str, str]  # name -> declaration
    text: str
    numbers: tuple[int, ...]
    rings: dict[str, str]  # what is passed -> where, as an expression of the block's shared memory


def linked(giver: CudaSource, taker: CudaSource, given: KernelPlan, taken: KernelPlan) -> CudaSource:
    """One launch of both, with the lines of the stages of both."""
    groups, warps = groups_of(taken), given.threads[1]
    first, second = role(giver, warps), role(taker, taken.threads[1])
    shared = Shared(taker.shared_bytes, giver.shared_bytes, groups)
    inside = {f"{name}_ptr" for name in given.passes} | {GROUP}
    declared = {name: text for name, text in {**second.parameters, **first.parameters}.items() if name not in inside}
    threads = LANES * (taken.threads[1] + groups * warps)
    symbol = f"kdsl_{given.name}_{taken.name}_kernel"
    before = [*joined(second.helpers, first.helpers), HELPERS]
    text = "\n".join([
        *before, first.text, second.text,
        f'extern "C" __global__ void __launch_bounds__({threads}, 1)'
        f' {symbol}({", ".join(declared.values())}) {{',
        *opening(shared, warps, taken.threads[1]),
        *branches(first, second, shared, given, taken),
        "}",
        "",
    ])  # fmt: skip
    at = sum(part.count("\n") + 1 for part in before)
    lines = merged(moved(giver.lines, first, at), moved(taker.lines, second, at + len(first.numbers)))
    by_name = {**labelled(taker, second), **labelled(giver, first)}
    return evolve(
        taker, kernel=taken.name, symbol=symbol, source=text, arguments=tuple(by_name[name] for name in declared),
        shared_bytes=shared.total, threads=(32, threads // 32), lines=lines,
    )  # fmt: skip


def moved(lines: SourceMap, of: Role, before: int) -> SourceMap:
    """The lines of stages where the role's text stands `before` lines further down."""
    places = {number: before + place for place, number in enumerate(of.numbers, 1) if number}
    return SourceMap({
        stage: frozenset(places[number] for number in found if number in places)
        for stage, found in lines.stages.items()
    })  # fmt: skip


def merged(first: SourceMap, second: SourceMap) -> SourceMap:
    names = (*first.stages, *second.stages)
    return SourceMap({name: first.lines(name) | second.lines(name) for name in names})


def opening(shared: Shared, givers: int, takers: int) -> list[str]:
    """The memory and the barriers of a block, whose phases a group's warps and the taking warps complete."""
    return [
        "  extern __shared__ __align__(1024) uchar kdsl_shared[];",
        f"  unsigned long long* kdsl_full = (unsigned long long*)(kdsl_shared + {shared.barriers});",
        f"  unsigned long long* kdsl_empty = kdsl_full + {shared.groups};",
        "  int kdsl_warp = threadIdx.y;",
        f"  if (kdsl_warp == 0 && threadIdx.x < {shared.groups}) {{",
        f"    kdsl_slot_init(kdsl_full + threadIdx.x, {LANES * givers});",
        f"    kdsl_slot_init(kdsl_empty + threadIdx.x, {LANES * takers});",
        "  }",
        "  __syncthreads();",
    ]


def branches(first: Role, second: Role, shared: Shared, given: KernelPlan, taken: KernelPlan) -> list[str]:
    """Each warp's way: the first ones take what the groups behind them make."""
    takers, warps = taken.threads[1], given.threads[1]
    takes, gives = dealt(taken, given)
    own = arguments(second, {}, "kdsl_shared", "kdsl_warp", "1")
    place = f"kdsl_shared + {shared.group(GROUP)}"
    others = arguments(first, second.rings, place, f"(kdsl_warp - {takers}) % {warps}", f"{FIRST_BARRIER} + {GROUP}")
    return [
        f"  if (kdsl_warp < {takers}) {{",
        *takes,
        f"    {second.name}({own});",
        "  } else {",
        *gives,
        f"    int {GROUP} = (kdsl_warp - {takers}) / {warps};",
        f"    {first.name}({others});",
        "  }",
    ]


def dealt(taken: KernelPlan, given: KernelPlan) -> tuple[list[str], list[str]]:
    """Lines with which the one kernel's warps take the registers that the other's give back, where a role says how
    many; a block is given equal numbers for all."""
    if taken.registers is None or given.registers is None:
        return [], []
    ways = ("inc", "dec") if taken.registers >= given.registers else ("dec", "inc")
    takes, gives = (
        f'    asm volatile("setmaxnreg.{way}.sync.aligned.u32 {count};");'
        for way, count in zip(ways, (taken.registers, given.registers), strict=True)
    )
    return [takes], [gives]


def arguments(of: Role, rings: dict[str, str], shared: str, warp: str, barrier: str) -> str:
    own = [rings.get(name.removesuffix("_ptr"), name) for name in of.parameters]
    return ", ".join([*own, shared, warp, barrier, "kdsl_full", "kdsl_empty"])


def labelled(source: CudaSource, of: Role) -> dict[str, Argument]:
    return dict(zip(of.parameters, source.arguments, strict=True))


def role(source: CudaSource, warps: int) -> Role:
    head = HEAD.search(source.source)
    lines = source.source[head.end() :].split("\n")
    first = source.source[: head.end()].count("\n") + 1
    rings = {f[1]: f"({f[2]}*)kdsl_shared + {f[3]}" for f in map(PLACE.match, lines) if f}
    own = [(number, line) for number, line in enumerate(lines, first) if not (PLACE.match(line) or SHARED.match(line))]
    parameters = {text.split()[-1]: text for text in head[2].split(", ")}
    name = f"{head[1]}_role"
    signature = f"__device__ __forceinline__ void {name}({head[2]}, {OWN}) {{"
    text = "\n".join([signature, *(as_role(line, warps) for _, line in own)])
    numbers = (0, *(number for number, _ in own))
    return Role(tuple(items(source.source[: head.start()])), name, parameters, text, numbers, rings)


def as_role(line: str, warps: int) -> str:
    """A line of a kernel as one of its warps in a block of others: its number, its barrier, its words."""
    line = line.replace("((int)threadIdx.y)", "kdsl_warp")
    line = line.replace("__syncthreads();", f"kdsl_warps_barrier(kdsl_barrier, {LANES * warps});")
    for word, says in WORDS.items():
        line = re.sub(rf"{word}\(([^;]*)\);", lambda found, says=says: says.format(*two(found[1])) + ";", line)
    return line


def two(text: str) -> tuple[str, str]:
    """Two arguments, parted at the comma outside of all parentheses."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            return text[:at], text[at + 1 :].strip()
    raise ValueError(text)


def joined(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """The declarations of two sources, each in its own order, those that both have once."""
    found, known = list(first), set(filter(defines, first))
    more = 0
    for kind, _, at, begin, end in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if kind in ("insert", "replace"):
            new = [item for item in second[begin:end] if item not in known]
            found[at + more : at + more] = new
            more += len(new)
    return found


def defines(item: str) -> bool:
    """Whether a declaration may stand once only; macros are defined and taken back several times."""
    return item.endswith(("}", ";")) and not re.search(r"^#", item, re.MULTILINE)


def items(text: str) -> list[str]:
    """The declarations of a source, one by one; what a preprocessor's condition encloses is one."""
    found, lines, depth, conditions, directive = [], [], 0, 0, False
    for line in text.splitlines():
        lines.append(line)
        directive = directive or line.startswith("#")
        conditions += line.startswith("#if") - line.startswith("#endif")
        if directive and line.endswith("\\"):  # it goes on in the next line
            continue
        if not directive:
            plain = re.sub(r'"(\\.|[^"\\])*"|//.*', "", line).rstrip()
            depth += plain.count("{") - plain.count("}")
        whole = directive or plain.endswith((";", "}")) or not line.strip()
        directive = False
        if whole and not depth and not conditions:
            if any(part.strip() for part in lines):
                found.append("\n".join(lines).strip("\n"))
            lines = []
    return found
