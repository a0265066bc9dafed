"""E401's help: the kernel that a rule leaves out, written so that the file checks with it."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from kdsl.check.findings import Findings, closest, listed
from kdsl.check.graph import strip
from kdsl.check.kernel_lines import AXES
from kdsl.check.model import names_in
from kdsl.check.operators import block
from kdsl.check.points import Point
from kdsl.check.rule_lines import expanded
from kdsl.syntax import nodes as n


def left_out_help(point: Point, part: str) -> tuple[str, ...]:
    """A kernel for the part, under the name that the rule's own `for` lines give it, and where else it may go."""
    awaited = awaited_kernel(point)
    tactic = fitting_tactic(point, part)
    name = awaited.text if awaited is not None else part
    if awaited is None:
        write = "write a kernel for it"
    else:
        write = f"write a kernel named `{name}` (line {awaited.span.line} has `for {name}`)"
    help_ = [f"{write}: `{_kernel_text(point, part, name, tactic)}`"]
    taken = set() if tactic is None else {p.text for p in tactic.parameters}
    unread = [choice for choice in point.rule.choices if choice not in point.rule.used | taken]
    if unread:
        those = "it" if len(unread) == 1 else "them"
        help_.append(f"nothing else reads {listed(f'`{x}`' for x in unread)}: use {those} there, "
                     f"or take {those} out of `choose`")  # fmt: skip
    hosts = [] if awaited is not None else hosting_kernels(point, part)
    if hosts:
        help_.append(f"or add `{part}` after `computes` of kernel {' or '.join(f'`{x}`' for x in hosts)}")
    return tuple(help_)


def awaited_kernel(point: Point) -> n.Id | None:
    """The first name after `for` that is no stage, role or kernel and misspells none: a kernel still to be written."""
    rule = point.rule
    kernels = [item for item in rule.declaration.items if isinstance(item, n.Kernel)]
    known = {*rule.names.stages, *(k.name.text for k in kernels)}
    for kernel in kernels:
        roles = {line.name.text for line in block(kernel.items, "roles")}
        for line in block(kernel.items, "place"):
            for reader in line.readers:
                if reader.text not in roles and closest(reader.text, (*known, *roles)) is None:
                    return reader
    return None


def fitting_tactic(point: Point, part: str) -> n.Tactic | None:
    """The one tactic whose stages and tensors are all of the part, whose parameters the rule chooses, and whose
    instructions the target has.
    """
    found = [t for t in point.rule.declarations.tactics.values() if _fits(point, part, t)]
    return found[0] if len(found) == 1 else None


def _fits(point: Point, part: str, tactic: n.Tactic) -> bool:
    rule = point.rule
    parameters = {p.text for p in tactic.parameters}
    if not parameters or not parameters <= set(rule.choices) or tactic.name.text in rule.declarations.broken_tactics:
        return False
    items = expanded(evolve(rule, findings=Findings(), used=set()), tactic.items)
    made = [s.stage for s in point.graph.stages if s.stage.part == part]
    stages = {stage.name for stage in made}
    tensors = {stage.tensor for stage in made} | {read.tensor for stage in made for read in stage.reads}
    lines = block(items, "compute")
    has = {line.instruction.text for line in lines if line.instruction is not None}
    named = {stage.text for line in lines for stage in line.stages}
    placed = {name.text for line in block(items, "place") for name in line.names}
    return bool(named) and named <= stages and placed <= tensors and has <= set(point.target.has)


def hosting_kernels(point: Point, part: str) -> list[str]:
    """Kernels whose grid deals no index that the part carries from step to step or sums over."""
    ordered = {i for s in point.graph.stages if s.stage.part == part for i in (*s.stage.contracted, s.stage.scan)}
    ordered |= {c.carry.over for c in point.graph.carries if c.carry.part == part}
    return [k.name for k in point.kernels
            if not ordered & {name for axis in k.kernel.grid for name, _ in axis.indices}]  # fmt: skip


def _kernel_text(point: Point, part: str, name: str, tactic: n.Tactic | None) -> str:
    """The shortest kernel of a part: every loop that blocks may share is theirs, with the tiles that the tactic's
    warps ask for.
    """
    axes = AXES[point.target.family]
    deals = [i.name for i in point.rule.operator.indices.values() if i.mode == "parallel"]
    lines = []
    if tactic is not None:
        deals += [tile for tile in _tiles(tactic) if tile.split()[0] not in deals]
        lines = [f"apply {tactic.name.text}({', '.join(p.text for p in tactic.parameters)})"]
    elif point.target.family == "cuda":
        lines = ["roles { all : 4 warps }"]
    grid = [f"{axis} : {deal}" for axis, deal in zip(axes, deals, strict=False)][: len(axes) - 1]
    rest = deals[len(grid) :]
    grid += [f"{axes[len(grid)]} : {', '.join(rest)}"] if rest else []
    lines = ["grid { " + "; ".join(grid) + " }", *lines]
    return f"kernel {name} computes {part} {{ {'; '.join(lines)} }}"


def _tiles(tactic: n.Tactic) -> Iterator[str]:
    """`e by v_tile` for warps `v_tile / 16` over `e by 16`: what a block of so many warps holds of the index."""
    for role in block(tactic.items, "roles"):
        warps = strip(role.warps)
        if isinstance(warps, n.Binary) and warps.operator == "/" and len(role.over) == 1 and names_in(warps.left):
            over = role.over[0]
            if over.by is not None and over.by.span.text == warps.right.span.text:
                yield f"{over.index.text} by {warps.left.span.text}"
