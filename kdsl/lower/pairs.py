"""Numbers that go into 16-bit registers are rounded two at a time.

`u16[i] = (bfloat16)u[i]` for neighbouring i is one instruction for two of them, if it is written so: nvcc joins the
conversions of some expressions, and not those of what a product has left in its accumulators.
"""

from __future__ import annotations

from kdsl.lower.sourcemap import rebuilt, renamed, with_bodies
from kdsl.lower.tvm import BufferLoad, BufferStore, Cast, Evaluate, For, ForKind, T, Var, tirx

# dtype of a number -> the function that rounds two, and its CUDA
ROUNDED = {
    "bfloat16": ("kdsl_two_bf16", "nv_bfloat16", "nv_bfloat162", "__floats2bfloat162_rn"),
    "float16": ("kdsl_two_f16", "half", "half2", "__floats2half2_rn"),
}
REGISTERS = "local"


def source_of(dtype: str) -> str:
    name, one, two, rounds = ROUNDED[dtype]
    return (
        f"__device__ __forceinline__ void {name}({one}* to, float first, float second) {{\n"
        f"  *({two}*)to = {rounds}(first, second);\n}}\n"
    )


def with_pairs(module):
    """The module with roundings of neighbours to registers as roundings of two."""
    return with_bodies(module, changed)


def changed(statement):
    if not isinstance(statement, For) or not of_neighbours(statement):
        return rebuilt(statement, changed)
    store = statement.body
    half, value, index = Var(str(statement.loop_var.name), "int32"), store.value.value, store.indices[0]
    first, second = (half * 2 + tirx.IntImm("int32", more) if more else half * 2 for more in (0, 1))
    dtype = str(store.buffer.dtype)
    place = BufferLoad(store.buffer, [renamed(index, statement.loop_var, first)])
    values = [renamed(value, statement.loop_var, at) for at in (first, second)]
    two = T.cuda.func_call(ROUNDED[dtype][0], T.address_of(place), *values, source_code=source_of(dtype))
    return For(half, 0, int(statement.extent) // 2, statement.kind, Evaluate(two), None, statement.annotations)


def of_neighbours(loop) -> bool:
    """Whether a loop rounds numbers to neighbouring registers, an even number of them from an even one on."""
    store = loop.body
    if loop.kind != ForKind.UNROLLED or not isinstance(store, BufferStore) or not isinstance(store.value, Cast):
        return False
    if str(store.buffer.dtype) not in ROUNDED or store.buffer.scope() != REGISTERS or len(store.indices) != 1:
        return False
    rounded = str(store.value.ty.dtype) == str(store.buffer.dtype) and str(store.value.value.ty.dtype) == "float32"
    return rounded and int(loop.extent) % 2 == 0 and runs_over(store.indices[0], loop.loop_var)


def runs_over(index, variable) -> bool:
    """Whether an index is the variable, or that behind an even number."""
    if index.same_as(variable):
        return True
    even = isinstance(index, tirx.Add) and index.b.same_as(variable) and isinstance(index.a, tirx.Mul)
    return even and isinstance(index.a.b, tirx.IntImm) and int(index.a.b.value) % 2 == 0
