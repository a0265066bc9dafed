"""The loops of every stage at one point: instructions, lanes, tiles."""

from __future__ import annotations

from kdsl.check.dealing import Left, dealt_twice, divides, missing_feature, positive
from kdsl.check.evaluate import decide
from kdsl.check.findings import a, listed
from kdsl.check.model import Instruction
from kdsl.check.points import KernelAtPoint, Point
from kdsl.source.diagnostic import Diagnostic, Evidence, Label
from kdsl.source.span import Span
from kdsl.syntax import nodes as n

WARP = 32
VECTOR_BYTES = (4, 8, 16)  # of one access of a CUDA thread


def check_loops(point: Point, kernel: KernelAtPoint, left: Left) -> None:
    """Every line of `compute`; `left` is what grid and roles leave of each index."""
    for line in kernel.nodes("compute"):
        for stage in line.stages:
            _computation(point, kernel, line, stage, left)


def _computation(point: Point, kernel: KernelAtPoint, line: n.Computation, name: n.Id, left: Left) -> None:
    instruction = line.instruction.text if line.instruction is not None else None
    if instruction is not None and instruction not in point.target.has:
        named = {other.text for other in line.stages}
        computed = [s.stage for s in kernel.graph.stages if s.stage.name in named]
        point.report(missing_feature(point, instruction, line.instruction.span, stages=computed))
        instruction = None
    stages = [s.stage for s in kernel.graph.stages if s.stage.name == name.text]
    if not stages:
        absent_stage(point, kernel, name)
        return
    stage = stages[0]
    resolved = point.rule.declarations.right_instructions.get(instruction or "")
    if (
        resolved is not None
        and "A" in resolved.operands
        and not _matrix(point, kernel, line, name, stage, resolved)
    ):
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
        elif (
            attribute.kind == "rows"
            and attribute.name is not None
            and attribute.name.text not in stage.indices
        ):
            point.report(_no_loop(stage, attribute.name.text, attribute.name.span, "rows", stage.indices))
        elif attribute.kind == "blocks" and attribute.value is not None:
            positive(point, attribute.value, "`blocks`", attribute.span)
        elif attribute.kind == "via":
            _reducer(point, attribute.name)


def _reducer(point: Point, name: n.Id | None) -> None:
    if name is not None and name.text == "shuffle" and "shfl" not in point.target.has:
        point.report(missing_feature(point, "shfl", name.span, "lanes exchange values with it"))


def absent_stage(point: Point, kernel: KernelAtPoint, name: n.Id) -> None:
    every = [s for s in point.rule.graph.stages if s.stage.name == name.text]
    parts = list(dict.fromkeys(s.stage.part for s in every))
    if every and not set(parts) & set(kernel.kernel.parts):
        reason = f"part {listed(f'`{p}`' for p in parts)} is not computed there"
    else:
        reason = only_with(point, [s.guards for s in every if s.stage.part in kernel.kernel.parts])
    point.absent(
        kernel, name, "stage", reason, tuple(Label(s.node.name.span, "declared here") for s in every[:1])
    )


def only_with(point: Point, guards: list) -> str:
    """The form under which something would be there."""
    for found in guards:
        needs = ", ".join(f"{k} = {v}" for k, v in found if k in point.form and point.form[k] != v)
        if needs:
            return f"only with {needs}"
    return "no stage of it makes or reads it"


def _no_loop(stage, index: str, span: Span, kind: str, known: tuple[str, ...]) -> Diagnostic:
    return Diagnostic("E121", f"`{kind} {index}`: stage `{stage.name}` has no loop `{index}`", span,
                      observed=index,
                      required=listed(known) or "no loops at all",
                      labels=(Label(stage.span, "the stage"),))  # fmt: skip


def _loop_of_stage(point: Point, stage, attribute: n.Attribute, known: tuple[str, ...], left: Left) -> None:
    seen: dict[str, Span] = {}
    for axis in attribute.axes:
        name = axis.index.text
        if name not in known:
            point.report(_no_loop(stage, name, axis.index.span, attribute.kind, known))
            continue
        if name in seen:
            dealt_twice(point, name, axis.index.span, seen[name])
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
            point.report(Diagnostic("E122",
                                    f"`{name}` is dealt over the grid one by one and cannot be vectorised",
                                    axis.span,
                                    label="nothing left of it here",
                                    labels=(Label(cut, "all of it is dealt here"),),
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
            point.report(Diagnostic("E124", f"`vector {name} by {width}` is {size} bytes for one access",
                                    axis.span,
                                    observed=f"{size} bytes", required=f"at most {VECTOR_BYTES[-1]} bytes",
                                    help=(f"write `vector {name} by {VECTOR_BYTES[-1] * width // size}`",),
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
    """A matrix instruction multiplies matrices, and all its threads take part. False if the stage is no
    product.
    """
    if stage.kind != "contract":
        point.report(Diagnostic("E310",
                                f"`{instruction.name}` multiplies matrices, and `{stage.name}` is "
                                f"{a(stage.kind)}",
                                name.span, observed=a(stage.kind),
                                required="a sum over products of two tensors",
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
                                    f"`{role.name.text}` has {warps * WARP}", line.instruction.span,
                                    observed=f"{warps} warps",
                                    required=f"a multiple of {threads // WARP} warps",
                                    labels=(Label(role.span, "the role"),),
                                    evidence=Evidence.PROVED))  # fmt: skip
    return True
