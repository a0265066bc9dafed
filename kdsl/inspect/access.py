"""From the index of a shared access to its bank conflicts: over every lane and every value of its variables.

The index is an expression over `lane` and further variables (a warp, a step of a loop) as the generated
code has it: integers, + - *, division and remainder of what is not negative, shifts, & | ^. Or any function
of the lane. What has no lane addresses (wgmma and TMA read through descriptors) is unknown here.
"""

from __future__ import annotations

import ast
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod

from attrs import field, frozen

from kdsl.inspect import banks
from kdsl.source.diagnostic import Evidence

LANE = "lane"
MOST_POINTS = 1 << 16  # values of the variables tried before the answer is "unknown"
BY_LANE = ("ld", "st", "cp.async")
BY_ROW = ("ldmatrix", "stmatrix")
_BINARY = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
_CAST = re.compile(r"\((?:const\s+)?(?:unsigned\s+int|unsigned|int|long\s+long|u?int(?:8|16|32|64)_t)\)")
_DOTTED = re.compile(r"\b([A-Za-z_]\w*)\.([xyz])\b")


@frozen
class NoIndex(Exception):
    """Text that is no index expression."""

    text: str
    reason: str

    def __str__(self) -> str:
        return f"`{self.text}` is no index: {self.reason}"


@frozen
class Index:
    """An integer expression over variables; `names` in order of first mention."""

    text: str
    tree: ast.expr = field(repr=False, eq=False)
    names: tuple[str, ...] = field(eq=False)

    def at(self, values: Mapping[str, int]) -> int:
        """Its value. Division rounds as C's does, since nothing divided may be negative. Raises NoIndex."""
        return _value(self.tree, values, self.text)


@frozen
class SharedAccess:
    """One access of shared memory by a warp.

    `kind`: ld, st, cp.async (with `width` bytes a lane), ldmatrix, stmatrix (with `matrices`), or anything
    else, which has no lane addresses. `offset` is the byte offset of the lane; `variables` maps the others
    to what they run over; `base` is where the buffer lies in shared memory; `source` is the byte offset in global
    memory that a lane of cp.async copies from.
    """

    name: str
    kind: str
    offset: Index | Callable[..., int]
    width: int = 4
    matrices: int = 4
    active: int = banks.ALL
    base: int = 0
    variables: Mapping[str, Sequence[int]] = field(factory=dict)
    source: Index | None = None


@frozen
class BankFinding:
    """The worst of an access over its variables, `at` which values; `wavefronts` None if it is unknown."""

    access: str
    wavefronts: banks.Wavefronts | None
    at: Mapping[str, int]
    evidence: Evidence
    note: str = ""

    @property
    def degree(self) -> float | None:
        return self.wavefronts.degree if self.wavefronts is not None else None


def index(text: str) -> Index:
    """An index as Python, C or CUDA writes it: `(((int)threadIdx.x) >> 1) * 24 + (threadIdx.x & 1) * 8`.

    `threadIdx.x` is the variable threadIdx_x. Raises NoIndex.
    """
    bare = _DOTTED.sub(r"\1_\2", _CAST.sub("", text)).strip()
    try:
        tree = ast.parse(bare, mode="eval").body
    except SyntaxError as fault:
        raise NoIndex(text, str(fault.msg)) from None
    names = tuple(dict.fromkeys(_names(tree, text)))
    return Index(text, tree, names)


def lane_index(text: str, elements: int = 1) -> Index:
    """An index over a warp's `threadIdx.x`, named `lane`, in elements of so many bytes."""
    inner = _DOTTED.sub(r"\1_\2", _CAST.sub("", text)).replace("threadIdx_x", LANE)
    return index(f"({inner}) * {elements}")


def judge(access: SharedAccess, paired: bool = False) -> BankFinding:
    """Wavefronts of the access at the values of its variables that take the most over the ideal."""
    if access.kind not in BY_LANE + BY_ROW:
        return _unknown(access, f"{access.kind} has no lane addresses")
    points = prod(len(values) for values in access.variables.values())
    if points > MOST_POINTS:
        return _unknown(access, f"{points} values of {', '.join(access.variables)} are too many to try")
    missing = [n for n in getattr(access.offset, "names", ()) if n != LANE and n not in access.variables]
    if missing:
        return _unknown(access, f"nothing is known of {', '.join(missing)}")
    worst: BankFinding | None = None
    for values in _points(access.variables):
        try:
            found = _at(access, values, paired)
        except banks.Misaligned as fault:
            return BankFinding(access.name, None, values, Evidence.UNKNOWN, str(fault))
        if worst is None or (found.degree, found.count) > (worst.wavefronts.degree, worst.wavefronts.count):
            worst = BankFinding(access.name, found, values, Evidence.SIMULATED)
    return worst if worst is not None else _unknown(access, "it never runs: a variable has no value")


def addresses(access: SharedAccess, values: Mapping[str, int]) -> list[int]:
    """Byte addresses of the lanes that the instruction asks: all 32, or the rows of its matrices."""
    lanes = range(8 * access.matrices if access.kind in BY_ROW else banks.LANES)
    if isinstance(access.offset, Index):
        return [access.base + access.offset.at({**values, LANE: lane}) for lane in lanes]
    return [access.base + access.offset(lane, **values) for lane in lanes]


def _at(access: SharedAccess, values: Mapping[str, int], paired: bool) -> banks.Wavefronts:
    found = addresses(access, values)
    if access.kind in BY_ROW:
        return banks.matrix_wavefronts(found, access.matrices)
    if access.kind == "cp.async":
        read = None
        if access.source is not None:
            read = [access.source.at({**values, LANE: lane}) for lane in range(banks.LANES)]
        return banks.copy_wavefronts(found, access.width, access.active, read)
    return banks.wavefronts(found, access.width, access.active, paired and access.kind == "ld")


def _points(variables: Mapping[str, Sequence[int]]) -> Iterator[dict[str, int]]:
    for values in itertools.product(*variables.values()):
        yield dict(zip(variables, values, strict=True))


def _unknown(access: SharedAccess, note: str) -> BankFinding:
    return BankFinding(access.name, None, {}, Evidence.UNKNOWN, note)


def _names(tree: ast.expr, text: str) -> Iterator[str]:
    if isinstance(tree, ast.Name):
        yield tree.id
    elif isinstance(tree, ast.BinOp) and type(tree.op) in _BINARY:
        yield from _names(tree.left, text)
        yield from _names(tree.right, text)
    elif isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        yield from _names(tree.operand, text)
    elif not (isinstance(tree, ast.Constant) and type(tree.value) is int):
        raise NoIndex(text, f"`{ast.unparse(tree)}` is not arithmetic on integers")


def _value(tree: ast.expr, values: Mapping[str, int], text: str) -> int:
    if isinstance(tree, ast.Constant):
        return tree.value
    if isinstance(tree, ast.Name):
        return values[tree.id]
    if isinstance(tree, ast.UnaryOp):
        return -_value(tree.operand, values, text)
    left, right = _value(tree.left, values, text), _value(tree.right, values, text)
    divides = isinstance(tree.op, (ast.Div, ast.FloorDiv, ast.Mod))
    if divides and (left < 0 or right <= 0):
        raise NoIndex(text, f"it divides {left} by {right}")
    return _BINARY[type(tree.op)](left, right)
