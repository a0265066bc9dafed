"""Productions to nodes: one method a grammar rule, called when the automaton reduces it."""

from __future__ import annotations

from kdsl.source.span import Origin, Span
from kdsl.syntax import nodes as n
from kdsl.syntax.tokens import Token

ATTRIBUTE_KEYWORD = {"as_fragment": "as", "on_role": "on", "via_reducer": "via"}


def _present(items) -> tuple:
    return tuple(item for item in items if item is not None)


class Build:
    """Bottom-up; every method gets the span of its production and the values of its children."""

    def __init__(self, origin: Origin):
        self.origin = origin

    def id(self, token: Token) -> n.Id:
        return n.Id(Span(self.origin, token.start, token.stop), token.text)

    def _ids(self, value) -> tuple[n.Id, ...]:
        return value or ()

    # ---- shared ----
    def names(self, span, c):
        return tuple(self.id(t) for t in c)

    def doc(self, span, c):
        return n.Doc(span, c[0].text[3:-3].replace("\r\n", "\n"))

    def edition(self, span, c):
        return n.Edition(span, self._number(c[0]))

    def use(self, span, c):
        return n.Use(span, self._text(c[0]))

    def expect_pass(self, span, c):
        return n.Expectation(span, (), tuple(c))

    def expect_refuse(self, span, c):
        return n.Expectation(span, c[0], tuple(c[1:]))

    def _number(self, token):
        return n.Number(Span(self.origin, token.start, token.stop), token.text)

    def _text(self, token):
        return None if token is None else n.Text(Span(self.origin, token.start, token.stop), token.text[1:-1])

    # ---- operator ----
    def operator(self, span, c):
        return n.Operator(span, self.id(c[0]), tuple(c[1:]))

    def acceptance(self, span, c):
        return n.Acceptance(span, self.id(c[0]), tuple(c[1:]))

    def domain(self, span, c):
        return n.Domain(span, c[0], c[1], c[2])

    def range(self, span, c):
        return n.Range(span, c[0], c[1])

    def port(self, span, c):
        names, shape, dtypes, *rest = c
        flags = tuple(item for item in rest if isinstance(item, str))
        alternative = next((item for item in rest if isinstance(item, n.Alternative)), None)
        return n.Port(span, names, shape, dtypes, flags, alternative)

    def flag(self, span, c):
        return c[0].text

    def shape(self, span, c):
        return _present(c)

    def alternative(self, span, c):
        return n.Alternative(span, c[0], c[1])

    def dtypes(self, span, c):
        return tuple(c)

    def dtype(self, span, c):
        return n.Dtype(span, c[0].text)

    def dtype_like(self, span, c):
        return n.Dtype(span, c[0].text, like=True)

    def option(self, span, c):
        return n.Option(span, *c)

    def choice(self, span, c):
        names, values, default, *targets, condition = c
        return n.Option(span, names, values, default, condition, tuple(targets))

    def target_default(self, span, c):
        return n.TargetDefault(span, c[0], self.id(c[1]))

    def index(self, span, c):
        names, extent, by, most, mode, *stored = c
        return n.Index(span, names, extent, mode.text if mode is not None else None, *stored, most=most, by=by)

    def definition(self, span, c):
        return n.Definition(span, self.id(c[0]), self._ids(c[1]), c[2])

    def view(self, span, c):
        return n.View(span, *c)

    def allowance(self, span, c):
        return n.Allowance(span, c[0], c[1])

    def part(self, span, c):
        return n.Part(span, self.id(c[0]), tuple(c[1:]))

    def stage(self, span, c):
        return n.Stage(span, self.id(c[0]), c[1], c[2], self.id(c[3]) if c[3] is not None else None)

    def carry(self, span, c):
        tensor, over, within, start, end, following = c
        within = self.id(within) if within is not None else None
        return n.Carry(span, tensor, self.id(over), start, end, self.id(following), within)

    def either(self, span, c):
        return n.Either(span, self.id(c[0]), tuple(c[2:]), self.id(c[1]) if c[1] is not None else None)

    def alternative_form(self, span, c):
        return n.FormCase(span, self.id(c[0]), c[1], tuple(c[2:]))

    # ---- target, instruction ----
    def target(self, span, c):
        return n.Target(span, self.id(c[0]), self.id(c[1]) if c[1] is not None else None, tuple(c[2:]))

    def instruction(self, span, c):
        return n.Instruction(span, self.id(c[0]), tuple(c[1:]))

    def field(self, span, c):
        return n.Field(span, self.id(c[0]), c[1])

    assignment = field

    def has(self, span, c):
        return n.Has(span, c[0])

    def lacks(self, span, c):
        return n.Lacks(span, c[0])

    def memories(self, span, c):
        return tuple(t.text for t in c)

    def operand(self, span, c):
        return n.Operand(span, c[0], c[1], c[2], _present(c[3:]))

    # ---- rule ----
    def rule(self, span, c):
        return n.Rule(span, self.id(c[0]), self.id(c[1]), c[2], tuple(c[3:]))

    def tactic(self, span, c):
        return n.Tactic(span, self.id(c[0]), self._ids(c[1]), tuple(c[2:]))

    def kernel(self, span, c):
        return n.Kernel(span, self.id(c[0]), c[1], c[2], tuple(c[3:]))

    def chosen(self, span, c):
        return n.Chosen(span, self.id(c[0]), c[1])

    def axes(self, span, c):
        return tuple(c)

    def axis(self, span, c):
        return n.Axis(span, self.id(c[0]), c[1])

    grid_axes = axes

    def grid_axis(self, span, c):
        return n.Axis(span, self.id(c[0]), c[1], c[2] is not None)

    def grid_line(self, span, c):
        return n.GridLine(span, self.id(c[0]), c[1], self.id(c[2]) if c[2] is not None else None)

    def role(self, span, c):
        return n.Role(span, self.id(c[0]), c[1], c[2] or (), c[3])

    def placement(self, span, c):
        names, readers, dtype, memory, *attributes = c
        return n.Placement(
            span, names, self._ids(readers), self.id(dtype) if dtype is not None else None, memory.text,
            tuple(attributes),
        )  # fmt: skip

    def computation(self, span, c):
        names, instruction, *attributes = c
        return n.Computation(
            span, names, self.id(instruction) if instruction is not None else None, tuple(attributes)
        )

    def pin_value(self, span, c):
        return n.PinValue(span, self.id(c[0]), tuple(c[1:]))

    def pin_order(self, span, c):
        return n.PinOrder(span, self.id(c[0]), self.id(c[1]))

    def apply(self, span, c):
        return n.Apply(span, self.id(c[0]), _present(c[1:]))

    # ---- claims, expressions ----
    def claim(self, span, c):
        return n.Claim(span, c[0], self._text(c[1]))

    def typed(self, span, c):
        return n.Typed(span, c[0], c[1])

    def uses(self, span, c):
        return n.Uses(span, self.id(c[0]), c[1])

    def within(self, span, c):
        return n.Within(span, c[0], self.id(c[1]))

    def conditional(self, span, c):
        return n.Conditional(span, *c)

    def disjunction(self, span, c):
        return n.Logical(span, "or", *c)

    def conjunction(self, span, c):
        return n.Logical(span, "and", *c)

    def negation(self, span, c):
        return n.Not(span, c[0])

    def comparison(self, span, c):
        return n.Comparison(span, c[1].text, c[0], c[2])

    def is_option(self, span, c):
        return n.IsOption(span, c[0], self.id(c[1]))

    def contains(self, span, c):
        return n.Contains(span, *c)

    def binary(self, span, c):
        return n.Binary(span, c[1].text, c[0], c[2])

    def power(self, span, c):
        return n.Binary(span, "**", *c)

    def signed(self, span, c):
        return n.Signed(span, c[0].text, c[1])

    def percent(self, span, c):
        return n.Percent(span, c[0].text[:-1], c[1])

    def ratio(self, span, c):
        return n.Ratio(span, c[0].text, c[1])

    def reduction(self, span, c):
        return n.Reduction(span, c[0].text, c[1], c[2])

    def binders(self, span, c):
        return tuple(c)

    def binder(self, span, c):
        return n.Binder(span, self.id(c[0]), c[1])

    def at_level(self, span, c):
        return n.AtLevel(span, c[0], self.id(c[1]))

    def number(self, span, c):
        return self._number(c[0])

    def quantity(self, span, c):
        return n.Quantity(span, c[0].text, c[1].text)

    def name(self, span, c):
        return n.Name(span, c[0].text)

    def text(self, span, c):
        return self._text(c[0])

    def reference(self, span, c):
        return n.Reference(span, self.id(c[0]), _present(c[1:]))

    def group(self, span, c):
        return n.Group(span, c[0])

    def sequence(self, span, c):
        return n.Sequence(span, _present(c))

    def call(self, span, c):
        return n.Call(span, self.id(c[0]), _present(c[1:]))

    def baseline(self, span, c):
        return n.Baseline(span, self.id(c[0]))


def _block_method(keyword: str):
    def method(self, span, c):
        return n.Block(span, keyword, tuple(c))

    return method


def _attribute_method(keyword: str):
    def method(self, span, c):
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
        return n.Attribute(span, **attribute)

    return method


BLOCKS = {
    "sizes": "sizes", "parameters": "parameters", "inputs": "inputs", "outputs": "outputs",
    "options": "options",
    "laws": "laws", "indices": "indices", "definitions": "define", "views": "views", "rounding": "rounding",
    "require": "require", "ensure": "ensure", "measure": "measure", "choose": "choose", "form": "form",
    "grid": "grid", "roles": "roles", "place": "place", "compute": "compute", "pins": "pin",
}  # fmt: skip
ATTRIBUTES = (
    "as_fragment", "swizzle", "pad", "ring", "via", "on_role", "lanes", "order", "alias", "over", "rows",
    "vector",
    "unroll", "via_reducer", "blocks",
)  # fmt: skip
for _rule, _keyword in BLOCKS.items():
    setattr(Build, _rule, _block_method(_keyword))
for _rule in ATTRIBUTES:
    setattr(Build, _rule, _attribute_method(ATTRIBUTE_KEYWORD.get(_rule, _rule)))
