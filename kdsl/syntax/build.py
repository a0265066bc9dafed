"""Lark's parse tree to the project's nodes, one method a grammar rule."""

from __future__ import annotations

from lark import Token, Transformer, v_args

from kdsl.source.span import Origin, Span
from kdsl.syntax import nodes as n

ATTRIBUTE_KEYWORD = {"as_fragment": "as", "on_role": "on", "via_reducer": "via"}


def _present(items) -> tuple:
    return tuple(item for item in items if item is not None)


@v_args(meta=True)
class Build(Transformer):
    """Bottom-up; every method gets Lark's meta (positions) and its children."""

    def __init__(self, origin: Origin):
        super().__init__(visit_tokens=False)
        self.origin = origin

    def span(self, meta) -> Span:
        start = getattr(meta, "start_pos", 0)
        return Span(self.origin, start, getattr(meta, "end_pos", start))

    def id(self, token: Token) -> n.Id:
        return n.Id(Span(self.origin, token.start_pos, token.end_pos), str(token))

    def _ids(self, value) -> tuple[n.Id, ...]:
        return value or ()

    # ---- shared ----
    def names(self, meta, c):
        return tuple(self.id(t) for t in c)

    def doc(self, meta, c):
        return n.Doc(self.span(meta), str(c[0])[3:-3])

    def start(self, meta, c):
        return tuple(c)

    def edition(self, meta, c):
        return n.Edition(self.span(meta), self._number(c[0]))

    def use(self, meta, c):
        return n.Use(self.span(meta), self._text(c[0]))

    def _number(self, token):
        return n.Number(Span(self.origin, token.start_pos, token.end_pos), str(token))

    def _text(self, token):
        return None if token is None else n.Text(Span(self.origin, token.start_pos, token.end_pos), str(token)[1:-1])

    # ---- operator ----
    def operator(self, meta, c):
        return n.Operator(self.span(meta), self.id(c[0]), tuple(c[1:]))

    def acceptance(self, meta, c):
        return n.Acceptance(self.span(meta), self.id(c[0]), tuple(c[1:]))

    def domain(self, meta, c):
        return n.Domain(self.span(meta), c[0], c[1])

    def range(self, meta, c):
        return n.Range(self.span(meta), c[0], c[1])

    def port(self, meta, c):
        names, shape, dtypes, *rest = c
        flags = tuple(item for item in rest if isinstance(item, str))
        alternative = next((item for item in rest if isinstance(item, n.Alternative)), None)
        return n.Port(self.span(meta), names, shape, dtypes, flags, alternative)

    def flag(self, meta, c):
        return str(c[0])

    def shape(self, meta, c):
        return _present(c)

    def alternative(self, meta, c):
        return n.Alternative(self.span(meta), c[0], c[1])

    def dtypes(self, meta, c):
        return tuple(c)

    def dtype(self, meta, c):
        return n.Dtype(self.span(meta), str(c[0]))

    def dtype_like(self, meta, c):
        return n.Dtype(self.span(meta), str(c[0]), like=True)

    def option(self, meta, c):
        return n.Option(self.span(meta), *c)

    def index(self, meta, c):
        return n.Index(self.span(meta), c[0], c[1], str(c[2]) if c[2] is not None else None)

    def definition(self, meta, c):
        return n.Definition(self.span(meta), self.id(c[0]), self._ids(c[1]), c[2])

    def view(self, meta, c):
        return n.View(self.span(meta), *c)

    def allowance(self, meta, c):
        return n.Allowance(self.span(meta), c[0], c[1])

    def part(self, meta, c):
        return n.Part(self.span(meta), self.id(c[0]), tuple(c[1:]))

    def stage(self, meta, c):
        return n.Stage(self.span(meta), self.id(c[0]), c[1], c[2], self.id(c[3]) if c[3] is not None else None)

    def carry(self, meta, c):
        return n.Carry(self.span(meta), c[0], self.id(c[1]), c[2], c[3], self.id(c[4]))

    def either(self, meta, c):
        return n.Either(self.span(meta), self.id(c[0]), tuple(c[1:]))

    def alternative_form(self, meta, c):
        return n.FormCase(self.span(meta), self.id(c[0]), c[1], tuple(c[2:]))

    # ---- target, instruction ----
    def target(self, meta, c):
        return n.Target(self.span(meta), self.id(c[0]), self.id(c[1]) if c[1] is not None else None, tuple(c[2:]))

    def instruction(self, meta, c):
        return n.Instruction(self.span(meta), self.id(c[0]), tuple(c[1:]))

    def field(self, meta, c):
        return n.Field(self.span(meta), self.id(c[0]), c[1])

    assignment = field

    def has(self, meta, c):
        return n.Has(self.span(meta), c[0])

    def lacks(self, meta, c):
        return n.Lacks(self.span(meta), c[0])

    def memories(self, meta, c):
        return tuple(str(t) for t in c)

    def operand(self, meta, c):
        return n.Operand(self.span(meta), c[0], c[1], c[2], _present(c[3:]))

    # ---- rule ----
    def rule(self, meta, c):
        return n.Rule(self.span(meta), self.id(c[0]), self.id(c[1]), c[2], tuple(c[3:]))

    def tactic(self, meta, c):
        return n.Tactic(self.span(meta), self.id(c[0]), self._ids(c[1]), tuple(c[2:]))

    def kernel(self, meta, c):
        return n.Kernel(self.span(meta), self.id(c[0]), c[1], c[2], tuple(c[3:]))

    def chosen(self, meta, c):
        return n.Chosen(self.span(meta), self.id(c[0]), c[1])

    def axes(self, meta, c):
        return tuple(c)

    def axis(self, meta, c):
        return n.Axis(self.span(meta), self.id(c[0]), c[1])

    def grid_line(self, meta, c):
        return n.GridLine(self.span(meta), self.id(c[0]), c[1], self.id(c[2]) if c[2] is not None else None)

    def role(self, meta, c):
        return n.Role(self.span(meta), self.id(c[0]), c[1], c[2] or (), c[3])

    def placement(self, meta, c):
        names, readers, dtype, memory, *attributes = c
        return n.Placement(
            self.span(meta), names, self._ids(readers), self.id(dtype) if dtype is not None else None, str(memory),
            tuple(attributes),
        )  # fmt: skip

    def computation(self, meta, c):
        names, instruction, *attributes = c
        return n.Computation(
            self.span(meta), names, self.id(instruction) if instruction is not None else None, tuple(attributes)
        )

    def pin_value(self, meta, c):
        return n.PinValue(self.span(meta), self.id(c[0]), tuple(c[1:]))

    def pin_order(self, meta, c):
        return n.PinOrder(self.span(meta), self.id(c[0]), self.id(c[1]))

    def apply(self, meta, c):
        return n.Apply(self.span(meta), self.id(c[0]), _present(c[1:]))

    # ---- claims, expressions ----
    def claim(self, meta, c):
        return n.Claim(self.span(meta), c[0], self._text(c[1]))

    def typed(self, meta, c):
        return n.Typed(self.span(meta), c[0], c[1])

    def uses(self, meta, c):
        return n.Uses(self.span(meta), self.id(c[0]), c[1])

    def within(self, meta, c):
        return n.Within(self.span(meta), c[0], self.id(c[1]))

    def conditional(self, meta, c):
        return n.Conditional(self.span(meta), *c)

    def disjunction(self, meta, c):
        return n.Logical(self.span(meta), "or", *c)

    def conjunction(self, meta, c):
        return n.Logical(self.span(meta), "and", *c)

    def negation(self, meta, c):
        return n.Not(self.span(meta), c[0])

    def comparison(self, meta, c):
        return n.Comparison(self.span(meta), str(c[1]), c[0], c[2])

    def is_option(self, meta, c):
        return n.IsOption(self.span(meta), c[0], self.id(c[1]))

    def contains(self, meta, c):
        return n.Contains(self.span(meta), *c)

    def binary(self, meta, c):
        return n.Binary(self.span(meta), str(c[1]), c[0], c[2])

    def power(self, meta, c):
        return n.Binary(self.span(meta), "**", *c)

    def signed(self, meta, c):
        return n.Signed(self.span(meta), str(c[0]), c[1])

    def percent(self, meta, c):
        return n.Percent(self.span(meta), str(c[0])[:-1], c[1])

    def ratio(self, meta, c):
        return n.Ratio(self.span(meta), str(c[0]), c[1])

    def reduction(self, meta, c):
        return n.Reduction(self.span(meta), str(c[0]), c[1], c[2])

    def binders(self, meta, c):
        return tuple(c)

    def binder(self, meta, c):
        return n.Binder(self.span(meta), self.id(c[0]), c[1])

    def at_level(self, meta, c):
        return n.AtLevel(self.span(meta), c[0], self.id(c[1]))

    def number(self, meta, c):
        return self._number(c[0])

    def quantity(self, meta, c):
        return n.Quantity(self.span(meta), str(c[0]), str(c[1]))

    def name(self, meta, c):
        return n.Name(self.span(meta), str(c[0]))

    def text(self, meta, c):
        return self._text(c[0])

    def reference(self, meta, c):
        return n.Reference(self.span(meta), self.id(c[0]), _present(c[1:]))

    def group(self, meta, c):
        return n.Group(self.span(meta), c[0])

    def sequence(self, meta, c):
        return n.Sequence(self.span(meta), _present(c))

    def call(self, meta, c):
        return n.Call(self.span(meta), self.id(c[0]), _present(c[1:]))

    def baseline(self, meta, c):
        return n.Baseline(self.span(meta), self.id(c[0]))


def _block_method(keyword: str):
    @v_args(meta=True)
    def method(self, meta, c):
        return n.Block(self.span(meta), keyword, tuple(c))

    return method


def _attribute_method(keyword: str):
    def method(self, meta, c):
        attribute = dict(kind=keyword)
        for item in c:
            if item is None:
                continue
            if isinstance(item, Token):
                attribute["name"] = self.id(item)
            elif isinstance(item, n.Axis):
                attribute["axes"] = (item,)
            elif isinstance(item, tuple):
                attribute["axes" if item and isinstance(item[0], n.Axis) else "names"] = item
            else:
                attribute["value"] = item
        return n.Attribute(self.span(meta), **attribute)

    return v_args(meta=True)(method)


BLOCKS = {
    "sizes": "sizes", "parameters": "parameters", "inputs": "inputs", "outputs": "outputs", "options": "options",
    "laws": "laws", "indices": "indices", "definitions": "define", "views": "views", "rounding": "rounding",
    "require": "require", "ensure": "ensure", "measure": "measure", "choose": "choose", "form": "form",
    "grid": "grid", "roles": "roles", "place": "place", "compute": "compute", "pins": "pin",
}  # fmt: skip
ATTRIBUTES = (
    "as_fragment", "swizzle", "pad", "ring", "via", "on_role", "lanes", "order", "alias", "over", "rows", "vector",
    "unroll", "via_reducer", "blocks",
)  # fmt: skip
for _rule, _keyword in BLOCKS.items():
    setattr(Build, _rule, _block_method(_keyword))
for _rule in ATTRIBUTES:
    setattr(Build, _rule, _attribute_method(ATTRIBUTE_KEYWORD.get(_rule, _rule)))
