"""Matrix instructions as TVM tensor intrinsics.

Each is a 16 x 16 x 16 product of a warp: operand A and the accumulator in registers as fragments, operand B read
from shared memory with ldmatrix. The device function has a name, so that the emulator and the prover know it too.
Fragment maps: PTX ISA, "Matrix Fragments for mma.m16n8k16".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from kdsl.lower.tvm import T, TensorIntrin

Place = Callable[[int, int], tuple[int, int]]


def mma_place(i, j):
    """Lane and slot of element (i, j) of a 16 x 16 tile: the same for A and for two adjacent C fragments."""
    return 4 * (i % 8) + (j % 8) // 2, 4 * (j // 8) + (i // 8) * 2 + (j % 2)


PREFIX = "kdsl_mma_"
DTYPES = {"bf16": ("bfloat16", "nv_bfloat16", "bf16"), "f16": ("float16", "half", "f16")}
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.{ptx}.{ptx}.f32"


def device_source(name: str) -> str:
    """CUDA of one product. `c`: the lane's 8 accumulators; `b`: the tile's first element in shared memory, rows `ldb`
    elements apart; `a`: 8 values of the lane's A fragment, or the tile's first element with rows `lda` apart. Of a
    swizzled operand, `a` or `b` is the buffer, and the tile begins `at` elements behind it (kdsl/lower/swizzle.py).
    """
    left_stored, dtype, stored = parts_of(name)
    _, ctype, ptx = DTYPES[dtype]
    exchanged = swizzled_operands(name)
    numbers = [f"int {x}_at, int {x}_shift, int {x}_mask" for x in exchanged]
    strides = ", ".join([*numbers, "int lda, int ldb" if left_stored else "int ldb"])
    lines = [
        f"__device__ __forceinline__ void {name}(float* c, const {ctype}* a_, const {ctype}* b_, {strides}) {{",
        "  int lane = threadIdx.x;",
    ]
    if left_stored:
        row = LEFT_ROWS[left_stored].format(ld="lda")
        lines += load_fragment("a", left_stored == "km", row, "a" in exchanged)
    else:
        lines.append("  const unsigned* a = reinterpret_cast<const unsigned*>(a_);")
    lines += load_fragment("b", stored == "kn", RIGHT_ROWS[stored].format(ld="ldb"), "b" in exchanged)
    lines += multiply(ptx, "a", "b", (0, 1), (2, 3))
    return "\n".join([*lines, "}"]) + "\n"


def multiply(ptx: str, a: str, b: str, *registers: tuple[int, int]) -> list[str]:
    """The two products of a 16 x 16 tile: `c` and four registers `a`, and of `b` those that hold 8 columns each."""
    product, lines = MMA.format(ptx=ptx), []
    for c, (low, high) in zip((0, 4), registers, strict=True):
        lines += [
            f'  asm volatile("{product} {{%0,%1,%2,%3}}, {{%4,%5,%6,%7}}, {{%8,%9}}, {{%0,%1,%2,%3}};"',
            f'    : "+f"(c[{c}]), "+f"(c[{c + 1}]), "+f"(c[{c + 2}]), "+f"(c[{c + 3}])',
            f'    : "r"({a}[0]), "r"({a}[1]), "r"({a}[2]), "r"({a}[3]), "r"({b}[{low}]), "r"({b}[{high}]));',
        ]
    return lines


# The row of a 16 x 16 tile that a lane names to ldmatrix.x4, as an offset in elements. Matrices 0 to 3 of the result
# are registers 0 to 3: of A the quarters (m, k), (m + 8, k), (m, k + 8), (m + 8, k + 8); of B (n, k), (n, k + 8),
# (n + 8, k), (n + 8, k + 8). Where rows run along the contraction the matrices arrive transposed.
ROWS_FIRST = "(lane & 15) * {ld} + (lane >> 4) * 8"
HALVES_FIRST = "((lane >> 4) * 8 + (lane & 7)) * {ld} + ((lane >> 3) & 1) * 8"
LEFT_ROWS = {"mk": ROWS_FIRST, "km": HALVES_FIRST}
RIGHT_ROWS = {"nk": HALVES_FIRST, "kn": ROWS_FIRST}


# Where a line is a row, or rows are whole lines, the exchanged pieces are those of the lane's own row: what the place
# of the tile in the line adds is then a constant, and addresses of neighbouring tiles differ by one operation.
EXCHANGED = """\
  int {x}_line = (1 << {x}_shift) - 1, {x}_span = ({x}_mask + 1) * 8 - 1;
  int {x}_row = ({x}_at & ~{x}_line) + {row}, {x}_in = {x}_at & {x}_line;
  int {x}_piece = ({x}_row >> {x}_shift & {x}_mask) << 3;
  int {x}_column = ({x}_in & ~{x}_span) + (({x}_in & {x}_span) ^ ({x}_piece ^ {column}));
  if (ld{x} & {x}_line) {{
    {x}_row = {x}_at + {row} + {column};
    {x}_column = ({x}_row ^ (({x}_row >> {x}_shift & {x}_mask) << 3)) - {x}_row;
  }}
  unsigned {x}_place = (unsigned)__cvta_generic_to_shared({x}_ + {x}_row) + {x}_column * 2;"""


def fragment_place(name: str, row: str, exchanged: bool = False) -> str:
    """The address of the lane's row, as shared memory has it."""
    if not exchanged:
        return f"  unsigned {name}_place = (unsigned)__cvta_generic_to_shared({name}_ + {row});"
    row, column = row.rsplit(" + ", 1)
    return EXCHANGED.format(x=name, row=row, column=column)


def load_fragment(name: str, transposed: bool, row: str, exchanged: bool = False) -> list[str]:
    """Four 8 x 8 matrices of an operand from shared memory, one register each."""
    trans = ".trans" if transposed else ""
    return [
        f"  unsigned {name}[4];",
        fragment_place(name, row, exchanged),
        f'  asm volatile("ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%0,%1,%2,%3}}, [%4];"',
        f'    : "=r"({name}[0]), "=r"({name}[1]), "=r"({name}[2]), "=r"({name}[3]) : "r"({name}_place));',
    ]


def swizzled_operands(name: str) -> str:
    """Of `kdsl_mma_swab_...`: ab."""
    head = name.removeprefix(PREFIX).partition("_")[0]
    return head.removeprefix("sw") if head in ("swa", "swb", "swab") else ""


def parts_of(name: str) -> tuple[str, str, str]:
    """How A lies (empty: in fragments), the dtype and how B lies, from an intrinsic's name."""
    *head, dtype, stored = name.split("_")
    return head[-1] if head[-1] in LEFT_ROWS else "", dtype, stored


@lru_cache(maxsize=16)
def register(name: str) -> None:
    """Make the intrinsic known to TVM, once."""
    left_stored, dtype, stored = parts_of(name)
    tvm_dtype, source = DTYPES[dtype][0], device_source(name)
    place_b = (lambda k, j: (j, k)) if stored == "nk" else (lambda k, j: (k, j))
    if left_stored:
        place_a = (lambda i, k: (i, k)) if left_stored == "mk" else (lambda i, k: (k, i))
        described = _description(tvm_dtype, (16, 16), "shared.dyn", 1, place_a, place_b)
        implemented = _implementation_shared(tvm_dtype, name, source)
    else:
        described = _description(tvm_dtype, (32, 8), "warp", 8, mma_place, place_b)
        implemented = _implementation(tvm_dtype, name, source)
    TensorIntrin.register(name, described, implemented, override=True)


def _description(dtype: str, shape_a: tuple[int, int], scope_a: str, factor_a: int, place_a, place_b):
    place = mma_place
    rows, columns = shape_a

    @T.prim_func(s_tir=True)
    def description(c: T.handle, a: T.handle, b: T.handle):
        C = T.match_buffer(c, (32, 8), "float32", scope="warp", offset_factor=8)
        A = T.match_buffer(a, (rows, columns), dtype, scope=scope_a, offset_factor=factor_a)
        B = T.match_buffer(b, (16, 16), dtype, scope="shared.dyn", offset_factor=1)
        with T.sblock("root"):
            T.reads(C[0:32, 0:8], A[0:rows, 0:columns], B[0:16, 0:16])
            T.writes(C[0:32, 0:8])
            for i, j, k in T.grid(16, 16, 16):
                with T.sblock("product"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    c_lane, c_slot = T.meta_var(place(vi, vj))
                    a0, a1 = T.meta_var(place_a(vi, vk))
                    b0, b1 = T.meta_var(place_b(vk, vj))
                    T.reads(C[c_lane, c_slot], A[a0, a1], B[b0, b1])
                    T.writes(C[c_lane, c_slot])
                    C[c_lane, c_slot] = C[c_lane, c_slot] + T.cast(A[a0, a1], "float32") * T.cast(B[b0, b1], "float32")

    return description


def _implementation(dtype: str, name: str, source: str):
    @T.prim_func(s_tir=True)
    def implementation(c: T.handle, a: T.handle, b: T.handle):
        s0 = T.int32()
        s1 = T.int32()
        C = T.match_buffer(c, (32, 8), "float32", scope="warp", offset_factor=8)
        A = T.match_buffer(a, (32, 8), dtype, scope="warp", offset_factor=8)
        B = T.match_buffer(b, (16, 16), dtype, scope="shared.dyn", offset_factor=1, strides=[s0, s1])
        with T.sblock("root"):
            T.reads(C[0:32, 0:8], A[0:32, 0:8], B[0:16, 0:16])
            T.writes(C[0:32, 0:8])
            for lane in T.thread_binding(32, "threadIdx.x"):
                T.evaluate(
                    T.cuda.func_call(
                        name, T.address_of(C[lane, 0]), T.address_of(A[lane, 0]), B.access_ptr("r"), s0,
                        source_code=source,
                    )
                )  # fmt: skip

    return implementation


def _implementation_shared(dtype: str, name: str, source: str):
    @T.prim_func(s_tir=True)
    def implementation(c: T.handle, a: T.handle, b: T.handle):
        s0 = T.int32()
        s1 = T.int32()
        t0 = T.int32()
        t1 = T.int32()
        C = T.match_buffer(c, (32, 8), "float32", scope="warp", offset_factor=8)
        A = T.match_buffer(a, (16, 16), dtype, scope="shared.dyn", offset_factor=1, strides=[t0, t1])
        B = T.match_buffer(b, (16, 16), dtype, scope="shared.dyn", offset_factor=1, strides=[s0, s1])
        with T.sblock("root"):
            T.reads(C[0:32, 0:8], A[0:16, 0:16], B[0:16, 0:16])
            T.writes(C[0:32, 0:8])
            for lane in T.thread_binding(32, "threadIdx.x"):
                T.evaluate(
                    T.cuda.func_call(
                        name, T.address_of(C[lane, 0]), A.access_ptr("r"), B.access_ptr("r"), t0, s0,
                        source_code=source,
                    )
                )  # fmt: skip

    return implementation
