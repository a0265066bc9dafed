"""Reads of several rows before the first of them writes.

In a loop over rows that reads shared memory and writes it, a compiler keeps the order of the two: it cannot tell their
addresses apart, and the latency of every row's reads stands in front of its writes. We know the buffers. What the rows
of a group read is taken into registers first, where numbers of neighbouring rows are neighbours as vectors.
"""

from __future__ import annotations

import re

from attrs import define, field, frozen

from kdsl.lower.sourcemap import begun, body_of, is_mark, renamed
from kdsl.lower.strides import stored
from kdsl.lower.tvm import (
    AllocBuffer,
    BufferLoad,
    BufferStore,
    For,
    SeqStmt,
    TensorLoad,
    Var,
    decl_buffer,
    same_memory,
    structural_equal,
    structural_map,
    structural_walk,
    tirx,
)

SHARED = "shared.dyn"
BYTES = 16  # of one access of shared memory


def read_at_once(loop, rows: int):
    """The loop with `rows` rows' reads of shared memory before the first of these rows; the loop itself where they do
    not divide its rows, or where it reads only what it writes."""
    extent = int(loop.extent)
    if rows < 2 or extent % rows or rows == extent:
        return loop
    group, row = Var(f"{loop.loop_var.name}_of", "int32"), Var(f"{loop.loop_var.name}_in", "int32")
    reads = Reads(loop.loop_var, group * rows, rows, row, stored(loop.body))
    parts, fills, begin, here = [], [], None, []
    for statement in body_of(loop):
        known = len(reads.kept)
        parts.append(structural_map(statement, (TensorLoad, reads.taken)))
        here += [part for kept in reads.kept[known:] for part in kept.filled(reads)]
        if is_mark(statement):  # of a stage: what it reads first is filled between marks of its own
            ends = begun(statement) is None
            fills += [begin, *here, statement] if ends and here else here
            begin, here = None if ends else statement, []
    if not reads.kept:
        return loop
    first = [*(AllocBuffer(kept.buffer) for kept in reads.kept), *fills, *here]
    body = [renamed(part, loop.loop_var, group * rows + row) for part in parts]
    inner = For(row, 0, rows, loop.kind, SeqStmt(body), None, loop.annotations)
    return For(group, 0, extent // rows, loop.kind, SeqStmt([*first, inner]), None, loop.annotations)


@frozen
class Kept:
    """One read of every row, and the registers that hold it for a group of rows: `lanes` numbers for a row."""

    load: object
    buffer: object
    lanes: int

    def row(self, number):
        """What the row of this number in the group reads."""
        return BufferLoad(self.buffer, [vector(number * self.lanes, self.lanes)])

    def filled(self, reads: Reads) -> list:
        """The reads of a group's rows: a vector of them, where they are neighbours, else one after the other."""
        bits = int(re.search(r"\d+$", str(self.buffer.dtype)).group())
        if self.lanes == 1 and reads.rows * bits == 8 * BYTES and reads.neighbours(self.load.indices[0]):
            start = renamed(self.load.indices[0], reads.variable, reads.first)
            value = BufferLoad(self.load.source, [vector(start, reads.rows)])
            return [BufferStore(self.buffer, value, [vector(0, reads.rows)])]
        filled = []
        for number in range(reads.rows):
            value = renamed(self.load, reads.variable, reads.first + number)
            filled.append(BufferStore(self.buffer, value, [vector(number * self.lanes, self.lanes)]))
        return filled


def vector(start, lanes: int):
    return start if lanes == 1 else tirx.Ramp(tirx.convert(start), 1, lanes)


@define
class Reads:
    """The reads of shared memory in a loop over `variable` that no row writes; `first` is a group's first row."""

    variable: object
    first: object
    rows: int
    row: object
    written: list
    kept: list[Kept] = field(factory=list)

    def taken(self, node):
        """A read as one of registers."""
        if not self.apart(node):
            return node
        known = next((kept for kept in self.kept if structural_equal(kept.load, node)), None)
        if known is None:
            lanes = node.indices[0].lanes if isinstance(node.indices[0], tirx.Ramp) else 1
            name = f"{str(node.source.name).partition('_shared')[0]}_rows"
            buffer = decl_buffer((self.rows * lanes,), str(node.source.dtype), name, scope="local", layout=None)
            known = Kept(node, buffer, int(lanes))
            self.kept.append(known)
        return known.row(self.row)

    def apart(self, node) -> bool:
        """Whether a read depends on the row, is of shared memory, and nothing in the loop writes what it reads."""
        if not hasattr(node.source, "scope") or node.source.scope() != SHARED or len(node.indices) != 1:
            return False
        if any(same_memory(node.source, buffer) for buffer in self.written):
            return False
        found: list = []
        structural_walk(node.indices[0], (Var, lambda var: found.append(var) if var.same_as(self.variable) else None))
        return bool(found)

    def neighbours(self, index) -> bool:
        """Whether the next row's number is the next one in memory, from a multiple of the rows of a group."""
        if isinstance(index, tirx.Add) and isinstance(index.b, tirx.IntImm) and int(index.b.value) % self.rows == 0:
            index = index.a
        return index.same_as(self.variable)
