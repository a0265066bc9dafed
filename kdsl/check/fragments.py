"""Which lane holds which element of an operand, by enumeration of the instruction's maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import product

from kdsl.check.model import Instruction
from kdsl.syntax import nodes as n

Element = tuple[int, ...]
Place = tuple[int, int]  # lane, slot
OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y,
    "/": lambda x, y: x // y, "%": lambda x, y: x % y,
}  # fmt: skip


def compiled(expr: n.Expr, indices: tuple[str, ...]) -> Callable[[Element], int]:
    """The expression as a function of an element: maps are evaluated thousands of times."""
    if isinstance(expr, n.Group):
        return compiled(expr.inner, indices)
    if isinstance(expr, n.Name):
        position = indices.index(expr.text)
        return lambda element: element[position]
    if isinstance(expr, n.Number):
        value = int(expr.value)
        return lambda element: value
    if isinstance(expr, n.Binary) and expr.operator in OPERATORS:
        apply = OPERATORS[expr.operator]
        left, right = compiled(expr.left, indices), compiled(expr.right, indices)
        return lambda element: apply(left(element), right(element))
    raise ValueError(f"an operand map is made of + - * / %, not {type(expr).__name__.lower()}")


def smallest(value: object) -> int:
    """An extent; of a list of extents the least, since maps repeat."""
    return min(value) if isinstance(value, tuple) else int(value)


def tile(instruction: Instruction, operand: str) -> tuple[int, ...]:
    """Extents of one operand, in the order of its indices."""
    indices = instruction.operands[operand].target.indices
    return tuple(smallest(instruction.fields[i.text]) for i in indices)


@lru_cache(maxsize=256)
def _maps(key: _Key) -> Mapping[Element, Place] | None:
    instruction, operand = key.instruction, key.operand
    node = instruction.operands[operand]
    indices = tuple(i.text for i in node.target.indices)
    maps = {entry.name.text: entry.value for entry in node.maps}
    try:
        lane, slot = compiled(maps["lane"], indices), compiled(maps["slot"], indices)
        return {
            element: (lane(element), slot(element))
            for element in product(*map(range, tile(instruction, operand)))
        }
    except (KeyError, ValueError, ZeroDivisionError):
        return None


class _Key:
    """One instruction object and one of its operands."""

    def __init__(self, instruction: Instruction, operand: str):
        self.instruction, self.operand = instruction, operand

    def __hash__(self) -> int:
        return hash((id(self.instruction), self.operand))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and (self.instruction, self.operand) == (
            other.instruction,
            other.operand,
        )


def lane_maps(instruction: Instruction, operand: str) -> Mapping[Element, Place] | None:
    """Element to (lane, slot) over one instruction; None for an operand that has no lanes, or wrong maps."""
    return _maps(_Key(instruction, operand))


@lru_cache(maxsize=256)
def _moved(a: _Key, a_order: tuple[int, ...], b: _Key, b_order: tuple[int, ...]) -> tuple[int, int] | None:
    first, second = _maps(a), _maps(b)
    if first is None or second is None:
        return None
    extents_a, extents_b = tile(a.instruction, a.operand), tile(b.instruction, b.operand)
    rows = max(extents_a[a_order[0]], extents_b[b_order[0]])
    columns = max(extents_a[a_order[1]], extents_b[b_order[1]])
    moved = 0
    for row in range(rows):
        for column in range(columns):
            lanes = []
            for maps, extents, order in ((first, extents_a, a_order), (second, extents_b, b_order)):
                element = [0, 0]
                element[order[0]], element[order[1]] = row % extents[order[0]], column % extents[order[1]]
                lanes.append(maps[tuple(element)][0])
            moved += lanes[0] != lanes[1]
    return moved, rows * columns


def moved_elements(
    a: Instruction,
    a_operand: str,
    a_order: tuple[int, int],
    b: Instruction,
    b_operand: str,
    b_order: tuple[int, int],
) -> tuple[int, int] | None:
    """How many elements of a tile change lane between two fragments, and of how many; None if not enumerable.

    An order gives, for the two indices of the tensor, their positions among the operand's indices.
    """
    if a.fields.get("threads") != b.fields.get("threads"):
        return None
    return _moved(_Key(a, a_operand), a_order, _Key(b, b_operand), b_order)
