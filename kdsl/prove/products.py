"""Nests of loops that add products to a tensor: C[..] = C[..] + x * y, where x and y share the summed loops alone.

Such a nest is the description of every matrix instruction. The operands are laid side by side once, multiplied by one
routine of each algebra, and the sums added to C: each index is computed once for an operand's element in place of once
for a product. The result is that of the loops, in any order of theirs: C is read by neither factor, additions of a
field commute, and every element of C has its sums added in turn, wherever two of them lie. C is memory of the program's
own, which has one name.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from attrs import field, frozen

from kdsl.prove import meaning as m

LEAST = 4  # of rows and columns: below, laying operands side by side costs what it saves
MOST = 1 << 16  # elements of an operand


@frozen(eq=False)
class Product:
    """The loops by what depends on them: `rows` x and C, `columns` y and C, `summed` x or y. Extents are constants."""

    block: object = field(repr=False)
    values: tuple = field(repr=False)  # of the block's variables
    store: object = field(repr=False)
    before: object = field(repr=False)  # what C holds, as an expression
    left: object = field(repr=False)
    right: object = field(repr=False)
    rows: tuple
    columns: tuple
    summed: tuple

    @property
    def extents(self) -> tuple[int, int, int]:
        return tuple(math.prod(int(s.extent.value) for s in part) for part in (self.rows, self.columns, self.summed))


def product_of(nest, root, given: Collection[int]) -> Product | None:
    """The product that a nest of loops is, or None. `root` gives the buffer that a window looks at; `given` are the
    parameters of the function, by identity."""
    loops, s = [], nest
    while m.kind(s) == "For":
        step = getattr(s, "step", None)
        if not _is_constant(s.min, 0) or m.kind(s.extent) != "IntImm" or (step is not None and str(step) != "1"):
            return None
        loops.append(s)
        s = s.body
    if m.kind(s) != "SBlockRealize" or not _is_constant(s.predicate, 1):
        return None
    block, store = s.block, s.block.body
    if block.init is not None or block.alloc_buffers or block.match_buffers or m.kind(store) != "BufferStore":
        return None
    found = _factors(store)
    if found is None:
        return None
    before, left, right = found
    written = root(store.buffer)
    if hash(written) in given or any(root(b).same_as(written) for e in (left, right) for b in _buffers(e)):
        return None
    through = {hash(v.var): variables(e) for v, e in zip(block.iter_vars, s.iter_values, strict=True)}
    place, x, y = (
        frozenset().union(*(through.get(v, {v}) for e in part for v in variables(e)))
        for part in (store.indices, [left], [right])
    )
    return _classified(s, before, (left, right), loops, (place, x, y))


def _classified(realize, before, factors, loops, depends) -> Product | None:
    place, x, y = depends
    block, values = realize.block, tuple(realize.iter_values)
    parts: dict[str, list] = {"rows": [], "columns": [], "summed": []}
    for s in loops:
        v = hash(s.loop_var)
        if v not in place:
            parts["summed"].append(s)
        elif (v in x) == (v in y):
            return None
        else:
            parts["rows" if v in x else "columns"].append(s)
    groups = {name: tuple(part) for name, part in parts.items()}
    found = Product(block, values, block.body, before, *factors, **groups)
    rows, columns, summed = found.extents
    if min(rows, columns) < LEAST or summed < 1 or max(rows * summed, columns * summed, rows * columns) > MOST:
        return None
    return found


def _factors(store):
    """(what C holds, x, y) of C[..] = C[..] + x * y."""
    if not m.is_float(store.buffer.dtype) or m.kind(store.value) != "Add":
        return None
    for before, term in ((store.value.a, store.value.b), (store.value.b, store.value.a)):
        if m.kind(term) != "Mul" or m.kind(before) not in ("BufferLoad", "TensorLoad"):
            continue
        same = before.source.same_as(store.buffer) and len(before.indices) == len(store.indices)
        if same and all(m.same_structure(a, b) for a, b in zip(before.indices, store.indices, strict=True)):
            return before, term.a, term.b
    return None


def _is_constant(e, value: int) -> bool:
    return m.kind(e) == "IntImm" and int(e.value) == value


def _parts(e) -> Iterator:
    """An expression and all that it is made of. (A `Let` would bind a variable, but has no meaning.)"""
    stack = [e]
    while stack:
        e = stack.pop()
        yield e
        for name in ("a", "b", "value", "condition", "true_value", "false_value"):
            part = getattr(e, name, None)
            if part is not None and not isinstance(part, (int, float, str, bool)):
                stack.append(part)
        for name in ("args", "indices"):
            stack += list(getattr(e, name, ()))


def variables(e) -> frozenset[int]:
    return frozenset(hash(part) for part in _parts(e) if m.kind(part) == "Var")


def _buffers(e) -> Iterator:
    return (part.source for part in _parts(e) if m.kind(part) in ("BufferLoad", "TensorLoad"))
