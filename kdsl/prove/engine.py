"""A program run on one call, in this process: over the fields, or over degrees."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np
from attrs import define, field, frozen

from kdsl.prove import meaning as m
from kdsl.prove import objects
from kdsl.prove.fields import Tower
from kdsl.prove.layout import Layout
from kdsl.prove.program import Program, Traced, runtime
from kdsl.prove.recurrence import Call

INDEX, DIVISION = 1, 2
WIDTH = 4  # draws that a program runs on at once, as in values.h
BESIDE = -1  # the copy of a program that runs over degrees


@frozen
class Situation:
    """A call with a place for every tensor: `layouts` by port; `written` are the operator's outputs."""

    call: Call
    layouts: Mapping[str, Layout]
    written: tuple[str, ...]
    integers: Mapping[str, np.ndarray] = field(factory=dict, eq=False)


@frozen(eq=False)
class Storage:
    """How an algebra's `val` lies in memory: its words, and what memory holds before it is written."""

    dtype: type
    unwritten: object
    words: int = 1

    def unused(self, count: int) -> np.ndarray:
        shape = (max(count, 1), self.words) if self.words > 1 else (max(count, 1),)
        if self.unwritten == 0:
            return np.zeros(shape, self.dtype)  # memory that costs nothing until it is touched
        return np.full(shape, self.unwritten, self.dtype)


FIELD = Storage(np.uint32, 0, WIDTH)
DEGREE = Storage(np.uint64, 0, 2)
INDETERMINATE = 1 << 32 | 1  # as degree.h packs it: of degree 1, its coefficient 1
FLOAT = Storage(np.float64, np.nan)


@frozen(eq=False)
class Record:
    """What one buffer held when its block was left. `at` gives the indices in scope."""

    traced: Traced
    at: tuple[tuple[str, int], ...]
    values: np.ndarray


@frozen(eq=False)
class Outcome:
    """`outputs` are logical arrays of reduced elements; bit 31 marks what was never written or fed by it.

    `fault` is None or the sentence of the first run-time fault; `division` a division by zero in the field;
    `changed` an input, or a gap between elements, that was written.
    """

    outputs: Mapping[str, np.ndarray]
    fault: str | None
    division: bool
    changed: tuple[str, ...]
    records: tuple[Record, ...] = ()


@define
class _Memory:
    """The storages of one run, by port and workspace; scalars by name. Keeps every ctypes object alive."""

    arrays: dict[str, np.ndarray] = field(factory=dict)
    before: dict[str, np.ndarray] = field(factory=dict)
    alive: list = field(factory=list)


def run_field(
    program: Program,
    draws: Sequence[tuple[Tower, Mapping[str, np.ndarray]]],
    situation: Situation,
    *,
    backwards: bool = False,
    tracing: bool = False,
    copy: int = 0,
) -> tuple[Outcome, ...]:
    """The outcome of each of at most WIDTH draws: a tower, and the logical uint64 arrays of the float inputs that
    are given, and of the scalars (shape ()). Only the first is traced. Threads that run at the same time give
    different numbers as `copy`."""
    library = objects.load(program.parts, runtime(), copy)
    lanes = [*draws, *[draws[-1]] * (WIDTH - len(draws))]
    _setup_field(library, program, [tower for tower, _ in lanes])
    memory, scalars = _Memory(), {}
    for name, layout in situation.layouts.items():
        given = [values[name] for _, values in lanes if name in values]
        storage = np.stack([layout.stored(array) for array in given] or [layout.unwritten()] * WIDTH, axis=1)
        level = program.levels.get(name)
        if level is not None:
            _convert(library.to_field, level, storage)
        memory.arrays[name], memory.before[name] = storage, storage.copy()
    for name, value in lanes[0][1].items():
        if value.shape == () and name in program.levels:
            scalars[name] = np.array([[int(values[name]) for _, values in lanes]], np.uint32)
            _convert(library.to_field, program.levels[name], scalars[name])
    report = _run(library, program, situation, memory, scalars, FIELD, backwards, tracing)
    outputs, changed = _after(library, program, situation, memory)
    records = tuple(_records(library, program)) if tracing else ()
    fault, division = _fault(program, report), report[0] == DIVISION
    return tuple(
        Outcome({n: a[..., lane] for n, a in outputs.items()}, fault, division, changed, () if lane else records)
        for lane in range(len(draws))
    )


def _after(library, program: Program, situation: Situation, memory: _Memory):
    """What the outputs hold, by name with the draws along the last axis, and what was written that is no output."""
    outputs, changed = {}, []
    for name, layout in situation.layouts.items():
        after = memory.arrays[name]
        written = name in situation.written and (name in situation.call.given)
        if not written and not np.array_equal(after, memory.before[name]):
            changed.append(name)
        elif written and not np.array_equal(layout.gaps(after), layout.gaps(memory.before[name])):
            changed.append(f"gaps of {name}")
        if written:
            after = after.copy()
            _convert(library.from_field, program.levels.get(name, 0), after)
            outputs[name] = layout.read(after)
    return outputs, tuple(changed)


def run_degree(program: Program, situation: Situation) -> tuple[int, int]:
    """The largest degree of an output element, and of an exponent."""
    library = objects.load(program.parts, runtime(), BESIDE)
    literals = [_linear(value) for value in program.exact_literals]
    library.setup_degree(len(literals), _words(literals))
    memory = _Memory()
    for name, layout in situation.layouts.items():
        memory.arrays[name] = np.zeros((layout.length, DEGREE.words), np.uint64)
        if name not in situation.written or name in situation.call.given | {"pool"}:
            memory.arrays[name][:, 0] = INDETERMINATE
    scalars = {name: np.array([[INDETERMINATE, 0]], np.uint64) for name in program.levels}
    _run(library, program, situation, memory, scalars, DEGREE, False, False)
    degrees = [
        int(memory.arrays[name][situation.layouts[name].positions, 0].max(initial=0) >> np.uint64(32))
        for name in situation.written
        if name in situation.layouts
    ]
    library.largest_exponent.restype = ctypes.c_uint32
    return max(degrees, default=0), int(library.largest_exponent())


def run_float(
    program: Program, situation: Situation, values: Mapping[str, np.ndarray], backwards: bool = False
) -> Mapping[str, np.ndarray] | None:
    """The outputs in double precision on ordinary numbers, NaN where never written; None after a fault."""
    library = objects.load((program.float_text,))
    literals = [float(value) for value in program.exact_literals] or [0.0]
    library.setup((ctypes.c_double * len(literals))(*literals))
    memory = _Memory()
    for name, layout in situation.layouts.items():
        memory.arrays[name] = FLOAT.unused(layout.length)
        if name in values:
            memory.arrays[name][layout.positions.reshape(-1)] = values[name].reshape(-1)
    scalars = {
        n: np.array([float(v)]) for n, v in values.items() if v.shape == () and n not in situation.layouts
    }
    report = _run(library, program, situation, memory, scalars, FLOAT, backwards, False)
    if report[0] == INDEX:
        return None
    return {
        n: situation.layouts[n].read(memory.arrays[n]) for n in situation.written if n in situation.call.given
    }


def _linear(value) -> int:
    return min(abs(value.numerator) * value.denominator, 1 << 29)


def _words(values) -> ctypes.Array:
    return (ctypes.c_uint32 * len(values))(*values)


def _convert(function, level: int, storage: np.ndarray) -> None:
    function(ctypes.c_int(level), ctypes.c_void_p(storage.ctypes.data), ctypes.c_int64(len(storage)))


def _setup_field(library, program: Program, towers: Sequence[Tower]) -> None:
    def lanes(rows):
        """Numbers of each tower, by row."""
        return _words([number for row in zip(*rows, strict=True) for number in row])

    literals = [
        [tower.literal(literal.value, level) for literal, level in program.literals] for tower in towers
    ]
    library.setup_field(
        ctypes.c_int(towers[0].depth),
        lanes([tower.primes for tower in towers]),
        lanes([[*tower.roots, 1] for tower in towers]),
        lanes([[tower.ln2 % p for p in tower.primes] for tower in towers]),
        lanes([tower.log2e for tower in towers]),
        (ctypes.c_uint64 * len(towers))(*[tower.salt for tower in towers]),
        ctypes.c_int(len(program.literals)),
        (ctypes.c_int * len(program.literals))(*[level for _, level in program.literals]),
        lanes(literals),
    )


def _run(
    library, program: Program, situation, memory, scalars, storage: Storage, backwards: bool, tracing: bool
) -> list[int]:
    tables, lengths = [], []
    for function in program.functions:
        arrays = [
            _argument(parameter, argument, situation, memory, scalars, storage)
            for parameter, argument in zip(function.func.params, function.arguments, strict=True)
        ]
        memory.alive += arrays
        tables.append((ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays]))
        lengths.append((ctypes.c_int64 * len(arrays))(*[len(array) for array in arrays]))
    every, sizes = (
        (ctypes.c_void_p * len(entries))(*[ctypes.addressof(entry) for entry in entries])
        for entries in (tables, lengths)
    )
    report = (ctypes.c_int64 * 4)()
    library.run(every, sizes, ctypes.c_int(backwards), ctypes.c_int(tracing), report)
    return list(report)


def _argument(
    parameter, argument, situation: Situation, memory: _Memory, scalars, storage: Storage
) -> np.ndarray:
    call, name = situation.call, argument.name
    if argument.kind == "tensor":
        if name in situation.integers:
            return situation.integers[name]
        return memory.arrays[name]
    if argument.kind == "workspace":
        if name not in memory.arrays:
            count = int(np.prod([whole(d, call.sizes) for d in parameter.shape], dtype=np.int64))
            memory.arrays[name] = storage.unused(count)
        return memory.arrays[name]
    if argument.kind == "scalar":
        return scalars[name]
    number = {
        "size": lambda: call.sizes[name],
        "given": lambda: int(name in call.given),
        "stride": lambda: situation.layouts[name].strides[argument.axis],
    }[argument.kind]()
    return np.array([number], np.int64)


def whole(e, sizes: Mapping[str, int]) -> int:
    """The value of an integer TIR expression of sizes."""
    k = m.kind(e)
    if k == "IntImm":
        return int(e.value)
    if k == "Var":
        return sizes[str(e.name)]
    if k == "Cast":
        return whole(e.value, sizes)
    a, b = whole(e.a, sizes), whole(e.b, sizes)
    return {
        "Add": lambda: a + b,
        "Sub": lambda: a - b,
        "Mul": lambda: a * b,
        "FloorDiv": lambda: a // b,
        "Div": lambda: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
        "Min": lambda: min(a, b),
        "Max": lambda: max(a, b),
    }[k]()


def _fault(program: Program, report: list[int]) -> str | None:
    if report[0] != INDEX:
        return None
    return f"{program.messages[report[1]]}: index {report[2]} of {report[3]}"


def _records(library, program: Program):
    length = ctypes.c_int64()
    library.trace_data.restype = ctypes.POINTER(ctypes.c_int64)
    data = library.trace_data(ctypes.byref(length))
    words = np.ctypeslib.as_array(data, (length.value,)).copy() if length.value else np.zeros(0, np.int64)
    library.trace_free()
    place = 0
    while place < len(words):
        number, keys, count = (int(x) for x in words[place : place + 3])
        traced = program.traced[number]
        start = place + 3 + keys
        at = tuple(zip(traced.indices, words[place + 3 : start].tolist(), strict=False))
        yield Record(traced, at, words[start : start + count].astype(np.uint32).reshape(traced.shape))
        place = start + count
