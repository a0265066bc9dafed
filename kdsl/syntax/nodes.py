"""The syntax tree: frozen, with spans that equality ignores, and nothing resolved."""

from __future__ import annotations

from functools import lru_cache

from attrs import field, frozen

from kdsl.source.span import Span


@frozen
class Node:
    span: Span = field(eq=False, repr=False)


@frozen
class Id(Node):
    text: str


# ---- expressions -------------------------------------------------------------------------------------------


@frozen
class Number(Node):
    text: str

    @property
    def value(self) -> int | float:
        return number(self.text)


@lru_cache(maxsize=4096)
def number(text: str) -> int | float:
    """The value of a literal; a ValueError for more digits than Python reads."""
    return float(text) if any(c in text for c in ".e") else int(text)


@frozen
class Quantity(Node):
    """A number with a unit, as written: `164 KiB`."""

    number: str
    unit: str


@frozen
class Name(Node):
    text: str


@frozen
class Text(Node):
    value: str


@frozen
class Reference(Node):
    """A tensor or view read or written at indices: `state[d, e]`."""

    name: Id
    indices: tuple[Expr, ...]


@frozen
class Group(Node):
    inner: Expr


@frozen
class Sequence(Node):
    items: tuple[Expr, ...]


@frozen
class Call(Node):
    function: Id
    arguments: tuple[Expr, ...]


@frozen
class Baseline(Node):
    name: Id


@frozen
class Binary(Node):
    """`+ - * / % **`. A `/` between integers is floor division."""

    operator: str
    left: Expr
    right: Expr


@frozen
class Signed(Node):
    sign: str
    operand: Expr


@frozen
class Comparison(Node):
    operator: str
    left: Expr
    right: Expr


@frozen
class IsOption(Node):
    """`gate is bounded`."""

    subject: Expr
    option: Id


@frozen
class Contains(Node):
    """`K in [64, 128]`."""

    item: Expr
    container: Expr


@frozen
class Logical(Node):
    operator: str  # "and" | "or"
    left: Expr
    right: Expr


@frozen
class Not(Node):
    operand: Expr


@frozen
class Conditional(Node):
    condition: Expr
    then: Expr
    otherwise: Expr


@frozen
class Binder(Node):
    """An index that a reduction runs over; with a bound, only below it: `p < i`."""

    name: Id
    bound: Expr | None


@frozen
class Reduction(Node):
    """`sum over d of ...`, `maximum over j of ...`."""

    operator: str  # "sum" | "maximum"
    binders: tuple[Binder, ...]
    body: Expr


@frozen
class Percent(Node):
    """`95% of x`; `number` is the text before the sign."""

    number: str
    of: Expr


@frozen
class Ratio(Node):
    """`0.25 of x`."""

    number: str
    of: Expr


@frozen
class AtLevel(Node):
    """`count(shfl.sync) at ptx`; `registers_per_thread at math`."""

    subject: Expr
    level: Id


Expr = (
    Number | Quantity | Name | Text | Reference | Group | Sequence | Call | Baseline | Binary | Signed
    | Comparison | IsOption | Contains | Logical | Not | Conditional | Reduction | Percent | Ratio
    | AtLevel
)


# ---- claims ------------------------------------------------------------------------------------------------


@frozen
class Dtype(Node):
    """`bf16`, or `like q`: the dtype that port has in this call."""

    name: str
    like: bool = False


@frozen
class Typed(Node):
    """`q, k : bf16, f16`."""

    names: tuple[Id, ...]
    dtypes: tuple[Dtype, ...]


@frozen
class Uses(Node):
    instruction: Id
    stages: tuple[Id, ...]


@frozen
class Within(Node):
    """`error within kda.acceptance`."""

    subject: Expr
    acceptance: Id


Predicate = Typed | Uses | Within | Expr


@frozen
class Claim(Node):
    predicate: Predicate
    message: Text | None  # after `else`: what to tell who fails it


@frozen
class Range(Node):
    """`16..256`, both ends included."""

    low: Expr
    high: Expr


# ---- operator ----------------------------------------------------------------------------------------------


@frozen
class Doc(Node):
    text: str


@frozen
class Domain(Node):
    """Sizes or parameters with what they may be: a Range, a Sequence, a type name, or anything (None)."""

    names: tuple[Id, ...]
    values: Range | Expr | None
    condition: Expr | None = None  # after `when`: the form that has the parameter


@frozen
class Alternative(Node):
    shape: tuple[Expr, ...]
    condition: Expr


@frozen
class Port(Node):
    names: tuple[Id, ...]
    shape: tuple[Expr, ...]
    dtypes: tuple[Dtype, ...]
    flags: tuple[str, ...]  # optional, updated, strided
    alternative: Alternative | None


@frozen
class TargetDefault(Node):
    """`32 on sm_90a`: the default of a choice on one target."""

    value: Expr
    target: Id


@frozen
class Option(Node):
    """An option of an operator, or a choice of a rule; only a choice has defaults of targets."""

    names: tuple[Id, ...]
    values: Range | Expr
    default: Expr | None
    condition: Expr | None
    target_defaults: tuple[TargetDefault, ...] = ()


@frozen
class Index(Node):
    """`c in length(n) / C up to T / C sequential stored at slot(n, c) of B * T / C + N`.

    `slot` of `slots` is where a tensor of that step lies in a workspace. `s in c by L` cuts the steps of c into runs
    of L: `extent` is then the index that is cut, `by` the length of a run.
    """

    names: tuple[Id, ...]
    extent: Expr
    mode: str | None  # parallel, sequential
    slot: Expr | None = None
    slots: Expr | None = None
    most: Expr | None = None  # after `up to`: what the extent never passes, known when a kernel is launched
    by: Expr | None = None


@frozen
class Definition(Node):
    """`token(n, c, i) = ...`: a name for an index expression or a condition."""

    name: Id
    parameters: tuple[Id, ...]
    body: Expr


@frozen
class View(Node):
    """`qx[i, d] = q[...] where condition else value`."""

    target: Reference
    source: Expr
    condition: Expr | None
    otherwise: Expr | None


@frozen
class Allowance(Node):
    names: tuple[Id, ...]
    dtypes: tuple[Dtype, ...]


@frozen
class Stage(Node):
    """`decay_sum : gc[i, d] = lg[i, d] + gc[i - 1, d] scan i`."""

    name: Id
    target: Reference
    body: Expr
    scan: Id | None


@frozen
class Carry(Node):
    """`carry state[d, e] over c from s0[d, e] to s1[d, e] next state_next`.

    `over c in s` starts anew in every run s of the steps c.
    """

    tensor: Reference
    over: Id
    start: Expr
    end: Reference | None
    next: Id
    within: Id | None = None


@frozen
class FormCase(Node):
    """`when factored requires ... { stages }`."""

    name: Id
    requires: Claim | None
    nodes: tuple[GraphNode, ...]


@frozen
class Either(Node):
    """`either span default serial { when ... }`: a rule that does not choose takes the default."""

    name: Id
    cases: tuple[FormCase, ...]
    default: Id | None = None


GraphNode = Stage | Carry | Either | Doc


@frozen
class Part(Node):
    name: Id
    nodes: tuple[GraphNode, ...]


@frozen
class Acceptance(Node):
    name: Id
    claims: tuple[Claim, ...]


@frozen
class Block(Node):
    """A keyword with braces: `sizes { ... }`; `kind` is the keyword, `items` its lines in order."""

    kind: str
    items: tuple[Node, ...]


@frozen
class Operator(Node):
    name: Id
    items: tuple[Node, ...]  # Doc, Block, Part, Acceptance


# ---- target, instruction -----------------------------------------------------------------------------------


@frozen
class Field(Node):
    name: Id
    value: Expr


@frozen
class Has(Node):
    names: tuple[Id, ...]


@frozen
class Lacks(Node):
    names: tuple[Id, ...]


@frozen
class Target(Node):
    name: Id
    extends: Id | None
    items: tuple[Node, ...]  # Doc, Field, Has, Lacks


@frozen
class Operand(Node):
    """`operand A[m, k] of bf16 in registers : lane = ..., slot = ...`."""

    target: Reference
    dtypes: tuple[Dtype, ...]
    memories: tuple[str, ...]
    maps: tuple[Field, ...]


@frozen
class Instruction(Node):
    name: Id
    items: tuple[Node, ...]  # Doc, Field, Operand


# ---- rule --------------------------------------------------------------------------------------------------


@frozen
class Axis(Node):
    index: Id
    by: Expr | None
    packed: bool = False  # of a grid: only the slots that the index is stored in


@frozen
class GridLine(Node):
    axis: Id  # x, y, z on a GPU; task on a CPU
    axes: tuple[Axis, ...]
    order: Id | None


@frozen
class Role(Node):
    name: Id
    warps: Expr
    over: tuple[Axis, ...]
    registers: Expr | None


@frozen
class Attribute(Node):
    """One trailing attribute of a placement or a computation.

    `kind` is the keyword; `name`, `value` and `axes` hold what follows it, as far as it has them.
    """

    kind: str  # as, swizzle, pad, ring, via, on, lanes, order, alias, over, rows, vector, unroll, blocks
    name: Id | None = None
    value: Expr | None = None
    axes: tuple[Axis, ...] = ()
    names: tuple[Id, ...] = ()


@frozen
class Placement(Node):
    """`k_decayed, q_decayed for gram_kk : bf16 in shared pad 8`."""

    names: tuple[Id, ...]
    readers: tuple[Id, ...]  # after `for`: stages, kernels or roles; empty: the tensor's home
    dtype: Id | None
    memory: str
    attributes: tuple[Attribute, ...]


@frozen
class Computation(Node):
    """`state_key, state_query : mma.m16n8k16 over e by 16`."""

    stages: tuple[Id, ...]
    instruction: Id | None
    attributes: tuple[Attribute, ...]


@frozen
class PinValue(Node):
    name: Id
    values: tuple[Expr, ...]


@frozen
class PinOrder(Node):
    first: Id
    second: Id


@frozen
class Apply(Node):
    tactic: Id
    arguments: tuple[Expr, ...]


@frozen
class Chosen(Node):
    """A line of `form`: `decay = pairwise`."""

    name: Id
    value: Expr


@frozen
class Kernel(Node):
    name: Id
    parts: tuple[Id, ...]
    condition: Expr | None
    items: tuple[Node, ...]  # Doc, Block(grid, roles, place, compute, pin, ensure), Apply


@frozen
class Tactic(Node):
    name: Id
    parameters: tuple[Id, ...]
    items: tuple[Node, ...]


@frozen
class Rule(Node):
    name: Id
    operator: Id
    targets: tuple[Id, ...]
    items: tuple[Node, ...]  # Doc, Block(require, ensure, measure, choose, form), Kernel, Apply


@frozen
class Use(Node):
    path: Text


@frozen
class Edition(Node):
    year: Number


@frozen
class Expectation(Node):
    """`expect refuse E302 { ... }`; no codes: `expect pass`. `kdsl test` checks it, nothing else looks inside."""

    codes: tuple[Id, ...]
    items: tuple[Node, ...]


Declaration = Operator | Target | Instruction | Tactic | Rule | Use | Edition | Expectation


@frozen
class Comment:
    """A comment, kept beside the tree for the printer."""

    span: Span
    text: str


@frozen
class Tree:
    """One file."""

    source: object = field(eq=False, repr=False)
    declarations: tuple[Declaration, ...]
    comments: tuple[Comment, ...] = field(eq=False, repr=False, default=())
