"""The level of every float in a program: a weighted union-find over unknown levels.

+ - * /, casts, loads, stores and selects keep the level; exp lowers it by one; sqrt keeps it; log leaves it
free. Literals belong to every level. Memory that a plan gives to one tensor after the other takes the level
of each: a store of another level is the next tensor. The specification pins the levels of the operator's
tensors, so that specification and program are inferred together. A conflict (an exponent used as a value)
means that the program has no meaning.
"""

from __future__ import annotations

from attrs import define, field

from kdsl.prove import meaning as m
from kdsl.prove.intrinsics import description_of, keeps_memory
from kdsl.prove.refusal import NoMeaning, shortened


@define
class Levels:
    """Unknowns with parents and offsets: level(a) = level(parent[a]) + offset[a]."""

    parent: list[int] = field(factory=list)
    offset: list[int] = field(factory=list)
    ground: int = field(init=False)
    base: dict[int, int] = field(factory=dict)

    def __attrs_post_init__(self):
        self.ground = self.new()

    def new(self) -> int:
        self.parent.append(len(self.parent))
        self.offset.append(0)
        return len(self.parent) - 1

    def find(self, a: int) -> tuple[int, int]:
        distance = 0
        while self.parent[a] != a:
            distance += self.offset[a]
            a = self.parent[a]
        return a, distance

    def relate(self, a: int | None, b: int | None, difference: int) -> int:
        """level(a) = level(b) + difference. The return value is 0, or by how much that contradicts what is
        known."""
        if a is None or b is None:
            return 0
        (root_a, from_a), (root_b, from_b) = self.find(a), self.find(b)
        if root_a != root_b:
            self.parent[root_a], self.offset[root_a] = root_b, from_b + difference - from_a
            return 0
        return from_a - from_b - difference

    def grounded(self) -> bool:
        """Whether every level so far hangs together with those of the operator's tensors, so that no more can be learnt
        of any."""
        ground, _ = self.find(self.ground)
        return all(self.find(unknown)[0] == ground for unknown in range(len(self.parent)))

    def solve(self) -> int:
        """Fix every level; what nothing ties to the operator's tensors goes as low as it can. The depth
        needed."""
        lowest: dict[int, int] = {}
        for unknown in range(len(self.parent)):
            root, distance = self.find(unknown)
            lowest[root] = min(lowest.get(root, distance), distance)
        root, distance = self.find(self.ground)
        self.base = {r: -low for r, low in lowest.items()} | {root: -distance}
        if lowest[root] < distance:
            raise NoMeaning(
                "a value lies below the outputs' field",
                "the logarithm side of an exponential of an output",
                None,
                "an output must not be used as an exponent",
            )
        return 1 + max(self.level(unknown) for unknown in range(len(self.parent)))

    def level(self, unknown: int) -> int:
        root, distance = self.find(unknown)
        return self.base[root] + distance


@define
class Inference:
    """Levels of one or several functions whose parameters share names."""

    levels: Levels = field(factory=Levels)
    ports: dict[str, int] = field(factory=dict)  # shared by the functions: ports, workspaces, scalars
    variables: dict[int, int] = field(factory=dict)
    windows: dict[int, object] = field(
        factory=dict
    )  # matched buffers and parameters of descriptions: their source
    events: list[int] = field(
        factory=list
    )  # the level unknown after each allocation and store, in their order
    free: dict[int, tuple[int, int]] = field(factory=dict)  # a call of a random function -> result, argument
    made: set[int] = field(factory=set)  # buffers of the program itself
    assumed: set[str] = field(factory=set)
    stage: str | None = None

    def pin(self, port: str, level: int) -> None:
        self._tie(self._port(port), self.levels.ground, level, port)

    def _port(self, name: str) -> int:
        if name not in self.ports:
            self.ports[name] = self.levels.new()
        return self.ports[name]

    def function(self, func, names: dict[int, str]) -> None:
        """`names` gives the shared name of each float parameter by identity."""
        for param in func.params:
            if hash(param) in names:
                self.variables[hash(param)] = self._port(names[hash(param)])
        self.statement(func.body)

    def root(self, buffer):
        """The buffer that a matched buffer is a window of."""
        while hash(buffer) in self.windows:
            buffer = self.windows[hash(buffer)]
        return buffer

    def variable(self, v) -> int:
        key = hash(self.root(v))
        if key not in self.variables:
            self.variables[key] = self.levels.new()
        return self.variables[key]

    def allocate(self, buffer) -> None:
        """A buffer made here: it holds one tensor after the other, each at its own level."""
        if m.is_float(buffer.dtype):
            self.variables[hash(buffer)] = self.levels.new()
            self.made.add(hash(buffer))
            self.events.append(self.variables[hash(buffer)])

    def _tie(self, a, b, difference: int, where) -> None:
        wrong = self.levels.relate(a, b, difference)
        if wrong:
            raise NoMeaning(
                f"an exponent meets a value, {abs(wrong)} level{'s' * (abs(wrong) > 1)} apart",
                shortened(where),
                self.stage,
                "check that every log decay goes through exp before it meets values, and only then",
            )

    def refuse(self, what: str, e, remedy: str = m.REMEDY_TABLE):
        raise NoMeaning(what, shortened(e), self.stage, remedy)

    # ---- expressions ----
    def expression(self, e) -> int | None:
        """The level unknown of a float; None for literals and integers."""
        k = m.kind(e)
        method = _EXPRESSIONS.get(k)
        if method is None:
            self.refuse(f"no meaning for {k}", e)
        return method(self, e)

    def _variable(self, e):
        return self.variable(e) if m.is_float(m.dtype_of(e)) else None

    def _load(self, e):
        for index in e.indices:
            self.expression(index)
        return self.variable(e.source) if m.is_float(m.dtype_of(e)) else None

    def _cast(self, e):
        inner = self.expression(e.value)
        if m.is_float(m.dtype_of(e.value)):
            if not m.is_float(m.dtype_of(e)):
                self.refuse("a float becomes an integer", e, m.REMEDY_SIZE)
            return inner
        return None

    def _arithmetic(self, e):
        x = m.softplus_argument(e)
        if x is not None:
            self.assumed.add("max(x, 0) + log1p(exp(-|x|)) is log(1 + exp(x))")
            return self._free(e, x, shift=1)
        a, b = self.expression(e.a), self.expression(e.b)
        self._tie(a, b, 0, e)
        return a if a is not None else b

    def _ordered(self, e):
        self.expression(e.a)
        self.expression(e.b)
        if m.is_float(m.dtype_of(e.a)):
            self.refuse(f"{m.kind(e)} looks at the size of a value", e, m.REMEDY_SIZE)

    def _logical(self, e):
        for side in ("a", "b"):
            if hasattr(e, side):
                self.expression(getattr(e, side))

    def _select(self, e, condition=None, then=None, otherwise=None):
        condition, then, otherwise = (
            (e.condition, e.true_value, e.false_value) if condition is None else (condition, then, otherwise)
        )
        self.expression(condition)
        a, b = self.expression(then), self.expression(otherwise)
        if not m.is_float(m.dtype_of(e)):
            return None
        self._tie(a, b, 0, e)
        return a if a is not None else b

    def _call(self, e):
        name, args = m.called(e)
        if name in m.SELECTS:
            return self._select(e, *args)
        if not m.is_float(m.dtype_of(e)) and not any(m.is_float(m.dtype_of(a)) for a in args):
            for argument in args:
                self.expression(argument)
            return None
        if name in m.QUOTIENTS:
            a, b = (self.expression(argument) for argument in args)
            self._tie(a, b, 0, e)
            return a if a is not None else b
        if name == m.POWER and (m.kind(args[1]) != "FloatImm" or float(args[1].value) not in m.POWERS):
            self.refuse("a power that is not 2, 1/2 or -1/2", e)
        if name in m.KEEP or name in m.LIKELY or name == m.POWER:
            return self.expression(args[0])
        if name in m.DOWN:
            result = self.levels.new()
            self._tie(self.expression(args[0]), result, 1, e)
            return result
        if name in m.FREE:
            return self._free(e, args[0], shift=0)
        return self.refuse(f"no meaning for `{name}`", e)

    def _free(self, e, x, shift: int) -> int:
        """A random function of x, or of its exponential (`shift`): both levels are independent."""
        result, argument = self.levels.new(), self.levels.new()
        self._tie(self.expression(x), argument, shift, e)
        self.free[hash(e)] = (result, argument)
        return result

    # ---- statements ----
    def statement(self, s) -> None:
        k = m.kind(s)
        method = _STATEMENTS.get(k)
        if method is None:
            self.refuse(f"no meaning for the statement {k}", s)
        method(self, s)

    def _block(self, s) -> None:
        block, outer = s.block, self.stage
        self.stage = str(block.name_hint)
        for value in s.iter_values:
            self.expression(value)
        for match in block.match_buffers:
            self.windows[hash(match.buffer)] = match.source.source
        for buffer in block.alloc_buffers:
            self.allocate(buffer)
        if block.init is not None:
            self.statement(block.init)
        described = description_of(block)
        if described is None:
            self.statement(block.body)
        else:
            for param, match in zip(described.params, block.match_buffers, strict=True):
                self.windows[hash(param)] = match.buffer
            self.statement(described.body)
        self.stage = outer

    def _store(self, s) -> None:
        for index in s.indices:
            self.expression(index)
        value = self.expression(s.value)
        if m.is_float(s.buffer.dtype):
            self._stored(self.root(s.buffer), value, s)

    def _stored(self, buffer, value: int | None, s) -> None:
        """A value of another level than the buffer's is the next tensor in the same memory."""
        key = hash(buffer)
        if self.levels.relate(value, self.variable(buffer), 0):
            if key not in self.made:
                self._tie(value, self.variable(buffer), 0, s)
            self.variables[key] = self.levels.new()
            self.levels.relate(value, self.variables[key], 0)
        self.events.append(self.variables[key])

    def _bind(self, s) -> None:
        value = self.expression(s.value)
        if m.is_float(m.dtype_of(s.var)):
            self._tie(value, self.variable(s.var), 0, s)

    def _if(self, s) -> None:
        self.expression(s.condition)
        self.statement(s.then_case)
        if s.else_case is not None:
            self.statement(s.else_case)

    def _evaluate(self, s) -> None:
        if m.kind(s.value) == "IntImm" or keeps_memory(s.value):
            return
        effect = s.value.op.name if m.kind(s.value) == "Call" else None
        if effect != m.LEAVE and effect not in m.BARRIERS:
            self.refuse(
                "a call for its effect", s, "describe it: a tensor intrinsic with a description and this body"
            )


def _each(*fields):
    """Visit the named expressions, then the body."""

    def visit(self: Inference, s) -> None:
        for name in fields:
            self.expression(getattr(s, name))
        self.statement(s.body)

    return visit


_EXPRESSIONS = {
    "FloatImm": lambda self, e: None,
    "IntImm": lambda self, e: None,
    "StringImm": lambda self, e: None,
    "Var": Inference._variable,
    "TensorLoad": Inference._load,
    "BufferLoad": Inference._load,
    "Cast": Inference._cast,
    **dict.fromkeys(m.ARITHMETIC, Inference._arithmetic),
    **dict.fromkeys((*m.COMPARISONS, "Max", "Min", "Mod", "FloorMod", "FloorDiv"), Inference._ordered),
    **dict.fromkeys(("And", "Or", "Not"), Inference._logical),
    "Select": Inference._select,
    "Call": Inference._call,
}
_STATEMENTS = {
    "SeqStmt": lambda self, s: [self.statement(x) for x in s.seq] and None,
    "SBlockRealize": Inference._block,
    "For": _each("min", "extent"),
    "While": _each("condition"),
    "AttrStmt": lambda self, s: self.statement(s.body),
    "IfThenElse": Inference._if,
    "BufferStore": Inference._store,
    "Bind": Inference._bind,
    "AllocBuffer": lambda self, s: self.allocate(s.buffer),
    "DeclBuffer": lambda self, s: None,
    "Evaluate": Inference._evaluate,
}
