"""What names mean: operators, targets and instructions after resolution, rules at a point of their choices.

Pure data with spans. Expressions stay syntax (`kdsl.syntax.nodes`), since their names are resolved here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property

from attrs import field, frozen

from kdsl.source.span import Span
from kdsl.syntax import nodes as n

Expr = n.Expr
DTYPE_BYTES = {"bf16": 2, "f16": 2, "f32": 4, "i32": 4, "i64": 8}


@frozen
class Size:
    """A dimension of the operator; `low` and `high` bound it where the operator says so."""

    name: str
    low: int | None
    high: int | None
    span: Span = field(repr=False, eq=False)


@frozen
class Parameter:
    """A constant of the algorithm that a rule's `form` sets (the chunk length)."""

    name: str
    values: tuple[int, ...] | tuple[int, int] | None
    span: Span = field(repr=False, eq=False)
    condition: Expr | None = None  # the form that has it; None: every form


@frozen
class Port:
    """An input or output tensor of the operator.

    `dtypes` are the storage types it may have; `like` names ports whose dtype of the call it may also have.
    """

    name: str
    direction: str  # "input" | "output"
    shape: tuple[Expr, ...]
    dtypes: tuple[str, ...]
    like: tuple[str, ...]
    optional: bool
    updated: bool  # an input that the operator writes in place
    strided: bool  # any strides; otherwise contiguous
    span: Span = field(repr=False, eq=False)

    @property
    def written(self) -> bool:
        return self.direction == "output" or self.updated


@frozen
class Option:
    """A choice (`values`), a switch ("bool") or a scalar ("f32") of a call. Scalars are run-time values."""

    name: str
    kind: str  # "choice" | "bool" | "scalar"
    values: tuple
    default: Expr | None
    condition: Expr | None
    span: Span = field(repr=False, eq=False)


@frozen
class Index:
    name: str
    extent: Expr
    mode: str  # "parallel" | "sequential" | "local"
    span: Span = field(repr=False, eq=False)
    slot: Expr | None = None  # where a tensor of this step lies in a workspace, of `slots` in all
    slots: Expr | None = None
    most: Expr | None = None  # a bound of the extent that is known when a kernel is launched
    cuts: str | None = None  # the sequential index whose steps it cuts into runs
    by: Expr | None = None  # steps of a run; the last one may have fewer

    @property
    def said(self) -> str:
        """What its values are, as the operator writes it."""
        text = " ".join((self.extent if self.by is None else self.by).span.text.split())
        return f"{self.cuts} by {text}" if self.cuts is not None else text


@frozen
class Definition:
    name: str
    parameters: tuple[str, ...]
    body: Expr
    span: Span = field(repr=False, eq=False)


@frozen
class View:
    """A window of a port: `qx[i, d] = q[...] where condition else value`."""

    name: str
    indices: tuple[str, ...]
    port: str
    port_indices: tuple[Expr, ...]
    condition: Expr | None
    otherwise: Expr | None
    span: Span = field(repr=False, eq=False)


@frozen
class Operator:
    name: str
    declaration: n.Operator = field(repr=False, eq=False)
    sizes: Mapping[str, Size]
    parameters: Mapping[str, Parameter]
    ports: Mapping[str, Port]
    options: Mapping[str, Option]
    laws: tuple[n.Claim, ...]
    definitions: Mapping[str, Definition]
    indices: Mapping[str, Index]
    views: Mapping[str, View]
    rounding: Mapping[str, tuple[str, ...]]
    parts: Mapping[str, n.Part]
    forms: Mapping[str, tuple[str, ...]]  # alternatives that are no option: decay, chain
    defaults: Mapping[str, str]  # of the forms that a rule need not choose
    acceptance: n.Acceptance | None
    span: Span = field(repr=False, eq=False)
    memo: dict = field(factory=dict, repr=False, eq=False)  # what is derived from the operator alone, by name

    @property
    def static_sizes(self) -> tuple[str, ...]:
        """Sizes that shape the tensors of the graph: a kernel is compiled for each value."""
        found: list[str] = []
        for index in self.indices.values():
            if index.mode == "local":
                found += [name for name in names_in(index.extent) if name in self.sizes and name not in found]
        return tuple(found)

    @property
    def steps(self) -> str | None:
        """The sequential index that the graph as a whole is repeated for."""
        return next((i.name for i in self.indices.values() if i.mode == "sequential" and i.cuts is None), None)

    def cut_by(self, index: str) -> str | None:
        """The index whose values are runs of the steps of `index`."""
        return next((name for name, other in self.indices.items() if other.cuts == index), None)


@frozen
class Read:
    """A tensor or view that a stage reads, at these indices."""

    tensor: str
    indices: tuple[Expr, ...]
    span: Span = field(repr=False, eq=False)


@frozen
class Stage:
    """One step of the mathematics: every element of one tensor.

    `kind`: map, contract (a sum of products of two tensors), reduce (any other reduction) or scan (reads its
    own earlier elements along `scan`). A reduction is `initial + sign * reduction`; without one, `initial` is
    the value.
    """

    name: str
    part: str
    tensor: str
    indices: tuple[str, ...]
    kind: str
    initial: Expr | None
    reduction: n.Reduction | None
    sign: int
    scan: str | None
    reads: tuple[Read, ...]
    span: Span = field(repr=False, eq=False)

    @property
    def contracted(self) -> tuple[str, ...]:
        return tuple(b.name.text for b in self.reduction.binders) if self.reduction else ()


@frozen
class Carry:
    """A tensor that lives across the steps of `over`: starts as a value, becomes `next` after every step.

    With `within` it starts anew in every run of steps that this index counts. `end` is what it leaves: a view, or a
    tensor of the run.
    """

    tensor: str
    indices: tuple[str, ...]
    over: str
    start: Expr
    end: Read | None
    next: str
    part: str
    span: Span = field(repr=False, eq=False)
    within: str | None = None

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """What the start is made of."""
        nodes = (node for node in walk(self.start) if isinstance(node, n.Reference))
        return tuple(dict.fromkeys(Read(node.name.text, node.indices, node.span) for node in nodes))


@frozen
class Graph:
    """The operator's graph once forms and options are set: nothing left to choose but where and when."""

    stages: tuple[Stage, ...]
    carries: tuple[Carry, ...]

    @property
    def producers(self) -> dict[str, Stage]:
        return {stage.tensor: stage for stage in self.stages}

    def of_parts(self, parts: tuple[str, ...]) -> Graph:
        return Graph(
            tuple(s for s in self.stages if s.part in parts),
            tuple(c for c in self.carries if c.part in parts),
        )


@frozen
class Target:
    name: str
    fields: Mapping[str, object]
    has: frozenset[str]
    declaration: n.Target = field(repr=False, eq=False)
    chain: tuple[str, ...] = ()  # what it extends, nearest first

    @property
    def family(self) -> str:
        return str(self.fields.get("family", ""))


@frozen
class Instruction:
    name: str
    fields: Mapping[str, object]
    operands: Mapping[str, n.Operand]
    declaration: n.Instruction = field(repr=False, eq=False)


@frozen
class GridLoop:
    """One loop of a launch axis: every value of `index`, its tiles, or the slots it is stored in.

    `within` is the parallel index whose values share the slots; a block finds which of them its slot belongs to.
    `order` is what the axis begins with, where that is not the first value of its outermost loop.
    """

    index: str
    tile: int = 1
    within: str | None = None
    order: str | None = None

    @property
    def name(self) -> str:
        return f"{self.index}.slot" if self.within else f"{self.index}.tile" if self.tile > 1 else self.index

    @property
    def text(self) -> str:
        """As a rule writes it."""
        dealt = f"{self.index} by {self.tile}" if self.tile > 1 else self.index
        return f"{self.within}, {dealt} packed" if self.within else dealt


@frozen
class GridAxis:
    """One launch axis: the indices it enumerates, outermost first, each with a tile (1: every value).

    `packed` are sequential indices of which it enumerates the stored slots, each together with the index before it.
    """

    axis: str
    indices: tuple[tuple[str, int], ...]
    order: str | None
    span: Span = field(repr=False, eq=False)
    packed: tuple[str, ...] = ()

    @property
    def loops(self) -> tuple[GridLoop, ...]:
        found: list[GridLoop] = []
        for index, tile in self.indices:
            within = found.pop().index if index in self.packed else None
            found.append(GridLoop(index, tile, within, self.order if not found else None))
        return tuple(found)


@frozen
class Role:
    name: str
    warps: int
    over: tuple[tuple[str, int], ...]
    registers: int | None
    span: Span = field(repr=False, eq=False)


# What a tensor comes `via`, if not a kernel: a copy that its threads need not wait for, a load by the lanes that own
# its elements, or a sum of lanes or warps.
COPIES = ("cp.async", "cp.async.bulk", "tma")
LOAD = "ld.global"
REDUCERS = ("shuffle", "shared")
ENGINES = (*COPIES, LOAD, *REDUCERS)


def is_engine(name: str) -> bool:
    return name in ENGINES


@frozen
class Home:
    """Where a tensor lives. `readers` empty: its home; else a view that only these stages or kernels use."""

    tensor: str
    readers: tuple[str, ...]
    dtype: str | None
    memory: str
    attributes: Mapping[str, object]
    span: Span = field(repr=False, eq=False)

    @property
    def beside(self) -> str | None:
        """The kernel whose warps share the blocks and pass the tensor, where `via` names one."""
        via = self.attributes.get("via")
        return None if via is None or is_engine(str(via)) else str(via)


@frozen
class Computation:
    """How one stage is computed: the instruction, and attributes such as `vector` (index, width)."""

    stage: str
    instruction: str | None
    attributes: Mapping[str, object]
    span: Span = field(repr=False, eq=False)


@frozen
class Kernel:
    name: str
    parts: tuple[str, ...]
    grid: tuple[GridAxis, ...]
    roles: Mapping[str, Role]
    homes: Mapping[str, Home]
    views: Mapping[str, tuple[Home, ...]]
    computations: Mapping[str, Computation]
    pins: tuple[n.PinValue | n.PinOrder, ...]
    ensure: tuple[n.Claim, ...]
    span: Span = field(repr=False, eq=False)


@frozen
class Rule:
    """A rule with its tactics still unexpanded: what `at` resolves at a point."""

    name: str
    operator: str
    targets: tuple[str, ...]
    require: tuple[n.Claim, ...]
    ensure: tuple[n.Claim, ...]
    measure: tuple[n.Claim, ...]
    choices: Mapping[str, tuple]
    defaults: Mapping[str, object]
    form: Mapping[str, Expr]
    kernels: tuple[n.Kernel, ...]
    applied: tuple[n.Apply, ...]
    declaration: n.Rule = field(repr=False, eq=False)
    target_defaults: Mapping[str, Mapping[str, object]] = field(factory=dict)  # by target: choices it sets otherwise

    def defaults_on(self, target: str | None) -> dict[str, object]:
        """Every choice at its default on a target; None: at those for targets that have none of their own."""
        return {**self.defaults, **self.target_defaults.get(target, {})}


@frozen
class Specialization:
    """What a kernel is compiled for besides the rule: dtypes of ports, options, sizes that shape tensors."""

    dtypes: Mapping[str, str]
    options: Mapping[str, object]
    sizes: Mapping[str, int]


@frozen
class RulePoint:
    """A rule on one target at one value of every choice: all of it known but the sizes of a call."""

    rule: Rule
    target: Target
    choices: Mapping[str, object]
    form: Mapping[str, object]
    kernels: tuple[Kernel, ...]
    ensure: tuple[n.Claim, ...]
    measure: tuple[n.Claim, ...]


def walk(node):
    """Every node below and including `node`."""
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, tuple):
            stack.extend(reversed(current))
        elif isinstance(current, n.Node):
            yield current
            for name in _fields(type(current)):
                value = getattr(current, name)
                if isinstance(value, (n.Node, tuple)):
                    stack.append(value)


@cache
def _fields(kind: type[n.Node]) -> tuple[str, ...]:
    """Fields that may hold nodes, the last one first."""
    return tuple(a.name for a in reversed(kind.__attrs_attrs__) if a.name != "span")


_NAMES: dict[int, tuple[object, tuple[str, ...]]] = {}
_MOST_NAMES = 1 << 16


def names_in(expr) -> tuple[str, ...]:
    """Plain names that an expression mentions, in order, once each. Remembered: trees never change."""
    known = _NAMES.get(id(expr))
    if known is not None and known[0] is expr:
        return known[1]
    found = tuple(dict.fromkeys(node.text for node in walk(expr) if isinstance(node, n.Name)))
    if len(_NAMES) >= _MOST_NAMES:
        _NAMES.clear()
    _NAMES[id(expr)] = (expr, found)
    return found
