"""Products of a warpgroup, `wgmma.mma_async`, as TVM tensor intrinsics.

Each is a whole product of a warp's 16 rows: operand A and the accumulator in registers, in the fragments that
`mma.m16n8k16` has too, and operand B in shared memory, which the Tensor Cores read through descriptors. The four warps
of a warpgroup issue it together; it returns when the accumulators are there. Layouts and descriptors: PTX ISA,
"Asynchronous Warpgroup Level Matrix Multiply-Accumulate", where B lies in panels of `swizzle` bytes a row.
"""

from __future__ import annotations

from functools import lru_cache

from attrs import frozen

from kdsl.lower.intrinsics.matrix import DTYPES, mma_place
from kdsl.lower.tvm import T, TensorIntrin
from kdsl.plan.cuda.products import DESCRIBED_ROWS, whole_name

PREFIX = "kdsl_wgmma_"
DEPTH = 16  # of one instruction
ITEM = 2  # bytes of an element
LAYOUT = {32: 3, 64: 2, 128: 1}  # bits 62 and 63 of a descriptor, by the bytes of the swizzle
FENCE = "kdsl_fence_shared"
FENCE_SOURCE = f"""\
__device__ __forceinline__ void {FENCE}() {{
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}}
"""


@frozen
class Shape:
    """16 rows by `columns` by `depth`. `stored`: "nk", a row of B in memory is a column of the result, or "kn"."""

    columns: int
    depth: int
    dtype: str
    stored: str
    swizzle: int

    @property
    def name(self) -> str:
        return whole_name("wgmma.m64k16", self.columns, self.depth, self.dtype, self.stored, self.swizzle)

    @property
    def panel(self) -> int:
        """Elements of a row of a panel."""
        return self.swizzle // ITEM

    @property
    def rows(self) -> int:
        return self.columns if self.stored == "nk" else self.depth

    @property
    def panels(self) -> int:
        return (self.depth if self.stored == "nk" else self.columns) // self.panel

    @property
    def steps(self) -> tuple[int, ...]:
        """Where the part of B for each 16 of the depth begins, in elements from the first."""
        starts = range(0, self.depth, DEPTH)
        if self.stored == "kn":
            return tuple(k * self.panel for k in starts)
        return tuple(k // self.panel * self.rows * self.panel + k % self.panel for k in starts)

    @property
    def descriptor(self) -> int:
        """Of B without its address. Leading: from panel to panel, where the columns run over several; stride: from one
        group of rows to the next."""
        leading = self.rows * self.swizzle if self.stored == "kn" else 16
        stride = DESCRIBED_ROWS * self.swizzle
        return LAYOUT[self.swizzle] << 62 | (stride >> 4) << 32 | (leading >> 4) << 16


def shape_of(name: str) -> Shape:
    *_, extents, dtype, stored, swizzle = name.split("_")
    columns, depth = map(int, extents.split("x"))
    return Shape(columns, depth, dtype, stored, int(swizzle.removeprefix("sw")))


def fresh_name(shape: Shape) -> str:
    return f"{shape.name}_fresh"


def device_source(shape: Shape, fresh: bool = False) -> str:
    """CUDA of one product. `c`: the lane's accumulators, 8 for 16 columns; `a`: its fragments of A, 8 values for 16 of
    the depth; `b`: the first panel of B in shared memory, at a multiple of 8 rows. A `fresh` one does not add to what
    the accumulators hold."""
    _, ctype, ptx = DTYPES[shape.dtype]
    sums, steps = shape.columns // 2, shape.depth // DEPTH
    registers = ", ".join(f"%{i}" for i in range(sums))
    opcode = f"wgmma.mma_async.sync.aligned.m64n{shape.columns}k16.f32.{ptx}.{ptx}"
    transposed = int(shape.stored == "kn")
    issues = []
    for step in range(steps):
        a = ", ".join(f"%{sums + 4 * step + i}" for i in range(4))
        b = f"%{sums + 4 * steps + step}"
        adds = "add" if step or not fresh else "fresh"
        issues.append(f'    "{opcode} {{{registers}}}, {{{a}}}, {b}, {adds}, 1, 1, {transposed};"')
    outputs = ", ".join(f'"{"=" if fresh else "+"}f"(c[{i}])' for i in range(sums))
    name = fresh_name(shape) if fresh else shape.name
    predicates = ["{.reg .pred add; setp.ne.b32 add, 1, 0;", ".reg .pred fresh; setp.ne.b32 fresh, 0, 0;"]
    inputs = [f'"r"(a[{i}])' for i in range(4 * steps)]
    inputs += [f'"l"(b + {start * ITEM >> 4})' for start in shape.steps]
    return "\n".join([
        f"__device__ __forceinline__ void {name}(float* c, const {ctype}* a_, const {ctype}* b_) {{",
        "  const unsigned* a = reinterpret_cast<const unsigned*>(a_);",
        "  unsigned long long b = (unsigned)__cvta_generic_to_shared(b_);",
        f"  b = (b >> 4 & 0x3fff) | 0x{shape.descriptor:x}ull;",
        f'  asm volatile("{"".join(predicates[: 1 + fresh])}"',
        '    "wgmma.fence.sync.aligned;"',
        *issues,
        '    "wgmma.commit_group.sync.aligned;"',
        '    "wgmma.wait_group.sync.aligned 0;}"',
        f"    : {outputs}",
        f'    : {", ".join(inputs)} : "memory");',
        "}",
    ]) + "\n"  # fmt: skip


@lru_cache(maxsize=16)
def register(name: str) -> None:
    """Make the intrinsic known to TVM, once."""
    shape = shape_of(name)
    TensorIntrin.register(name, _description(shape), _implementation(shape), override=True)


def _description(shape: Shape):
    columns, depth, panel = shape.columns, shape.depth, shape.panel
    dtype = DTYPES[shape.dtype][0]
    place = mma_place
    if shape.stored == "nk":
        place_b = lambda j, k: (k // panel, j, k % panel)  # noqa: E731
    else:
        place_b = lambda j, k: (j // panel, k, j % panel)  # noqa: E731
    tiles, steps, panels, rows = columns // 16, depth // 16, shape.panels, shape.rows

    @T.prim_func(s_tir=True)
    def description(c: T.handle, a: T.handle, b: T.handle):
        C = T.match_buffer(c, (tiles, 32, 8), "float32", scope="warp", offset_factor=8)
        A = T.match_buffer(a, (steps, 32, 8), dtype, scope="warp", offset_factor=8)
        B = T.match_buffer(b, (panels, rows, panel), dtype, scope="shared.dyn", offset_factor=1)
        with T.sblock("root"):
            T.reads(C[0:tiles, 0:32, 0:8], A[0:steps, 0:32, 0:8], B[0:panels, 0:rows, 0:panel])
            T.writes(C[0:tiles, 0:32, 0:8])
            for i, j, k in T.grid(16, columns, depth):
                with T.sblock("product"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    c_lane, c_slot = T.meta_var(place(vi, vj % 16))
                    a_lane, a_slot = T.meta_var(place(vi, vk % 16))
                    b0, b1, b2 = T.meta_var(place_b(vj, vk))
                    T.reads(C[vj // 16, c_lane, c_slot], A[vk // 16, a_lane, a_slot], B[b0, b1, b2])
                    T.writes(C[vj // 16, c_lane, c_slot])
                    C[vj // 16, c_lane, c_slot] = C[vj // 16, c_lane, c_slot] + T.cast(
                        A[vk // 16, a_lane, a_slot], "float32"
                    ) * T.cast(B[b0, b1, b2], "float32")

    return description


def _implementation(shape: Shape):
    name, source, dtype = shape.name, device_source(shape), DTYPES[shape.dtype][0]
    tiles, steps, panels, rows, panel = shape.columns // 16, shape.depth // 16, shape.panels, shape.rows, shape.panel

    @T.prim_func(s_tir=True)
    def implementation(c: T.handle, a: T.handle, b: T.handle):
        C = T.match_buffer(c, (tiles, 32, 8), "float32", scope="warp", offset_factor=8)
        A = T.match_buffer(a, (steps, 32, 8), dtype, scope="warp", offset_factor=8)
        B = T.match_buffer(b, (panels, rows, panel), dtype, scope="shared.dyn", offset_factor=1)
        with T.sblock("root"):
            T.reads(C[0:tiles, 0:32, 0:8], A[0:steps, 0:32, 0:8], B[0:panels, 0:rows, 0:panel])
            T.writes(C[0:tiles, 0:32, 0:8])
            for lane in T.thread_binding(32, "threadIdx.x"):
                T.evaluate(
                    T.cuda.func_call(
                        name, T.address_of(C[0, lane, 0]), T.address_of(A[0, lane, 0]), B.access_ptr("r"),
                        source_code=source,
                    )
                )  # fmt: skip

    return implementation
