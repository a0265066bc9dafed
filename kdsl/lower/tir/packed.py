"""A launch axis of slots: which value of the parallel index, and of the sequential one, a block's slot belongs to.

An operator stores the steps of a sequential index at slots: `c in ... stored at slot(n, c) of SLOTS`. The steps of one
n lie next to each other, from slot(n, 0) on, and those of the next n behind them. So the n of a slot is the last one
whose first step is stored there or before it, which a search by halves finds: it reads what `slot` reads, for about
log2 of all n. The search ends, and finds an n that there is, whatever the tensors hold that `slot` reads.
"""

from __future__ import annotations

from kdsl.check.model import GridLoop
from kdsl.lower.tir.expressions import Scope, as_index, constant
from kdsl.lower.tvm import Bind, BufferStore, SeqStmt, Var, op, tirx


def slot_count(scope: Scope, loop: GridLoop):
    """How many slots the grid enumerates: none where the parallel index has no value."""
    indices = scope.signature.plan.operator.indices
    values = as_index(scope.value(indices[loop.within].extent))
    return as_index(scope.value(indices[loop.index].slots)) * op.min(values, constant(1, "int64"))


def unpacked(scope: Scope, loop: GridLoop, slot) -> dict[str, object]:
    """Both indices of a slot, found at the task's start and kept in registers.

    `slot` is the variable of the block. The sequential index is below 0, or not below its extent, where no step is
    stored in the slot.
    """
    signature = scope.signature
    values = scope.value(signature.plan.operator.indices[loop.within].extent)
    begin, low = signature.hold(f"v_{loop.within}", constant(0, "int32"))  # sizes and launch axes fit in 32 bits
    end, high = signature.hold(f"{loop.within}_high", as_index(values).astype("int32"))
    middle = Var(f"{loop.within}_middle", "int32")
    halve = SeqStmt([
        Bind(middle, low + (high - low) // 2),
        tirx.IfThenElse(first_slot(scope, loop, as_index(middle)) <= slot, stored(low, middle), stored(high, middle)),
    ])  # fmt: skip
    signature.bindings += [begin, end, tirx.While(high - low > constant(1, "int32"), halve)]
    outer = as_index(low)
    signature.task.append(outer)
    statement, step = signature.hold(f"v_{loop.index}", slot - first_slot(scope, loop, outer))
    signature.bindings.append(statement)
    signature.task.append(step)
    signature.slots[loop.index] = slot
    return {loop.within: outer, loop.index: step}


def first_slot(scope: Scope, loop: GridLoop, outer):
    """Where the steps of one value of the parallel index begin."""
    declared = scope.signature.plan.operator.indices[loop.index]
    return as_index(scope.with_indices({**scope.indices, loop.within: outer, loop.index: 0}).value(declared.slot))


def stored(load, value):
    return BufferStore(load.source, value, list(load.indices))
