"""The text of a kernel run over the fields, one fiber for each thread of the device.

The text is what TVM generates for the device, after everything that happens past the proving point of the schedule:
storage and threads are merged, barriers and waits inserted, intrinsics are instructions. `kdsl.emulate` runs it;
here its memory is filled with elements of a tower and read back. A bfloat16 is one cell of 32 bits and a float32
two, as `kdsl/emulate/device/field/cells.h` says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np
from attrs import field, frozen

from kdsl.emulate.findings import Finding
from kdsl.emulate.launches import Buffer, Launch
from kdsl.emulate.refusal import RunnerFault
from kdsl.emulate.run import emulate
from kdsl.lower.tir.function import Argument
from kdsl.prove.engine import Outcome, Situation
from kdsl.prove.fields import TAINT, Tower

BITS = 28  # of an element, so of the first prime; the four above them are the tag
PAYLOAD = (1 << BITS) - 1
LITERAL = 6  # the tag of a constant
TAIL = 8 << BITS  # the lower half of a float32
UNWRITTEN = 0xFFFFFFFF
DEGREE_BITS = 14
MOST_DEGREE = (1 << DEGREE_BITS) - 1  # larger ones are not told apart
CELLS = {"bf16": np.uint32, "f16": np.uint32, "f32": np.uint64}
FLOATS = tuple(CELLS)
SECONDS = 120.0


@frozen
class Kernel:
    """The text of one kernel and how a call launches it. `grid` gives the blocks by the sizes of the call."""

    name: str
    source: str = field(repr=False)
    symbol: str
    threads: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[Argument, ...] = field(repr=False)
    grid: Callable[[Mapping[str, int]], tuple[int, int, int]] = field(repr=False)


@frozen
class DeviceProgram:
    """Kernels that run one after the other. `dtypes` of the ports; `workspaces` gives dtype and count of elements of
    the tensors between kernels, by the sizes of a call."""

    kernels: tuple[Kernel, ...]
    dtypes: Mapping[str, str]
    target: str
    workspaces: Callable[[Mapping[str, int]], Mapping[str, tuple[str, int]]] = field(
        default=lambda sizes: {}, repr=False
    )

    @property
    def digest(self) -> str:
        """Equal for equal texts."""
        return hashlib.sha256("\0".join(kernel.source for kernel in self.kernels).encode()).hexdigest()


@frozen(eq=False)
class DeviceOutcome:
    """What one run left, and what was wrong in it. `obstacle` says what the fields or the emulator cannot express."""

    outcome: Outcome
    findings: tuple[Finding, ...]
    obstacle: str | None
    exponents: int = 0
    softplus: bool = False
    random: bool = False


def tower_words(tower: Tower) -> str:
    """The tower as the runner reads it."""
    rows = zip(tower.primes, (*tower.roots, 1), [tower.ln2 % p for p in tower.primes], tower.log2e, strict=True)
    return " ".join(["elements", str(tower.depth), str(tower.salt), *(str(n) for row in rows for n in row)])


DEGREE_WORDS = "degrees 0 0"


def cells(values: np.ndarray, level: int, dtype: str) -> np.ndarray:
    """Elements of one level as memory holds them; bit 31 marks what nobody wrote."""
    values = values.astype(np.uint32)
    found = np.where(values & TAINT, np.uint32(UNWRITTEN), np.uint32(1 + level << BITS) | values)
    if dtype != "f32":
        return found.astype(np.uint32)
    low = np.where(found == UNWRITTEN, np.uint64(UNWRITTEN), np.uint64(TAIL))
    return found.astype(np.uint64) << np.uint64(32) | low


def elements(found: np.ndarray, level: int, constants: Sequence[int]) -> np.ndarray:
    """What memory holds as elements of a level, with bit 31 where that is none. Zeros may be plain zeros; `constants`
    are the elements that constants of the text stand for, in the runner's order."""
    upper = found if found.dtype == np.uint32 else (found >> np.uint64(32)).astype(np.uint32)
    lower = np.zeros_like(upper) if found.dtype == np.uint32 else (found & np.uint64(UNWRITTEN)).astype(np.uint32)
    tag, payload = upper >> BITS, upper & np.uint32(PAYLOAD)
    value = np.where(tag == 1 + level, payload, TAINT | np.uint32(777))
    for number, constant in enumerate(constants):
        value = np.where((tag == LITERAL) & (payload == number), np.uint32(constant), value)
    return np.where((upper == 0) & (lower == 0), np.uint32(0), value).astype(np.uint32)


def integer_cells(values: np.ndarray) -> np.ndarray:
    """Integers of 32 or 64 bits, two bytes of each in a cell."""
    whole = np.uint64 if values.dtype.itemsize == 4 else np.complex128  # a type of twice the bytes
    pieces = np.ascontiguousarray(values).reshape(-1).view(np.uint16).astype(np.uint32)
    return pieces.view(whole) if len(pieces) else np.zeros(0, whole)


def run_device(
    program: DeviceProgram,
    situation: Situation,
    values: Mapping[str, np.ndarray],
    levels: Mapping[str, int],
    tower: Tower | None,
    seed: int,
) -> DeviceOutcome:
    """One call over a tower, or over degrees without one. `values` are logical elements of the inputs and scalars
    (degrees need none); `seed` orders threads and says when copies arrive."""
    arrays = _storages(program, situation, values, levels, tower)
    before = {name: array.copy() for name, array in arrays.items()}
    words = DEGREE_WORDS if tower is None else tower_words(tower)
    launches = _launches(program, situation, arrays, values, levels, tower)
    try:
        result = emulate(launches, target=program.target, seed=seed, seconds=SECONDS, field=words)
    except RunnerFault as fault:
        return DeviceOutcome(Outcome({}, None, False, ()), (), f"the emulator failed: {fault}")
    outputs, changed = {}, []
    for name, layout in situation.layouts.items():
        written = name in situation.written and name in situation.call.given
        if name not in situation.integers and not written and not np.array_equal(arrays[name], before[name]):
            changed.append(name)
        elif written and not np.array_equal(layout.gaps(arrays[name]), layout.gaps(before[name])):
            changed.append(f"gaps of {name}")
        if written:
            outputs[name] = elements(
                layout.read(arrays[name]), levels[name], _constants(result.constants, levels[name], tower)
            )
    outcome = Outcome(outputs, None, bool(result.seen.get("division")), tuple(changed))
    return DeviceOutcome(
        outcome,
        result.findings,
        result.explain().removeprefix("unknown: ") if result.refusal is not None else None,
        result.seen.get("exponents", 0),
        bool(result.seen.get("softplus")),
        bool(result.seen.get("random")),
    )


def _constants(found: Sequence[tuple[float, int]], level: int, tower: Tower | None) -> list[int]:
    if tower is None:
        return [0] * len(found)
    p = tower.primes[level]
    symbols = (1, tower.log2e[level], tower.ln2 % p)
    return [tower.literal(Fraction(factor), level) * symbols[symbol] % p for factor, symbol in found]


def degree_of(outcome: Outcome) -> int:
    """The largest degree in the outputs of a run over degrees."""
    found = [array[array & TAINT == 0] >> DEGREE_BITS for array in outcome.outputs.values()]
    return max((int(array.max(initial=0)) for array in found), default=0)


def _storages(program, situation, values, levels, tower) -> dict[str, np.ndarray]:
    found = {}
    for name, layout in situation.layouts.items():
        if name in situation.integers:
            found[name] = integer_cells(situation.integers[name])
        elif tower is None:
            known = name not in situation.written or name == "pool" or name in values
            one = np.full(layout.shape, (1 << DEGREE_BITS | 1) if known else int(TAINT), np.uint64)
            found[name] = cells(layout.stored(one), levels.get(name, 0), program.dtypes[name])
        else:
            storage = layout.stored(values[name]) if name in values else layout.unwritten()
            found[name] = cells(storage, levels.get(name, 0), program.dtypes[name])
    return found


def _launches(program, situation, arrays, values, levels, tower) -> list[Launch]:
    call = situation.call
    buffers = {name: Buffer(array, _role(situation, name), name) for name, array in arrays.items()}
    spaces = {
        name: Buffer(np.full(max(count, 1), -1, np.int64).view(np.uint64).astype(CELLS[dtype]), "workspace", name)
        for name, (dtype, count) in program.workspaces(call.sizes).items()
    }

    def value(a: Argument):
        if a.kind == "scalar":
            one = np.array(1 << DEGREE_BITS | 1) if tower is None else values[a.name]
            return int(cells(one, levels[a.name], "f32"))
        return {
            "tensor": lambda: buffers[a.name] if a.name in call.given else None,
            "workspace": lambda: spaces[a.name],
            "size": lambda: call.sizes[a.name],
            "given": lambda: int(a.name in call.given),
            "stride": lambda: situation.layouts[a.name].strides[a.axis],
        }[a.kind]()

    found = []
    for kernel in program.kernels:
        grid = kernel.grid(call.sizes)
        if 0 not in grid:
            arguments = [value(a) for a in kernel.arguments]
            found.append(
                Launch(kernel.source, kernel.symbol, grid, kernel.threads, kernel.shared_bytes, arguments)
            )
    return found


def _role(situation: Situation, name: str) -> str:
    if name not in situation.written or name not in situation.call.given:
        return "input"
    return "updated" if name == "pool" else "workspace"
