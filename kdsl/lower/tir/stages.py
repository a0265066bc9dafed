"""One stage as an sblock: its loops, what it reads, and the element it writes."""

from __future__ import annotations

from attrs import define, field

from kdsl.check.graph import strip
from kdsl.lower.tir.expressions import FLOAT, Scope, as_float, as_index, constant, is_number
from kdsl.lower.tir.function import Signature
from kdsl.lower.tvm import (
    BufferLoad,
    BufferStore,
    For,
    ForKind,
    IterVar,
    Range,
    SBlock,
    SBlockRealize,
    Var,
    op,
    sequence,
    tirx,
)
from kdsl.plan.model import KernelPlan, Plan, PlannedStage

DATA_PARALLEL, REDUCE, OPAQUE = IterVar.DataPar, IterVar.CommReduce, IterVar.Opaque
AS_STORED = ("copy", "ahead")  # kinds of stages that change no type


def point(buffer, indices):
    return tirx.BufferRegion(buffer, [Range.from_min_extent(i, 1) for i in indices])


def whole(buffer):
    return tirx.BufferRegion(buffer, [Range.from_min_extent(0, extent) for extent in buffer.shape])


@define
class StageBuilder:
    """Stages of one kernel over the memory that it has."""

    plan: Plan
    kernel: KernelPlan
    signature: Signature
    buffers: dict[str, object] = field(factory=dict)
    outer: dict[str, object] = field(factory=dict)  # grid and sequential indices as block variables
    offsets: dict[str, object] = field(factory=dict)  # where this block's tile of an index starts
    places: dict[str | None, object] = field(factory=dict)  # where tensors lie in workspaces, by their steps' index

    def stage_sblock(self, stage: PlannedStage):
        if stage.scan is None:
            return sequence([self.leaf_sblock(part, {})[0] for part in stage.unrolled])
        return self.scan_sblock(stage)

    def leaf_sblock(self, stage: PlannedStage, row):
        """The loops of a stage with its sblock; `row` has the index of a scan. Also the scope, and what it writes."""
        inner = [loop for loop in stage.loops if loop.kind != "scan"]
        variables = {loop.index: Var(f"v_{loop.index}", "int32") for loop in inner}
        scope = Scope(
            self.signature, self.buffers, {**self.outer, **row, **variables}, stage.renamed,
            stage.tensor if stage.scan is not None else None, self.offsets, dict(self.places),
        )  # fmt: skip
        body, init, write = self.statements(stage, scope)
        iters = [
            IterVar(Range.from_min_extent(0, loop.extent), variables[loop.index],
                    REDUCE if loop.kind == "reduce" else DATA_PARALLEL)
            for loop in inner
        ]  # fmt: skip
        # earlier rows of a scan are the row block's to declare: within a row nothing reads what it writes
        reads = [point(b, i) for b, i in unique(scope.loads) if b is not write[0]]
        block = SBlock(iters, reads, [point(*write)], stage.name, body, init=init)
        loops = [(Var(loop.index, "int32"), loop.extent) for loop in inner]
        return nest_loops(loops, SBlockRealize([loop for loop, _ in loops], True, block)), scope, write

    def scan_sblock(self, stage: PlannedStage):
        """The rows of a scan, one after the other: the row index is opaque to the schedule."""
        loop = next(loop for loop in stage.loops if loop.kind == "scan")
        counter, variable = Var(loop.index, "int32"), Var(f"v_{loop.index}", "int32")
        leaves = [self.leaf_sblock(inner, {loop.index: variable}) for inner in stage.unrolled]
        buffers = {b.name: b for _, scope, _ in leaves for b, _ in scope.loads}
        written = {write[0].name: write[0] for _, _, write in leaves}
        row = IterVar(Range.from_min_extent(0, loop.extent), variable, OPAQUE)
        block = SBlock([row], [whole(b) for b in buffers.values()], [whole(b) for b in written.values()],
                       stage.row_block, sequence([statement for statement, _, _ in leaves]))  # fmt: skip
        return nest_loops([(counter, loop.extent)], SBlockRealize([counter], True, block))

    def statements(self, stage: PlannedStage, scope: Scope):
        """Body, initial statement (or None) and the element written."""
        target = self.plan.operator.views.get(stage.tensor)
        if target is not None and stage.kind not in ("tile", *AS_STORED):
            value = self.value(stage, scope)
            return self.store(target, stage, scope, value)
        buffer, indices = scope.element(stage.tensor, [scope.indices[i] for i in stage.indices])
        if stage.stage is None or stage.stage.reduction is None:
            return write_element(buffer, indices, self.value(stage, scope)), None, (buffer, indices)
        initial = stage.stage.initial
        start = as_float(scope.value(initial)) if initial is not None else constant(0.0, FLOAT)
        return self.accumulate(stage, scope, buffer, indices, start)

    def accumulate(self, stage: PlannedStage, scope: Scope, buffer, indices, start):
        reduction = stage.stage.reduction
        term = as_float(self.term(stage, scope))
        for binder in reduction.binders:
            if binder.bound is not None:
                below = scope.indices[binder.name.text] < scope.value(binder.bound)
                term = op.if_then_else(below, term, constant(0.0, FLOAT))
        current = BufferLoad(buffer, indices)
        if reduction.operator == "maximum":
            update = op.max(current, term)
        else:
            update = current + term if stage.stage.sign > 0 else current - term
        return write_element(buffer, indices, update), write_element(buffer, indices, start), (buffer, indices)

    def term(self, stage: PlannedStage, scope: Scope):
        """What is summed. A product comes with the operand that has the rows first, as its instruction does."""
        body = strip(stage.stage.reduction.body)
        if stage.left is None:
            return scope.value(body)
        first, second = strip(body.left), strip(body.right)
        if stage.renamed.get(first.name.text, first.name.text) != stage.left:
            first, second = second, first
        return scope.value(first) * scope.value(second)

    def value(self, stage: PlannedStage, scope: Scope):
        if stage.stage is not None:
            return as_float(scope.value(stage.stage.initial))
        source = stage.source
        view = self.plan.operator.views.get(source.tensor)
        if view is not None and stage.kind != "round":  # which copies the tile that was fetched through it
            indices = [scope.position(i) for i in source.indices]
            return scope.raw_view(view, indices) if stage.kind in AS_STORED else scope.view(view, indices)
        if stage.kind in AS_STORED:
            return scope.load(*scope.element(source.tensor, [scope.position(i) for i in source.indices]))
        return scope.tensor(source.tensor, source.indices)

    def store(self, view, stage: PlannedStage, scope: Scope, value):
        """Write through a view: only where its condition holds."""
        inside = scope.inside(view, [scope.indices[i] for i in stage.indices])
        buffer = self.signature.port(view.port, written=True)
        indices = [as_index(inside.value(i)) for i in view.port_indices]
        statement = write_element(buffer, indices, value)
        condition = inside.value(view.condition) if view.condition is not None else True
        if not is_number(condition):
            statement = tirx.IfThenElse(condition, statement, None)
        return statement, None, (buffer, indices)


def write_element(buffer, indices, value):
    dtype = str(buffer.dtype)
    return BufferStore(buffer, value if str(value.ty.dtype) == dtype else value.astype(dtype), indices)


def nest_loops(loops, body):
    for variable, extent in reversed(loops):
        body = For(variable, constant(0, str(variable.ty.dtype)), extent, ForKind.SERIAL, body)
    return body


def unique(loads):
    seen, found = set(), []
    for buffer, indices in loads:
        key = (buffer.name, tuple(str(i) for i in indices))
        if key not in seen:
            seen.add(key)
            found.append((buffer, indices))
    return found
