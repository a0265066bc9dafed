"""Stages whose values are the same in every step: computed once, before the steps."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from kdsl.check.model import Operator, names_in
from kdsl.plan.model import PlannedStage, Tensor
from kdsl.plan.order import needs
from kdsl.plan.stages import KernelStages
from kdsl.syntax import nodes as n

KEPT = ("thread", "lane")  # memory that costs nothing to keep from step to step


def once(
    stages: KernelStages, tensors: Mapping[str, Tensor], operator: Operator, sequential: str | None
) -> tuple[KernelStages, dict[str, Tensor]]:
    """Stages of the body in registers of a thread that speak of no step move before the first one, and what they
    make is kept."""
    if sequential is None:
        return stages, dict(tensors)
    moved: list[PlannedStage] = []
    made: set[str] = set()
    for stage in stages.body:
        tensor = tensors.get(stage.tensor)
        kept = tensor is not None and tensor.memory in KEPT and tensor.scope == "step"
        if kept and stage.stage is not None and not stage.inner and stage.stage.reduction is None \
                and stage.scan is None and needs(stage) - set(operator.views) <= made \
                and not speaks_of(stage, operator, sequential):  # fmt: skip
            moved.append(stage)
            made.add(stage.tensor)
    found = {name: evolve(t, scope="carried") if name in made else t for name, t in tensors.items()}
    names = {stage.name for stage in moved}
    body = tuple(stage for stage in stages.body if stage.name not in names)
    return evolve(stages, prologue=(*stages.prologue, *moved), body=body), found


def speaks_of(stage: PlannedStage, operator: Operator, index: str) -> bool:
    """Whether an index stands in the stage's expression, or in the views that it reads."""
    spoken: list[n.Node] = [stage.stage.initial]
    for read in stage.stage.reads:
        view = operator.views.get(read.tensor)
        if view is not None:
            spoken += [*view.port_indices, *([view.condition] if view.condition is not None else [])]
    return any(index in names_in(expression) for expression in spoken)
