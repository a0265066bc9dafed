"""Schedule steps as data: what will be done to the operator's TIR, on whose account.

Each class is one primitive of `tvm.s_tir.Schedule`; `kdsl/lower/stir/primitives.py` says how to perform it. Loops
are named: a stage's loops carry the names of its indices, and a split adds `e.outer`, `e.inner`.
"""

from __future__ import annotations

from attrs import field, frozen

from kdsl.source.span import Span


@frozen
class Step:
    """`sblock` is the block it works on; `span` the line of the rule or operator behind it; `why` a short reason."""

    sblock: str
    span: Span = field(repr=False, eq=False)
    why: str = field(repr=False, eq=False)

    @property
    def words(self) -> str:
        """The step in words, for listings and errors."""
        parts = [
            f"{a.name}={getattr(self, a.name)!r}"
            for a in self.__attrs_attrs__
            if a.name not in ("sblock", "span", "why")
        ]
        return f"{type(self).__name__.lower()} {self.sblock} {' '.join(parts)}".rstrip()


@frozen
class Fuse(Step):
    loops: tuple[str, ...]
    name: str


@frozen
class Split(Step):
    """`factors` from the outside in; at most one is None and is inferred."""

    loop: str
    factors: tuple[int | None, ...]
    names: tuple[str, ...]


@frozen
class Reorder(Step):
    loops: tuple[str, ...]


@frozen
class Parallel(Step):
    loop: str


@frozen
class Vectorize(Step):
    loop: str


@frozen
class Unroll(Step):
    """`written_out`: in the program, where barriers are placed; else a request to the compiler of the source."""

    loop: str
    written_out: bool = False


@frozen
class Bind(Step):
    loop: str
    thread: str


@frozen
class BindWarps(Step):
    """The loop runs on the first of a block's `warps`; those beyond its extent skip it."""

    loop: str
    warps: int


@frozen
class Decompose(Step):
    """Separate the initial value from the accumulation, at this loop."""

    loop: str


@frozen
class SetScope(Step):
    """The tensor that the block writes lives in this TVM storage scope."""

    scope: str


@frozen
class AddUnitLoop(Step):
    """A loop of one trip around a block that has none."""

    name: str


@frozen
class StorageAlign(Step):
    """Rows of the tensor that the block writes are `columns + pad` elements apart."""

    columns: int
    pad: int


@frozen
class TransformLayout(Step):
    """The tensor that the block writes is stored as fragments of `instruction`: [row tile, column tile, lane, slot]."""

    instruction: str


@frozen
class Panels(Step):
    """The tensor that the block writes is stored in panels of `columns`, one behind the other."""

    columns: int


@frozen
class FragmentLoops(Step):
    """The block's two loops become [row tile, column tile, lane, slot]: rows over the first of `warps`, lanes over
    lanes."""

    instruction: str
    loops: tuple[str, str]
    warps: int


@frozen
class Blockize(Step):
    """The loops from `loop` inwards become a block of their own, `name`."""

    loop: str
    name: str


@frozen
class DecomposeBlock(Step):
    """As Decompose, for a blockized reduction: `initial` names the block of initial values, which keeps
    `initial_loops` loops of tiles."""

    loop: str
    block: str
    initial: str
    initial_loops: int


@frozen
class HideReads(Step):
    """The separated update still declares what only the initial value read: leave it `kept` alone."""

    blocks: tuple[str, ...]
    kept: tuple[str, ...]


@frozen
class Tensorize(Step):
    loop: str
    intrinsic: str


@frozen
class InitialRows(Step):
    """Initial values of sums of rows: a lane sets that of its row."""

    initial: str


@frozen
class InitialLanes(Step):
    """Initial values of a product: each lane sets its own elements of the accumulator."""

    instruction: str
    initial: str
