"""The proof of a TIRx function against a function of its inputs, a fiber for each thread.

    def product(a, call):                        # over elements of a field, or over degrees
        return {"C": (a["A"][:, None, :] * a["B"][None, :, :]).sum(-1)}

    proof = prove_tirx(func, product, written=("C",))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kdsl.lower.tir.function import Argument
from kdsl.lower.tirx import TirxSource, tirx_source
from kdsl.prove.algebra import Value
from kdsl.prove.cases import Case
from kdsl.prove.device import FLOATS, DeviceProgram, Kernel
from kdsl.prove.engine import Situation, whole
from kdsl.prove.layout import Layout
from kdsl.prove.meaning import kind
from kdsl.prove.proof import UNKNOWN, Proof
from kdsl.prove.recurrence import Call
from kdsl.prove.threads import Subject, prove_threads

DTYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "int32": "i32", "int64": "i64"}
Meaning = Callable[[Mapping[str, Value], Call], Mapping[str, Value]]


def prove_tirx(
    func,
    meaning: Meaning,
    *,
    written: tuple[str, ...],
    levels: Mapping[str, int] = {},
    sizes: Mapping[str, int] = {},
    integers: Mapping[str, np.ndarray] = {},
    target: str = "sm_90a",
    trials: int | None = None,
    seed: int | None = None,
) -> Proof:
    """Prove that the outputs of a TIRx function are `meaning` of its inputs, for one set of sizes.

    Buffers go by their names in the function. `written` are the outputs, which `meaning` gives whole; `levels` says
    which inputs are exponents (1) or exponents of exponents (2); `sizes` values the function's integer variables and
    parameters, `integers` its integer buffers.
    """
    source = tirx_source(func, target)
    buffers = {str(p.name): p for p in func.params if kind(p.ty) == "BufferType"}
    dtypes = {name: DTYPES[str(buffer.dtype)] for name, buffer in buffers.items()}
    unfilled = {n for n, buffer in buffers.items() if DTYPES[str(buffer.dtype)] not in FLOATS} - set(integers)
    known = set(buffers) - unfilled
    strange = [n for n, pointer in source.parameters if n not in (known if pointer else sizes)]
    if strange:
        return Proof(
            UNKNOWN,
            source.symbol,
            obstacle=f"the kernel takes `{strange[0]}`, which is no buffer of the function, and has no value",
            remedy="give `sizes` and `integers` their values; a tensor map has no description: copy in bulk by address",
        )
    call = Call(str(func.attrs["global_symbol"]), dict(sizes), {}, frozenset(buffers))
    layouts = {name: Layout.of(tuple(whole(d, sizes) for d in buffer.shape)) for name, buffer in buffers.items()}
    of_level = {name: levels.get(name, 0) for name, dtype in dtypes.items() if dtype in FLOATS}
    program = DeviceProgram((_kernel(source, dtypes),), dtypes, target)
    subject = Subject(
        call.operator,
        program,
        ((Case(_said(sizes), dict(sizes)), Situation(call, layouts, written, dict(integers))),),
        lambda inputs, call: {name: [((), value)] for name, value in meaning(inputs, call).items()},
        lambda call: of_level,
    )
    return prove_threads(subject, trials=trials, seed=seed)


def _said(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in sizes.items()) or "its own sizes"


def _kernel(source: TirxSource, dtypes: Mapping[str, str]) -> Kernel:
    arguments = tuple(
        Argument("tensor", name, dtypes[name]) if pointer else Argument("size", name)
        for name, pointer in source.parameters
    )
    *blocks, x, y, z = source.extents()
    return Kernel(
        source.symbol,
        source.source,
        source.symbol,
        tuple(_number(extent, {}) for extent in (x, y, z)),
        source.shared_bytes,
        arguments,
        lambda sizes: tuple(_number(extent, sizes) for extent in blocks),
    )


def _number(extent, sizes: Mapping[str, int]) -> int:
    return extent if isinstance(extent, int) else int(whole(extent, sizes))
