"""Tiles of 16 x 16 numbers between a fragment and shared memory, as TVM tensor intrinsics.

`ldmatrix` gives every lane the elements that it has in an operand A, as they are, or widened, as those of two C side by
side are; `stmatrix` takes the latter, rounded. Matrix m of four is register m: rows by 8, then columns by 8. PTX ISA,
"ldmatrix" and "stmatrix".
"""

from __future__ import annotations

from functools import lru_cache

from attrs import frozen

from kdsl.lower.intrinsics.matrix import DTYPES, LEFT_ROWS, fragment_place, load_fragment, mma_place
from kdsl.lower.tvm import T, TensorIntrin
from kdsl.plan.cuda.tiles import LOAD, STORE, WIDE, tile_name

PREFIXES = (tile_name(LOAD), tile_name(STORE))
FILLING = tile_name(LOAD)  # what fills a fragment
SWIZZLED = "sw"
# From a register with two numbers of a tile to two of f32: {0} and {1} take the lower and the upper half of {2}.
WIDENED = {
    "bf16": "  {0} = __uint_as_float({2} << 16), {1} = __uint_as_float({2} & 0xffff0000u);",
    "f16": """\
  asm("{{.reg .b16 low, high; mov.b32 {{low, high}}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}}"
    : "=f"({0}), "=f"({1}) : "r"({2}));""",
}


@frozen
class Tile:
    """A device function. `wide`: of f32 in the fragment, where it would be as it is; `dtype` is that of the tile, which
    lies in memory as `stored` says, "mk" or "km", in a buffer that may be `swizzled`."""

    instruction: str
    swizzled: bool
    wide: bool
    dtype: str
    stored: str


def swizzled_name(name: str) -> str:
    """The device function for a tile of a swizzled buffer."""
    prefix = next(p for p in PREFIXES if name.startswith(p))
    return f"{prefix}_{SWIZZLED}{name.removeprefix(prefix)}"


def tile_of(name: str) -> Tile:
    _, instruction, *how, dtype, stored = name.split("_")
    return Tile(instruction, SWIZZLED in how, WIDE in how, dtype, stored)


def device_source(name: str) -> str:
    """CUDA of one tile: `f`, the lane's 8 numbers; `s`, the first element in shared memory, rows `lds` elements apart.
    Of a swizzled buffer, `s` is the buffer, and the tile begins `at` elements behind it (kdsl/lower/swizzle.py)."""
    tile = tile_of(name)
    _, ctype, ptx = DTYPES[tile.dtype]
    row, transposed = LEFT_ROWS[tile.stored].format(ld="lds"), tile.stored == "km"
    numbers = ", ".join([*(["int s_at, int s_shift, int s_mask"] if tile.swizzled else []), "int lds"])
    if tile.instruction == LOAD:
        given = [f"  reinterpret_cast<unsigned*>(f)[{m}] = s[{m}];" for m in range(4)]
        if tile.wide:
            given = [WIDENED[tile.dtype].format(f"f[{2 * m}]", f"f[{2 * m + 1}]", f"s[{m}]") for m in range(4)]
        held = "float" if tile.wide else ctype
        return "\n".join([
            f"__device__ __forceinline__ void {name}({held}* f, const {ctype}* s_, {numbers}) {{",
            "  int lane = threadIdx.x;",
            *load_fragment("s", transposed, row, tile.swizzled),
            *given,
            "}",
        ]) + "\n"  # fmt: skip
    rounded = [f'  asm("cvt.rn.{ptx}x2.f32 %0, %1, %2;" : "=r"(s[{m}]) : "f"(f[{2 * m + 1}]), "f"(f[{2 * m}]));'
               for m in range(4)]  # fmt: skip
    trans = ".trans" if transposed else ""
    return "\n".join([
        f"__device__ __forceinline__ void {name}(const float* f, {ctype}* s_, {numbers}) {{",
        "  int lane = threadIdx.x;",
        "  unsigned s[4];",
        *rounded,
        fragment_place("s", row, tile.swizzled),
        f'  asm volatile("stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [%0], {{%1,%2,%3,%4}};"',
        '    :: "r"(s_place), "r"(s[0]), "r"(s[1]), "r"(s[2]), "r"(s[3]) : "memory");',
        "}",
    ]) + "\n"  # fmt: skip


@lru_cache(maxsize=16)
def register(name: str) -> None:
    """Make the intrinsic known to TVM, once."""
    tile, source = tile_of(name), device_source(name)
    place = (lambda i, j: (i, j)) if tile.stored == "mk" else (lambda i, j: (j, i))
    dtype = DTYPES[tile.dtype][0]
    if tile.instruction == STORE:
        described, implemented = _stores(dtype, place), _store(dtype, name, source)
    else:
        held = "float32" if tile.wide else dtype
        described, implemented = _loads(dtype, held, place), _load(dtype, held, name, source)
    TensorIntrin.register(name, described, implemented, override=True)


def _loads(dtype: str, held: str, place):
    @T.prim_func(s_tir=True)
    def description(f: T.handle, s: T.handle):
        F = T.match_buffer(f, (32, 8), held, scope="warp", offset_factor=8)
        S = T.match_buffer(s, (16, 16), dtype, scope="shared.dyn", offset_factor=1)
        with T.sblock("root"):
            T.reads(S[0:16, 0:16])
            T.writes(F[0:32, 0:8])
            for i, j in T.grid(16, 16):
                with T.sblock("move"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    lane, slot = T.meta_var(mma_place(vi, vj))
                    row, column = T.meta_var(place(vi, vj))
                    T.reads(S[row, column])
                    T.writes(F[lane, slot])
                    F[lane, slot] = T.cast(T.cast(S[row, column], "float32"), held)

    return description


def _stores(dtype: str, place):
    @T.prim_func(s_tir=True)
    def description(s: T.handle, f: T.handle):
        S = T.match_buffer(s, (16, 16), dtype, scope="shared.dyn", offset_factor=1)
        F = T.match_buffer(f, (32, 8), "float32", scope="warp", offset_factor=8)
        with T.sblock("root"):
            T.reads(F[0:32, 0:8])
            T.writes(S[0:16, 0:16])
            for i, j in T.grid(16, 16):
                with T.sblock("move"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    lane, slot = T.meta_var(mma_place(vi, vj))
                    row, column = T.meta_var(place(vi, vj))
                    T.reads(F[lane, slot])
                    T.writes(S[row, column])
                    S[row, column] = T.cast(F[lane, slot], dtype)

    return description


def _load(dtype: str, held: str, name: str, source: str):
    @T.prim_func(s_tir=True)
    def implementation(f: T.handle, s: T.handle):
        s0 = T.int32()
        s1 = T.int32()
        F = T.match_buffer(f, (32, 8), held, scope="warp", offset_factor=8)
        S = T.match_buffer(s, (16, 16), dtype, scope="shared.dyn", offset_factor=1, strides=[s0, s1])
        with T.sblock("root"):
            T.reads(S[0:16, 0:16])
            T.writes(F[0:32, 0:8])
            for lane in T.thread_binding(32, "threadIdx.x"):
                T.evaluate(
                    T.cuda.func_call(name, T.address_of(F[lane, 0]), S.access_ptr("r"), s0, source_code=source)
                )

    return implementation


def _store(dtype: str, name: str, source: str):
    @T.prim_func(s_tir=True)
    def implementation(s: T.handle, f: T.handle):
        s0 = T.int32()
        s1 = T.int32()
        S = T.match_buffer(s, (16, 16), dtype, scope="shared.dyn", offset_factor=1, strides=[s0, s1])
        F = T.match_buffer(f, (32, 8), "float32", scope="warp", offset_factor=8)
        with T.sblock("root"):
            T.reads(F[0:32, 0:8])
            T.writes(S[0:16, 0:16])
            for lane in T.thread_binding(32, "threadIdx.x"):
                T.evaluate(
                    T.cuda.func_call(name, T.address_of(F[lane, 0]), S.access_ptr("w"), s0, source_code=source)
                )

    return implementation
