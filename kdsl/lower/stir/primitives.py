"""How each schedule step is performed on a `tvm.s_tir.Schedule`: one function a step, in a table."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field

from kdsl.lower.tvm import Schedule
from kdsl.plan import steps as s


@define
class Nests:
    """The loops of every sblock by name, as the plan names them."""

    schedule: Schedule
    names: dict[str, tuple[str, ...]]  # sblock -> its loops from the outside in, before any step
    loops: dict[str, dict[str, object]] = field(factory=dict)

    def loop(self, sblock: str, name: str):
        return self.of(sblock)[name]

    def of(self, sblock: str) -> dict[str, object]:
        if sblock not in self.loops:
            names = self.names[sblock]
            found = list(self.schedule.get_loops(self.schedule.get_sblock(sblock)))
            self.loops[sblock] = dict(zip(names, found[len(found) - len(names) :]))
        return self.loops[sblock]


def fuse(nests: Nests, step: s.Fuse) -> None:
    loops = nests.of(step.sblock)
    loops[step.name] = nests.schedule.fuse(*[loops.pop(name) for name in step.loops])


def split(nests: Nests, step: s.Split) -> None:
    loops = nests.of(step.sblock)
    made = nests.schedule.split(loops.pop(step.loop), list(step.factors))
    loops.update(zip(step.names, made))


def reorder(nests: Nests, step: s.Reorder) -> None:
    nests.schedule.reorder(*[nests.loop(step.sblock, name) for name in step.loops])


def parallel(nests: Nests, step: s.Parallel) -> None:
    nests.schedule.parallel(nests.loop(step.sblock, step.loop))


def vectorize(nests: Nests, step: s.Vectorize) -> None:
    nests.schedule.vectorize(nests.loop(step.sblock, step.loop))


def unroll(nests: Nests, step: s.Unroll) -> None:
    nests.schedule.unroll(nests.loop(step.sblock, step.loop))


def bind(nests: Nests, step: s.Bind) -> None:
    nests.schedule.bind(nests.loop(step.sblock, step.loop), step.thread)


def decompose(nests: Nests, step: s.Decompose) -> None:
    block = nests.schedule.get_sblock(step.sblock)
    nests.schedule.decompose_reduction(block, nests.loop(step.sblock, step.loop))


def set_scope(nests: Nests, step: s.SetScope) -> None:
    nests.schedule.set_scope(nests.schedule.get_sblock(step.sblock), 0, step.scope)


PRIMITIVES: dict[type, Callable] = {
    s.Fuse: fuse,
    s.Split: split,
    s.Reorder: reorder,
    s.Parallel: parallel,
    s.Vectorize: vectorize,
    s.Unroll: unroll,
    s.Bind: bind,
    s.Decompose: decompose,
    s.SetScope: set_scope,
}
