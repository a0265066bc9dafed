"""A kernel's plan as a TIR function: one sblock for each stage, nested as grid, step, body and commit.

    sblock KERNEL (grid indices)            what one task does
      fetches of the first steps            where a ring holds several
      sblock state_load                     carried tensors start
      for c: sblock KERNEL_step
        sblock KERNEL_body                  the stages, one sblock each, in the plan's order
        sblock state_commit                 carried tensors move on
      sblock state_store

The carried tensors live outside KERNEL_body, so that scheduling a stage there never meets a loop-carried read.
"""

from __future__ import annotations

from attrs import define, frozen

from kdsl.check.model import GridLoop
from kdsl.lower.swizzle import attributes
from kdsl.lower.tir.expressions import Scope, as_index, constant, is_number, of_run
from kdsl.lower.tir.function import Argument, Signature, local_buffer
from kdsl.lower.tir.launch_order import longest_first
from kdsl.lower.tir.marks import (
    GROUP,
    SAY_EMPTY,
    SAY_FULL,
    WAIT_EMPTY,
    WAIT_FULL,
    keep,
    ring,
    shared_fence,
    warp_sync,
)  # fmt: skip
from kdsl.lower.tir.packed import slot_count, unpacked
from kdsl.lower.tir.stages import DATA_PARALLEL, OPAQUE, StageBuilder, nest_loops, whole
from kdsl.lower.tvm import (
    AttrStmt,
    Bind,
    Evaluate,
    IterVar,
    PrimFunc,
    Range,
    SBlock,
    SBlockRealize,
    Var,
    op,
    sequence,
    tirx,
)
from kdsl.plan.model import KernelPlan, Plan, PlannedStage


@frozen
class KernelFunction:
    """The unscheduled function and what its parameters are: `labels` their names, `arguments` their meaning."""

    name: str
    func: object
    arguments: tuple[Argument, ...]
    labels: tuple[str, ...]


def build_function(plan: Plan, kernel: KernelPlan) -> KernelFunction:
    builder = KernelBuilder(plan, kernel, Signature(plan, kernel))
    body = builder.root()
    params, arguments = builder.signature.parameters()
    named = {"global_symbol": f"kdsl_{kernel.name}", "s_tir": True}
    func = PrimFunc(params, body).with_attr({**named, **attributes(kernel)})
    return KernelFunction(kernel.name, func, tuple(arguments), tuple(str(p.name) for p in params))


@define
class KernelBuilder(StageBuilder):
    """The nesting around the stages: grid, steps, fetches, and what is said between them."""

    first: object = None  # the first step of the task's run, where it has one

    # ---- nesting ----
    def root(self):
        """The whole body: the root sblock with the grid inside."""
        for name, tensor in self.kernel.tensors.items():
            if tensor.scope == "passed":
                self.buffers[name] = self.signature.workspace(tensor)
            elif tensor.scope != "call" and tensor.held_in == tensor.name:
                self.buffers[name] = local_buffer(tensor, name in self.kernel.passed)
        for name, tensor in self.kernel.tensors.items():
            if tensor.scope != "call":
                self.buffers[name] = self.buffers[tensor.held_in]
        grid = self.grid_sblock()
        return SBlockRealize([], True, SBlock([], [], [], "root", grid))

    def grid_sblock(self):
        loops, variables = [], []
        for dealt in (dealt for _, axis in self.kernel.grid for dealt in axis):
            index, extent = dealt.index, self.grid_extent(dealt)
            label = "slot" if dealt.within else "rank" if dealt.order else f"v_{index}"
            loop, variable = Var(dealt.name, "int64"), Var(label, "int64")
            loops.append((loop, extent))
            variables.append(IterVar(Range.from_min_extent(0, extent), variable, DATA_PARALLEL))
            if dealt.within is not None:
                self.outer |= unpacked(Scope(self.signature, self.buffers, {}), dealt, variable)
            elif dealt.tile > 1:
                self.offsets[index] = variable * dealt.tile
            elif dealt.order is not None:
                scope = Scope(self.signature, self.buffers, dict(self.outer))
                self.outer[index] = longest_first(scope, dealt, variable, self.kernel.sequential)
                self.signature.task.append(self.outer[index])
            else:
                self.outer[index] = variable
                self.signature.task.append(variable)
        self.bind_run()
        body = sequence([self.step_loop(self.sblocks(self.kernel.prologue)), *self.sblocks(self.kernel.epilogue)])
        body = self.guard(body)
        carried = [self.buffers[t.name] for t in self.kernel.tensors.values() if t.scope == "carried"]
        carried += [self.buffers[name] for name in self.landing] + self.signature.held
        reads, writes = self.port_regions()
        block = SBlock(variables, reads, writes, self.kernel.name, body, alloc_buffers=carried)
        return nest_loops(loops, SBlockRealize([loop for loop, _ in loops], True, block))

    def guard(self, body):
        """Blocks beyond the extent of a sequential index that the grid enumerates do nothing.

        On a GPU they return: TVM puts no barrier inside a condition, though this one is the same for all threads.
        """
        outside = [self.outer[name] >= self.extent(name) for name in self.kernel.guarded]
        outside += [self.outer[name] < 0 for name in self.signature.slots]  # before the first slot of all
        if not outside:
            return sequence([*self.signature.bindings, body])
        if self.plan.target.family == "cuda":
            leave = tirx.IfThenElse(tirx.any(*outside), Evaluate(op.thread_return()), None)
            return sequence([*self.signature.bindings, leave, body])
        inside = tirx.Not(tirx.any(*outside))
        return sequence([*self.signature.bindings, tirx.IfThenElse(inside, body, None)])

    def grid_extent(self, loop: GridLoop):
        """How many values of an index the grid enumerates: of a sequential one, up to its bound, or its slots."""
        declared, scope = self.plan.operator.indices[loop.index], Scope(self.signature, self.buffers, {})
        if loop.within is not None:
            return slot_count(scope, loop)
        extent = scope.value(declared.most or declared.extent)
        return as_index(extent // loop.tile if is_number(extent) else extent)

    def step_loop(self, prologue):
        """The steps, after what starts the carried tensors; fetches of the first steps are under way before it."""
        if self.kernel.sequential is None:
            return sequence([*prologue, self.step_sblock([], [], None)])
        name = self.kernel.sequential
        loop, variable = Var(name, "int64"), Var(f"v_{name}", "int64")
        counted, trips = self.trips(name)
        if self.kernel.passes:
            counted, trips = self.taken_in_turn(counted, trips, name)
        first = [*self.first_fetches(name, trips), *self.first_loads(name, trips)]
        self.step(name, variable)
        realize = self.step_sblock([IterVar(Range.from_min_extent(0, trips), variable, OPAQUE)], [loop], trips)
        return sequence([counted, *first, *prologue, nest_loops([(loop, trips)], realize)])

    def bind_run(self):
        """Before the steps: where the run starts, and where what belongs to the whole task lies in workspaces."""
        if self.kernel.run is not None:
            index = self.plan.operator.indices[self.kernel.run]
            scope = Scope(self.signature, self.buffers, dict(self.outer))
            begins = self.outer[self.kernel.run] * as_index(scope.value(index.by))
            statement, self.first = self.signature.hold("first", begins)
            self.signature.bindings.append(statement)
        whole = self.stored_for() - {self.step_index}
        self.signature.bindings += self.bind_places("_of_run", whole)

    def trips(self, name: str):
        """How many steps the task takes, all or those of its run: the statement that counts them, and the number."""
        extent = self.extent(name)
        if self.first is not None:
            scope = Scope(self.signature, self.buffers, dict(self.outer))
            by = as_index(scope.value(self.plan.operator.indices[self.kernel.run].by))
            extent = op.min(by, extent - self.first)
        return self.counted(f"{name}_trips", extent)

    def counted(self, name: str, value):
        """A number of steps in a variable, or held as the numbers are that it is counted from: TVM binds no loads of
        those."""
        if Scope(self.signature, self.buffers, {}).reads_held(value):
            return self.signature.hold(name, value)
        variable = Var(name, "int64")
        return Bind(variable, value), variable

    def taken_in_turn(self, counted, trips, name: str):
        """Groups of warps take the steps in turn: how many are this group's."""
        groups = constant(self.groups, "int64")
        self.signature.group = Var(GROUP, "int32")
        left = trips - self.signature.group.astype("int64") + groups - 1
        statement, own = self.counted(f"{name}_own", tirx.truncdiv(left, groups))
        return sequence([counted, statement]), own

    @property
    def groups(self) -> int:
        """How many groups of warps take steps in turn: as many as there are slots to pass them in."""
        return next(iter(self.kernel.passes.values())).ring

    @property
    def landing(self) -> list[str]:
        """Tensors in shared memory that stages of the kernel do not write."""
        return [stage.tensor for stage in self.kernel.copies] + list(self.kernel.passed)

    def turn(self) -> tuple:
        """The slot that this step is passed in, and how often it was used before; a group has one slot."""
        name = self.kernel.sequential
        if self.kernel.passes:
            return self.signature.group, self.outer[of_run(name)].astype("int32")
        slots = constant(self.kernel.tensors[next(iter(self.kernel.passed))].ring, "int32")
        step = self.outer[name].astype("int32")
        return tirx.truncmod(step, slots), tirx.truncdiv(step, slots)

    def passing(self, what: str):
        """A word to the warps beside, or the wait for one, about this step's slot."""
        return Evaluate(op.call_extern("int32", what, *self.turn()))

    def step(self, name: str, number) -> None:
        """Make `number`, counted from where the task starts, the step that expressions speak of."""
        self.outer[name] = number
        if self.first is not None:
            self.outer[name], self.outer[of_run(name)] = self.first + number, number
        elif self.signature.group is not None:
            turn = number * constant(self.groups, "int64") + self.signature.group.astype("int64")
            self.outer[name], self.outer[of_run(name)] = turn, number

    def step_sblock(self, variables, values, trips):
        """One step: fetches, the stages in a sblock of their own, then the carried tensors move on."""
        carries = {carry.next: carry for carry in self.kernel.carries}
        later = [stage.tensor for stage in self.kernel.loads]
        kept = dict.fromkeys(self.kernel.tensors[name].held_in for name in (*carries, *later))  # until the commit
        begun = self.bind_place("")
        if trips is not None and self.rewrites_shared() and not self.kernel.copies:  # copies bring a barrier
            begun.append(self.barrier())
        fetches = [*self.loads(trips), *self.fetches(trips)]  # loads have the longer way: they stand first
        stages = self.body_sblocks()
        copied = self.landing
        local = [n for n, t in self.kernel.tensors.items()
                 if t.scope == "step" and t.held_in == n and n not in {*kept, *copied}]  # fmt: skip
        reads, writes = self.port_regions()
        moved_on = dict.fromkeys(c.tensor for c in self.kernel.carries)
        moved_on |= dict.fromkeys(s.tensor for s in self.kernel.first_loads)
        kept_once = {*moved_on, *(s.tensor for s in self.kernel.prologue)}
        reads += [whole(self.buffers[name]) for name in self.kernel.tensors if name in kept_once]
        moved = [whole(self.buffers[name]) for name in carries]
        inner = SBlock([], reads + [whole(self.buffers[n]) for n in copied], writes + moved, f"{self.kernel.name}_body",
                       sequence(stages), alloc_buffers=[self.buffers[name] for name in local])  # fmt: skip
        realize = self.after_wait(SBlockRealize([], True, inner))
        body = sequence([*begun, *fetches, realize, *self.sblocks(self.kernel.commits)])
        writes = writes + [whole(self.buffers[n]) for n in (*moved_on, *later)]
        block = SBlock(variables, reads, writes + [whole(self.buffers[n]) for n in copied], f"{self.kernel.name}_step",
                       body, alloc_buffers=[self.buffers[name] for name in kept])  # fmt: skip
        return SBlockRealize(values, True, block)

    @property
    def step_index(self) -> str | None:
        """The sequential index whose values are the task's steps, or whose one value is its only step."""
        return self.kernel.sequential or next(iter(self.kernel.guarded), None)

    def stored_for(self) -> set[str | None]:
        """The indices for whose steps the kernel's tensors lie in workspaces."""
        return {t.steps for t in self.kernel.tensors.values() if t.scope == "call"}

    def bind_place(self, suffix: str):
        """Where this step's tensors lie in workspaces, computed once."""
        return self.bind_places(suffix, self.stored_for() & {self.step_index})

    def bind_places(self, suffix: str, steps: set[str | None]):
        found = []
        for name in sorted(steps, key=str):
            scope = Scope(self.signature, self.buffers, dict(self.outer), offsets=self.offsets)
            statement, self.places[name] = self.signature.hold(f"place{suffix}", scope.workspace_place(name))
            found.append(statement)
        return found

    # ---- loads: registers of lanes that are filled a step ahead, and move on with the carried tensors ----
    def first_loads(self, name: str, trips):
        """Before the loop: what lanes load for the first step."""
        first = constant(0, "int64")
        self.step(name, first)
        return self.loaded(self.kernel.first_loads, first, trips)

    def loads(self, trips):
        """Inside a step: what they load for the next one, if there is one."""
        if not self.kernel.loads:
            return []
        name = self.kernel.sequential
        here = self.outer.get(of_run(name), self.outer[name])
        later = here + constant(1, "int64")
        self.step(name, later)
        found = self.loaded(self.kernel.loads, later, trips)
        self.step(name, here)
        return found

    def loaded(self, stages: tuple[PlannedStage, ...], step, trips):
        """Loads for one step, none beyond the last one."""
        return [tirx.IfThenElse(step < trips, load, None) for load in self.sblocks(stages)]

    # ---- fetches: a ring of shared memory, filled some steps ahead by asynchronous copies ----
    def first_fetches(self, name: str, trips):
        """Before the loop: the steps that no earlier step fetches for, one group of copies each."""
        groups = []
        for number, stages in enumerate(self.kernel.ahead):
            step = constant(number, "int64")
            self.step(name, step)
            groups.append(self.group(stages, step, trips))
        return groups

    def fetches(self, trips):
        """Inside a step: the copies for the step that is `ring - 1` later, or its own without a ring."""
        if not self.kernel.copies:
            return []
        name = self.kernel.sequential
        ahead = self.kernel.ring - 1
        if not ahead:
            group = self.committed(self.sblocks(self.kernel.copies))
            return [self.barrier(), group] if name is not None else [group]
        here, places = self.outer.get(of_run(name), self.outer[name]), dict(self.places)
        later = here + constant(ahead, "int64")
        self.step(name, later)
        group = self.group(self.kernel.copies, later, trips)
        self.step(name, here)
        self.places = places
        return [group] if self.kernel.settled else [self.barrier(), group]  # all have read the slot that is filled anew

    def group(self, stages: tuple[PlannedStage, ...], step, trips):
        """Copies of one step as one group, empty beyond the last step: then the waits can count groups."""
        place = self.bind_place(f"_{stages[0].name}")
        return self.committed(self.sblocks(stages), place, step < trips)

    def committed(self, copies, first=(), inside=None):
        """Asynchronous copies as one group."""
        copies = [AttrStmt(0, "async_scope", constant(1, "int32"), copy) for copy in copies]
        body = sequence([*first, *copies])
        if inside is not None:
            body = tirx.IfThenElse(inside, body, None)
        return AttrStmt(0, "async_commit_queue_scope", constant(0, "int32"), body)

    def after_wait(self, body):
        """The body once its step's copies have landed: all groups but the `ring - 1` youngest."""
        if not self.kernel.copies:
            return body
        ahead = self.kernel.ring - 1
        described = any(self.kernel.tensors[stage.tensor].panel for stage in self.kernel.copies)
        fence = [shared_fence()] if described else []
        body = sequence([*fence, self.barrier(), body])
        counted = AttrStmt(0, "async_wait_inflight_count", constant(ahead, "int32"), body)
        return AttrStmt(0, "async_wait_queue_scope", constant(0, "int32"), counted)

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

    def body_sblocks(self):
        """The stages of a step, and a last use of its shared memory: see kdsl/plan/cuda/sharing.py."""
        fetched = set(self.landing) if self.kernel.sequential is not None else set()
        shared = [t for t in self.kernel.tensors.values() if t.memory == "shared" and t.name not in fetched]
        held = dict.fromkeys(t.held_in for t in shared if t.scope == "step")
        statements = []
        before, behind = self.words()
        for stage in self.kernel.body:
            if stage.name in self.kernel.barriers:
                statements.append(self.barrier())
            elif stage.name in self.kernel.syncs:
                statements.append(warp_sync())
            if stage.name in before:
                statements.append(self.passing(before[stage.name]))
            statements.append(self.stage_sblock(stage))
            if stage.name in behind:
                if any(ring.panel for ring in self.kernel.passes.values()):
                    statements.append(shared_fence())
                statements.append(self.passing(behind[stage.name]))
        rings = [ring(self.buffers[name], there) for name, there in self.kernel.passed.items()]
        return [*statements, *(keep(self.buffers[name]) for name in held), *rings]

    def words(self) -> tuple[dict[str, str], dict[str, str]]:
        """What is said about a step's slot before stages and behind them: by the kernel that fills it, by the other."""
        passes, passed = self.kernel.passes, set(self.kernel.passed)
        if passes:
            first = next(stage.name for stage in self.kernel.body if stage.tensor in passes)
            return {first: WAIT_EMPTY}, {self.kernel.body[-1].name: SAY_FULL}
        readers = [s.name for s in self.kernel.body if passed & {t for part in s.unrolled for t in part.touched}]
        return ({readers[0]: WAIT_FULL}, {readers[-1]: SAY_EMPTY}) if readers else ({}, {})

    def rewrites_shared(self) -> bool:
        """Whether a step writes shared memory that other threads may still read in the step before."""
        written = {stage.tensor for stage in self.kernel.body}
        return any(t.memory == "shared" and t.name in written for t in self.kernel.tensors.values())

    def barrier(self):
        """All threads of the block wait for each other; those of a warp, where no warp meets what others do."""
        return warp_sync() if self.kernel.apart else Evaluate(op.tvm_storage_sync("shared.dyn"))
