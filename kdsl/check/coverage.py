"""Every stage of the graph is computed once, and what passes between kernels passes through the workspace."""

from __future__ import annotations

from attrs import frozen

from kdsl.check.findings import listed
from kdsl.check.left_out import left_out_help
from kdsl.check.points import KernelAtPoint, Point
from kdsl.source.diagnostic import Diagnostic, Evidence, Label
from kdsl.source.span import Span


def check_coverage(point: Point) -> None:
    """Runs before the other checks of a point: what is not computed at all is not missed again by them."""
    if point.rule.form_guessed or any("parts" in kernel.lines.doubtful for kernel in point.kernels):
        point.uncovered = True
        return
    owners = _owners(point)
    if not point.uncovered:
        _between(point, owners)


def _owners(point: Point) -> dict[str, KernelAtPoint]:
    """The kernel of every part; parts with none or two are findings, one each."""
    owners: dict[str, KernelAtPoint] = {}
    for kernel in point.kernels:
        for part in kernel.lines.declaration.parts:
            first = owners.setdefault(part.text, kernel)
            if first is not kernel:
                point.uncovered = True
                span = next(p.span for p in first.lines.declaration.parts if p.text == part.text)
                point.report(Diagnostic("E403",
                                        f"part `{part.text}` is computed by `{first.name}` and by "
                                        f"`{kernel.name}`",
                                        part.span, label="again here", labels=(Label(span, "first here"),),
                                        observed="2 kernels", required="1 kernel", evidence=Evidence.PROVED,
                                        help=("remove the part from one of them, or give them `when` "
                                              "conditions that "
                                              "exclude each other",)))  # fmt: skip
    for name, part in point.rule.operator.parts.items():
        stages = list(dict.fromkeys(s.stage.name for s in point.graph.stages if s.stage.part == name))
        if name not in owners and stages:
            point.uncovered = True
            where = point.rule.declaration.name.span
            point.report(Diagnostic("E401",
                                    f"no kernel computes part `{name}`: {listed(f'`{s}`' for s in stages)}",
                                    where,
                                    label="this rule leaves it out",
                                    labels=(Label(part.name.span, "the part"),),
                                    observed="no kernel", required="1 kernel", evidence=Evidence.PROVED,
                                    help=left_out_help(point, name)),
                                    subject=name)  # fmt: skip
    return owners


def _between(point: Point, owners: dict[str, KernelAtPoint]) -> None:
    """Reads across kernels: the maker must put the tensor in the workspace, and run first."""
    if len({id(kernel) for kernel in owners.values()}) < 2:
        return
    order = {id(kernel): position for position, kernel in enumerate(point.kernels)}
    ends = [(c.carry.end, c) for c in point.graph.carries if c.carry.end is not None]
    makers = {s.stage.tensor: Place(s.stage.part, s.node.name.span) for s in point.graph.stages}
    makers |= {end.tensor: Place(c.carry.part, c.node.end.span) for end, c in ends if end.tensor not in makers}
    readers = [(Place(s.stage.part, s.node.name.span), s.stage.reads) for s in point.graph.stages]
    readers += [(Place(c.carry.part, c.node.start.span), c.carry.reads) for c in point.graph.carries]
    lost: dict[tuple[str, str, str], list[Crossing]] = {}
    late: dict[tuple[str, str], Crossing] = {}
    for found, reads in readers:
        reader = owners.get(found.part)
        for read in reads:
            maker = makers.get(read.tensor)
            owner = owners.get(maker.part) if maker is not None else None
            if owner is None or reader is None or owner is reader:
                continue
            crossing = Crossing(read.tensor, maker, found, owner, reader)
            if order[id(owner)] > order[id(reader)]:
                late.setdefault((owner.name, reader.name), crossing)
            elif not crossing.handed_on and "place" not in owner.lines.doubtful:
                lost.setdefault((owner.name, reader.name, crossing.memory), []).append(crossing)
    for crossings in lost.values():
        point.report(_lost(crossings), subject=crossings[0].reader.name)
    for crossing in late.values():
        point.report(_too_late(crossing))


@frozen
class Place:
    """Where a tensor is made or read: a stage, or an end of a carry."""

    part: str
    span: Span


@frozen
class Crossing:
    """A tensor that one kernel makes and another one reads."""

    tensor: str
    maker: Place
    found: Place
    owner: KernelAtPoint
    reader: KernelAtPoint

    @property
    def memory(self) -> str:
        """Where the other kernel takes it from: the workspace, or a slot of a ring in shared memory."""
        taken = self.reader.kernel.homes.get(self.tensor)
        return "shared" if taken is not None and taken.beside == self.owner.name else "workspace"

    @property
    def handed_on(self) -> bool:
        homes = (*self.owner.kernel.views.get(self.tensor, ()), self.owner.kernel.homes.get(self.tensor))
        return any(home is not None and home.memory == self.memory for home in homes)


def _lost(crossings: list[Crossing]) -> Diagnostic:
    first = crossings[0]
    owner, reader = first.owner, first.reader
    tensors = list(dict.fromkeys(c.tensor for c in crossings))
    home = owner.kernel.homes.get(first.tensor)
    span = home.span if home is not None else owner.lines.declaration.name.span
    label = f"only in {home.memory}" if home is not None else "not placed here"
    made = tuple(Label(c.maker.span, f"makes `{c.tensor}`") for c in crossings[:3])
    where = "the workspace" if first.memory == "workspace" else f"shared memory, where `via {owner.name}` takes it from"
    return Diagnostic(
        "E402",
        f"{listed(f'`{x}`' for x in tensors)} made in kernel `{owner.name}` and read in `{reader.name}`, but "
        f"`{owner.name}` never puts {'them' if len(tensors) > 1 else 'it'} in {where}", span,
        label=label,
        labels=(*made, Label(first.found.span, "read here"),
                Label(reader.lines.declaration.name.span, "the kernel that reads")),
        evidence=Evidence.PROVED, help=(f"add `{', '.join(tensors)} : ... in {first.memory}` to `{owner.name}`",),
    )  # fmt: skip


def _too_late(crossing: Crossing) -> Diagnostic:
    owner, reader = crossing.owner, crossing.reader
    return Diagnostic(
        "E407", f"kernel `{reader.name}` reads `{crossing.tensor}`, which `{owner.name}` makes after it",
        reader.lines.declaration.name.span, label="kernels run in the order they are written",
        labels=(Label(owner.lines.declaration.name.span, "runs later"),
                Label(crossing.maker.span, "made here"),
                Label(crossing.found.span, "read here")),
        evidence=Evidence.PROVED, help=(f"write kernel `{owner.name}` before `{reader.name}`",),
    )  # fmt: skip
