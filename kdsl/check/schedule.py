"""How a kernel deals its work out at one point: the form's parameters, the grid, the roles."""

from __future__ import annotations

from kdsl.check.dealing import Left, dealt_twice, divides, missing_feature, positive
from kdsl.check.findings import listed
from kdsl.check.loops import WARP, check_loops
from kdsl.check.model import names_in, walk
from kdsl.check.operators import block
from kdsl.check.points import KernelAtPoint, Point
from kdsl.source.diagnostic import Diagnostic, Evidence, Label
from kdsl.source.span import Span
from kdsl.syntax import nodes as n

MOST_WARPS = 32  # of a block: 1024 threads


def check_schedule(point: Point, kernel: KernelAtPoint) -> None:
    """Grid and roles first; what they leave of each index is what stages deal on."""
    left = _grid(point, kernel)
    if point.target.family != "cuda":
        for role in kernel.nodes("roles"):
            point.report(Diagnostic("E107", f"{point.target.name} has no warps for role `{role.name.text}`",
                                    role.name.span,
                         label="no warps here", help=("deal tasks with `grid { task : ... }`",)))  # fmt: skip
    else:
        left = _roles(point, kernel, left)
    if not point.rule.form_guessed:
        check_loops(point, kernel, left)


def check_parameters(point: Point) -> None:
    """E142: a parameter of the algorithm has one of the values that the operator gives it."""
    for line in block(point.rule.declaration.items, "form"):
        parameter = point.rule.operator.parameters.get(line.name.text)
        value = point.form.get(line.name.text)
        if (
            parameter is None
            or parameter.values is None
            or value in parameter.values
            or point.rule.form_guessed
        ):
            continue
        used = [x for x in names_in(line.value) if x in point.rule.choices]
        labels = [Label(parameter.span, "declared here")]
        labels += [Label(point.rule.choice_spans[x], f"`{x}` is chosen here") for x in used]
        point.report(Diagnostic("E142", f"`{line.name.text}` is never {value}", line.value.span,
                                observed=str(value),
                                required=listed(parameter.values), labels=tuple(labels),
                                evidence=Evidence.PROVED,
                                help=(f"take {value} out of `{used[0]}`",) if used else ()))  # fmt: skip


def _grid(point: Point, kernel: KernelAtPoint) -> Left:
    left: Left = {name: (point.sizes.extents(name) if mode == "local" else None, None)
                  for name, mode in point.rule.names.modes.items()}  # fmt: skip
    dealt: dict[str, Span] = {}
    for line in kernel.nodes("grid"):
        for axis in line.axes:
            name = axis.index.text
            if name in dealt:
                dealt_twice(point, name, axis.index.span, dealt[name])
                continue
            dealt[name] = axis.index.span
            by = positive(point, axis.by, f"the tile of `{name}`", axis.span)
            if by is None:
                continue
            _independent(point, kernel, axis)
            if axis.by is None:
                left[name] = ((1,), axis.span)
            elif divides(point, axis, left[name][0], by):
                left[name] = ((by,), axis.span)
            else:
                left[name] = (None, axis.span)
    return left


def _independent(point: Point, kernel: KernelAtPoint, axis: n.Axis) -> None:
    """Blocks run in any order: nothing may pass from one value of the index to another."""
    name = axis.index.text
    mode = point.rule.names.modes[name]
    if mode == "sequential":
        for found in kernel.graph.carries:
            if found.carry.over == name:
                point.report(_not_parallel(axis, kernel, f"`{found.carry.tensor}` is carried over it",
                                           found.node.over.span,
                                           f"carry over {name}"))  # fmt: skip
                return
        _bounded(point, kernel, axis)
        _cut(point, kernel, axis)
    if mode != "local":
        return
    for found in kernel.graph.stages:
        if found.stage.scan == name:
            reason = f"stage `{found.stage.name}` scans it"
        elif name in found.stage.contracted:
            reason = f"stage `{found.stage.name}` reduces over it"
        else:
            continue
        point.report(_not_parallel(axis, kernel, reason, found.node.name.span, "here"))
        return


def _cut(point: Point, kernel: KernelAtPoint, axis: n.Axis) -> None:
    """Runs of steps can be dealt out where every carry over the steps starts anew in each."""
    name = axis.index.text
    cut = point.rule.operator.indices[name].cuts
    for found in kernel.graph.carries if cut is not None else ():
        if found.carry.over == cut and found.carry.within != name:
            point.report(_not_parallel(axis, kernel, f"`{found.carry.tensor}` is carried from run to run of it",
                                       found.node.over.span,
                                       f"carry over {cut}, not over {cut} in {name}"))  # fmt: skip
            return


def _bounded(point: Point, kernel: KernelAtPoint, axis: n.Axis) -> None:
    """A launch has a size: the extent of the index, or its bound, must be known from sizes alone."""
    if axis.packed:
        return  # as many blocks as there are slots
    index = point.rule.operator.indices[axis.index.text]
    expr = index.most if index.most is not None else index.extent
    if any(isinstance(x, n.Call) and x.function.text in point.rule.operator.definitions for x in walk(expr)):
        reason = "no launch knows how many values it has"
        point.report(_not_parallel(axis, kernel, reason, index.span, "add `up to ...` here"))


def _not_parallel(axis: n.Axis, kernel: KernelAtPoint, reason: str, span: Span, text: str) -> Diagnostic:
    name = axis.index.text
    return Diagnostic("E125", f"`{name}` cannot be dealt over the grid of `{kernel.name}`: {reason}",
                      axis.index.span,
                      label="blocks run in any order", labels=(Label(span, text),), evidence=Evidence.PROVED,
                      help=(f"leave `{name}` to the loops inside the kernel",))  # fmt: skip


# ---- roles -------------------------------------------------------------------------------------------------


def _roles(point: Point, kernel: KernelAtPoint, left: Left) -> Left:
    after = dict(left)
    total = registers = 0
    roles = kernel.nodes("roles")
    for role in roles:
        warps = positive(point, role.warps, f"the warps of role `{role.name.text}`", role.warps.span)
        if warps is None:
            continue
        whole = _whole(point, role)
        total += warps
        registers += warps * WARP * (_registers(point, role) or 0)
        _dealt_over(point, role, warps if whole else None, left, after, len(roles) == 1)
    if total > MOST_WARPS:
        point.report(Diagnostic("E303", f"kernel `{kernel.name}` has {total} warps in a block", roles[0].span,
                                observed=f"{total} warps", required=f"at most {MOST_WARPS}",
                                evidence=Evidence.PROVED,
                             help=("deal the work over more blocks: a smaller tile in `grid`",)))  # fmt: skip
    file = point.target.fields.get("registers_per_sm")
    if isinstance(file, int) and registers > file:
        point.report(Diagnostic("E304",
                                f"the roles of `{kernel.name}` ask for {registers} registers of {file}",
                                roles[0].span, observed=str(registers), required=f"at most {file}",
                      evidence=Evidence.PROVED, help=("lower `registers` of the largest role",)))  # fmt: skip
    if len([r for r in roles if r.registers is not None]) > 1 and "setmaxnreg" not in point.target.has:
        point.report(
            missing_feature(point, "setmaxnreg", roles[0].span, "registers per role are set with it")
        )
    return after


def _whole(point: Point, role: n.Role) -> bool:
    """A quotient of warps must come out even: half a warp cannot stand at a barrier."""
    for node in (x for x in walk(role.warps) if isinstance(x, n.Binary) and x.operator == "/"):
        top, bottom = point.value(node.left), point.value(node.right)
        if isinstance(top, int) and isinstance(bottom, int) and bottom > 0 and top % bottom:
            point.report(Diagnostic("E120", f"`{node.span.text}` warps: {top} is not a multiple of {bottom}",
                                    node.span,
                                    observed=f"{top} / {bottom}", required="a whole number of warps",
                                    evidence=Evidence.PROVED,
                                    help=(f"nearest multiple: {top - top % bottom + bottom}",)))  # fmt: skip
            return False
    return True


def _registers(point: Point, role: n.Role) -> int | None:
    if role.registers is None:
        return None
    count = positive(point, role.registers, f"the registers of role `{role.name.text}`", role.registers.span)
    most = point.target.fields.get("registers_per_thread_max")
    if count is not None and isinstance(most, int) and count > most:
        point.report(Diagnostic("E304", f"role `{role.name.text}` asks for {count} registers a thread",
                                role.registers.span,
                                observed=str(count), required=f"at most {most}",
                                evidence=Evidence.PROVED))  # fmt: skip
        return most
    return count


def _dealt_over(point: Point, role: n.Role, warps: int | None, left: Left, after: Left, alone: bool) -> None:
    seen: dict[str, Span] = {}
    tiles: int | None = 1
    for axis in role.over:
        name = axis.index.text
        if name in seen:
            dealt_twice(point, name, axis.index.span, seen[name])
            continue
        seen[name] = axis.index.span
        by = positive(point, axis.by, f"the tile of `{name}`", axis.span)
        extents, cut = left[name]
        if by is None or extents is None:
            tiles = None
            continue
        if extents == (1,) and cut is not None:
            dealt_twice(point, name, axis.index.span, cut)
            tiles = None
        elif divides(point, axis, extents, by):
            tiles = tiles * extents[0] // by if tiles is not None and len(extents) == 1 else None
            if alone:
                after[name] = ((by,), axis.span)
        else:
            tiles = None
    if role.over and tiles is not None and warps is not None and tiles % warps:
        idle = (
            f"{warps - tiles} warps have nothing to do"
            if tiles < warps
            else "some warps have one tile more than others"
        )
        point.report(Diagnostic("E405", f"role `{role.name.text}` deals {tiles} tiles over {warps} warps",
                                role.span,
                                label=idle, observed=f"{tiles} tiles", required=f"a multiple of {warps}",
                         evidence=Evidence.PROVED, help=("choose warps that divide the tiles",)))  # fmt: skip
