"""Scheduled TIR to CUDA C++: TVM's passes in our order, and TVM's CUDA code generator. nvcc is ours to call."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from attrs import field, frozen

from kdsl.lower.copies import filling, without_round_trips
from kdsl.lower.counting import with_narrow_steps
from kdsl.lower.fresh import with_fresh_products
from kdsl.lower.guards import with_joined_guards
from kdsl.lower.intrinsics.warpgroup import PREFIX as DESCRIBED
from kdsl.lower.pairs import with_pairs
from kdsl.lower.sourcemap import SourceMap, marked_module, unmarked
from kdsl.lower.stir.schedule import ScheduledKernel
from kdsl.lower.strides import with_strides
from kdsl.lower.swizzle import with_swizzles
from kdsl.lower.tir.function import Argument
from kdsl.lower.together import with_rows_together
from kdsl.lower.turns import with_turns
from kdsl.lower.tvm import AllocBuffer, TvmTarget, s_transform, t_transform, tvm
from kdsl.lower.warp_memory import lower_warp_memory

MIN_BLOCKS = "tirx.launch_bounds_min_blocks_per_sm"
IN_REGISTERS = (with_strides, with_narrow_steps, with_fresh_products, with_pairs)  # after fragments are registers
DEVICE_CALL = 2  # TVM's calling convention of a device function
CONFIG = {
    "tirx.use_async_copy": True,
    "tirx.disable_cse_tir": True,
    "tirx.UnrollLoop": {"explicit_unroll": False},  # `#pragma unroll`, not text
}


@frozen
class CudaSource:
    """CUDA of one kernel. `arguments` in the order of the device function; `shared_bytes` is dynamic shared
    memory; `lines` says which lines of the source are of which stage."""

    kernel: str
    symbol: str
    source: str
    arguments: tuple[Argument, ...]
    shared_bytes: int
    threads: tuple[int, ...]
    lines: SourceMap = field(factory=SourceMap, repr=False)


def passes(*own):
    """The lowering, in order; `own` are passes on the stages of one kernel."""
    return [
        s_transform.CanonicalizeLoop(),
        s_transform.LowerCrossThreadReduction(),
        s_transform.LowerInitBlock(),
        s_transform.PlanAndUpdateBufferAllocationLocation(),
        s_transform.ConvertBlocksToOpaque(),
        s_transform.LiftThreadBinding(),
        s_transform.CompactBufferAllocation(),
        s_transform.UnifyThreadBinding(),
        s_transform.LowerMatchBuffer(),
        t_transform.StmtSimplify(),
        s_transform.AnnotateIrregularLoop(),
        s_transform.InjectSoftwarePipeline(),
        s_transform.LowerOpaqueBlock(),
        t_transform.FlattenBuffer(),
        t_transform.BF16ComputeLegalize(),
        without_round_trips,
        t_transform.StmtSimplify(),
        t_transform.VectorizeLoop(True),
        s_transform.LowerAsyncDMA(),
        t_transform.UnrollLoop(),
        s_transform.RenormalizeSplitPattern(),
        t_transform.StmtSimplify(),
        t_transform.RemoveNoOp(),
        s_transform.RewriteUnsafeSelect(),
        t_transform.VerifyMemory(),
        t_transform.AnnotateEntryFunc(),
        s_transform.ThreadSync("warp"),
        s_transform.InferFragment(),
        s_transform.LowerThreadAllreduce(),
        with_swizzles,
        s_transform.InjectPTXAsyncCopy(),
        *own,
        s_transform.MergeSharedMemoryAllocations(),
        with_joined_guards,
        t_transform.SplitHostDevice(),
    ]


def lower_cuda(
    kernel: ScheduledKernel,
    arch: str,
    threads: tuple[int, ...],
    stages: tuple[str, ...] = (),
    resident: int | None = None,
    turns: Mapping[str, int] | None = None,
    together: Sequence[Sequence[str]] = (),
    at_once: int = 1,
) -> CudaSource:
    """CUDA C++ of a scheduled kernel for `arch` (as nvcc names it: sm_90a), with the lines of `stages`.

    `resident` is how many blocks an SM must be able to hold: it bounds the registers.
    """
    target = TvmTarget({"kind": "cuda", "arch": arch}, host="llvm")
    with tvm.transform.PassContext(config=CONFIG):
        module = t_transform.BindTarget(target)(marked_module(kernel.module, stages))
        for step in passes(with_turns(turns or {}, stages, threads[-1]), with_rows_together(together, stages, at_once)):
            module = step(module)
        (func,) = t_transform.Filter(is_device)(module).functions.values()
        shared = shared_bytes(func.body)
        module = lower_warp_memory(func)
        for step in (t_transform.StmtSimplify(), t_transform.LowerIntrin(), *IN_REGISTERS):
            module = step(module)
        (func,) = module.functions.values()
        if resident is not None:
            func = func.with_attr(MIN_BLOCKS, resident)
            module = tvm.IRModule({str(func.attrs["global_symbol"]): func})
        source = tvm.get_global_func("target.build.cuda")(module, target).inspect_source()
    by_label = dict(zip(kernel.function.labels, kernel.function.arguments))
    arguments = tuple(by_label[str(p.name).removesuffix("_ptr")] for p in func.params)
    symbol = str(func.attrs["global_symbol"])
    text, lines = unmarked(plain_source(source, symbol), stages)
    return CudaSource(kernel.function.name, symbol, text, arguments, shared, threads, lines)


def is_device(func) -> bool:
    return "calling_conv" in func.attrs and int(func.attrs["calling_conv"]) == DEVICE_CALL


def shared_bytes(statement) -> int:
    """Bytes of dynamic shared memory, after TVM has merged the allocations: of bytes, unless there is but one."""
    if isinstance(statement, AllocBuffer) and statement.buffer.scope() == "shared.dyn":
        bits = int(re.search(r"\d+$", str(statement.buffer.dtype)).group())
        return math.prod(int(extent) for extent in statement.buffer.shape) * bits // 8
    parts = getattr(statement, "seq", None) or [getattr(statement, "body", None)]
    return sum(shared_bytes(part) for part in parts if part is not None)


# TVM's vector of four 16-bit numbers is copied member by member, which nvcc makes four accesses of.
FOUR_AT_ONCE = """\
  __host__ __device__ half4_bfloat164(const half4_bfloat164& other) { *this = other; }
  __host__ __device__ half4_bfloat164& operator=(const half4_bfloat164& other) {
    *reinterpret_cast<uint2*>(this) = *reinterpret_cast<const uint2*>(&other);
    return *this;
  }
"""
FOUR_BY_MEMBER = re.compile(r"(  __host__ __device__ half4_bfloat164\(T x, T y, T z, T w\)[^\n]*\n)")


def plain_source(source: str, symbol: str) -> str:
    """TVM's text without the declaration that only repeats the definition, and with helpers as they are needed:
    copies whose source is counted in 64 bits (TVM's take an `int`, and tensors have more than 2^31 elements), and
    vectors of four 16-bit numbers that are one access of memory."""
    source = re.sub(r"(ptx_cp_async\w*\(void\* dst, int dst_off, void\* src, )int( src_off)", r"\1int64_t\2", source)
    if DESCRIBED in source:  # the runtime's own part of shared memory ends at a multiple of 1024 bytes
        source = source.replace("extern __shared__ __align__(64)", "extern __shared__ __align__(1024)")
    source = filling(source)
    source = FOUR_BY_MEMBER.sub(lambda found: found[1] + FOUR_AT_ONCE, source)
    declaration = re.search(rf'^extern "C" __global__ [^\n]*\b{symbol}\([^\n]*\);\n', source, re.MULTILINE)
    return source.replace(declaration.group(0), "", 1) if declaration else source
