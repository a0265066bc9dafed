"""Every access of shared memory in a lowered kernel, with its wavefronts over all lanes, warps and loops.

Read from the TIR right before TVM merges the shared buffers into one: there an access still names its buffer,
and the marks of the source map still say its stage. Where a buffer begins, or a slot of a ring, does not matter: it
moves all banks by the same. Evidence `simulated`: exact, with every tile taken as full. Matrix loads are those of
`kdsl/lower/intrinsics`; a device function that is not there has no lane addresses here, and what
it touches in shared memory is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from attrs import define, evolve, field, frozen

from kdsl.check.model import Target
from kdsl.inspect import banks
from kdsl.inspect.access import BY_ROW
from kdsl.inspect.lanes import Assumed, Open, Pattern, TooMany, evaluate, kind, mask, patterns
from kdsl.inspect.sectors import ROW, GlobalUse
from kdsl.lower.cuda import CONFIG, passes
from kdsl.lower.intrinsics import squares, tiles, warpgroup
from kdsl.lower.intrinsics.matrix import swizzled_operands
from kdsl.lower.sourcemap import BEGIN, END, marked_module
from kdsl.lower.stir.schedule import ScheduledKernel
from kdsl.lower.swizzle import PIECE, Swizzle
from kdsl.lower.tir.marks import GROUP, RING
from kdsl.lower.tvm import TvmTarget, t_transform, tvm

MERGES = "MergeSharedMemoryAllocations"
SCOPES = ("shared", "shared.dyn")
POINTERS = 3  # of a product: the accumulator and two operands, before its numbers
UNKNOWN_TRIPS = 6  # of a loop whose trips a call decides: enough for every step of rings of 2 and 3
CALLS = ("tirx.cuda.func_call", "tirx.call_extern", "tirx.call_pure_extern")


def _halves_first(lane, ld):
    return ((lane >> 4) * 8 + (lane & 7)) * ld + ((lane >> 3) & 1) * 8


def _rows_first(lane, ld):
    return (lane & 15) * ld + (lane >> 4) * 8


# Rows of one ldmatrix.x4 of a 16 x 16 tile of two-byte elements, rows `ld` apart, in elements: of B and of A.
MATRIX_ROWS = {"nk": _halves_first, "kn": _rows_first, "mk": _rows_first, "km": _halves_first}


@frozen
class SharedUse:
    """One access of the text: `kind` is ld, st, cp.async, ldmatrix or stmatrix, `width` its bytes a lane, `buffer`
    what TVM calls the memory, `tensors` those of the stage that lie there. Without patterns, `note` says why."""

    stage: str | None
    buffer: str
    kind: str
    width: int
    patterns: tuple[Pattern, ...] = field(repr=False, default=())
    note: str = ""
    tensors: tuple[str, ...] = ()

    def wavefronts(self, width: int | None = None) -> banks.Wavefronts | None:
        """Of the worst pattern. Another `width` is that of the machine code, where the compiler joined
        accesses of neighbouring elements; None if no pattern can be accessed so wide."""
        found = [w for p in self.patterns if (w := self._of(p, width or self.width)) is not None]
        return max(found, key=lambda w: (w.degree, w.count), default=None)

    def _of(self, pattern: Pattern, width: int) -> banks.Wavefronts | None:
        try:
            if self.kind in BY_ROW:
                return banks.matrix_wavefronts(pattern.addresses, 4)
            if self.kind == "cp.async":
                return banks.copy_wavefronts(pattern.addresses, width, pattern.active)
            return banks.wavefronts(pattern.addresses, width, pattern.active)
        except banks.Misaligned:
            return None


def shared_uses(kernel: ScheduledKernel, target: Target, stages: tuple[str, ...]) -> tuple[SharedUse, ...]:
    """Every access of shared memory, in the order of the code; equal ones of a stage once."""
    return memory_uses(kernel, target, stages)[0]


def memory_uses(
    kernel: ScheduledKernel,
    target: Target,
    stages: tuple[str, ...],
    units: frozenset[str] = frozenset(),
) -> tuple[tuple[SharedUse, ...], tuple[GlobalUse, ...]]:
    """Every access of shared memory and of global memory, in the order of the code; equal ones once. `units`
    are strides of the call that are taken to be 1."""
    found = _Walk(stages, units)
    func = unmerged(kernel, str(target.fields["tool"]), stages)
    slot = {hash(var): np.asarray(0) for var in func.params if str(getattr(var, "name", "")) == GROUP}
    found.statement(func.body, slot, ())
    return tuple(dict.fromkeys(found.uses)), tuple(dict.fromkeys(found.outside))


def unmerged(kernel: ScheduledKernel, arch: str, stages: tuple[str, ...]):
    """The function of the kernel as the passes leave it before shared memory is merged."""
    target = TvmTarget({"kind": "cuda", "arch": arch}, host="llvm")
    with tvm.transform.PassContext(config=CONFIG):
        module = t_transform.BindTarget(target)(marked_module(kernel.module, stages))
        for step in passes():
            if getattr(getattr(step, "info", None), "name", "").endswith(MERGES):
                break
            module = step(module)
    (func,) = module.functions.values()
    return func


def new_axis(values: Iterable[int], ranges: Mapping[int, np.ndarray]) -> np.ndarray:
    """Values along an axis before those of all variables in scope; the lanes stay last."""
    scope = max((axis.ndim for axis in ranges.values()), default=1)
    return np.asarray(list(values)).reshape((-1, *(1,) * max(scope, 1)))


@define
class _Walk:
    stages: tuple[str, ...]
    units: frozenset[str] = frozenset()  # strides of the call that are taken to be 1
    stage: str | None = None
    uses: list[SharedUse] = field(factory=list)
    outside: list[GlobalUse] = field(factory=list)
    shared: dict[int, object] = field(factory=dict)  # shared buffers by hash

    # ---- statements: `ranges` has the values of variables, `guards` the masks of the lanes that run ----
    def statement(self, s, ranges: Mapping[int, np.ndarray], guards: tuple) -> None:
        k = kind(s)
        if k == "SeqStmt":
            for inner in s.seq:
                self.statement(inner, ranges, guards)
        elif k == "For":
            self.statement(s.body, {**ranges, hash(s.loop_var): self.trips(s, ranges)}, guards)
        elif k == "AttrStmt":
            self.statement(s.body, self.threads(s, ranges), guards)
        elif k == "IfThenElse":
            self.expression(s.condition, ranges, guards)
            self.statement(s.then_case, ranges, (*guards, (s.condition, True)))
            if s.else_case is not None:
                self.statement(s.else_case, ranges, (*guards, (s.condition, False)))
        elif k == "Evaluate":
            self.evaluated(s.value, ranges, guards)
        elif k == "BufferStore":
            self.expression(s.value, ranges, guards)
            self.access("st", s.buffer, s.indices, ranges, guards)
        elif k == "Bind":
            self.expression(s.value, ranges, guards)
        elif k in ("AllocBuffer", "DeclBuffer"):  # of its own, or of the warps beside that take what it makes
            if str(s.buffer.scope()) in SCOPES:
                self.shared[hash(s.buffer)] = s.buffer
        elif hasattr(s, "body"):
            self.statement(s.body, ranges, guards)

    def trips(self, s, ranges) -> np.ndarray:
        try:
            extent = int(evaluate(s.extent, ranges).max())
            first = int(evaluate(s.min, ranges).max())
        except Open:
            first, extent = 0, UNKNOWN_TRIPS
        return new_axis(range(first, first + extent), ranges)

    def threads(self, s, ranges):
        if s.attr_key != "thread_extent" or not str(s.node.thread_tag).startswith("threadIdx"):
            return ranges
        if str(s.node.thread_tag) == "threadIdx.x":
            values = np.arange(banks.LANES)
        else:
            values = new_axis(range(int(s.value.value)), ranges)
        return {**ranges, hash(s.node.var): values}

    def evaluated(self, e, ranges, guards) -> None:
        if kind(e) == "Call" and e.op.name in CALLS and str(getattr(e.args[0], "value", "")) in (BEGIN, END):
            begins = str(e.args[0].value) == BEGIN
            self.stage = self.stages[int(e.args[1].value)] if begins else None
            return
        self.expression(e, ranges, guards)

    # ---- expressions ----
    def expression(self, e, ranges, guards) -> None:
        k = kind(e)
        if k in ("BufferLoad", "TensorLoad"):
            for index in e.indices:
                self.expression(index, ranges, guards)
            self.access("ld", e.source, e.indices, ranges, guards)
        elif k == "Call":
            self.call(e, ranges, guards)
        else:
            for name in ("a", "b", "value", "condition", "true_value", "false_value", "base"):
                inner = getattr(e, name, None)
                if inner is not None and hasattr(inner, "ty"):
                    self.expression(inner, ranges, guards)

    def call(self, e, ranges, guards) -> None:
        name, args = e.op.name, list(e.args)
        if name.endswith("if_then_else"):
            self.expression(args[0], ranges, guards)
            self.expression(args[1], ranges, (*guards, (args[0], True)))
            self.expression(args[2], ranges, (*guards, (args[0], False)))
        elif name.endswith(("cp_async_raw", "cp_async")):
            self.copied(args, ranges, guards)
        elif name in CALLS:
            self.function(str(args[0].value), args[1:], ranges, guards)
        else:
            for argument in args:
                self.expression(argument, ranges, guards)

    def copied(self, args, ranges, guards) -> None:
        """(destination, its offset in elements, source, its offset, bytes, ...)."""
        buffer = self.held(args[0])
        if buffer is not None:
            self.lanes("cp.async", buffer, int(args[4].value), args[1], ranges, guards)

    def held(self, data):
        """The shared buffer whose data an expression is, if it is one."""
        found = data.args[0] if kind(data) == "Call" and len(data.args) == 1 else data
        return self.shared.get(hash(found))

    def function(self, name: str, args, ranges, guards) -> None:
        if name == "kdsl_keep" or name.startswith(RING):
            return
        if name.startswith(squares.PREFIX):
            self.squares(args, ranges, guards)
            return
        if name.startswith(warpgroup.PREFIX):
            self.described(warpgroup.shape_of(name), args, ranges, guards)
            return
        if name.startswith(tiles.PREFIXES):
            self.tile(name, args, ranges, guards)
            return
        pointers = [pointer for pointer in map(self.pointer, args) if pointer is not None]
        layouts = [part for part in name.split("_") if part in MATRIX_ROWS] if name.startswith("kdsl_mma_") else []
        if len(layouts) != len(pointers):
            for buffer, _ in pointers:
                note = f"`{name}` has no lane addresses"
                self.add(SharedUse(self.stage, buffer_name(buffer), name, 0, (), note))
            return
        last = len(args) - (kind(args[-1]) == "StringImm")
        strides = args[last - len(layouts) : last]
        numbers = list(args[POINTERS : last - len(layouts)])  # of swizzled operands: offset, shift, mask
        for letter, (buffer, offset), layout, stride in zip("ab"[-len(layouts) :], pointers, layouts, strides):
            swizzle = None
            if letter in swizzled_operands(name):
                offset, shift, exchanged = (numbers.pop(0) for _ in range(3))
                swizzle = Swizzle(int(shift.value), int(exchanged.value), 3)
            self.matrix(buffer, offset, stride, MATRIX_ROWS[layout], ranges, guards, swizzle)

    def tile(self, name: str, args, ranges, guards) -> None:
        """(fragment, tile, offset, shift and mask of a swizzled buffer, rows apart)."""
        tile, (buffer, offset), swizzle = tiles.tile_of(name), self.pointer(args[1]), None
        if tile.swizzled:
            offset, swizzle = args[2], Swizzle(int(args[3].value), int(args[4].value), 3)
        stride = args[5] if tile.swizzled else args[2]
        self.matrix(buffer, offset, stride, MATRIX_ROWS[tile.stored], ranges, guards, swizzle, tile.instruction)

    def squares(self, args, ranges, guards) -> None:
        """(sums, x, rows apart): rows of x as an operand A, and a sum for each of the first 16 lanes."""
        (sums, first), (x, offset) = map(self.pointer, args[:2])
        self.matrix(x, offset, args[2], _rows_first, ranges, guards)
        for access in ("ld", "st"):
            use = SharedUse(self.stage, buffer_name(sums), access, element_bytes(sums))
            lanes = np.arange(banks.LANES)
            try:
                places = (evaluate(first, ranges) + lanes) * element_bytes(sums)
                self.add(evolve(use, patterns=patterns(places, mask(guards, ranges) & (lanes < squares.ROWS))))
            except (Open, TooMany) as reason:
                self.add(evolve(use, note=str(reason)))

    def described(self, shape: warpgroup.Shape, args, ranges, guards) -> None:
        """(sums, a, b): the rows of a panel of B, 16 bytes of each at a time, as its swizzle exchanges them."""
        buffer, offset = self.pointer(args[2])
        panel, exchanged = shape.panel, Swizzle(6, shape.swizzle // PIECE - 1, 3)
        use = SharedUse(self.stage, buffer_name(buffer), "ldmatrix", PIECE)
        lanes = np.arange(banks.LANES)
        try:
            rows = evaluate(offset, ranges) + (lanes & 7) * panel + (lanes >> 3) % (panel // 8) * 8
            self.add(evolve(use, patterns=patterns(exchanged.of(rows) * element_bytes(buffer), mask(guards, ranges))))
        except (Open, TooMany) as reason:
            self.add(evolve(use, note=str(reason)))

    def pointer(self, e):
        """Buffer and element offset of an argument that points into shared memory."""
        if kind(e) != "Call":
            return None
        if e.op.name.endswith("tvm_access_ptr"):
            buffer, offset = self.held(e.args[1]), e.args[2]
        elif e.op.name.endswith("address_of") and hasattr(e.args[0], "indices"):
            buffer, offset = self.shared.get(hash(e.args[0].source)), e.args[0].indices[0]
        else:
            return None
        return (buffer, offset) if buffer is not None else None

    # ---- accesses ----
    def access(self, access: str, buffer, indices, ranges, guards) -> None:
        (index,) = indices
        if hash(buffer) not in self.shared:
            if str(buffer.scope()) == "global":
                self.beyond(access, buffer, index, ranges, guards)
            return
        lanes = 1
        if kind(index) == "Ramp":
            if int(index.stride.value) != 1:
                self.add(SharedUse(self.stage, buffer_name(buffer), access, 0, (), "a vector with gaps"))
                return
            index, lanes = index.base, int(index.lanes)
        self.lanes(access, buffer, lanes * element_bytes(buffer), index, ranges, guards)

    def lanes(self, access: str, buffer, width: int, index, ranges, guards) -> None:
        use = SharedUse(self.stage, buffer_name(buffer), access, width)
        try:
            offset = evaluate(index, ranges) * element_bytes(buffer)
            self.add(evolve(use, patterns=patterns(offset, mask(guards, ranges))))
        except (Open, TooMany) as reason:
            self.add(evolve(use, note=str(reason)))

    def beyond(self, access: str, buffer, index, ranges, guards) -> None:
        """An access of global memory, with strides of the call taken as whole rows."""
        lanes = 1
        if kind(index) == "Ramp":
            index, lanes = index.base, int(index.lanes)
        width = lanes * element_bytes(buffer)
        use = GlobalUse(self.stage, buffer_name(buffer), access, width)
        try:
            offset = evaluate(index, Assumed(ranges, ROW, self.units)) * element_bytes(buffer)
            self.outside.append(evolve(use, patterns=patterns(offset, mask(guards, ranges))))
        except (Open, TooMany):
            self.outside.append(use)

    def matrix(
        self, buffer, offset, stride, rows, ranges, guards, swizzle: Swizzle | None = None, access: str = "ldmatrix"
    ) -> None:
        use = SharedUse(self.stage, buffer_name(buffer), access, 16)
        try:
            first, pitch = evaluate(offset, ranges), evaluate(stride, ranges)
            places = first + rows(np.arange(banks.LANES), pitch)
            places = (swizzle.of(places) if swizzle is not None else places) * element_bytes(buffer)
            self.add(evolve(use, patterns=patterns(places, mask(guards, ranges))))
        except (Open, TooMany) as reason:
            self.add(evolve(use, note=str(reason)))

    def add(self, use: SharedUse) -> None:
        self.uses.append(use)


def element_bytes(buffer) -> int:
    return {"float32": 4, "bfloat16": 2, "float16": 2, "int64": 8, "int32": 4}[str(buffer.dtype)]


def buffer_name(buffer) -> str:
    """The tensor's name without what TVM adds for the scope."""
    name = str(buffer.name)
    for scope in ("_shared_dyn", "_shared.dyn", "_shared"):
        name = name.removesuffix(scope)
    return name


def with_tensors(uses: Iterable[SharedUse], plan) -> Iterator[SharedUse]:
    """The uses with the tensors of the kernel's plan that they access."""
    for use in uses:
        yield evolve(use, tensors=tuple(tensors_of(use, plan)) or (use.buffer,))


def tensors_of(use: SharedUse, kernel) -> Iterator[str]:
    """Tensors that lie in the buffer and that the use's stage reads, or writes."""
    stage = next((s for s in kernel.stages if s.name == use.stage), None)
    if stage is None:
        return
    names = [stage.tensor]
    if use.kind in ("ld", "ldmatrix"):
        names = [stage.source.tensor] if stage.source is not None else []
        if stage.stage is not None:
            names += [stage.renamed.get(read.tensor, read.tensor) for read in stage.stage.reads]
    for name in dict.fromkeys(names):
        tensor = kernel.tensors.get(name)
        if tensor is not None and tensor.held_in == use.buffer:
            yield name
