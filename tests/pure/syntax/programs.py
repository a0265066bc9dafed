"""Random trees of every kind of declaration, and random layouts of a text that mean the same."""

from __future__ import annotations

import random

import attrs

from kdsl.source.span import Origin, SourceFile, Span
from kdsl.syntax import nodes as n
from kdsl.syntax.tokens import tokenize

NOWHERE = Span(Origin(SourceFile("", "")), 0, 0)
WORDS = (
    "q", "k", "v_tile", "state", "state_next", "HV", "C", "i", "d", "e", "cp.async", "mma.m16n8k16", "x2",
    "_y", "shared_bytes", "Register", "bf16", "k_decayed", "kda.chunk_forward", "vx",
)  # fmt: skip
UNITS = ("KiB", "MiB", "bytes", "us", "ms", "GHz", "TBps", "TFLOPs")
NUMBERS = ("0", "1", "16", "128", "1e-6", "0.25", "2.5e3", "65536")
TEXTS = ("", "pad K to 16", "a # b { } ; 'c'", "exp(-x)")
DOCS = ("", "One line.", "Two\n  lines { of text", 'with "quotes" in it.')
MEMORIES = ("registers", "shared", "workspace", "tensor_memory", "stack", "global")


class Programs:
    """A source of random nodes; `size` bounds the depth of expressions and the length of lists."""

    def __init__(self, chance: random.Random, size: int = 3):
        self.chance, self.size = chance, size

    # ---- small things ----
    def maybe(self, make, share: float = 0.5):
        return make() if self.chance.random() < share else None

    def some(self, make, least: int = 1, most: int | None = None) -> tuple:
        return tuple(make() for _ in range(self.chance.randint(least, max(least, most or self.size))))

    def id(self) -> n.Id:
        return n.Id(NOWHERE, self.chance.choice(WORDS))

    def ids(self) -> tuple[n.Id, ...]:
        return self.some(self.id)

    def text(self) -> n.Text:
        return n.Text(NOWHERE, self.chance.choice(TEXTS))

    def doc(self) -> n.Doc:
        return n.Doc(NOWHERE, self.chance.choice(DOCS))

    def number(self) -> n.Number:
        return n.Number(NOWHERE, self.chance.choice(NUMBERS))

    # ---- expressions ----
    def expr(self, depth: int | None = None) -> n.Expr:
        depth = self.size if depth is None else depth
        leaves = (self.number, self.name, self.quantity, self.text, lambda: n.Baseline(NOWHERE, self.id()))
        if depth <= 0:
            return self.chance.choice(leaves[:3])()
        make = self.chance.choice((*leaves, *[lambda: self.inner(depth - 1)] * 6))
        return make()

    def inner(self, depth: int) -> n.Expr:
        def sub() -> n.Expr:
            return self.expr(depth)

        def subs(least: int = 0) -> tuple[n.Expr, ...]:
            return self.some(sub, least)

        choice = self.chance.choice
        return choice((
            lambda: n.Reference(NOWHERE, self.id(), subs()),
            lambda: n.Group(NOWHERE, sub()),
            lambda: n.Sequence(NOWHERE, subs(1)),
            lambda: n.Call(NOWHERE, self.id(), subs()),
            lambda: n.Binary(NOWHERE, choice("+-*/%"), sub(), sub()),
            lambda: n.Binary(NOWHERE, "**", sub(), sub()),
            lambda: n.Signed(NOWHERE, choice("+-"), sub()),
            lambda: n.Comparison(NOWHERE, choice(("==", "!=", "<=", ">=", "<", ">")), sub(), sub()),
            lambda: n.IsOption(NOWHERE, sub(), self.id()),
            lambda: n.Contains(NOWHERE, sub(), sub()),
            lambda: n.Logical(NOWHERE, choice(("and", "or")), sub(), sub()),
            lambda: n.Not(NOWHERE, sub()),
            lambda: n.Conditional(NOWHERE, sub(), sub(), sub()),
            lambda: n.Reduction(NOWHERE, choice(("sum", "maximum")), self.some(lambda: self.binder(depth)),
            sub()),
            lambda: n.Percent(NOWHERE, choice(("95", "2.5")), sub()),
            lambda: n.Ratio(NOWHERE, choice(("0.25", "4")), sub()),
            lambda: n.AtLevel(NOWHERE, sub(), self.id()),
        ))()  # fmt: skip

    def name(self) -> n.Name:
        return n.Name(NOWHERE, self.chance.choice(WORDS))

    def quantity(self) -> n.Quantity:
        return n.Quantity(NOWHERE, self.chance.choice(NUMBERS), self.chance.choice(UNITS))

    def binder(self, depth: int) -> n.Binder:
        return n.Binder(NOWHERE, self.id(), self.maybe(lambda: self.expr(depth)))

    def reference(self) -> n.Reference:
        return n.Reference(NOWHERE, self.id(), self.some(lambda: self.expr(1), 0))

    def range(self) -> n.Range:
        return n.Range(NOWHERE, self.expr(1), self.expr(1))

    def values(self):
        return self.chance.choice((self.range, self.expr))()

    # ---- lines ----
    def dtypes(self):
        return self.some(lambda: n.Dtype(NOWHERE, self.chance.choice(WORDS), self.chance.random() < 0.3))

    def claim(self) -> n.Claim:
        predicate = self.chance.choice((
            self.expr, self.expr,
            lambda: n.Typed(NOWHERE, self.ids(), self.dtypes()),
            lambda: n.Uses(NOWHERE, self.id(), self.ids()),
            lambda: n.Within(NOWHERE, self.expr(), self.id()),
        ))()  # fmt: skip
        return n.Claim(NOWHERE, predicate, self.maybe(self.text))

    def domain(self) -> n.Domain:
        return n.Domain(NOWHERE, self.ids(), self.maybe(self.values))

    def port(self) -> n.Port:
        flags = tuple(flag for flag in ("optional", "updated", "strided") if self.chance.random() < 0.4)
        shape = self.some(lambda: self.expr(1), 0)
        other = self.maybe(lambda: n.Alternative(NOWHERE, shape, self.expr(1)), 0.3)
        return n.Port(NOWHERE, self.ids(), shape, self.dtypes(), flags, other)

    def option(self) -> n.Option:
        return n.Option(NOWHERE, self.ids(), self.values(), self.maybe(self.expr), self.maybe(self.expr))

    def choice(self) -> n.Option:
        default = self.maybe(self.expr)
        targets = self.some(lambda: n.TargetDefault(NOWHERE, self.expr(), self.id()), 0) if default is not None else ()
        return n.Option(NOWHERE, self.ids(), self.values(), default, self.maybe(self.expr), targets)

    def index(self) -> n.Index:
        slot = self.maybe(lambda: (self.expr(1), self.expr(1)), 0.3) or (None, None)
        mode = self.chance.choice((None, "parallel", "sequential"))
        return n.Index(NOWHERE, self.ids(), self.expr(), mode, *slot, self.maybe(self.expr, 0.3))

    def definition(self) -> n.Definition:
        return n.Definition(NOWHERE, self.id(), self.some(self.id, 0), self.expr())

    def view(self) -> n.View:
        return n.View(NOWHERE, self.reference(), self.expr(), self.maybe(self.expr), self.maybe(self.expr))

    def axes(self) -> tuple[n.Axis, ...]:
        return self.some(lambda: n.Axis(NOWHERE, self.id(), self.maybe(lambda: self.expr(1))))

    def place_attribute(self) -> n.Attribute:
        kind = self.chance.choice(("as", "on", "alias", "swizzle", "pad", "ring", "via", "lanes", "order"))
        if kind in ("as", "on", "alias"):
            return n.Attribute(NOWHERE, kind, name=self.id())
        if kind == "via":
            return n.Attribute(NOWHERE, kind, name=self.id(), value=self.maybe(lambda: self.expr(1)))
        if kind == "lanes":
            return n.Attribute(NOWHERE, kind, axes=self.axes())
        if kind == "order":
            return n.Attribute(NOWHERE, kind, names=self.ids())
        return n.Attribute(NOWHERE, kind, value=self.expr(1))

    def compute_attribute(self) -> n.Attribute:
        kind = self.chance.choice(("on", "over", "rows", "lanes", "vector", "unroll", "via", "blocks"))
        if kind in ("on", "rows", "via"):
            return n.Attribute(NOWHERE, kind, name=self.id())
        if kind in ("over", "lanes"):
            return n.Attribute(NOWHERE, kind, axes=self.axes())
        if kind == "blocks":
            return n.Attribute(NOWHERE, kind, value=self.expr(1))
        return n.Attribute(NOWHERE, kind, axes=self.axes()[:1])

    def placement(self) -> n.Placement:
        readers = self.maybe(self.ids, 0.3) or ()
        return n.Placement(
            NOWHERE, self.ids(), readers, self.maybe(self.id), self.chance.choice(MEMORIES),
            self.some(self.place_attribute, 0),
        )  # fmt: skip

    def computation(self) -> n.Computation:
        return n.Computation(NOWHERE, self.ids(), self.maybe(self.id), self.some(self.compute_attribute, 0))

    def role(self) -> n.Role:
        over = self.maybe(self.axes) or ()
        return n.Role(NOWHERE, self.id(), self.expr(1), over, self.maybe(lambda: self.expr(1)))

    def grid_line(self) -> n.GridLine:
        return n.GridLine(NOWHERE, self.id(), self.axes(), self.maybe(self.id))

    def pin(self):
        if self.chance.random() < 0.5:
            return n.PinOrder(NOWHERE, self.id(), self.id())
        return n.PinValue(NOWHERE, self.id(), self.some(self.expr))

    def chosen(self) -> n.Chosen:
        return n.Chosen(NOWHERE, self.id(), self.expr())

    def apply(self) -> n.Apply:
        return n.Apply(NOWHERE, self.id(), self.some(self.expr, 0))

    def field(self) -> n.Field:
        return n.Field(NOWHERE, self.id(), self.expr())

    def operand(self) -> n.Operand:
        memories = self.some(lambda: self.chance.choice(MEMORIES))
        return n.Operand(NOWHERE, self.reference(), self.dtypes(), memories, self.some(self.field, 0))

    # ---- the graph ----
    def node(self, depth: int = 2):
        makers = [self.doc, self.stage, self.stage, self.carry]
        if depth > 0:
            makers.append(lambda: n.Either(NOWHERE, self.id(), self.some(lambda: self.case(depth - 1), 0)))
        return self.chance.choice(makers)()

    def stage(self) -> n.Stage:
        return n.Stage(NOWHERE, self.id(), self.reference(), self.expr(), self.maybe(self.id, 0.3))

    def carry(self) -> n.Carry:
        end = self.maybe(self.reference)
        return n.Carry(NOWHERE, self.reference(), self.id(), self.reference(), end, self.id())

    def case(self, depth: int) -> n.FormCase:
        nodes = self.some(lambda: self.node(depth), 0)
        return n.FormCase(NOWHERE, self.id(), self.maybe(self.claim, 0.3), nodes)

    # ---- declarations ----
    def block(self, kind: str, make) -> n.Block:
        return n.Block(NOWHERE, kind, self.some(make, 0))

    def operator(self) -> n.Operator:
        makers = {
            "sizes": self.domain, "parameters": self.domain, "inputs": self.port, "outputs": self.port,
            "options": self.option, "laws": self.claim, "indices": self.index, "define": self.definition,
            "views": self.view,
            "rounding": lambda: n.Allowance(NOWHERE, self.ids(), self.dtypes()),
        }  # fmt: skip
        items = [lambda k=kind, m=make: self.block(k, m) for kind, make in makers.items()]
        items.append(lambda: n.Part(NOWHERE, self.id(), self.some(self.node, 0)))
        items.append(lambda: n.Acceptance(NOWHERE, self.id(), self.some(self.claim, 0)))
        return n.Operator(NOWHERE, self.id(), self.items(items))

    def items(self, makers) -> tuple:
        return self.some(lambda: self.chance.choice((*makers, self.doc))(), 0, 6)

    def kernel_items(self) -> tuple:
        makers = {
            "grid": self.grid_line, "roles": self.role, "place": self.placement, "compute": self.computation,
            "pin": self.pin, "ensure": self.claim,
        }  # fmt: skip
        return self.items([self.apply, *(lambda k=k, m=m: self.block(k, m) for k, m in makers.items())])

    def kernel(self) -> n.Kernel:
        return n.Kernel(NOWHERE, self.id(), self.ids(), self.maybe(self.expr, 0.3), self.kernel_items())

    def rule(self) -> n.Rule:
        makers = {
            "require": self.claim, "ensure": self.claim, "measure": self.claim, "choose": self.choice,
            "form": self.chosen,
        }  # fmt: skip
        items = [self.kernel, self.apply, *(lambda k=k, m=m: self.block(k, m) for k, m in makers.items())]
        return n.Rule(NOWHERE, self.id(), self.id(), self.ids(), self.items(items))

    def tactic(self) -> n.Tactic:
        return n.Tactic(NOWHERE, self.id(), self.some(self.id, 0), self.kernel_items())

    def target(self) -> n.Target:
        makers = (self.field, lambda: n.Has(NOWHERE, self.ids()), lambda: n.Lacks(NOWHERE, self.ids()))
        return n.Target(NOWHERE, self.id(), self.maybe(self.id), self.items(makers))

    def instruction(self) -> n.Instruction:
        return n.Instruction(NOWHERE, self.id(), self.items((self.field, self.operand)))

    def declaration(self):
        return self.chance.choice((
            self.operator, self.rule, self.tactic, self.target, self.instruction,
            lambda: n.Use(NOWHERE, self.text()),
            lambda: n.Edition(NOWHERE, n.Number(NOWHERE, "2025")),
        ))()  # fmt: skip


def without_groups(node):
    """The tree without its parentheses: what two texts of one meaning have in common."""
    if isinstance(node, n.Group):
        return without_groups(node.inner)
    if isinstance(node, tuple):
        return tuple(without_groups(item) for item in node)
    if not isinstance(node, n.Node):
        return node
    fields = (item.name for item in attrs.fields(type(node)) if item.name != "span")
    return attrs.evolve(node, **{name: without_groups(getattr(node, name)) for name in fields})


def disarrange(text: str, chance: random.Random) -> str:
    """The same tokens with other spaces, line ends and comments."""
    tokens, _ = tokenize(text)
    out, depth, previous = [], 0, "_NL"
    newline = chance.choice(("\n", "\r\n"))

    def space() -> str:
        return chance.choice(("", " ", "  ", "\t"))

    def comment() -> str:
        return f"# {chance.choice(WORDS)} {{ \" ' }}"

    for token in tokens:
        kind = token.kinds[0]
        if kind == "_NL":
            end = newline
            if previous not in ("LBRACE", "_NL", "RBRACE") and chance.random() < 0.1:
                end = ";"
            elif chance.random() < 0.15:
                end = f"  {comment()}{newline}"
            elif chance.random() < 0.15:
                end = newline * chance.randint(1, 3) + f"{space()}{comment()}{newline}"
            out.append(space() + end + space())
        else:
            glue = "" if kind in ("COMMA", "RPAR", "RSQB") and chance.random() < 0.7 else " "
            bound = previous in ("PERCENT", "REDUCER")  # `of` and `over` follow on the same line
            free = not bound and depth > 0 or previous == "COMMA"
            if free and chance.random() < 0.1:
                glue = f" {comment()}{newline}" if chance.random() < 0.3 else newline
            out.append(glue + space() + token.text)
        depth += (kind in ("LPAR", "LSQB")) - (kind in ("RPAR", "RSQB"))
        previous = kind
    return "".join(out)
