"""The order of a kernel's stages: producers first, then as the operator wrote them."""

from __future__ import annotations

from collections.abc import Sequence

from kdsl.plan.model import Decision, PlannedStage
from kdsl.plan.pins import Pins
from kdsl.plan.refusal import PlanRefused


def needs(stage: PlannedStage) -> set[str]:
    """Tensors that a stage reads, under the names it reads them by; its own, along a scan, left out."""
    if stage.kind == "tile":
        return set()
    if stage.stage is None:
        return {stage.source.tensor} if stage.source is not None else set()
    own = {stage.tensor, *(inner.tensor for inner in stage.inner)}
    return {stage.renamed.get(r.tensor, r.tensor) for r in stage.stage.reads} - own


def ordered(stages: Sequence[PlannedStage], kernel: str, pins: Pins) -> tuple[tuple[PlannedStage, ...], Decision]:
    """A topological order. `pin a before b` adds an edge, `pin kernel.order = ...` gives it whole."""
    by_name = {stage.name: stage for stage in stages}
    makes = {stage.tensor: stage.name for stage in stages}
    before = {stage.name: {makes[t] for t in needs(stage) if t in makes} for stage in stages}
    for pin in pins.orders:
        for end in (pin.first, pin.second):
            if end.text not in by_name:
                raise PlanRefused("D133", f"`{end.text}` is no stage of kernel `{kernel}`", end.span)
        before[pin.second.text].add(pin.first.text)
    pinned = pins.names(kernel, "order")
    names = _pinned(pinned, before, kernel, pins) if pinned is not None else _derived(list(by_name), before, pins)
    decision = Decision(kernel, "order", tuple(names), "producers first, then the operator's order")
    return tuple(by_name[name] for name in names), decision


def _derived(names: list[str], before: dict[str, set[str]], pins: Pins) -> list[str]:
    done: list[str] = []
    waiting = list(names)
    while waiting:
        ready = next((name for name in waiting if before[name] <= set(done)), None)
        if ready is None:
            span = pins.orders[0].span if pins.orders else pins.kernel.span
            raise PlanRefused(
                "D134", f"no order of the stages respects every read and pin: {', '.join(waiting)} wait for each other",
                span, help=("drop the `pin ... before ...` that contradicts what the stages read",),
            )  # fmt: skip
        done.append(ready)
        waiting.remove(ready)
    return done


def _pinned(pinned: tuple[str, ...], before: dict[str, set[str]], kernel: str, pins: Pins) -> list[str]:
    span = pins.span(kernel, "order")
    missing, extra = sorted(set(before) - set(pinned)), sorted(set(pinned) - set(before))
    if missing or extra or len(pinned) != len(set(pinned)):
        raise PlanRefused(
            "D135", f"`pin {kernel}.order` must name every stage of the kernel once", span,
            observed=f"missing {', '.join(missing) or 'none'}; unknown {', '.join(extra) or 'none'}",
        )  # fmt: skip
    seen: set[str] = set()
    for name in pinned:
        late = sorted(before[name] - seen)
        if late:
            raise PlanRefused("D134", f"`pin {kernel}.order` puts `{name}` before `{late[0]}`, which it needs", span)
        seen.add(name)
    return list(pinned)
