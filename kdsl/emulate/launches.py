"""Launches as the caller gives them, and their buffers laid out in one memory."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

import numpy as np
from attrs import define, field, frozen

from kdsl.emulate.translate import Parameter

ROLES = ("input", "output", "updated", "workspace")
ALIGNMENT = 256  # of a device's allocations
_FORMAT = {
    "bool": "?", "char": "b", "int8_t": "b", "uint8_t": "B", "uchar": "B", "short": "h", "int16_t": "h",
    "uint16_t": "H", "int": "i", "int32_t": "i", "uint": "I", "unsigned": "I", "unsigned int": "I",
    "uint32_t": "I", "int64_t": "q", "long": "q", "long long": "q", "uint64_t": "Q", "size_t": "Q",
    "unsigned long long": "Q", "float": "f", "double": "d", "half": "e", "kdsl::F32": "Q",
}  # fmt: skip
_ELEMENT_BYTES = {"float": 4, "int": 4, "int32_t": 4, "half": 2, "nv_bfloat16": 2, "int64_t": 8, "double": 8,
                  "kdsl::F32": 4}  # fmt: skip


@frozen(eq=False)
class Buffer:
    """A NumPy array as the device sees it (uint16 for bfloat16), and what kernels may do with it.

    role: `input` is never written; `output` is filled with NaN, written throughout, and comes back; `updated`
    comes in and goes out; `workspace` is filled with NaN and what is read of it has to have been written. One
    array may be an argument of several launches.
    """

    array: np.ndarray
    role: str
    name: str = ""

    def __attrs_post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"role {self.role!r} is none of {', '.join(ROLES)}")
        if any(stride < 0 for stride in self.array.strides):
            raise ValueError(f"buffer {self.name!r} has a negative stride")
        if self.role == "output" and self.span != self.array.nbytes:
            raise ValueError(f"output {self.name!r} has gaps between its elements; give an array without")
        if self.role in ("output", "updated") and not self.array.flags.writeable:
            raise ValueError(f"buffer {self.name!r} is {self.role}, and its array is read-only")

    @property
    def address(self) -> int:
        return self.array.ctypes.data

    @property
    def span(self) -> int:
        """Bytes from the first element to the end of the last one."""
        if self.array.size == 0:
            return 0
        array = self.array
        return array.itemsize + sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))


@frozen
class Launch:
    """One kernel launch: CUDA text, symbol, grid and block (x, y, z), dynamic shared bytes, arguments in
    order.

    An argument is a Buffer, a number, None for a null pointer, or a read-only NumPy array, which is an input.
    """

    source: str = field(repr=False)
    symbol: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int
    arguments: Sequence[object] = field(repr=False)


@define
class Slot:
    """One buffer of the memory: `offset` is where it begins."""

    buffer: Buffer
    role: str
    name: str
    offset: int


def as_buffer(argument: object, parameter: Parameter, scale: int = 1) -> Buffer:
    """`scale`: bytes here for a byte of the device. Raises TypeError for what is no buffer, ValueError for elements of
    another size."""
    if isinstance(argument, np.ndarray) and not argument.flags.writeable:
        argument = Buffer(argument, "input", parameter.name)
    if not isinstance(argument, Buffer):
        raise TypeError(
            f"argument {parameter.name} is a pointer: give a Buffer(array, role), found {type(argument)}"
        )
    element = parameter.type_name.removeprefix("kdsl::Pointer<").removesuffix(">").removeprefix("const ")
    needed = _ELEMENT_BYTES.get(element)
    if needed is not None and argument.array.itemsize != needed * scale:
        raise ValueError(
            f"argument {parameter.name}: {element} has {needed * scale} bytes, found {argument.array.dtype}"
        )
    return argument


def bits_of(argument: object, parameter: Parameter) -> int:
    """A number as the bytes of its parameter, little-endian in 64 bits. Raises TypeError or ValueError."""
    if isinstance(argument, ctypes._SimpleCData):
        argument = argument.value
    if not isinstance(argument, (int, float, np.number, np.bool_)):
        raise TypeError(f"argument {parameter.name} is a number, found {type(argument)}")
    code = _FORMAT.get(parameter.type_name)
    if code is None:
        raise ValueError(f"argument {parameter.name}: no way to pass a {parameter.type_name}")
    value = float(argument) if code in "efd" else int(argument)
    try:
        packed = struct.pack("<" + code, value)
    except (struct.error, OverflowError):
        raise ValueError(f"argument {parameter.name}: {argument} is no {parameter.type_name}") from None
    return int.from_bytes(packed, "little")


@define
class Memory:
    """All buffers of a run in one range of bytes, each once, aligned as an allocation of its own would be."""

    slots: list[Slot] = field(factory=list)
    end: int = 0

    def place(self, buffer: Buffer, name: str) -> int:
        """The number of the buffer's slot. One array has one slot, with the widest of its roles.

        Raises ValueError for buffers that overlap in part.
        """
        for number, slot in enumerate(self.slots):
            if (slot.buffer.address, slot.buffer.span) == (buffer.address, buffer.span):
                slot.role = max(slot.role, buffer.role, key=("input", "workspace", "output", "updated").index)
                return number
            first, second = sorted((slot.buffer, buffer), key=lambda b: b.address)
            if first.span and second.span and first.address + first.span > second.address:
                raise ValueError(f"buffers {slot.name!r} and {name!r} overlap in part")
        offset = -(-self.end // ALIGNMENT) * ALIGNMENT + self._shift(buffer.array)
        self.slots.append(Slot(buffer, buffer.role, buffer.name or name, offset))
        self.end = offset + buffer.span
        return len(self.slots) - 1

    @staticmethod
    def _shift(array: np.ndarray) -> int:
        """A view keeps its alignment in the array that owns the memory."""
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        return (array.ctypes.data - owner.ctypes.data) % ALIGNMENT

    def write(self, path) -> None:
        """All contents to a file."""
        content = np.zeros(self.end + ALIGNMENT, np.uint8)
        for slot in self.slots:
            if slot.buffer.span:
                raw = (ctypes.c_ubyte * slot.buffer.span).from_address(slot.buffer.address)
                content[slot.offset : slot.offset + slot.buffer.span] = np.frombuffer(raw, np.uint8)
        content.tofile(path)

    def read_back(self, path) -> None:
        """What kernels may write, from the file into the caller's arrays."""
        content = np.fromfile(path, np.uint8)
        for slot in self.slots:
            array = slot.buffer.array
            if slot.role != "input" and array.flags.writeable and slot.buffer.span:
                found = np.ndarray(array.shape, array.dtype, content, slot.offset, array.strides)
                array[...] = found
