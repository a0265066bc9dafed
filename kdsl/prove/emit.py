"""TIR to C, over any algebra of values.

Floats are `val`, whose operations `values.h` declares: over elements with a taint bit, or over degrees.
Integers are 64-bit and concrete. Thread, vector and parallel loops run in either order; every index is
checked; buffers are made afresh, unwritten, at each entry of their block; when a block is left, or a step
begins, what its buffers hold can be traced.
"""

from __future__ import annotations

from attrs import define, field

from kdsl.prove import meaning as m
from kdsl.prove.emit_products import ProductText, values_of
from kdsl.prove.emit_values import plus
from kdsl.prove.intrinsics import description_of
from kdsl.prove.levels import Inference
from kdsl.prove.products import product_of
from kdsl.prove.refusal import NoMeaning, shortened

SERIAL, PARALLEL, VECTORIZED, UNROLLED, THREADS = range(5)
FREE_ORDER = (PARALLEL, VECTORIZED, THREADS)
INDEX = "v_"  # before the name of an index: of a block's variable, or of memory that a task finds it into
SLOT = "slot"  # what a task finds indices from, which is none
STEP = "_step"  # the sblock of one step: what the task holds is traced when a step begins
REDUCE = 2  # IterVar.CommReduce
SYMBOL = "KERNEL"
# its literals, and the numbers of its first message and trace: the text says nothing of the kernels around it
PARAMETERS = "void **a, const i64 *lengths, const val *LIT, int message, int traced"


@define
class Emitter(ProductText):
    """C of one function. `messages` are the faults it can report, `traced` the buffers whose contents it
    can log."""

    traced: list[tuple[str, tuple[str, ...], tuple[int, ...], int, bool, str | None]] = field(factory=list)
    plain: bool = False
    task: object = None  # the innermost of the thread loops that hold the whole function
    loop: object = None  # the innermost loop here
    leaves: bool = False
    made_here: list[str] = field(factory=list)  # buffers that are not freed yet here, by their C names
    of_task: int = 0  # how many of them the task found
    held: list = field(factory=list)  # buffers of the blocks around this one
    outer: list[tuple[str, str]] = field(factory=list)  # block variables in scope: index name, C name

    def function(self, func) -> str:
        self.parameters = {hash(param) for param in func.params}
        for position, param in enumerate(func.params):
            name, buffer = self.name(param), m.kind(param.ty) == "BufferType"
            ctype = "val" if m.is_float(param.dtype if buffer else param.ty.dtype) else "i64"
            self.put(
                f"{ctype} {'*' if buffer else ''}{name} = {'' if buffer else f'*({ctype} *)'}a[{position}];"
            )
            if buffer:
                self.put(f"const i64 {name}_length = lengths[{position}];")
        self.task = task_loop(func.body, self.plain)
        self.statement(func.body)
        return f"void {SYMBOL}({PARAMETERS}) {{\n" + "\n".join(self.lines) + "\n}\n"

    # ---- statements ----
    def statement(self, s) -> None:
        method = _STATEMENTS.get(m.kind(s))
        if method is None:
            raise NoMeaning(
                f"no meaning for the statement {m.kind(s)}", shortened(s), self.stage, m.REMEDY_TABLE
            )
        method(self, s)

    def _sequence(self, s) -> None:
        def body():
            for x in s.seq:
                self.statement(x)
            for x in s.seq:
                if m.kind(x) == "AllocBuffer":
                    self.put(f"free({self.name(x.buffer)});")
                    self.made_here.remove(self.name(x.buffer))

        self.scoped("{", body)

    def _loop(self, s) -> None:
        if getattr(s, "step", None) is not None and str(s.step) != "1":
            raise NoMeaning("a loop with a step", shortened(s, 80), self.stage, "split the loop instead")
        product = product_of(s, self.root, self.parameters)
        if product is not None:
            self.product(product)
            return
        head = self._head(s, int(s.kind) in FREE_ORDER and not _accumulates_along(s))
        enclosing, self.loop = self.loop, s
        if s.same_as(self.task):
            self.of_task = len(self.made_here)

        def body():
            self.learn(s.loop_var, values_of(s.min, s.extent))
            self.statement(s.body)

        self.scoped(head, body)
        self.loop = enclosing
        self.names.pop(hash(s.loop_var), None)
        if s.same_as(self.task) and self.leaves:
            self.lines[-1] = "  " * self.depth + "leave:; }"

    def _head(self, s, backwards: bool) -> str:
        """The head of a loop, which may run backwards, and the name of its variable: the number itself where it is
        known."""
        extent, first = self.integer(s.extent), self.integer(s.min)
        if extent == "1LL" and m.kind(s.min) == "IntImm":
            self.names[hash(s.loop_var)] = first
            return "{"
        v = self.name(s.loop_var)
        count, begin = extent, f"{v}_i = 0"
        if m.kind(s.extent) != "IntImm":
            count, begin = f"{v}_n", f"{v}_n = {extent}, {v}_i = 0"
        self.put(f"for (i64 {begin}; {v}_i < {count}; {v}_i++)")
        value = f"(reverse ? {count} - 1 - {v}_i : {v}_i)" if backwards else f"{v}_i"
        return f"{{ i64 {v} = {plus(first, value)};"

    def _block(self, s) -> None:
        block, stage = s.block, self.stage
        self.stage = str(block.name_hint)
        predicate = self.integer(s.predicate)
        self.scoped("{" if predicate == "1LL" else f"if ({predicate}) {{", lambda: self._block_body(s))
        self.stage = stage

    def _block_body(self, s) -> None:
        block, known = s.block, len(self.outer)
        for variable, value in zip(block.iter_vars, s.iter_values, strict=False):
            name = self.define(variable.var, value)
            if str(variable.var.name) != SLOT:
                self.outer.append((str(variable.var.name).removeprefix(INDEX), name))
        for match in block.match_buffers:
            self.windows[hash(match.buffer)] = (
                match.source.source,
                [self.bounded(r.min) for r in match.source.region],
            )
        if str(block.name_hint).endswith(STEP):
            for buffer in self.held:
                self._trace(buffer, self.outer, begins=True)
        for buffer in block.alloc_buffers:
            self.allocate(buffer)
            if str(buffer.name).startswith(INDEX) and not m.is_float(buffer.dtype):
                self.outer.append((str(buffer.name).removeprefix(INDEX), f"{self.name(buffer)}[0]"))
        held, self.held = self.held, [*self.held, *block.alloc_buffers]
        if block.init is not None:
            self._initial(block)
        self._described(block)
        self.held = held
        for buffer in block.alloc_buffers:
            self._trace(buffer, self.outer)
        for buffer in block.alloc_buffers:
            self.put(f"free({self.name(buffer)});")
            self.made_here.remove(self.name(buffer))
        del self.outer[known:]

    def _initial(self, block) -> None:
        first = [
            f"{self.name(v.var)} == {self.integer(v.dom.min)}"
            for v in block.iter_vars
            if int(v.iter_type) == REDUCE
        ]
        self.scoped(f"if ({' && '.join(first) or '1'}) {{", lambda: self.statement(block.init))

    def _described(self, block) -> None:
        description = description_of(block)
        if description is None:
            self.statement(block.body)
            return
        for param, match in zip(description.params, block.match_buffers, strict=True):
            self.windows[hash(param)] = (match.buffer, [("0LL", (0, 0))] * len(match.buffer.shape))
        self.statement(description.body)

    def allocate(self, buffer) -> None:
        count = " * ".join(self.integer(d) for d in buffer.shape) or "1"
        kind = "val" if m.is_float(buffer.dtype) else "i64"
        if kind == "val":
            self.held_levels[hash(buffer)] = next(self.events)
        self.put(f"{kind} *{self.name(buffer)} = new_{kind}({count});")
        self.made_here.append(self.name(buffer))

    def _trace(self, buffer, outer, begins: bool = False) -> None:
        shape = [int(d.value) for d in buffer.shape if m.kind(d) == "IntImm"]
        if not m.is_float(buffer.dtype) or len(shape) != len(buffer.shape):
            return
        count = 1
        for extent in shape:
            count *= extent
        level = self.level_of(buffer)
        writer = None if begins else self.writers.get(hash(self.root(buffer)))
        self.traced.append((str(buffer.name), tuple(n for n, _ in outer), tuple(shape), level, begins, writer))
        keys = "".join(f", {name}" for _, name in outer)
        number = len(self.traced) - 1
        self.put(f"if (tracing) record({self.name(buffer)}, {count}, traced + {number}, {len(outer)}{keys});")

    def _while(self, s) -> None:
        self.scoped(f"while ({self.integer(s.condition)}) {{", lambda: self.statement(s.body))

    def _if(self, s) -> None:
        self.scoped(f"if ({self.integer(s.condition)}) {{", lambda: self.statement(s.then_case))
        if s.else_case is not None:
            self.scoped("else {", lambda: self.statement(s.else_case))

    def _store(self, s) -> None:
        place = self.place(s.buffer, s.indices)
        if m.is_float(s.buffer.dtype):
            after = next(self.events)
            value = self.value(s.value, self.inference.levels.level(after))
            self.wrote(s.buffer, after)
        else:
            value = self.integer(s.value)
        self.put(f"{place} = {value};")

    def _bind(self, s) -> None:
        if m.is_float(m.dtype_of(s.var)):
            value = self.value(s.value, self.level_of(s.var))
            self.put(f"val {self.name(s.var)} = {value};")
        else:
            self.define(s.var, s.value)

    def _evaluate(self, s) -> None:
        """A thread that leaves ends its task: it must not be inside a loop of the task. A barrier has
        nothing to do where stages run one after the other."""
        if m.kind(s.value) == "Call" and s.value.op.name == m.LEAVE:
            if self.task is None or not self.task.same_as(self.loop):
                raise NoMeaning(
                    "a thread leaves inside a loop", shortened(s), self.stage, "leave before the loops"
                )
            self.leaves = True
            freed = "".join(f"free({name}); " for name in self.made_here[self.of_task :])
            self.put(f"{freed}goto leave;")

    def _attribute(self, s) -> None:
        if s.attr_key != "thread_extent":
            self.statement(s.body)
            return
        v = self.name(s.node.var)
        self.put(f"for (i64 {v}_i = 0, {v}_n = {self.integer(s.value)}; {v}_i < {v}_n; {v}_i++)")

        def body():
            self.learn(s.node.var, values_of(0, s.value))
            self.statement(s.body)

        self.scoped(f"{{ i64 {v} = reverse ? {v}_n - 1 - {v}_i : {v}_i;", body)


def task_loop(s, plain: bool):
    """The innermost loop of the chain of parallel and thread loops that holds the whole function, or None.
    Before scheduling (`plain`) the loops of the grid are still serial."""
    found = None
    while m.kind(s) in ("SBlockRealize", "For"):
        if m.kind(s) == "For":
            if int(s.kind) not in FREE_ORDER and not plain:
                break
            found = s
        s = s.block.body if m.kind(s) == "SBlockRealize" else s.body
    return found


def _accumulates_along(loop) -> bool:
    """Whether a reduction with an initial value runs along this loop, which then keeps its order."""
    found = False
    stack = [loop.body]
    while stack and not found:
        s = stack.pop()
        k = m.kind(s)
        if k == "SBlockRealize":
            along = [
                v
                for x, v in zip(s.block.iter_vars, s.iter_values, strict=False)
                if int(x.iter_type) == REDUCE
            ]
            found = s.block.init is not None and any(_mentions(e, loop.loop_var) for e in along)
            stack.append(s.block.body)
        elif k == "SeqStmt":
            stack.extend(s.seq)
        elif k == "IfThenElse":
            stack.extend(x for x in (s.then_case, s.else_case) if x is not None)
        elif hasattr(s, "body"):
            stack.append(s.body)
    return found


def _mentions(e, variable) -> bool:
    if m.kind(e) == "Var":
        return e.same_as(variable)
    return any(
        _mentions(getattr(e, side), variable)
        for side in ("a", "b", "value")
        if hasattr(e, side) and m.kind(e) != "IntImm"
    )


def emit(func, inference: Inference, events: list[int], plain: bool = False) -> tuple[str, Emitter]:
    """The C text of a function named SYMBOL, and the emitter with what the text refers to; `events` are those of the
    inference on this function."""
    emitter = Emitter(inference, events=iter(events), plain=plain)
    return emitter.function(func), emitter


_STATEMENTS = {
    "SeqStmt": Emitter._sequence,
    "SBlockRealize": Emitter._block,
    "For": Emitter._loop,
    "While": Emitter._while,
    "IfThenElse": Emitter._if,
    "BufferStore": Emitter._store,
    "Bind": Emitter._bind,
    "AllocBuffer": lambda self, s: self.allocate(s.buffer),
    "DeclBuffer": lambda self, s: None,
    "AttrStmt": Emitter._attribute,
    "Evaluate": Emitter._evaluate,
}
