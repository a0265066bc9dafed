"""What an instruction's name stands for: matching of names, and the SASS of PTX names.

A contract names an instruction as PTX does (`mma.sync.m16n8k16.bf16`, `shfl.sync`) or as SASS does
(`HMMA.16816.F32.BF16`, `LDS.128`). A name matches an instruction of the same opcode if its other parts are
among the instruction's, in order. PTX names: "Parallel Thread Execution ISA"; SASS names: "CUDA Binary
Utilities", section Instruction Set Reference, and ptxas 13.0's own output for the PTX of the table below.
"""

from __future__ import annotations

import re

from attrs import frozen

from kdsl.inspect.listing import Instruction
from kdsl.inspect.memory import access

# PTX instructions whose name begins with that of another one and that do something else: `cp.async` alone is
# the copy of 4, 8 or 16 bytes a thread, neither a bulk copy nor a wait.
FAMILIES = (
    "cp.async", "cp.async.commit_group", "cp.async.wait_group", "cp.async.wait_all",
    "cp.async.mbarrier.arrive", "cp.async.bulk", "cp.async.bulk.tensor",
    "cp.async.bulk.prefetch", "cp.async.bulk.prefetch.tensor",
    "cp.async.bulk.commit_group", "cp.async.bulk.wait_group", "cp.reduce.async.bulk",
)  # fmt: skip

MATRIX_PTX = ("mma", "wmma.mma", "wgmma.mma_async", "tcgen05.mma")
WARP_MATRIX = ("HMMA", "IMMA", "QMMA", "OMMA", "DMMA", "BMMA")
WARPGROUP_MATRIX = ("HGMMA", "IGMMA", "QGMMA", "BGMMA")
TENSOR_MEMORY_MATRIX = ("UTCHMMA", "UTCQMMA", "UTCOMMA", "UTCIMMA")
MATRIX_SASS = WARP_MATRIX + WARPGROUP_MATRIX + TENSOR_MEMORY_MATRIX

# By PTX opcode and leading parts, longest first where several fit.
SASS_OF = {
    "shfl": ("SHFL",), "vote": ("VOTE", "VOTEU"), "match": ("MATCH",), "redux": ("REDUX", "CREDUX"),
    "elect": ("ELECT",), "bar": ("BAR",), "bar.sync": ("BAR.SYNC",),
    "bar.arrive": ("BAR.ARV",), "bar.red": ("BAR.RED",),
    "mbarrier": ("SYNCS",), "mbarrier.try_wait": ("SYNCS.PHASECHK",),
    "setmaxnreg": ("USETMAXREG",), "nanosleep": ("NANOSLEEP",),
    "ldmatrix": ("LDSM",), "stmatrix": ("STSM",), "movmatrix": ("MOVM",),
    "ld.shared": ("LDS",), "st.shared": ("STS",), "ld.global": ("LDG",), "st.global": ("STG",),
    "ld.local": ("LDL",), "st.local": ("STL",),
    "atom": ("ATOM", "ATOMG", "ATOMS"), "atom.shared": ("ATOMS",), "atom.global": ("ATOMG",), "red": ("RED",),
    "cp.async": ("LDGSTS",), "cp.async.commit_group": ("LDGDEPBAR",),
    "cp.async.bulk": ("UBLKCP",), "cp.async.bulk.tensor": ("UTMALDG", "UTMASTG"),
    "wgmma.fence": ("WARPGROUP.ARRIVE",), "wgmma.wait_group": ("WARPGROUP.DEPBAR",),
    "tcgen05.ld": ("LDTM",), "tcgen05.st": ("STTM",), "tcgen05.cp": ("UTCCP",), "tcgen05.commit": ("UTCBAR",),
    "ex2": ("MUFU.EX2",), "lg2": ("MUFU.LG2",), "rcp": ("MUFU.RCP",), "rsqrt": ("MUFU.RSQ",),
    "sqrt": ("MUFU.SQRT",), "tanh": ("MUFU.TANH",), "sin": ("MUFU.SIN",), "cos": ("MUFU.COS",),
    "griddepcontrol.wait": ("ACQBULK",), "griddepcontrol.launch_dependents": ("PREEXIT",),
}  # fmt: skip
ALIASES = {"barrier": "bar"}  # `barrier.sync` and `bar.sync` are one instruction

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_KIND = {
    "kind::f16": "UTCHMMA", "kind::tf32": "UTCHMMA", "kind::f8f6f4": "UTCQMMA", "kind::mxf8f6f4": "UTCQMMA",
    "kind::mxf4": "UTCOMMA", "kind::mxf4nvf4": "UTCOMMA", "kind::i8": "UTCIMMA",
}  # fmt: skip
# Element type: letter of the opcode, parts that SASS shows, parts that it must not show.
_ELEMENT = {
    "bf16": ("H", ("BF16",), ()), "tf32": ("H", ("TF32",), ()), "f16": ("H", (), ("BF16", "TF32")),
    "e4m3": ("Q", ("E4M3",), ()), "e5m2": ("Q", ("E5M2",), ()), "e2m1": ("O", (), ()),
    "s8": ("I", ("S8",), ()), "u8": ("I", ("U8",), ()), "f64": ("D", (), ()), "b1": ("B", (), ()),
}  # fmt: skip


@frozen
class Pattern:
    """SASS instructions of one of `opcodes` whose parts hold `parts` in order and none of `without`; with a
    `width`, accesses of that many bytes."""

    opcodes: tuple[str, ...]
    parts: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    width: int | None = None

    def matches(self, instruction: Instruction) -> bool:
        return (
            instruction.opcode in self.opcodes
            and _in_order(self.parts, instruction.modifiers)
            and not set(self.without) & set(instruction.modifiers)
            and (self.width is None or _width(instruction) == self.width)
        )


def is_sass(name: str) -> bool:
    return name[:1].isupper()


def matches(instruction: Instruction, name: str) -> bool:
    """Whether an instruction is of that name, both of the same level."""
    opcode, *parts = name.split(".")
    return family(name) == family(instruction.name) and _in_order(tuple(parts), instruction.modifiers)


def family(name: str) -> str:
    """The longest of FAMILIES that begins the name, else its opcode."""
    fitting = [known for known in FAMILIES if name == known or name.startswith(f"{known}.")]
    opcode = name.partition(".")[0]
    return max(fitting, key=len, default=ALIASES.get(opcode, opcode))


def sass_patterns(name: str) -> tuple[Pattern, ...] | None:
    """The SASS instructions that a PTX name becomes; None if no fixed instruction stands for it."""
    matrix = _matrix(name)
    if matrix is not None:
        return (matrix,)
    opcode, *rest = name.split(".")
    parts = (ALIASES.get(opcode, opcode), *rest)
    bare = tuple(part for part in parts if part not in ("sync", "aligned"))
    for length in range(len(parts), 0, -1):
        found = SASS_OF.get(".".join(parts[:length])) or SASS_OF.get(".".join(bare[:length]))
        if found is not None:
            touched = access(Instruction(0, opcode, tuple(rest))) if opcode in ("ld", "st") else None
            width = touched.width if touched else None
            spelled = (entry.split(".") for entry in found)
            return tuple(Pattern((first,), tuple(others), width=width) for first, *others in spelled)
    return None


def _matrix(name: str) -> Pattern | None:
    kind = next(
        (k for k in sorted(MATRIX_PTX, key=len, reverse=True) if name == k or name.startswith(f"{k}.")), None
    )
    if kind is None:
        return None
    parts = name.split(".")
    if kind == "tcgen05.mma":
        named = [_KIND[part] for part in parts if part in _KIND]
        return Pattern(tuple(named) or TENSOR_MEMORY_MATRIX)
    group = kind == "wgmma.mma_async"
    opcodes, needs, without = WARPGROUP_MATRIX if group else WARP_MATRIX, [], ()
    shape = next((found for part in parts if (found := _SHAPE.fullmatch(part))), None)
    if shape is not None:
        m, n, k = shape.groups()
        wide = group or "f64" in parts
        needs.append(f"{m}x{n}x{k}" if wide else f"{m}{n}{k}")
    if "f32" in parts:
        needs.append("F32")
    element = next((_ELEMENT[part] for part in parts if part in _ELEMENT), None)
    if element is not None:
        letter, shown, without = element
        opcodes = tuple(opcode for opcode in opcodes if opcode.startswith(letter))
        needs += shown
    return Pattern(opcodes, tuple(needs), without)


def _width(instruction: Instruction) -> int | None:
    touched = access(instruction)
    return touched.width if touched else None


def _in_order(parts: tuple[str, ...], among: tuple[str, ...]) -> bool:
    rest = iter(among)
    return all(part in rest for part in parts)
