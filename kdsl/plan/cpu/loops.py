"""Loop nests on a CPU: splits, orders, vector lanes, as schedule steps."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from kdsl.check.model import Kernel
from kdsl.plan import steps as s
from kdsl.plan.model import Decision, PlannedStage
from kdsl.plan.pins import Pins
from kdsl.plan.refusal import PlanRefused


@frozen
class Nest:
    """A stage's loops from the outside in, after splitting, with the split that made them."""

    order: tuple[str, ...]
    natural: tuple[str, ...]
    steps: tuple[s.Step, ...]
    decision: Decision | None


def grid_steps(kernel: Kernel) -> Iterator[s.Step]:
    """Every launch axis of a CPU kernel is one: tasks that threads take in any order."""
    for axis in kernel.grid:
        loops = tuple(loop.name for loop in axis.loops)
        name = loops[0]
        if len(loops) > 1:
            name = axis.axis
            yield s.Fuse(kernel.name, axis.span, f"grid {axis.axis}", loops, name)
        yield s.Parallel(kernel.name, axis.span, f"grid {axis.axis}", name)


def nest(stage: PlannedStage, kernel: Kernel, pins: Pins) -> Nest:
    computation = kernel.computations.get(stage.name) or kernel.computations.get(stage.name.removesuffix("_sum"))
    attributes = computation.attributes if computation is not None else {}
    span = computation.span if computation is not None else stage.span
    loops = [loop for loop in stage.loops if loop.kind != "scan"]
    steps: list[s.Step] = []
    names = {loop.index: (loop.index,) for loop in loops}
    for kind in ("vector", "unroll"):
        for index, width in attributes.get(kind, ()):
            loop = next((x for x in loops if x.index == index), None)
            if loop is None:
                raise PlanRefused(
                    "E121", f"`{kind} {index}`: stage `{stage.name}` has no loop `{index}`", span,
                    observed=", ".join(x.index for x in loops) or "no loops",
                )  # fmt: skip
            if len(names[index]) > 1 or (kind == "unroll" and _asked(attributes, "vector", index)):
                raise PlanRefused(
                    "E122", f"`{kind} {index} by {width}`: stage `{stage.name}` deals `{index}` out already", span,
                    help=(f"keep one of `vector {index}` and `unroll {index}`",),
                )  # fmt: skip
            if loop.extent % width:
                raise PlanRefused(
                    "E120", f"`{kind} {index} by {width}`: {loop.extent} is not a multiple of {width}", span
                )
            if width < loop.extent:
                names[index] = (f"{index}.outer", f"{index}.inner")
                why = f"{kind} {index} by {width}"
                steps.append(s.Split(stage.name, span, why, index, (None, width), names[index]))
    natural = tuple(name for loop in loops for name in names[loop.index])
    order = _default_order(loops, names, attributes)
    decision = None
    pinned = pins.names(stage.name, "loop_order")
    if pinned is not None:
        if sorted(pinned) != sorted(natural):
            raise PlanRefused(
                "D136", f"`pin {stage.name}.loop_order` must name each loop of the stage once",
                pins.span(stage.name, "loop_order"), observed=", ".join(pinned), required=", ".join(natural),
            )  # fmt: skip
        order = pinned
    if len(natural) > 1:
        decision = Decision(stage.name, "loop_order", order, "reductions inside, vector lanes innermost")
    if order != natural:
        steps.append(s.Reorder(stage.name, span, "loop order", order))
    steps += _lanes(stage, attributes, names, span)
    steps += _separate(stage, order, loops, names, span)
    return Nest(order, natural, tuple(steps), decision)


def _asked(attributes, kind: str, index: str) -> bool:
    return any(name == index for name, _ in attributes.get(kind, ()))


def _default_order(loops, names, attributes) -> tuple[str, ...]:
    lanes = {index for index, _ in attributes.get("vector", ())}
    spatial = [x for loop in loops if loop.kind == "spatial" and loop.index not in lanes for x in names[loop.index]]
    reduced = [x for loop in loops if loop.kind == "reduce" for x in names[loop.index]]
    vector = [x for loop in loops if loop.index in lanes for x in names[loop.index]]
    return tuple(spatial + reduced + vector)


def _lanes(stage, attributes, names, span) -> Iterator[s.Step]:
    for index, width in attributes.get("vector", ()):
        yield s.Vectorize(stage.name, span, f"vector {index} by {width}", names[index][-1])
    for index, width in attributes.get("unroll", ()):
        yield s.Unroll(stage.name, span, f"unroll {index} by {width}", names[index][-1])


def _separate(stage, order, loops, names, span) -> Iterator[s.Step]:
    """Initial values in their own loops, so that the accumulation has no test in it."""
    reduced = {x for loop in loops if loop.kind == "reduce" for x in names[loop.index]}
    first = next((name for name in order if name in reduced), None)
    if first is not None and stage.scan is None:
        yield s.Decompose(stage.name, span, "initial value before the sum", first)
