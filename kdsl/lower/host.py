"""Scheduled TIR to C: TVM's passes, a plain function with raw pointers, and TVM's C code generator.

The generated function runs the tasks [grid_begin, grid_end) of its grid; whoever calls it deals them to threads.
"""

from __future__ import annotations

import re

from attrs import frozen

from kdsl.lower.stir.schedule import ScheduledKernel
from kdsl.lower.tir.function import Argument
from kdsl.lower.tvm import (
    DeclBuffer,
    For,
    ForKind,
    PointerType,
    PrimFunc,
    PrimType,
    SeqStmt,
    TvmTarget,
    Var,
    s_transform,
    t_transform,
    tirx,
    tvm,
)

PRELUDE = """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef _Float16 half;
static inline uint32_t bits_of(float x) { uint32_t bits; memcpy(&bits, &x, sizeof bits); return bits; }
static inline float float_of(uint32_t bits) { float x; memcpy(&x, &bits, sizeof x); return x; }
"""
REINTERPRETED = re.compile(r"\(\*\((uint32_t|float) \*\)\(&\(")
EXPORT = '__attribute__((visibility("default"))) '


@frozen
class HostSource:
    """C of one kernel. `symbol` is its function, `arguments` what it takes, in order."""

    kernel: str
    symbol: str
    source: str
    arguments: tuple[Argument, ...]


def passes():
    """The lowering, in order. Vector loops stay loops: the C compiler fills its own lanes from them."""
    return [
        s_transform.CanonicalizeLoop(),
        s_transform.LowerInitBlock(),
        s_transform.PlanAndUpdateBufferAllocationLocation(),
        s_transform.ConvertBlocksToOpaque(),
        s_transform.LowerMatchBuffer(),
        t_transform.StmtSimplify(),
        s_transform.LowerOpaqueBlock(),
        t_transform.FlattenBuffer(),
        t_transform.BF16ComputeLegalize(),
        t_transform.VectorizeLoop(False),
        t_transform.UnrollLoop(),
        t_transform.StmtSimplify(),
        t_transform.RemoveNoOp(),
    ]


# TVM's C target knows no power of 2, though C does.
tirx.register_intrin_lowering(
    "tirx.exp2", "c", f=lambda call: tirx.call_pure_extern("float32", "exp2f", call.args[0]), level=99
)


def lower_host(kernel: ScheduledKernel) -> HostSource:
    module = kernel.module
    for step in passes():
        module = step(module)
    (func,) = module.functions.values()
    symbol = f"kdsl_{kernel.function.name}"
    func, arguments = raw_function(func, kernel.function.arguments, symbol)
    module = t_transform.BindTarget(TvmTarget("c"))(tvm.IRModule({symbol: func}))
    module = t_transform.BF16StorageLegalize()(module)
    module = t_transform.LowerIntrin()(module)
    generated = tvm.get_global_func("target.build.c")(module, TvmTarget("c")).inspect_source()
    return HostSource(kernel.function.name, symbol, clean(generated, symbol), arguments)


def raw_function(func: PrimFunc, arguments: tuple[Argument, ...], symbol: str):
    """Buffers become pointers, and the parallel grid loop becomes the range of tasks that the caller asks for."""
    pointers = {
        p.name: Var(p.name, PointerType(PrimType(str(p.dtype)), "global"))
        for p in func.params
        if isinstance(p.ty, tirx.BufferType)
    }
    begin, end = Var("grid_begin", "int64"), Var("grid_end", "int64")
    statements = []
    for statement in func.body.seq if isinstance(func.body, SeqStmt) else [func.body]:
        if isinstance(statement, DeclBuffer):
            statement = DeclBuffer(statement.buffer, data=pointers[str(statement.data).split(".")[0]])
        elif isinstance(statement, For) and statement.kind == ForKind.PARALLEL:
            statement = For(statement.loop_var, begin, end - begin, ForKind.SERIAL, statement.body)
        statements.append(statement)
    params = [pointers.get(p.name, p) for p in func.params] + [begin, end]
    raw = PrimFunc(params, SeqStmt(statements)).with_attr("global_symbol", symbol)
    return raw, (*arguments, Argument("grid_begin", ""), Argument("grid_end", ""))


def clean(generated: str, symbol: str) -> str:
    """The function alone: TVM's headers, export macros and forward declarations go, the C prelude comes."""
    body = generated[generated.rindex(f"TVM_DLL void {symbol}(") :]
    body = body.replace(f"TVM_DLL void {symbol}", f"{EXPORT}void {symbol}", 1)
    return PRELUDE + "\n" + reinterpreted(body).strip() + "\n"


def reinterpreted(text: str) -> str:
    """`(*(uint32_t *)(&(x)))` as `bits_of(x)`: TVM writes the first for any x, and C allows it for a variable only."""
    parts, position = [], 0
    while (found := REINTERPRETED.search(text, position)) is not None:
        stop, depth = found.end(), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(text[stop], 0)
            stop += 1
        value = reinterpreted(text[found.end() : stop - 1])
        name = "bits_of" if found.group(1) == "uint32_t" else "float_of"
        parts += [text[position : found.start()], f"{name}({value})"]
        position = stop + 2  # the parentheses around `&` and `*`
    return "".join([*parts, text[position:]])
