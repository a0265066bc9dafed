"""Numbers that a loop keeps in registers: each starts before the steps and grows by the same in every one."""

from __future__ import annotations

from attrs import define, field, frozen

from kdsl.lower.tvm import AllocBuffer, BufferLoad, BufferStore, decl_buffer, op, structural_equal, tirx


@frozen
class Kept:
    """A number: what it is in the first step, how much it grows from step to step, and where it starts anew at 0."""

    start: object
    distance: object
    end: int | None
    buffer: object

    @property
    def started(self) -> list:
        return [AllocBuffer(self.buffer), BufferStore(self.buffer, self.start, [0])]

    @property
    def now(self):
        return BufferLoad(self.buffer, [0])

    @property
    def increased(self):
        more = self.now + self.distance
        if self.end is not None:
            dtype = str(self.buffer.dtype)
            at_end = tirx.EQ(self.now, tirx.IntImm(dtype, self.end - 1))
            more = op.if_then_else(at_end, tirx.IntImm(dtype, 0), more)
        return BufferStore(self.buffer, more, [0])


@define
class Numbers:
    """The numbers of one loop, of one dtype."""

    dtype: str
    kept: list[Kept] = field(factory=list)

    def keep(self, name: str, start, distance, end: int | None = None):
        """The number that is `start` in the first step and grows by `distance`, as it is now."""
        for kept in self.kept:
            same = structural_equal(kept.start, start) and structural_equal(kept.distance, distance)
            if same and kept.end == end:
                return kept.now
        buffer = decl_buffer((1,), self.dtype, f"{name}_{len(self.kept)}", scope="local", layout=None)
        self.kept.append(Kept(start, distance, end, buffer))
        return self.kept[-1].now

    @property
    def started(self) -> list:
        """Statements before the loop."""
        return [part for kept in self.kept for part in kept.started]

    @property
    def increased(self) -> list:
        """Statements at the end of a step."""
        return [kept.increased for kept in self.kept]
