"""Reads of several rows before the first of them writes.

In a loop over rows that reads shared memory and writes it, a compiler keeps the order of the two: it cannot tell their
addresses apart, and the latency of every row's reads stands in front of its writes. We know the buffers. What the rows
of a group read is taken into registers first, where numbers of neighbouring rows are neighbours as vectors.
"""

from __future__ import annotations

import re

from attrs import define, field, frozen

from kdsl.lower.sourcemap import is_mark
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
    statements = list(loop.body.seq) if isinstance(loop.body, SeqStmt) else [loop.body]
    group, row = Var(f"{loop.loop_var.name}_of", "int32"), Var(f"{loop.loop_var.name}_in", "int32")
    reads = Reads(loop.loop_var, group * rows, rows, row, stored(loop.body))
    parts = [structural_map(statement, (TensorLoad, reads.taken)) for statement in statements]
    if not reads.kept:
        return loop
    first = [AllocBuffer(kept.buffer) for kept in reads.kept]
    first += marked_reads(statements, reads)
    here = group * rows + row
    body = [with_value(part, loop.loop_var, here) for part in parts]
    inner = For(row, 0, rows, loop.kind, SeqStmt(body), None, loop.annotations)
    return For(group, 0, extent // rows, loop.kind, SeqStmt([*first, inner]), None, loop.annotations)


def marked_reads(statements: list, reads: Reads) -> list:
    """The reads into registers, each between the marks of the first stage that reads it."""
    found, left, begin = [], list(reads.kept), None
    for statement in statements:
        if is_mark(statement):
            ends = begin is not None
            if ends and len(found) and found[-1] is not begin:
                found.append(statement)
            elif ends:
                found.pop()
            begin = None if ends else statement
            found += [] if ends else [begin]
            continue
        here = [kept for kept in left if reads_it(statement, kept.load)]
        left = [kept for kept in left if kept not in here]
        found += [part for kept in here for part in kept.filled(reads)]
    return found


def reads_it(statement, load) -> bool:
    found: list = []
    structural_walk(statement, (TensorLoad, lambda node: found.append(node) if structural_equal(node, load) else None))
    return bool(found)


def with_value(statement, old, value):
    return structural_map(statement, (Var, lambda var: value if var.same_as(old) else var))


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
            start = with_value(self.load.indices[0], reads.variable, reads.first)
            value = BufferLoad(self.load.source, [vector(start, reads.rows)])
            return [BufferStore(self.buffer, value, [vector(0, reads.rows)])]
        filled = []
        for number in range(reads.rows):
            value = with_value(self.load, reads.variable, reads.first + number)
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
