"""Products that begin with zeros say so to the Tensor Cores: no register is set to zero for them.

`wgmma` takes a predicate whether the sums that are there are added. A loop of zeros in front of a product that writes
all of them again is the same as a product whose first instruction does not add.
"""

from __future__ import annotations

from kdsl.lower.intrinsics.warpgroup import PREFIX, device_source, fresh_name, shape_of
from kdsl.lower.sourcemap import called, is_mark, rebuilt, with_bodies
from kdsl.lower.tvm import (
    BufferStore,
    Evaluate,
    For,
    SeqStmt,
    T,
    TensorLoad,
    is_integer,
    same_memory,
    sequence,
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
    return sequence(kept)


def begun_with_zeros(zeros, product):
    """The product that does not add, if `zeros` sets all that the product adds to; else None."""
    if not called(product).startswith(PREFIX):
        return None
    shape, (_, *operands, _) = shape_of(called(product)), product.value.args
    sums, stored = loaded(operands[0]), filled(zeros)
    if sums is None or stored is None or not same_memory(sums.source, stored.buffer):
        return None
    if int(zeros.extent) != shape.columns // 2 or not is_integer(sums.indices[0], 0):
        return None
    source = device_source(shape, fresh=True)
    return Evaluate(T.cuda.func_call(fresh_name(shape), *operands, source_code=source))


def filled(zeros):
    """The store of a loop that sets neighbouring numbers, from the first one on, to zero; None of another statement."""
    if not isinstance(zeros, For) or not isinstance(zeros.body, BufferStore) or not is_integer(zeros.min, 0):
        return None
    store = zeros.body
    zero = isinstance(store.value, tirx.FloatImm) and float(store.value.value) == 0.0
    return store if zero and store.indices[0].same_as(zeros.loop_var) else None


def loaded(address):
    """The element whose address an argument is."""
    found: list = []
    structural_walk(address, (TensorLoad, found.append))
    return found[0] if len(found) == 1 else None
