"""A kernel's plan as a TIR function: one sblock for each stage, nested as grid, step, body and commit.

    sblock KERNEL (grid indices)            what one task does
      sblock state_load                     carried tensors start
      for c: sblock KERNEL_step
        sblock KERNEL_body                  the stages, one sblock each, in the plan's order
        sblock state_commit                 carried tensors move on
      sblock state_store

The carried tensors live outside KERNEL_body, so that scheduling a stage there never meets a loop-carried read.
"""

from __future__ import annotations

from attrs import define, field, frozen

from kdsl.lower.tir.expressions import FLOAT, Scope, as_float, as_index, constant, is_number
from kdsl.lower.tir.function import Argument, Signature, local_buffer
from kdsl.lower.tvm import (
    BufferLoad,
    BufferStore,
    For,
    ForKind,
    IterVar,
    PrimFunc,
    Range,
    SBlock,
    SBlockRealize,
    SeqStmt,
    Var,
    op,
    tirx,
)
from kdsl.plan.model import KernelPlan, Plan, PlannedStage, grid_loop

DATA_PARALLEL, REDUCE, OPAQUE = IterVar.DataPar, IterVar.CommReduce, IterVar.Opaque


@frozen
class KernelFunction:
    """The unscheduled function, what its arguments are, and how many tasks its grid has."""

    name: str
    func: object
    arguments: tuple[Argument, ...]


def build_function(plan: Plan, kernel: KernelPlan) -> KernelFunction:
    builder = KernelBuilder(plan, kernel, Signature(plan, kernel))
    body = builder.root()
    params, arguments = builder.signature.parameters()
    func = PrimFunc(params, body).with_attr({"global_symbol": f"kdsl_{kernel.name}", "s_tir": True})
    return KernelFunction(kernel.name, func, tuple(arguments))


def sequence(statements):
    return statements[0] if len(statements) == 1 else SeqStmt(statements)


def point(buffer, indices):
    return tirx.BufferRegion(buffer, [Range.from_min_extent(i, 1) for i in indices])


def whole(buffer):
    return tirx.BufferRegion(buffer, [Range.from_min_extent(0, extent) for extent in buffer.shape])


@define
class KernelBuilder:
    plan: Plan
    kernel: KernelPlan
    signature: Signature
    buffers: dict[str, object] = field(factory=dict)
    outer: dict[str, object] = field(factory=dict)  # grid and sequential indices as block variables
    offsets: dict[str, object] = field(factory=dict)  # where this block's tile of an index starts

    # ---- nesting ----
    def root(self):
        """The whole body: the root sblock with the grid inside."""
        for name, tensor in self.kernel.tensors.items():
            if tensor.scope != "call":
                self.buffers[name] = local_buffer(tensor)
        grid = self.grid_sblock()
        return SBlockRealize([], True, SBlock([], [], [], "root", grid))

    def grid_sblock(self):
        loops, variables = [], []
        for index, tile in (pair for _, indices in self.kernel.grid for pair in indices):
            extent = self.grid_extent(index, tile)
            loop, variable = Var(grid_loop(index, tile), "int64"), Var(f"v_{index}", "int64")
            loops.append((loop, extent))
            variables.append(IterVar(Range.from_min_extent(0, extent), variable, DATA_PARALLEL))
            if tile > 1:
                self.offsets[index] = variable * tile
            else:
                self.outer[index] = variable
        body = sequence([*self.sblocks(self.kernel.prologue), self.step_loop(), *self.sblocks(self.kernel.epilogue)])
        if self.kernel.guarded is not None:
            body = tirx.IfThenElse(self.outer[self.kernel.guarded] < self.extent(self.kernel.guarded), body, None)
        carried = [self.buffers[t.name] for t in self.kernel.tensors.values() if t.scope == "carried"]
        reads, writes = self.port_regions()
        block = SBlock(variables, reads, writes, self.kernel.name, body, alloc_buffers=carried)
        return nest_loops(loops, SBlockRealize([loop for loop, _ in loops], True, block))

    def grid_extent(self, index: str, tile: int):
        """How many values of an index the grid enumerates: of a sequential one, up to its bound."""
        declared = self.plan.operator.indices[index]
        extent = Scope(self.signature, self.buffers, {}).value(declared.most or declared.extent)
        return as_index(extent // tile if is_number(extent) else extent)

    def step_loop(self):
        if self.kernel.sequential is None:
            return self.step_sblock([], [])
        name = self.kernel.sequential
        extent = self.extent(name)
        loop, variable = Var(name, "int64"), Var(f"v_{name}", "int64")
        self.outer[name] = variable
        realize = self.step_sblock([IterVar(Range.from_min_extent(0, extent), variable, OPAQUE)], [loop])
        return nest_loops([(loop, extent)], realize)

    def step_sblock(self, variables, values):
        """One step: the stages in a sblock of their own, then the carried tensors move on."""
        carries = {carry.next: carry for carry in self.kernel.carries}
        copies = self.sblocks(self.kernel.copies)
        stages = self.sblocks(self.kernel.body)
        copied = {stage.tensor for stage in self.kernel.copies}
        local = [n for n, t in self.kernel.tensors.items() if t.scope == "step" and n not in {*carries, *copied}]
        reads, writes = self.port_regions()
        reads += [whole(self.buffers[c.tensor]) for c in self.kernel.carries]
        moved = [whole(self.buffers[name]) for name in carries]
        inner = SBlock([], reads + [whole(self.buffers[n]) for n in copied], writes + moved, f"{self.kernel.name}_body", sequence(stages),
                       alloc_buffers=[self.buffers[name] for name in local])  # fmt: skip
        commits = self.sblocks(self.kernel.commits)
        body = sequence([*copies, SBlockRealize([], True, inner), *commits])
        writes = writes + [whole(self.buffers[c.tensor]) for c in self.kernel.carries]
        block = SBlock(variables, reads, writes, f"{self.kernel.name}_step", body,
                       alloc_buffers=[self.buffers[name] for name in (*carries, *copied)])  # fmt: skip
        return SBlockRealize(values, True, block)

    def port_regions(self):
        """Ports touched so far, whole: what the nesting sblocks declare."""
        reads, writes = self.signature.regions()
        made = {stage.tensor for stage in self.kernel.stages}
        for name, buffer in self.signature.workspaces.items():
            (writes if name in made else reads).append(buffer)
        return [whole(b) for b in reads], [whole(b) for b in writes]

    def extent(self, name: str):
        scope = Scope(self.signature, self.buffers, dict(self.outer))
        return as_index(scope.value(self.plan.operator.indices[name].extent))

    # ---- stages ----
    def sblocks(self, stages: tuple[PlannedStage, ...]):
        return [self.stage_sblock(stage) for stage in stages]

    def stage_sblock(self, stage: PlannedStage):
        variables = {loop.index: Var(f"v_{loop.index}", "int32") for loop in stage.loops}
        scope = Scope(
            self.signature, self.buffers, {**self.outer, **variables}, stage.renamed,
            stage.tensor if stage.scan is not None else None, self.offsets,
        )  # fmt: skip
        body, init, write = self.statements(stage, scope)
        inner = [loop for loop in stage.loops if loop.kind != "scan"]
        iters = [
            IterVar(Range.from_min_extent(0, loop.extent), variables[loop.index],
                    REDUCE if loop.kind == "reduce" else DATA_PARALLEL)
            for loop in inner
        ]  # fmt: skip
        accumulates = {stage.tensor} if init is not None else set()
        reads = [point(b, i) for b, i in unique(scope.loads) if b.name not in accumulates or b is not write[0]]
        block = SBlock(iters, reads, [point(*write)], stage.name, body, init=init)
        loops = [(Var(loop.index, "int32"), loop.extent) for loop in inner]
        statement = nest_loops(loops, SBlockRealize([loop for loop, _ in loops], True, block))
        return self.scan_sblock(stage, variables, statement, scope, write) if stage.scan is not None else statement

    def scan_sblock(self, stage: PlannedStage, variables, statement, scope: Scope, write):
        """The rows of a scan, one after the other: the row index is opaque to the schedule."""
        loop = next(loop for loop in stage.loops if loop.kind == "scan")
        counter = Var(loop.index, "int32")
        row = IterVar(Range.from_min_extent(0, loop.extent), variables[loop.index], OPAQUE)
        reads = [whole(b) for b in {b.name: b for b, _ in scope.loads}.values()]
        block = SBlock([row], reads, [whole(write[0])], f"{stage.name}_row", statement)
        return nest_loops([(counter, loop.extent)], SBlockRealize([counter], True, block))

    def statements(self, stage: PlannedStage, scope: Scope):
        """Body, initial statement (or None) and the element written."""
        target = self.plan.operator.views.get(stage.tensor)
        if target is not None:
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
        term = as_float(scope.value(reduction.body))
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

    def value(self, stage: PlannedStage, scope: Scope):
        if stage.stage is not None:
            return as_float(scope.value(stage.stage.initial))
        source = stage.source
        view = self.plan.operator.views.get(source.tensor)
        if view is not None:
            return scope.view(view, [scope.value(i) for i in source.indices])
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
