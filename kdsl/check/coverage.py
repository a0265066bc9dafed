"""Every stage of the graph is computed once, and what passes between kernels passes through the workspace."""

from __future__ import annotations

from kdsl.check.findings import listed
from kdsl.check.points import KernelAtPoint, Point
from kdsl.source.diagnostic import Diagnostic, Evidence, Label


def check_coverage(point: Point) -> None:
    if any("parts" in k.doubtful for k in _all_lines(point)):
        return
    owners = _owners(point)
    _between(point, owners)


def _all_lines(point: Point):
    return [kernel.lines for kernel in point.kernels]


def _owners(point: Point) -> dict[str, KernelAtPoint]:
    """The kernel of every part; parts with none or two are findings, one each."""
    owners: dict[str, KernelAtPoint] = {}
    for kernel in point.kernels:
        for part in kernel.lines.declaration.parts:
            first = owners.setdefault(part.text, kernel)
            if first is not kernel:
                span = next(p.span for p in first.lines.declaration.parts if p.text == part.text)
                point.report(Diagnostic("E403", f"part `{part.text}` is computed by `{first.name}` and by `{kernel.name}`",
                                        part.span, label="again here", labels=(Label(span, "first here"),),
                                        observed="2 kernels", required="1 kernel", evidence=Evidence.PROVED,
                                        help=("remove the part from one of them, or give them `when` conditions that "
                                              "exclude each other",)))  # fmt: skip
    for name, part in point.rule.operator.parts.items():
        stages = [s.stage.name for s in point.graph.stages if s.stage.part == name]
        if name not in owners and stages:
            where = point.rule.declaration.name.span
            point.report(Diagnostic("E401", f"no kernel computes part `{name}`: {listed(f'`{s}`' for s in stages)}", where,
                                    label="this rule leaves it out", labels=(Label(part.name.span, "the part"),),
                                    observed="no kernel", required="1 kernel", evidence=Evidence.PROVED,
                                    help=(f"add `{name}` after `computes` of a kernel",)))  # fmt: skip
    return owners


def _between(point: Point, owners: dict[str, KernelAtPoint]) -> None:
    """Reads across kernels: the maker must put the tensor in the workspace, and run first."""
    order = {id(kernel): position for position, kernel in enumerate(point.kernels)}
    makers = {s.stage.tensor: s for s in point.graph.stages}
    seen: set[str] = set()
    for found in point.graph.stages:
        reader = owners.get(found.stage.part)
        for read in found.stage.reads:
            maker = makers.get(read.tensor)
            owner = owners.get(maker.stage.part) if maker is not None else None
            if owner is None or reader is None or owner is reader or read.tensor in seen:
                continue
            if order[id(owner)] > order[id(reader)]:
                seen.add(read.tensor)
                point.report(_too_late(read.tensor, found, maker, owner, reader))
            elif not _in_workspace(owner, read.tensor) and "place" not in owner.lines.doubtful:
                seen.add(read.tensor)
                point.report(_lost(read.tensor, found, maker, owner, reader))


def _in_workspace(kernel: KernelAtPoint, tensor: str) -> bool:
    homes = (*kernel.kernel.views.get(tensor, ()), kernel.kernel.homes.get(tensor))
    return any(home is not None and home.memory == "workspace" for home in homes)


def _lost(tensor, found, maker, owner: KernelAtPoint, reader: KernelAtPoint) -> Diagnostic:
    home = owner.kernel.homes.get(tensor)
    span = home.span if home is not None else owner.lines.declaration.name.span
    label = f"only in {home.memory}" if home is not None else "never placed here"
    return Diagnostic(
        "E402", f"`{tensor}` goes from `{maker.stage.name}` in `{owner.name}` to `{found.stage.name}` in `{reader.name}`, "
        f"but `{owner.name}` never puts it in the workspace", span, label=label,
        labels=(Label(maker.node.name.span, "made here"), Label(found.node.name.span, "read here"),
                Label(reader.lines.declaration.name.span, "the kernel that reads it")),
        evidence=Evidence.PROVED, help=(f"add `{tensor} : ... in workspace` to `{owner.name}`",),
    )  # fmt: skip


def _too_late(tensor, found, maker, owner: KernelAtPoint, reader: KernelAtPoint) -> Diagnostic:
    return Diagnostic(
        "E407", f"kernel `{reader.name}` reads `{tensor}`, which `{owner.name}` makes after it",
        reader.lines.declaration.name.span, label="kernels run in the order they are written",
        labels=(Label(owner.lines.declaration.name.span, "runs later"), Label(maker.node.name.span, "made here"),
                Label(found.node.name.span, "read here")),
        evidence=Evidence.PROVED, help=(f"write kernel `{owner.name}` before `{reader.name}`",),
    )  # fmt: skip
