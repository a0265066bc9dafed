"""Where tensors live at one point: memories, fragments, dtypes, layouts, readers."""

from __future__ import annotations

from attrs import define

from kdsl.check.dealing import missing_feature, positive
from kdsl.check.findings import a, listed
from kdsl.check.loops import absent_stage, only_with
from kdsl.check.model import COPIES, DTYPE_BYTES, LOAD, Carry, Home, Operator, Stage
from kdsl.check.points import KernelAtPoint, Point
from kdsl.source.diagnostic import Diagnostic, Evidence, Label
from kdsl.source.span import Span
from kdsl.syntax import nodes as n

MEMORIES = {"cpu": ("stack", "workspace", "global"), "cuda": ("registers", "shared", "workspace", "global")}
SWIZZLES = (32, 64, 128)
FITS = {"swizzle": ("shared", "workspace"), "pad": ("shared", "workspace", "stack"),
        "ring": ("shared", "registers"),
        "as": ("registers", "tensor_memory", "shared"), "alias": ("shared", "stack"),
        "lanes": ("registers",), "over": ("shared",)}  # fmt: skip


def memories(point: Point) -> tuple[str, ...]:
    """What tensors can live in on the target."""
    found = MEMORIES.get(point.target.family, ())
    return (*found, "tensor_memory") if "tensor_memory_columns" in point.target.fields else found


def tensor_shapes(kernel: KernelAtPoint) -> dict[str, tuple[str, ...]]:
    """Indices of every tensor that the kernel's stages and carries make or read from the graph."""
    found: dict[str, tuple[str, ...]] = {}
    for made in kernel.graph.stages:
        found.setdefault(made.stage.tensor, made.stage.indices)
    for carried in kernel.graph.carries:
        found.setdefault(carried.carry.tensor, carried.carry.indices)
        end = carried.carry.end
        if end is not None:
            found.setdefault(end.tensor, carried.carry.indices)
    return found


def known_tensors(point: Point, kernel: KernelAtPoint) -> dict[str, tuple[str, ...]]:
    """As `tensor_shapes`, with what other kernels make and this one reads, and the views."""
    found = tensor_shapes(kernel)
    every = {made.stage.tensor: made.stage.indices for made in point.graph.stages}
    for carried in point.graph.carries:
        ends = (carried.carry.end,) if carried.carry.end is not None else ()
        every.update({name: carried.carry.indices for name in (carried.carry.tensor, *(end.tensor for end in ends))})
    every.update({name: view.indices for name, view in point.rule.operator.views.items()})
    reads = [read.tensor for made in kernel.graph.stages for read in made.stage.reads]
    reads += [read.tensor for c in kernel.graph.carries for read in c.carry.reads]
    reads += [c.carry.end.tensor for c in kernel.graph.carries if c.carry.end is not None]
    reads += [c.carry.next for c in kernel.graph.carries]
    for name in reads:
        if name in every:
            found.setdefault(name, every[name])
    return found


def allowed_dtypes(operator: Operator, tensor: str, point: Point) -> tuple[str, ...]:
    """What a home may store: f32, what the operator lets a rule round to, and a port's own dtypes."""
    found = ["f32", *operator.rounding.get(tensor, ())]
    view = operator.views.get(tensor)
    if view is not None and view.port in operator.ports:
        found += port_dtypes(point, view.port)
    return tuple(dict.fromkeys(found))


def port_dtypes(point: Point, name: str) -> tuple[str, ...]:
    """Dtypes of a port that every call the rule takes can have: one if the rule asks for one."""
    for claim in point.rule.require:
        predicate = claim.predicate
        if isinstance(predicate, n.Typed) and name in [x.text for x in predicate.names]:
            return tuple(d.name for d in predicate.dtypes if not d.like)
    return ()


def check_placement(point: Point, kernel: KernelAtPoint) -> None:
    tensors = known_tensors(point, kernel)
    for line in kernel.nodes("place"):
        _Line(point, kernel, line, tensors).run()


@define
class _Line:
    point: Point
    kernel: KernelAtPoint
    line: n.Placement
    tensors: dict[str, tuple[str, ...]]

    def run(self) -> None:
        there = [name for name in self.line.names if self.present(name)]
        if not self.memory():
            return
        self.fits()
        self.engine()
        self.numbers()
        sound = self.dtypes(there)
        if there:
            self.fragment(there[0], sound)
        for name in there:
            self.layout(name)
        if not self.point.rule.form_guessed:
            self.readers(there)

    def attribute(self, kind: str) -> n.Attribute | None:
        return next((x for x in self.line.attributes if x.kind == kind), None)

    def present(self, name: n.Id) -> bool:
        if name.text in self.tensors:
            return True
        here = [s for s in self.point.rule.graph.stages if s.stage.part in self.kernel.kernel.parts
                and (s.stage.tensor == name.text or reads(s.stage, name.text))]  # fmt: skip
        labels = tuple(Label(s.node.name.span, "there it would be") for s in here[:1])
        self.point.absent(
            self.kernel, name, "tensor", only_with(self.point, [s.guards for s in here]), labels
        )
        return False

    # ---- memory ----
    def memory(self) -> bool:
        known = memories(self.point)
        if self.line.memory in known:
            return True
        at = self.line.names[0].span
        self.point.report(Diagnostic(
            "E211", f"{self.point.target.name} has no {self.line.memory} for `{self.line.names[0].text}`", at,
            label=f"in {self.line.memory}", observed=self.line.memory, required=listed(known),
            labels=(Label(self.point.target.declaration.name.span, "the target"),), evidence=Evidence.PROVED,
            help=(f"place it in {known[0]}",) if known else ()))  # fmt: skip
        return False

    def fits(self) -> None:
        for attribute in self.line.attributes:
            known = FITS.get(attribute.kind)
            if known is not None and self.line.memory not in known:
                self.wrong(attribute, f"`{attribute.kind}` says nothing about {self.line.memory}",
                           self.line.memory, listed(known))  # fmt: skip
        pad, swizzle = self.attribute("pad"), self.attribute("swizzle")
        if pad is not None and swizzle is not None and self.point.value(pad.value) != 0:
            self.wrong(
                pad,
                "padded rows cannot be swizzled as well",
                "pad and swizzle",
                "one of the two",
                swizzle.span,
            )

    def wrong(
        self, attribute: n.Attribute, message: str, found: str, needed: str, other: Span | None = None
    ) -> None:
        labels = (Label(other, "with this"),) if other is not None else ()
        self.point.report(Diagnostic("E310", message, attribute.span, observed=found, required=needed,
                                     labels=labels,
                                     evidence=Evidence.PROVED, help=("drop it",)))  # fmt: skip

    def engine(self) -> None:
        via = self.attribute("via")
        if via is None or via.name is None:
            return
        if via.name.text in self.point.rule.kernels:
            return self.beside(via)
        if via.name.text == LOAD:
            return self.load(via)
        if via.name.text not in self.point.target.has:
            self.point.report(missing_feature(self.point, via.name.text, via.name.span))
        elif via.name.text in COPIES and self.line.memory not in ("shared", "global"):
            self.wrong(via, f"`{via.name.text}` copies into shared memory, not into {self.where}",
                       self.line.memory, "shared")  # fmt: skip
        size = self.point.value(via.value)
        if via.name.text == "cp.async" and isinstance(size, (int, float)) and size not in (4, 8, 16):
            self.wrong(via, f"`cp.async` cannot copy {size} bytes", f"{size} bytes", "4, 8 or 16 bytes")

    @property
    def where(self) -> str:
        """The line's memory in a sentence."""
        said = {"registers": "registers", "shared": "shared memory"}
        return said.get(self.line.memory) or a(self.line.memory)

    def load(self, via: n.Attribute) -> None:
        """What lanes load for themselves: their own elements, in as many bytes as these have."""
        if self.line.memory != "registers":
            self.wrong(via, f"`{LOAD}` loads into registers, not into {self.where}", self.line.memory, "registers")
        elif via.value is not None:
            self.wrong(via, f"`{LOAD}` loads the elements that a lane owns, not pieces", via.span.text, f"via {LOAD}")

    def beside(self, via: n.Attribute) -> None:
        """What the warps of another kernel of the launch write: into shared memory, with a word when it is there."""
        if "mbarrier" not in self.point.target.has:
            reason = "kernels of one launch wait for each other with it"
            self.point.report(missing_feature(self.point, "mbarrier", via.name.span, reason))
        elif via.name.text not in {kernel.name for kernel in self.point.kernels}:
            self.wrong(via, f"kernel `{via.name.text}` is left out here", "no such kernel", "a kernel that is there")
        elif self.line.memory != "shared":
            self.wrong(via, f"`{via.name.text}` passes tensors in shared memory, not in {self.where}",
                       self.line.memory, "shared")  # fmt: skip
        elif via.value is not None:
            needed = f"via {via.name.text}"
            self.wrong(via, f"`{via.name.text}` passes whole tensors, not pieces", via.span.text, needed)

    def numbers(self) -> None:
        for kind, least in (("ring", 1), ("pad", 0)):
            attribute = self.attribute(kind)
            if attribute is not None:
                positive(self.point, attribute.value, f"`{kind}`", attribute.span, least)
        swizzle = self.attribute("swizzle")
        width = self.point.value(swizzle.value) if swizzle is not None else None
        if isinstance(width, int) and width not in SWIZZLES:
            self.point.report(Diagnostic("E123", f"there is no swizzle of {width} bytes", swizzle.span,
                                         observed=str(width),
                                         required=listed(SWIZZLES), evidence=Evidence.PROVED))  # fmt: skip

    # ---- dtypes ----
    def dtypes(self, names: list[n.Id]) -> bool:
        """Whether every tensor of the line may be stored in the line's dtype."""
        if self.line.dtype is None:
            return True
        found = self.line.dtype.text
        carries = {c.carry.tensor: c.carry for c in self.kernel.graph.carries}
        carries |= {c.carry.next: c.carry for c in self.kernel.graph.carries}
        carried = [x for x in names if x.text in carries and not self.line.readers and found != "f32"]
        if carried:
            self.carried(carried, found, carries[carried[0].text])
        operator = self.point.rule.operator
        wrong = [
            x for x in names if x not in carried and found not in allowed_dtypes(operator, x.text, self.point)
        ]
        if not wrong:
            return not carried
        view = operator.views.get(wrong[0].text)
        if view is not None and found in ("bf16", "f16"):
            help_ = f"ask for it in `require`: `{view.port} : {found}`"
        else:
            others = listed(operator.rounding, 6)
            offer = f"the operator lets a rule round {others}" if others else "the operator offers no rounding"
            help_ = f"keep it in f32: {offer}"
        self.point.report(Diagnostic(
            "E308", f"{listed(f'`{x.text}`' for x in wrong)} may not be stored as {found}",
            self.line.dtype.span,
            label=f"as {found}", observed=found,
            required=listed(allowed_dtypes(operator, wrong[0].text, self.point)),
            labels=self.declared(wrong[0].text), evidence=Evidence.PROVED, help=(help_,)))  # fmt: skip
        return False

    def carried(self, names: list[n.Id], found: str, carry: Carry) -> None:
        copies = self.point.rule.operator.rounding.get(carry.tensor, ())
        help_ = (
            f"`{carry.tensor} : f32`, and a rounded copy for its readers: `{carry.tensor} for ... : {found}`"
        )
        self.point.report(Diagnostic(
            "E308", f"{listed(f'`{x.text}`' for x in names)}: what is carried over `{carry.over}` stays f32",
            self.line.dtype.span, label=f"as {found}", observed=found, required="f32",
            labels=(Label(carry.span, "carried here"),), evidence=Evidence.PROVED,
            help=(help_ if found in copies else f"write `{names[0].text} : f32`: a rounding at every step adds up",)),
            subject="carried")  # fmt: skip

    def declared(self, tensor: str) -> tuple[Label, ...]:
        made = [s.node.name.span for s in self.point.rule.graph.stages if s.stage.tensor == tensor]
        view = self.point.rule.operator.views.get(tensor)
        spans = made[:1] or ([view.span] if view is not None else [])
        return tuple(Label(span, "declared here") for span in spans)

    # ---- fragments and layout ----
    def fragment(self, name: n.Id, sound: bool) -> None:
        attribute = self.attribute("as")
        if attribute is None or attribute.name is None:
            return
        instruction, _, operand = attribute.name.text.rpartition(".")
        if instruction not in self.point.target.has:
            self.point.report(missing_feature(self.point, instruction, attribute.name.span))
            return
        resolved = self.point.rule.declarations.right_instructions.get(instruction)
        node = resolved.operands.get(operand) if resolved is not None else None
        if node is None:
            return
        if self.line.memory not in node.memories:
            self.wrong(attribute, f"operand {operand} of `{instruction}` is not read from {self.line.memory}",
                       self.line.memory, listed(node.memories), node.span)  # fmt: skip
        dtypes = [d.name for d in node.dtypes]
        if sound and self.line.dtype is not None and self.line.dtype.text not in dtypes:
            self.point.report(Diagnostic(
                "E308", f"operand {operand} of `{instruction}` is not {self.line.dtype.text}",
                self.line.dtype.span,
                observed=self.line.dtype.text, required=listed(dtypes),
                labels=(Label(node.span, "the operand"),), evidence=Evidence.PROVED,
                help=(self.operand_help(name.text, dtypes),)))  # fmt: skip

    def operand_help(self, tensor: str, dtypes: list[str]) -> str:
        offered = [d for d in dtypes if d in allowed_dtypes(self.point.rule.operator, tensor, self.point)]
        if offered:
            return f"store it as {' or '.join(offered)}"
        return f"`{tensor}` may be none of these: compute the stage with `fma.f32`"

    def layout(self, name: n.Id) -> None:
        indices = self.tensors[name.text]
        order = self.attribute("order")
        if order is not None and sorted(i.text for i in order.names) != sorted(indices):
            self.point.report(Diagnostic("E126",
                                         f"`order` of `{name.text}` must name each of its indices once",
                                         order.span,
                                         observed=listed(i.text for i in order.names),
                                         required=listed(indices),
                                         labels=self.declared(name.text),
                                         evidence=Evidence.PROVED))  # fmt: skip
        dealt = [attribute for kind in ("lanes", "over") if (attribute := self.attribute(kind)) is not None]
        for kind, axis in ((attribute.kind, axis) for attribute in dealt for axis in attribute.axes):
            if axis.index.text not in indices:
                self.point.report(Diagnostic("E121",
                                             f"`{kind} {axis.index.text}`: `{name.text}` has no such index",
                                             axis.span,
                                             observed=axis.index.text, required=listed(indices)))  # fmt: skip
        self.swizzle(name, indices)
        self.alias(name)

    def swizzle(self, name: n.Id, indices: tuple[str, ...]) -> None:
        attribute = self.attribute("swizzle")
        width = self.point.value(attribute.value) if attribute is not None else None
        if width not in SWIZZLES or not indices:
            return
        row = row_bytes(self.point, self.kernel, name.text, indices, self.line)
        if row is not None and row < width:
            fitting = [s for s in SWIZZLES if s <= row]
            help_ = f"`swizzle {fitting[-1]}` fits" if fitting else "use `pad 8` instead"
            self.point.report(Diagnostic("E305",
                                         f"`{name.text}` has rows of {row} bytes, swizzle {width} needs rows "
                                         "of at "
                                         f"least {width}", attribute.span, observed=f"{row} bytes",
                                         required=f"at least {width} bytes", evidence=Evidence.PROVED,
                                         help=(help_,)))  # fmt: skip

    def alias(self, name: n.Id) -> None:
        attribute = self.attribute("alias")
        if attribute is None or attribute.name is None:
            return
        other = self.kernel.kernel.homes.get(attribute.name.text)
        if attribute.name.text == name.text or other is None:
            what = (
                "itself"
                if other is not None
                else f"`{attribute.name.text}`, which has no home in `{self.kernel.name}`"
            )
            self.wrong(
                attribute,
                f"`{name.text}` cannot lie over {what}",
                attribute.name.text,
                "another placed tensor",
            )
        elif other.memory != self.line.memory:
            self.wrong(attribute,
                       f"`{attribute.name.text}` lives in {other.memory}, not in {self.line.memory}",
                       other.memory,
                       self.line.memory, other.span)  # fmt: skip

    # ---- readers ----
    def readers(self, names: list[n.Id]) -> None:
        """Every reader reads some tensor of the line, and every tensor has a reader."""
        known: list[Stage] = []
        wrong = False
        for reader in self.line.readers:
            stages = [s.stage for s in self.kernel.graph.stages if s.stage.name == reader.text]
            if reader.text in self.point.rule.names.stages and not stages:
                absent_stage(self.point, self.kernel, reader)
                return
            known += stages
            if not stages:
                return  # a kernel or a role reads whatever it reads
            if not any(reads(stage, name.text) for stage in stages for name in names):
                wrong = True
                wanted = listed(f"`{name.text}`" for name in names)
                self.point.report(Diagnostic("E406", f"stage `{reader.text}` never reads {wanted}",
                                             reader.span,
                                             labels=(Label(stages[0].span, "the stage"),),
                                             evidence=Evidence.PROVED,
                                             observed=listed(r.tensor for r in stages[0].reads) or "nothing",
                                             required=wanted, help=("drop it after `for`",)),
                                             everywhere=True)  # fmt: skip
        for name in names if known and not wrong else ():
            if not any(reads(stage, name.text) for stage in known):
                readers = listed(f"`{r.text}`" for r in self.line.readers)
                self.point.report(Diagnostic("E406", f"{readers} never reads `{name.text}`", name.span,
                                             evidence=Evidence.PROVED,
                                             help=("give it a line with the stages that read it",)),
                                             everywhere=True)  # fmt: skip


def reads(stage: Stage, tensor: str) -> bool:
    return any(read.tensor == tensor for read in stage.reads)


def row_bytes(point: Point, kernel: KernelAtPoint, tensor: str, indices: tuple[str, ...], line) -> int | None:
    """Bytes of one row as stored: the innermost extent that the kernel's block holds; None if it varies."""
    home: Home | None = kernel.kernel.homes.get(tensor)
    dtype = (
        line.dtype.text
        if line.dtype is not None
        else (home.dtype if home is not None and home.dtype else None)
    )
    if dtype is None:
        dtype = stored_elsewhere(point, tensor)
    extent = block_extent(point, kernel, indices[-1])
    return extent * DTYPE_BYTES[dtype] if extent is not None and dtype is not None else None


def stored_elsewhere(point: Point, tensor: str) -> str | None:
    """The dtype in which another kernel stores the tensor, or the one dtype of the port behind a view."""
    for kernel in point.kernels:
        for home in (*kernel.kernel.views.get(tensor, ()), kernel.kernel.homes.get(tensor)):
            if home is not None and home.memory == "workspace" and home.dtype:
                return home.dtype
    view = point.rule.operator.views.get(tensor)
    if view is None:
        return "f32" if tensor in point.rule.names.tensors else None
    dtypes = port_dtypes(point, view.port)
    return dtypes[0] if len(dtypes) == 1 else None


def block_extent(point: Point, kernel: KernelAtPoint, index: str) -> int | None:
    """How much of an index one block holds: the grid's tile, else the whole extent if there is but one."""
    for axis in kernel.kernel.grid:
        for name, by in axis.indices:
            if name == index:
                return by
    extents = point.sizes.extents(index)
    return extents[0] if extents and len(extents) == 1 else None
