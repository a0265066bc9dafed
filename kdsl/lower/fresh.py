"""Products that begin with zeros say so to the Tensor Cores: no register is set to zero for them.

`wgmma` takes a predicate whether the sums that are there are added. A loop of zeros in front of a product that writes
all of them again is the same as a product whose first instruction does not add.
"""

from __future__ import annotations

from kdsl.lower.intrinsics.warpgroup import PREFIX, device_source, fresh_name, shape_of
from kdsl.lower.sourcemap import is_mark, rebuilt, with_bodies
from kdsl.lower.tvm import (
    BufferStore,
    Call,
    Evaluate,
    For,
    SeqStmt,
    StringImm,
    TensorLoad,
    same_memory,
    structural_walk,
    tirx,
)


def with_fresh_products(module):
    """The module without zeros in front of such products."""
    return with_bodies(module, changed)


def changed(statement):
    statement = rebuilt(statement, changed)
    if not isinstance(statement, SeqStmt):
        return statement
    kept: list = []
    for part in statement.seq:
        before = next((at for at in reversed(range(len(kept))) if not is_mark(kept[at])), None)
        fresh = begun_with_zeros(kept[before], part) if before is not None else None
        if fresh is not None:
            del kept[before]
        kept.append(part if fresh is None else fresh)
    return SeqStmt(kept) if len(kept) > 1 else kept[0]


def begun_with_zeros(zeros, product):
    """The product that does not add, if `zeros` sets all that the product adds to; else None."""
    call = product.value if isinstance(product, Evaluate) else None
    if not isinstance(call, Call) or not str(getattr(call.args[0], "value", "")).startswith(PREFIX):
        return None
    shape = shape_of(str(call.args[0].value))
    sums = loaded(call.args[1])
    stored = filled(zeros)
    if sums is None or stored is None or not same_memory(sums.source, stored.buffer):
        return None
    if int(zeros.extent) != shape.columns // 2 or not same_number(sums.indices[0], 0):
        return None
    name = fresh_name(shape)
    args = [arg if not is_text(arg) else renamed(arg, str(call.args[0].value), name, shape) for arg in call.args]
    return Evaluate(Call(call.op, args, call.attrs, call.ty_args, call.span, call.ty))


def filled(zeros):
    """The store of a loop that sets neighbouring numbers, from the first one on, to zero; None of another statement."""
    if not isinstance(zeros, For) or not isinstance(zeros.body, BufferStore) or not same_number(zeros.min, 0):
        return None
    store = zeros.body
    zero = isinstance(store.value, tirx.FloatImm) and float(store.value.value) == 0.0
    return store if zero and store.indices[0].same_as(zeros.loop_var) else None


def loaded(address):
    """The element whose address an argument is."""
    found: list = []
    structural_walk(address, (TensorLoad, found.append))
    return found[0] if len(found) == 1 else None


def same_number(e, value: int) -> bool:
    return isinstance(e, tirx.IntImm) and int(e.value) == value


def is_text(arg) -> bool:
    return isinstance(arg, StringImm)


def renamed(arg, old: str, new: str, shape):
    """An argument that names the function or is its source, of the other function."""
    return StringImm(new if str(arg.value) == old else device_source(shape, fresh=True))
