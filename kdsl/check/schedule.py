"""How a kernel deals its work out at one point: grid, roles, and the loops of every stage."""

from __future__ import annotations

from kdsl.check.evaluate import decide
from kdsl.check.findings import a, listed
from kdsl.check.model import Instruction, names_in, walk
from kdsl.check.operators import block
from kdsl.check.points import KernelAtPoint, Point
from kdsl.source.diagnostic import Diagnostic, Evidence, Label
from kdsl.source.span import Span
from kdsl.syntax import nodes as n

WARP = 32
MOST_WARPS = 32  # of a block: 1024 threads
VECTOR_BYTES = (4, 8, 16)  # of one access of a CUDA thread


def check_schedule(point: Point, kernel: KernelAtPoint) -> None:
    """Grid and roles first; what they leave of each index is what stages deal on."""
    left = _grid(point, kernel)
    if point.target.family != "cuda":
        for role in kernel.nodes("roles"):
            point.report(Diagnostic("E107", f"{point.target.name} has no warps for role `{role.name.text}`", role.name.span,
                                    label="no warps here", help=("deal tasks with `grid { task : ... }`",)))  # fmt: skip
    else:
        left = _roles(point, kernel, left)
    for line in kernel.nodes("compute") if not point.rule.form_guessed else ():
        for stage in line.stages:
            _computation(point, kernel, line, stage, left)


def check_parameters(point: Point) -> None:
    """E142: a parameter of the algorithm has one of the values that the operator gives it."""
    for line in block(point.rule.declaration.items, "form"):
        parameter = point.rule.operator.parameters.get(line.name.text)
        value = point.form.get(line.name.text)
        if parameter is None or parameter.values is None or value in parameter.values or point.rule.form_guessed:
            continue
        used = [x for x in names_in(line.value) if x in point.rule.choices]
        labels = [Label(parameter.span, "declared here")]
        labels += [Label(point.rule.choice_spans[x], f"`{x}` is chosen here") for x in used]
        point.report(Diagnostic("E142", f"`{line.name.text}` is never {value}", line.value.span, observed=str(value),
                                required=listed(parameter.values), labels=tuple(labels), evidence=Evidence.PROVED,
                                help=(f"take {value} out of `{used[0]}`",) if used else ()))  # fmt: skip


Left = dict[str, tuple[tuple[int, ...] | None, Span | None]]  # index: extents still to be dealt, and by what it was cut


def _grid(point: Point, kernel: KernelAtPoint) -> Left:
    left: Left = {name: (point.sizes.extents(name) if mode == "local" else None, None)
                  for name, mode in point.rule.names.modes.items()}  # fmt: skip
    dealt: dict[str, Span] = {}
    for line in kernel.nodes("grid"):
        for axis in line.axes:
            name = axis.index.text
            if name in dealt:
                _dealt_twice(point, name, axis.index.span, dealt[name])
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


def _dealt_twice(point: Point, index: str, again: Span, first: Span) -> None:
    point.report(Diagnostic("E122", f"index `{index}` is dealt out twice", again, label="again here",
                            labels=(Label(first, "first here"),), observed="2 times", required="once",
                            evidence=Evidence.PROVED, help=("keep one of the two, with the tile you want",)))  # fmt: skip


def positive(point: Point, expr: n.Expr | None, what: str, span: Span, least: int = 1) -> int | None:
    """The value of a tile, width, count or depth; a finding and None if it is below `least`. Nothing said: 1."""
    if expr is None:
        return 1
    value = point.value(expr)
    if not isinstance(value, int):
        return None
    if value < least:
        point.report(Diagnostic("E123", f"{what} is {value}", span, observed=str(value), required=f"at least {least}",
                                evidence=Evidence.PROVED))  # fmt: skip
        return None
    return value


def _independent(point: Point, kernel: KernelAtPoint, axis: n.Axis) -> None:
    """Blocks run in any order: nothing may pass from one value of the index to another."""
    name = axis.index.text
    mode = point.rule.names.modes[name]
    if mode == "sequential":
        for found in kernel.graph.carries:
            if found.carry.over == name:
                point.report(_not_parallel(axis, kernel, f"`{found.carry.tensor}` is carried over it", found.node.over.span,
                                           f"carry over {name}"))  # fmt: skip
                return
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


def _not_parallel(axis: n.Axis, kernel: KernelAtPoint, reason: str, span: Span, text: str) -> Diagnostic:
    name = axis.index.text
    return Diagnostic("E125", f"`{name}` cannot be dealt over the grid of `{kernel.name}`: {reason}", axis.index.span,
                      label="blocks run in any order", labels=(Label(span, text),), evidence=Evidence.PROVED,
                      help=(f"leave `{name}` to the loops inside the kernel",))  # fmt: skip


def divides(point: Point, axis: n.Axis, extents: tuple[int, ...] | None, by: int) -> bool:
    """Whether the tile can be used: it divides some extent that the rule takes (others are refused by `select`)."""
    if not extents or any(extent % by == 0 for extent in extents):
        return True
    point.report(tile_finding(point, axis, extents, by))
    return False


def tile_finding(point: Point, axis: n.Axis, extents: tuple[int, ...], by: int) -> Diagnostic:
    name = axis.index.text
    extent = extents[-1]
    text = point.rule.operator.indices[name].extent.span.text
    subject = f"{text} = {extent}" if text != str(extent) else str(extent)
    if len(extents) > 1:
        subject = f"no extent of `{name}` ({extents[0]} to {extent})"
    message = f"`{axis.span.text}`: {subject} is {'' if len(extents) > 1 else 'not '}a multiple of {by}"
    labels, help_ = [], []
    if axis.by is not None:
        used = [x.text for x in walk(axis.by) if isinstance(x, n.Name) and x.text in point.rule.choices]
        for choice in used:
            labels.append(Label(point.rule.choice_spans[choice], f"`{choice}` is chosen here"))
        if len(used) == 1 and isinstance(axis.by, n.Name):
            values = ", ".join(str(v) for v in point.rule.choices[used[0]])
            help_.append(f"{used[0]} in [{values}]: {by} can never be used; remove it")
    if len(extents) == 1:
        near = nearest_divisors(extent, by)
        help_.append(f"nearest that divide {extent}: {listed(near)}")
    return Diagnostic("E120", message, axis.span, observed=str(by), required=f"a divisor of {extent}",
                      labels=tuple(labels), evidence=Evidence.PROVED, help=tuple(help_))  # fmt: skip


def nearest_divisors(extent: int, by: int) -> list[int]:
    """The divisors next to `by` on either side."""
    divisors = [d for d in range(1, extent + 1) if extent % d == 0]
    return [d for d in ([d for d in divisors if d < by][-1:] + [d for d in divisors if d > by][:1])]


# ---- roles --------------------------------------------------------------------------------------------------


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
                                observed=f"{total} warps", required=f"at most {MOST_WARPS}", evidence=Evidence.PROVED,
                                help=("deal the work over more blocks: a smaller tile in `grid`",)))  # fmt: skip
    file = point.target.fields.get("registers_per_sm")
    if isinstance(file, int) and registers > file:
        point.report(Diagnostic("E304", f"the roles of `{kernel.name}` ask for {registers} registers of {file}",
                                roles[0].span, observed=str(registers), required=f"at most {file}",
                                evidence=Evidence.PROVED, help=("lower `registers` of the largest role",)))  # fmt: skip
    if len([r for r in roles if r.registers is not None]) > 1 and "setmaxnreg" not in point.target.has:
        point.report(missing_feature(point, "setmaxnreg", roles[0].span, "registers per role are set with it"))
    return after


def _whole(point: Point, role: n.Role) -> bool:
    """A quotient of warps must come out even: half a warp cannot stand at a barrier."""
    for node in (x for x in walk(role.warps) if isinstance(x, n.Binary) and x.operator == "/"):
        top, bottom = point.value(node.left), point.value(node.right)
        if isinstance(top, int) and isinstance(bottom, int) and bottom > 0 and top % bottom:
            point.report(Diagnostic("E120", f"`{node.span.text}` warps: {top} is not a multiple of {bottom}", node.span,
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
        point.report(Diagnostic("E304", f"role `{role.name.text}` asks for {count} registers a thread", role.registers.span,
                                observed=str(count), required=f"at most {most}", evidence=Evidence.PROVED))  # fmt: skip
        return most
    return count


def _dealt_over(point: Point, role: n.Role, warps: int | None, left: Left, after: Left, alone: bool) -> None:
    seen: dict[str, Span] = {}
    tiles: int | None = 1
    for axis in role.over:
        name = axis.index.text
        if name in seen:
            _dealt_twice(point, name, axis.index.span, seen[name])
            continue
        seen[name] = axis.index.span
        by = positive(point, axis.by, f"the tile of `{name}`", axis.span)
        extents, cut = left[name]
        if by is None or extents is None:
            tiles = None
            continue
        if extents == (1,) and cut is not None:
            _dealt_twice(point, name, axis.index.span, cut)
            tiles = None
        elif divides(point, axis, extents, by):
            tiles = tiles * extents[0] // by if tiles is not None and len(extents) == 1 else None
            if alone:
                after[name] = ((by,), axis.span)
        else:
            tiles = None
    if role.over and tiles is not None and warps is not None and tiles % warps:
        idle = f"{warps - tiles} warps have nothing to do" if tiles < warps else "some warps have one tile more than others"
        point.report(Diagnostic("E405", f"role `{role.name.text}` deals {tiles} tiles over {warps} warps", role.span,
                                label=idle, observed=f"{tiles} tiles", required=f"a multiple of {warps}",
                                evidence=Evidence.PROVED, help=("choose warps that divide the tiles",)))  # fmt: skip


def missing_feature(point: Point, feature: str, span: Span, reason: str = "") -> Diagnostic:
    """E210: what the target has instead."""
    declaration = point.target.declaration
    instructions = sorted(f for f in point.target.has if f in point.rule.declarations.instructions)
    others = sorted(set(point.target.has) - set(instructions))
    notes = [f"it has the instructions {listed(instructions)}"]
    if feature not in point.rule.declarations.instructions:
        notes = [f"it has {listed(others) or 'no such engines'}"]
    fitting = [name for name, t in point.rule.declarations.right_targets.items() if feature in t.has]
    help_ = (f"{feature} is there on {listed(fitting)}",) if fitting else ()
    return Diagnostic("E210", f"{point.target.name} has no `{feature}`" + (f": {reason}" if reason else ""), span,
                      label=f"not on {point.target.name}", observed=feature,
                      required="an instruction of the target" if instructions else None,
                      labels=(Label(declaration.name.span, "the target"),), notes=tuple(notes), help=help_,
                      evidence=Evidence.PROVED)  # fmt: skip


# ---- stages -------------------------------------------------------------------------------------------------


def _computation(point: Point, kernel: KernelAtPoint, line: n.Computation, name: n.Id, left: Left) -> None:
    instruction = line.instruction.text if line.instruction is not None else None
    if instruction is not None and instruction not in point.target.has:
        point.report(missing_feature(point, instruction, line.instruction.span))
        instruction = None
    stages = [s.stage for s in kernel.graph.stages if s.stage.name == name.text]
    if not stages:
        absent_stage(point, kernel, name)
        return
    stage = stages[0]
    resolved = point.rule.declarations.right_instructions.get(instruction or "")
    if resolved is not None and "A" in resolved.operands and not _matrix(point, kernel, line, name, stage, resolved):
        return
    for attribute in line.attributes:
        if attribute.kind == "vector":
            _vector(point, kernel, stages, attribute, left)
        elif attribute.kind == "unroll":
            _loop_of_stage(point, stage, attribute, (*stage.indices, *stage.contracted), left)
        elif attribute.kind in ("over", "lanes"):
            # `lanes` may share out what a stage sums over: `via shuffle` joins the parts
            shared = stage.contracted if attribute.kind == "lanes" else ()
            _loop_of_stage(point, stage, attribute, (*stage.indices, *shared), left)
        elif attribute.kind == "rows" and attribute.name is not None and attribute.name.text not in stage.indices:
            point.report(_no_loop(stage, attribute.name.text, attribute.name.span, "rows", stage.indices))
        elif attribute.kind == "blocks" and attribute.value is not None:
            positive(point, attribute.value, "`blocks`", attribute.span)
        elif attribute.kind == "via" and attribute.name is not None and attribute.name.text == "shuffle":
            if "shfl" not in point.target.has:
                point.report(missing_feature(point, "shfl", attribute.name.span, "lanes exchange values with it"))


def absent_stage(point: Point, kernel: KernelAtPoint, name: n.Id) -> None:
    every = [s for s in point.rule.graph.stages if s.stage.name == name.text]
    parts = list(dict.fromkeys(s.stage.part for s in every))
    if every and not set(parts) & set(kernel.kernel.parts):
        reason = f"part {listed(f'`{p}`' for p in parts)} is not computed there"
    else:
        reason = only_with(point, [s.guards for s in every if s.stage.part in kernel.kernel.parts])
    point.absent(kernel, name, "stage", reason, tuple(Label(s.node.name.span, "declared here") for s in every[:1]))


def only_with(point: Point, guards: list) -> str:
    """The form under which something would be there."""
    for found in guards:
        needs = ", ".join(f"{k} = {v}" for k, v in found if k in point.form and point.form[k] != v)
        if needs:
            return f"only with {needs}"
    return "no stage of it makes or reads it"


def _no_loop(stage, index: str, span: Span, kind: str, known: tuple[str, ...]) -> Diagnostic:
    return Diagnostic("E121", f"`{kind} {index}`: stage `{stage.name}` has no loop `{index}`", span, observed=index,
                      required=listed(known) or "no loops at all", labels=(Label(stage.span, "the stage"),))  # fmt: skip


def _loop_of_stage(point: Point, stage, attribute: n.Attribute, known: tuple[str, ...], left: Left) -> None:
    seen: dict[str, Span] = {}
    for axis in attribute.axes:
        name = axis.index.text
        if name not in known:
            point.report(_no_loop(stage, name, axis.index.span, attribute.kind, known))
            continue
        if name in seen:
            _dealt_twice(point, name, axis.index.span, seen[name])
            continue
        seen[name] = axis.index.span
        by = positive(point, axis.by, f"`{attribute.kind}` of `{name}`", axis.span)
        if by is not None and axis.by is not None:
            divides(point, axis, left[name][0], by)


def _vector(point: Point, kernel: KernelAtPoint, stages, attribute: n.Attribute, left: Left) -> None:
    stage = stages[0]
    for axis in attribute.axes:
        name = axis.index.text
        extents, cut = left.get(name, (None, None))
        if name in stage.contracted:
            point.report(_vector_refused(stage, axis, f"stage `{stage.name}` sums over `{name}`",
                                         "lanes would add in another order than the operator says",
                                         f"put the lanes on {listed(f'`{i}`' for i in stage.indices[-1:])}"))  # fmt: skip
        elif name not in stage.indices:
            point.report(_no_loop(stage, name, axis.index.span, "vector", stage.indices))
        elif extents == (1,) and cut is not None:
            point.report(Diagnostic("E122", f"`{name}` is dealt over the grid one by one and cannot be vectorised", axis.span,
                                    label="nothing left of it here", labels=(Label(cut, "all of it is dealt here"),),
                                    evidence=Evidence.PROVED,
                                    help=(f"give the grid a tile: `{name} by ...`",)))  # fmt: skip
        elif stage.scan == name:
            point.report(_vector_refused(stage, axis, f"stage `{stage.name}` scans `{name}`",
                                         "an element needs the one before it", None))  # fmt: skip
        else:
            _lanes(point, kernel, stage, axis, extents)


def _lanes(point: Point, kernel: KernelAtPoint, stage, axis: n.Axis, extents) -> None:
    name = axis.index.text
    inner = innermost(kernel, stage)
    if inner != name:
        point.report(_vector_refused(stage, axis, f"`{name}` is not contiguous in `{stage.tensor}`",
                                     f"its elements lie next to each other along `{inner}`",
                                     f"`vector {inner}`, or store the tensor in another order with `order`"))  # fmt: skip
        return
    width = positive(point, axis.by, f"the vector width of `{name}`", axis.span)
    if width is None or not divides(point, axis, extents, width):
        return
    home = kernel.kernel.homes.get(stage.tensor)
    if point.target.family == "cuda":
        size = {"bf16": 2, "f16": 2}.get(home.dtype if home is not None and home.dtype else "f32", 4) * width
        if size > VECTOR_BYTES[-1]:
            point.report(Diagnostic("E124", f"`vector {name} by {width}` is {size} bytes for one access", axis.span,
                                    observed=f"{size} bytes", required=f"at most {VECTOR_BYTES[-1]} bytes",
                                    evidence=Evidence.PROVED))  # fmt: skip


def innermost(kernel: KernelAtPoint, stage) -> str | None:
    """The index along which the stage's tensor is contiguous."""
    home = kernel.kernel.homes.get(stage.tensor)
    order = home.attributes.get("order") if home is not None else None
    order = order if isinstance(order, tuple) and sorted(order) == sorted(stage.indices) else stage.indices
    return order[-1] if order else None


def _vector_refused(stage, axis: n.Axis, message: str, label: str, help_: str | None) -> Diagnostic:
    return Diagnostic("E124", f"`vector {axis.index.text}`: {message}", axis.span, label=label,
                      labels=(Label(stage.span, "the stage"),), help=(help_,) if help_ else (),
                      evidence=Evidence.PROVED)  # fmt: skip


def _matrix(point: Point, kernel: KernelAtPoint, line, name: n.Id, stage, instruction: Instruction) -> bool:
    """A matrix instruction multiplies matrices, and all its threads take part. False if the stage is no product."""
    if stage.kind != "contract":
        point.report(Diagnostic("E310", f"`{instruction.name}` multiplies matrices, and `{stage.name}` is {a(stage.kind)}",
                                name.span, observed=a(stage.kind), required="a sum over products of two tensors",
                                labels=(Label(stage.span, "the stage"),), evidence=Evidence.PROVED,
                                help=("compute it with fma.f32",)))  # fmt: skip
        return False
    threads = instruction.fields.get("threads")
    if not isinstance(threads, int):
        return True
    for role in kernel.nodes("roles"):
        wanted = kernel.kernel.computations.get(stage.name)
        on = wanted.attributes.get("on") if wanted is not None else None
        if on is not None and on != role.name.text or (on is None and len(kernel.nodes("roles")) > 1):
            continue
        warps = decide(role.warps, point.env)
        if isinstance(warps, int) and warps > 0 and warps * WARP % threads:
            point.report(Diagnostic("E405", f"`{instruction.name}` needs {threads} threads together, role "
                                    f"`{role.name.text}` has {warps * WARP}", line.instruction.span, observed=f"{warps} warps",
                                    required=f"a multiple of {threads // WARP} warps",
                                    labels=(Label(role.span, "the role"),), evidence=Evidence.PROVED))  # fmt: skip
    return True
