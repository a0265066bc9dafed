"""Rows of shared memory with their 16-byte pieces exchanged by the number of the row: copies write them so, and matrix
loads, or copies of whole pieces, read them so. Nothing else may touch such a tensor: the derivation sees to that.

Piece p of line n lies where piece `p ^ (n & mask)` would: a line is a row, or 128 bytes of shorter rows. A pass
exchanges the places in the TIR after TVM has flattened the buffers, where a place is one offset.
"""

from __future__ import annotations

from attrs import frozen

from kdsl.check.model import DTYPE_BYTES
from kdsl.lower.intrinsics import tiles
from kdsl.lower.intrinsics.matrix import PREFIX, device_source
from kdsl.lower.sourcemap import called, rebuilt
from kdsl.lower.tvm import BufferLoad, Evaluate, T, TensorLoad, structural_map, tirx, tvm
from kdsl.plan.model import KernelPlan, Tensor

ATTRIBUTE = "kdsl.swizzles"
PIECE = 16  # bytes
LINE = 128  # bytes of all banks
EXCHANGED = "kdsl_exchanged"
EXCHANGED_SOURCE = """\
__device__ __forceinline__ int kdsl_exchanged(int at, int bits) {
  int place;
  asm("xor.b32 %0, %1, %2;" : "=r"(place) : "r"(at), "r"(bits));
  return place;
}
"""
SUFFIX = "_shared.dyn"  # what TVM adds to the names of buffers in shared memory


@frozen
class Swizzle:
    """Of a buffer: a line has `1 << shift` elements, a piece `1 << piece`; `mask + 1` pieces change places."""

    shift: int
    mask: int
    piece: int

    def of(self, at):
        """The place of the element that would lie at `at` without it; integers of any kind."""
        return at ^ self.exchanged(at)

    def exchanged(self, at):
        """Bits that change in the place of an element: they tell its row."""
        return ((at >> self.shift) & self.mask) << self.piece

    @property
    def span(self) -> int:
        """Elements within which places change."""
        return (self.mask + 1) << self.piece


def swizzle_of(tensor: Tensor) -> Swizzle:
    item = DTYPE_BYTES[tensor.dtype]
    line = max((tensor.panel or tensor.shape[-1]) * item, LINE) // item
    return Swizzle(line.bit_length() - 1, tensor.swizzle // PIECE - 1, (PIECE // item).bit_length() - 1)


def attributes(kernel: KernelPlan) -> dict[str, str]:
    """What a kernel's function says of its swizzled tensors; nothing where there are none."""
    found = {f"{tensor.name}{'' if tensor.name in kernel.passed else SUFFIX}": swizzle_of(tensor)
             for tensor in kernel.tensors.values() if tensor.swizzle and tensor.scope != "passed"}  # fmt: skip
    found |= {name: swizzle_of(ring) for name, ring in kernel.passes.items() if ring.swizzle}
    text = " ".join(f"{name}:{s.shift}:{s.mask}:{s.piece}" for name, s in found.items())
    return {ATTRIBUTE: text} if text else {}


def swizzles_of(func) -> dict[str, Swizzle]:
    """By the names of TVM's buffers."""
    text = str(func.attrs[ATTRIBUTE]) if ATTRIBUTE in func.attrs else ""
    parts = (word.split(":") for word in text.split())
    return {name: Swizzle(*map(int, numbers)) for name, *numbers in parts}


def with_swizzles(module):
    """The module with every access of a swizzled buffer at its place."""
    found = {}
    for name, func in module.functions.items():
        swizzles = swizzles_of(func)
        found[name] = func.with_body(placed(func.body, swizzles)) if swizzles else func
    return tvm.IRModule(found, attrs=module.attrs)


def placed(statement, swizzles: dict[str, Swizzle]):
    if isinstance(statement, tirx.BufferStore):
        value, indices = structural_map(statement.value, (TensorLoad, lambda load: loaded(load, swizzles))), None
        if str(statement.buffer.name) in swizzles:
            indices = stored_at(statement.indices, swizzles[str(statement.buffer.name)])
        return tirx.BufferStore(statement.buffer, value, indices or statement.indices)
    if called(statement).startswith(PREFIX):
        return Evaluate(product(statement.value, swizzles))
    if called(statement).startswith(tiles.PREFIXES):
        return Evaluate(tile(statement.value, swizzles))
    return rebuilt(statement, lambda inner: placed(inner, swizzles))


def loaded(load, swizzles: dict[str, Swizzle]):
    """A load of neighbours in one piece: their place is a multiple of their number, as one access of memory needs."""
    swizzle = swizzles.get(str(load.source.name))
    if swizzle is None:
        return load
    (index,) = load.indices
    if not isinstance(index, tirx.Ramp):
        return BufferLoad(load.source, [place(index, swizzle)])
    lanes = int(index.lanes)
    by = lanes.bit_length() - 1
    counted = Swizzle(swizzle.shift - by, swizzle.mask, swizzle.piece - by)
    base = place(tirx.floordiv(index.base, lanes), counted) * lanes
    return BufferLoad(load.source, [tirx.Ramp(base, index.stride, lanes)])


def stored_at(indices, swizzle: Swizzle) -> list:
    """Where elements of a buffer lie: one, or neighbours in one piece."""
    (index,) = indices
    if isinstance(index, tirx.Ramp):
        return [tirx.Ramp(place(index.base, swizzle), index.stride, index.lanes)]
    return [place(index, swizzle)]


def place(index, swizzle: Swizzle):
    """The place of an element of a buffer. Parts of its index that are multiples of the span stay outside of the
    exclusive or, which the compiler is kept from moving: elements a constant apart then share an address."""
    outside = [part for part in summands(index) if multiple_of(part) % swizzle.span == 0]
    inside = [part for part in summands(index) if multiple_of(part) % swizzle.span]
    if not outside or not inside:
        return swizzle.of(index)
    exchanged = T.cuda.func_call(EXCHANGED, sum(inside[1:], inside[0]), swizzle.exchanged(index),
                                 source_code=EXCHANGED_SOURCE, return_type="int32")  # fmt: skip
    return sum(outside[1:], outside[0]) + exchanged


def summands(index) -> list:
    if isinstance(index, tirx.Add):
        return [*summands(index.a), *summands(index.b)]
    return [index]


def multiple_of(part) -> int:
    """A power of two or more that a summand is a multiple of."""
    if isinstance(part, tirx.IntImm):
        return int(part.value)
    if isinstance(part, tirx.Mul):
        return multiple_of(part.a) * multiple_of(part.b)
    return 1


def exchanged_pointer(pointer, swizzles: dict[str, Swizzle]):
    """A pointer into a swizzled buffer as that to its start and (offset, shift, mask); another one, and nothing."""
    buffer = str(pointer.args[1].args[0].name) if pointer.op.name.endswith("tvm_access_ptr") else ""
    if buffer not in swizzles:
        return pointer, []
    kind, data, offset, extent, mode = pointer.args
    return T.tvm_access_ptr(kind, data, 0, extent, mode), [offset, swizzles[buffer].shift, swizzles[buffer].mask]


def tile(call, swizzles: dict[str, Swizzle]):
    """The call that moves a tile of a swizzled buffer by its start, the offset in it, and the swizzle."""
    name, fragment, shared, stride, _ = call.args
    pointer, numbers = exchanged_pointer(shared, swizzles)
    if not numbers:
        return call
    new = tiles.swizzled_name(str(name.value))
    return T.cuda.func_call(new, fragment, pointer, *numbers, stride, source_code=tiles.device_source(new))


def product(call, swizzles: dict[str, Swizzle]):
    """The call of a product with swizzled operands by their buffer's start, the offset in it, and the swizzle."""
    name, c, a, b, *rest = call.args
    *strides, _ = rest
    which, extra, pointers = "", [], [a, b]
    for number, letter in enumerate("ab"):
        pointers[number], numbers = exchanged_pointer(pointers[number], swizzles)
        extra += numbers
        which += letter if numbers else ""
    if not which:
        return call
    new = str(name.value).replace(PREFIX, f"{PREFIX}sw{which}_")
    return T.cuda.func_call(new, c, *pointers, *extra, *strides, source_code=device_source(new))


