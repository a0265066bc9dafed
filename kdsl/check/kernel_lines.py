"""The lines of a kernel: every name known, every number an integer of the right unit.

What is left after this is a kernel that resolves at every point; lines with findings are left out of it.
"""

from __future__ import annotations

from attrs import define, evolve, field

from kdsl.check.findings import Findings, a, duplicate, unknown_name, warning, wrong_place
from kdsl.check.infer import expect_bool, expect_int
from kdsl.check.model import COPIES, DTYPE_BYTES, LOAD, REDUCERS, is_engine, names_in
from kdsl.check.operators import block
from kdsl.check.packing import refused_packing
from kdsl.check.rule_lines import RuleNames, expanded
from kdsl.check.scope import Scope
from kdsl.check.types import BYTES, PLAIN
from kdsl.source.diagnostic import Diagnostic
from kdsl.source.span import Span
from kdsl.syntax import nodes as n

AXES = {"cuda": ("x", "y", "z"), "cpu": ("task",)}
ORDERS = ("longest_first",)
INTEGER_ATTRIBUTES = {"swizzle": "swizzle", "pad": "pad", "ring": "ring", "blocks": "blocks"}


@define
class KernelLines:
    """A kernel with its tactics in place; `doubtful` are kinds of lines of which some were left out."""

    declaration: n.Kernel
    doubtful: set[str] = field(factory=set)


def check_kernels(rule: RuleNames) -> list[KernelLines]:
    kernels = [item for item in rule.declaration.items if isinstance(item, n.Kernel)]
    seen: dict[str, Span] = {}
    found = []
    for kernel in kernels:
        if kernel.name.text in seen:
            rule.findings.add(duplicate("kernel", kernel.name.text, kernel.name.span, seen[kernel.name.text]))
            continue
        seen[kernel.name.text] = kernel.name.span
        found.append(_Kernel(rule, kernel, tuple(k.name.text for k in kernels)).run())
    return found


@define
class _Kernel:
    rule: RuleNames
    kernel: n.Kernel
    siblings: tuple[str, ...]
    doubtful: set[str] = field(factory=set)
    items: tuple[n.Node, ...] = ()
    roles: dict[str, Span] = field(factory=dict)

    @property
    def findings(self) -> Findings:
        return self.rule.findings

    @property
    def before(self) -> tuple[str, ...]:
        """Kernels of the rule above this one, whose warps may be beside its own."""
        return self.rule.kernels[: self.rule.kernels.index(self.kernel.name.text)]

    @property
    def where(self) -> str:
        return f" in kernel `{self.kernel.name.text}`"

    def run(self) -> KernelLines:
        before = len(self.findings)
        self.items = expanded(self.rule, self.kernel.items)
        if len(self.findings) > before:
            self.doubtful |= {"place", "compute", "roles", "grid"}
        parts = self.parts()
        if self.kernel.condition is not None:
            expect_bool(self.kernel.condition, self.static(), self.findings)
            self.rule.used |= set(names_in(self.kernel.condition))
        self.roles = {line.name.text: line.name.span for line in reversed(block(self.items, "roles"))}
        clean = []
        for item in self.items:
            if not isinstance(item, n.Block):
                clean.append(item)
                continue
            self.rule.used |= set(names_in(item))
            check = {"grid": self.grid, "roles": self.role, "place": self.placement,
                     "compute": self.computation,
                     "pin": self.pin}.get(item.kind)  # fmt: skip
            lines = [self.clean(item.kind, line, check) for line in item.items] if check else item.items
            clean.append(evolve(item, items=tuple(line for line in lines if line is not None)))
        declaration = evolve(self.kernel, parts=parts, items=self.singles(tuple(clean)))
        return KernelLines(declaration, self.doubtful)

    def clean(self, kind: str, line: n.Node, check) -> n.Node | None:
        before = len(self.findings)
        result = check(line)
        if len(self.findings) > before:
            self.doubtful.add(kind)
        return result

    def static(self) -> Scope:
        return self.rule.static_scope(f"kernel `{self.kernel.name.text}`")

    def parts(self) -> tuple[n.Id, ...]:
        seen: dict[str, Span] = {}
        for part in self.kernel.parts:
            if part.text in seen:
                self.findings.add(duplicate("part", part.text, part.span, seen[part.text]))
            elif part.text not in self.rule.operator.parts:
                self.findings.add(unknown_name("part", part.text, part.span, self.rule.operator.parts,
                                               f" of {self.rule.operator.name}"))  # fmt: skip
                self.doubtful.add("parts")
            seen.setdefault(part.text, part.span)
        return tuple(p for p in self.kernel.parts if p.text in self.rule.operator.parts)

    # ---- grid, roles ----
    def axes(self, axes: tuple[n.Axis, ...], what: str) -> bool:
        """Whether every index is known and every tile an integer."""
        before = len(self.findings)
        for axis in axes:
            if axis.index.text not in self.rule.names.indices:
                self.findings.add(unknown_name("index", axis.index.text, axis.index.span,
                                               self.rule.names.indices,
                                               f" of {self.rule.operator.name}"))  # fmt: skip
            if axis.by is not None:
                self.integer(axis.by, f"{what} of `{axis.index.text}`")
        return len(self.findings) == before

    def integer(self, expr: n.Expr, what: str, unit=PLAIN) -> None:
        expect_int(expr, self.static(), self.findings, what, unit)

    def grid(self, line: n.GridLine) -> n.GridLine | None:
        good = self.axes(line.axes, "the tile")
        for target in self.rule.targets:
            known = AXES.get(target.family, ())
            if line.axis.text not in known:
                self.findings.add(
                    unknown_name("grid axis", line.axis.text, line.axis.span, known, f" on {target.name}")
                )
                good = False
                break
        for position, axis in enumerate(line.axes):
            refusal = refused_packing(self.rule.operator, line, position) if good and axis.packed else None
            if refusal is not None:
                self.findings.add(refusal)
                good = False
        if line.order is not None and line.order.text not in ORDERS:
            self.findings.add(unknown_name("launch order", line.order.text, line.order.span, ORDERS))
            good = False
        return line if good else None

    def role(self, line: n.Role) -> n.Role | None:
        before = len(self.findings)
        self.integer(line.warps, f"the warps of `{line.name.text}`")
        self.axes(line.over, "the tile")
        if line.registers is not None:
            self.integer(line.registers, f"the registers of `{line.name.text}`")
        return line if len(self.findings) == before else None

    # ---- placement ----
    def placement(self, line: n.Placement) -> n.Placement | None:
        names = tuple(name for name in line.names if self.tensor(name))
        readers = tuple(reader for reader in line.readers if self.reader(reader))
        before = len(self.findings)
        dtype = line.dtype
        if dtype is not None and dtype.text not in DTYPE_BYTES:
            self.findings.add(unknown_name("dtype", dtype.text, dtype.span, DTYPE_BYTES).with_(code="E116"))
        attributes = tuple(x for x in line.attributes if self.attribute(x))
        self.once(line.attributes)
        if len(self.findings) > before or not names or (line.readers and not readers):
            self.doubtful.add("place")
            if not names or len(readers) < len(line.readers) and not readers:
                return None
        return evolve(line, names=names, readers=readers, attributes=attributes,
                      dtype=dtype if dtype is not None and dtype.text in DTYPE_BYTES else None)  # fmt: skip

    def tensor(self, name: n.Id) -> bool:
        known = {**self.rule.names.views, **self.rule.names.tensors}
        if name.text in known:
            return True
        other = self.rule.names.first.get(name.text)
        if other is not None:
            hint = "place the view of it that the stages read" if other[0] in ("input", "output") else None
            self.findings.add(wrong_place("tensor", name.text, name.span, f"it is {a(other[0])}", hint))
        elif name.text in self.rule.names.stages:
            made = [s.stage.tensor for s in self.rule.graph.stages if s.stage.name == name.text]
            self.findings.add(wrong_place("tensor", name.text, name.span, "it is a stage",
                                          f"it makes `{made[0]}`" if made else None))  # fmt: skip
        else:
            self.findings.add(unknown_name("tensor", name.text, name.span, known, self.where))
        return False

    def reader(self, name: n.Id) -> bool:
        known = (*self.rule.names.stages, *self.siblings, *self.roles)
        if name.text in known:
            return True
        self.findings.add(unknown_name("stage, kernel or role", name.text, name.span, known, self.where))
        return False

    def once(self, attributes: tuple[n.Attribute, ...]) -> None:
        seen: dict[str, Span] = {}
        for attribute in attributes:
            if attribute.kind in seen:
                self.findings.add(duplicate("attribute", attribute.kind, attribute.span, seen[attribute.kind],
                                            "keep one of the two"))  # fmt: skip
            seen.setdefault(attribute.kind, attribute.span)

    def attribute(self, attribute: n.Attribute) -> bool:
        """Whether the attribute is one that can be resolved."""
        before = len(self.findings)
        kind = attribute.kind
        if kind in INTEGER_ATTRIBUTES and attribute.value is not None:
            self.integer(attribute.value, f"`{kind}`")
        elif kind == "as":
            self.fragment(attribute.name)
        elif kind == "via":
            self.engine(attribute)
        elif kind == "on":
            self.role_name(attribute.name)
        elif kind in ("lanes", "over", "vector", "unroll"):
            self.axes(attribute.axes, f"`{kind}`")
        elif kind in ("order", "rows"):
            for name in attribute.names or (attribute.name,):
                if name is not None and name.text not in self.rule.names.indices:
                    self.findings.add(unknown_name("index", name.text, name.span, self.rule.names.indices))
        elif kind == "alias" and attribute.name is not None:
            self.tensor(attribute.name)
        return len(self.findings) == before

    def fragment(self, name: n.Id) -> None:
        instruction, _, operand = name.text.rpartition(".")
        known = self.rule.declarations.instructions
        if instruction not in known:
            fragments = [
                f"{i}.{o.target.name.text}"
                for i, d in known.items()
                for o in d.items
                if isinstance(o, n.Operand)
            ]
            self.findings.add(unknown_name("fragment", name.text, name.span, fragments, self.where))
            return
        operands = [item.target.name.text for item in known[instruction].items if isinstance(item, n.Operand)]
        if operand not in operands:
            self.findings.add(
                unknown_name(f"operand of {instruction}", operand, name.span, operands).with_(edits=())
            )

    def engine(self, attribute: n.Attribute) -> None:
        if attribute.value is not None:
            self.integer(attribute.value, "a copy", BYTES)
        name = attribute.name
        if name is None or name.text in self.before or is_engine(name.text):
            return
        if name.text in self.siblings:
            reason = "it is this kernel" if name.text == self.kernel.name.text else "it stands below this kernel"
            self.findings.add(wrong_place("copy engine", name.text, name.span, reason,
                                          "`via` takes what a kernel above computes"))  # fmt: skip
            return
        known = (*self.before, *REDUCERS, *COPIES, LOAD)
        self.findings.add(unknown_name("copy engine or kernel above", name.text, name.span, known, self.where))

    def role_name(self, name: n.Id) -> None:
        if name.text not in self.roles and "roles" not in self.doubtful:
            self.findings.add(unknown_name("role", name.text, name.span, self.roles, self.where))

    # ---- computation, pins ----
    def computation(self, line: n.Computation) -> n.Computation | None:
        stages = tuple(name for name in line.stages if self.stage(name))
        instruction = line.instruction
        known = self.rule.declarations.instructions
        if instruction is not None and instruction.text not in known:
            self.findings.add(
                unknown_name("instruction", instruction.text, instruction.span, known, self.where)
            )
            instruction = None
        attributes = tuple(x for x in line.attributes if self.attribute(x))
        self.once(line.attributes)
        return evolve(line, stages=stages, instruction=instruction, attributes=attributes) if stages else None

    def stage(self, name: n.Id) -> bool:
        if name.text in self.rule.names.stages:
            return True
        if name.text in self.rule.names.tensors:
            makers = dict.fromkeys(
                s.stage.name for s in self.rule.graph.stages if s.stage.tensor == name.text
            )
            self.findings.add(wrong_place("stage", name.text, name.span, "it is a tensor",
                                          f"it is made by `{next(iter(makers))}`" if makers
                                          else None))  # fmt: skip
        else:
            self.findings.add(unknown_name("stage", name.text, name.span, self.rule.names.stages, self.where))
        return False

    def pin(self, line: n.Node) -> n.Node | None:
        if isinstance(line, n.PinOrder):
            for name in (line.first, line.second):
                if name.text.partition(".")[0] not in self.rule.names.stages:
                    self.findings.add(
                        unknown_name("stage", name.text, name.span, self.rule.names.stages, self.where)
                    )
        return line

    # ---- said once ----
    def singles(self, items: tuple[n.Node, ...]) -> tuple[n.Node, ...]:
        """Without the second home, role, axis or computation of a thing; both places are shown."""
        seen: dict[tuple, Span] = {}
        found = []
        for item in items:
            if isinstance(item, n.Block) and item.kind in ("grid", "roles", "place", "compute"):
                lines = (self.single(line, seen) for line in item.items)
                item = evolve(item, items=tuple(line for line in lines if line is not None))
            found.append(item)
        return tuple(found)

    def single(self, line: n.Node, seen: dict[tuple, Span]) -> n.Node | None:
        if isinstance(line, n.GridLine):
            return line if self.new(("grid axis", line.axis.text), line.axis, seen) else None
        if isinstance(line, n.Role):
            return line if self.new(("role", line.name.text), line.name, seen) else None
        if isinstance(line, n.Computation):
            kept = tuple(s for s in line.stages if self.new(("computation of", s.text), s, seen))
            return evolve(line, stages=kept) if kept else None
        readers = tuple(r.text for r in line.readers) or ("",)
        kept = tuple(
            name for name in line.names
            if all(self.new((f"view for {r} of" if r else "home of", name.text), name, seen, line)
                   for r in readers)
        )  # fmt: skip
        return evolve(line, names=kept) if kept else None

    def new(self, key: tuple[str, str], name: n.Id, seen: dict, line: n.Placement | None = None) -> bool:
        first = seen.setdefault(key, name.span)
        if first is name.span:
            return True
        help_ = "a tensor has one home; `for` gives a reader its own view" if key[0] == "home of" else None
        workspace = line is not None and line.memory == "workspace"
        if key[0] == "home of" and workspace:
            help_ = "say who reads the copy in the workspace: `... for KERNEL : ... in workspace`"
        self.findings.add(duplicate(key[0], key[1], name.span, first, help_))
        if line is not None:
            self.doubtful.add("place")
        return False


def unused_choices(rule: RuleNames) -> None:
    """W502: a choice that nothing reads multiplies the points and changes none."""
    for name, span in rule.choice_spans.items():
        if name not in rule.used:
            rule.findings.add(_unused(name, span, rule.choices[name]))


def _unused(name: str, span: Span, values: tuple) -> Diagnostic:
    return warning("W502", f"choice `{name}` is used nowhere", span,
                   label=f"{len(values)} values that change nothing",
                   help=("remove it, or use it in `form`, `grid`, `place` or `compute`",))  # fmt: skip
