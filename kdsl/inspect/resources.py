"""What a kernel takes of an SM, and how many of its blocks fit there at once.

The arithmetic is that of NVIDIA's occupancy calculator, `cuda_occupancy.h` of the CUDA toolkit (its version
12.1): limits by warps, blocks, registers, shared memory and named barriers, with registers given to
warps in units of 256 within one of four partitions of the SM, and shared memory in units of 128 bytes after
the driver's reserve. A test runs the header beside it.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from attrs import evolve, field, frozen

from kdsl.check.model import Target
from kdsl.inspect.listing import Function, executing
from kdsl.lower.toolchain import cuda
from kdsl.lower.toolchain.cc import CompilerFailed
from kdsl.lower.toolchain.ptxas import FunctionUse

WARP = 32
THREADS_PER_BLOCK = 1024
REGISTER_UNIT = 256  # registers of a warp are given in multiples of it
REGISTERS_PER_THREAD = 256  # the most that the hardware can name
PARTITIONS = 4  # of an SM, each with a quarter of its registers
SHARED_UNIT = 128  # bytes
NAMED_BARRIERS = 16  # of a block


@frozen
class Occupancy:
    """Blocks of one kernel that an SM holds at once. `limits` are the blocks that each resource alone allows;
    `limited_by` names those that allow the fewest; `share` is resident warps over the most there can be."""

    blocks: int
    warps: int
    share: float
    limits: Mapping[str, int]
    limited_by: tuple[str, ...]
    shared_per_block: int  # bytes, with the reserve, rounded up
    registers_per_block: int


@frozen
class Resources:
    """What a launch of a kernel takes. Bytes; `reserved` is what the driver adds to a block's shared memory.

    `spill_stores` and `spill_loads` are None where only the cubin is known: ptxas alone tells them.
    """

    kernel: str
    threads: int
    registers: int
    static_shared: int
    dynamic_shared: int
    reserved: int
    barriers: int
    stack: int
    spill_stores: int | None
    spill_loads: int | None
    occupancy: Occupancy = field(repr=False)

    @property
    def shared(self) -> int:
        """Shared memory that the kernel asks for: static and dynamic, without the reserve."""
        return self.static_shared + self.dynamic_shared

    @property
    def spills(self) -> int | None:
        """Bytes that spill code moves, stores and loads, each instruction counted once."""
        return None if self.spill_stores is None else self.spill_stores + self.spill_loads


def resources(use: FunctionUse, target: Target, dynamic_shared: int, threads: int) -> Resources:
    """A kernel's use on the target, launched with `threads` in a block and `dynamic_shared` bytes."""
    registers = use.registers or 0
    held = occupancy(target, registers, threads, use.static_shared + dynamic_shared, use.barriers)
    return Resources(
        use.name, threads, registers, use.static_shared, dynamic_shared,
        int(target.fields["shared_reserved"]), use.barriers, use.stack,
        use.spill_stores, use.spill_loads, held,
    )  # fmt: skip


def occupancy(target: Target, registers: int, threads: int, shared: int, barriers: int = 1) -> Occupancy:
    """`registers` per thread as ptxas reports them, `shared` bytes of a block without the reserve.

    Assumes, as kdsl's launcher does, that the kernel opts in to the target's full shared memory.
    """
    fields = {name: int(target.fields[name]) for name in (
        "shared_per_sm", "shared_bytes_per_block", "shared_reserved", "registers_per_sm", "warps_per_sm",
        "blocks_per_sm",
    )}  # fmt: skip
    warps = -(-threads // WARP)
    per_warp = _round_up(registers * WARP, REGISTER_UNIT)
    block_shared = _round_up(shared + fields["shared_reserved"], SHARED_UNIT)
    limits = {
        "registers": _by_registers(registers, per_warp, warps, fields["registers_per_sm"]),
        "shared": _by_shared(block_shared, fields),
        "warps": fields["warps_per_sm"] // warps if 0 < threads <= THREADS_PER_BLOCK else 0,
        "blocks": fields["blocks_per_sm"],
    }
    if barriers and capability(target) >= (9, 0):  # earlier ones have no such limit, says the calculator
        limits["barriers"] = _barriers_per_sm(target) // barriers
    blocks = min(limits.values())
    limited = tuple(name for name in limits if limits[name] == blocks)
    share = blocks * warps / fields["warps_per_sm"]
    return Occupancy(blocks, blocks * warps, share, limits, limited, block_shared, per_warp * warps)


def capability(target: Target) -> tuple[int, int]:
    """Compute capability of the target's architecture: sm_103a is (10, 3)."""
    found = re.fullmatch(r"sm_(\d+)(\d)[af]?", str(target.fields.get("tool", target.name)))
    if found is None:
        raise ValueError(f"target {target.name} names no CUDA architecture")
    return int(found[1]), int(found[2])


def use_of_cubin(cubin: bytes, target: Target, kernel: str, code: Function | None = None) -> FunctionUse:
    """What the cubin alone says of a kernel; the SASS adds its named barriers. Spills stay unknown.

    Raises ToolMissing, CompilerFailed, or KeyError if the cubin has no such kernel.
    """
    tool = cuda.cuobjdump()
    with tempfile.TemporaryDirectory(prefix="kdsl-") as folder:
        Path(folder, "kernel.cubin").write_bytes(cubin)
        command = [tool.path, "--dump-resource-usage", "kernel.cubin"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompilerFailed(" ".join([tool.name, *command[1:]]), done.stderr.strip()[:4000])
    reserved = int(target.fields["shared_reserved"]) if capability(target) >= (9, 0) else 0
    use = parse_usage(done.stdout, kernel, reserved)
    return evolve(use, barriers=named_barriers(code)) if code is not None else use


def parse_usage(text: str, kernel: str, reserved: int = 0) -> FunctionUse:
    """One kernel of `cuobjdump --dump-resource-usage`. From sm_90 on, SHARED of a kernel that uses any counts
    the 1 KiB that the driver reserves at its start: `reserved`, taken off."""
    found = re.search(rf"Function {re.escape(kernel)}:\s*\n\s*(REG:.*)", text)
    if found is None:
        names = ", ".join(re.findall(r"Function (\S+):", text)) or "none"
        raise KeyError(f"no kernel {kernel} in the cubin; it has: {names}")
    numbers = {name: int(value) for name, value in re.findall(r"([A-Z]+(?:\[\d+\])?):(\d+)", found[1])}
    shared = max(numbers.get("SHARED", 0) - reserved, 0)
    banks = tuple((int(n[9:-1]), size) for n, size in numbers.items() if n.startswith("CONSTANT["))
    return FunctionUse(kernel, True, numbers["REG"], numbers.get("STACK", 0), None, None, shared, 0, banks)


def named_barriers(code: Function) -> int:
    """Named barriers that a kernel's SASS takes: the highest number it names and one more; all where a
    register holds the number."""
    highest = -1
    for instruction in executing(code):
        if instruction.opcode != "BAR" or not instruction.operands:
            continue
        number = re.fullmatch(r"(0x[0-9a-f]+|\d+)", instruction.operands[0])
        highest = max(highest, int(number[1], 0) if number else NAMED_BARRIERS - 1)
    return highest + 1


def _by_registers(registers: int, per_warp: int, warps: int, registers_per_sm: int) -> int:
    if per_warp == 0:
        return registers_per_sm  # no limit
    checked = per_warp * _round_up(warps, PARTITIONS)  # what the hardware checks a launch for
    if registers > REGISTERS_PER_THREAD or checked > registers_per_sm:
        return 0
    return registers_per_sm // PARTITIONS // per_warp * PARTITIONS // warps


def _by_shared(block_shared: int, fields: Mapping[str, int]) -> int:
    if block_shared > fields["shared_bytes_per_block"] + fields["shared_reserved"]:
        return 0
    return fields["shared_per_sm"] // block_shared if block_shared else fields["shared_per_sm"]


def _barriers_per_sm(target: Target) -> int:
    """Two for each block slot on the data-centre parts (9.0, 10.0, 10.3), one on the others."""
    blocks = int(target.fields["blocks_per_sm"])
    return blocks * 2 if capability(target) in ((9, 0), (10, 0), (10, 3)) else blocks


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
