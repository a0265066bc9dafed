"""Bytes of every memory that a kernel uses, buffer by buffer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from attrs import evolve, field, frozen

from kdsl.check.blueprint import Blueprint
from kdsl.check.evaluate import NotStatic, Undecided, evaluate
from kdsl.check.graph import tensor_steps
from kdsl.check.model import DTYPE_BYTES, Home, Index, Kernel, Operator, names_in, walk
from kdsl.check.rules import substitute
from kdsl.source.span import Span
from kdsl.syntax import nodes as n

UNPLACED = {"cpu": "stack"}  # where a tensor goes that the rule does not place


@frozen
class Buffer:
    """One tensor in one memory: `slots` of a ring, or 1."""

    tensor: str
    memory: str
    dtype: str
    shape: tuple[int, ...]
    pad: int
    slots: int
    span: Span = field(eq=False, repr=False)

    @property
    def bytes(self) -> int:
        """Every row of the innermost index is `pad` elements longer than it needs to be."""
        rows = prod(self.shape[:-1])
        row = self.shape[-1] + self.pad if self.shape else 1
        return rows * row * DTYPE_BYTES[self.dtype] * self.slots

    def __str__(self) -> str:
        return f"{self.tensor} {self.bytes}" + (f" ({self.slots} slots)" if self.slots > 1 else "")


@frozen
class MemoryUse:
    kernel: str
    memory: str
    buffers: tuple[Buffer, ...]  # largest first

    @property
    def bytes(self) -> int:
        return sum(buffer.bytes for buffer in self.buffers)

    def listed(self, limit: int = 4) -> str:
        """`state 262144, qn 32768, ... 15 buffers`."""
        shown = ", ".join(str(buffer) for buffer in self.buffers[:limit])
        return shown + (f", ... {len(self.buffers)} buffers" if len(self.buffers) > limit else "")


@frozen
class Setting:
    """What is known of a call: parameters, sizes and options by name in `env`, dtypes of ports."""

    operator: Operator
    graph: Blueprint  # under the form, and the options where they are known
    env: Mapping[str, object]
    dtypes: Mapping[str, str]
    family: str
    kernels: tuple[Kernel, ...] = ()  # all of the rule: one may store what another reads


def memory_use(
    setting: Setting, kernel: Kernel, memories: tuple[str, ...] = ("shared", "stack", "workspace")
) -> dict[str, MemoryUse]:
    """What a kernel keeps in these memories. Raises Undecided if a size is not known."""
    found: dict[str, list[Buffer]] = {}
    shapes = _shapes(setting)
    for tensor, home in _homes(setting, kernel):
        if home.memory not in memories or "alias" in home.attributes or tensor not in shapes:
            continue
        found.setdefault(home.memory, []).append(_buffer(setting, kernel, tensor, home, shapes[tensor]))
    return {
        memory: MemoryUse(kernel.name, memory, tuple(sorted(buffers, key=lambda b: -b.bytes)))
        for memory, buffers in found.items()
    }


def _shapes(setting: Setting) -> dict[str, tuple[str, ...]]:
    found = {name: view.indices for name, view in setting.operator.views.items()}
    found |= {s.stage.tensor: s.stage.indices for s in setting.graph.stages if s.stage.tensor not in found}
    carries = [c.carry for c in setting.graph.carries]
    found |= {c.end.tensor: c.indices for c in carries if c.end is not None and c.end.tensor not in found}
    return {**found, **{c.tensor: c.indices for c in carries}}


def taken_from(kernel: Kernel, kernels: Iterable[Kernel]) -> dict[str, str]:
    """Tensors of a kernel that warps beside its own take from shared memory, and the kernels of these."""
    return {home.tensor: other.name for other in kernels for home in other.homes.values() if home.beside == kernel.name}


def _homes(setting: Setting, kernel: Kernel):
    """What other warps take lies in their rings: the copy for them if there is one, else the tensor itself."""
    taken = taken_from(kernel, setting.kernels)
    for name, home in kernel.homes.items():
        copies = [view for view in kernel.views.get(name, ()) if taken.get(name) in view.readers]
        if name not in taken or copies or home.memory != "shared":
            yield home.tensor, home
    for views in kernel.views.values():
        for home in views:
            if taken.get(home.tensor) not in home.readers or home.memory != "shared":
                yield home.tensor, home
    memory = UNPLACED.get(setting.family)
    if memory is None:
        return
    made = [s.stage.tensor for s in setting.graph.stages if s.stage.part in kernel.parts]
    made += [c.carry.tensor for c in setting.graph.carries if c.carry.part in kernel.parts]
    for tensor in dict.fromkeys(made):
        if tensor not in kernel.homes and tensor not in setting.operator.views:
            yield tensor, Home(tensor, (), "f32", memory, {}, kernel.span)


def _buffer(setting: Setting, kernel: Kernel, tensor: str, home: Home, indices: tuple[str, ...]) -> Buffer:
    tiles = {} if home.memory == "workspace" else {i: by for axis in kernel.grid for i, by in axis.indices}
    order = home.attributes.get("order") or indices
    shape = [tiles.get(i) or evaluate(setting.operator.indices[i].extent, setting.env) for i in order]
    if home.memory == "workspace":
        shape = [_instances(setting, tensor), *shape]
    pad, ring = home.attributes.get("pad", 0), home.attributes.get("ring", 1)
    return Buffer(tensor, home.memory, _dtype(setting, kernel, tensor, home), tuple(map(int, shape)),
                  int(pad), int(ring),
                  home.span)  # fmt: skip


def _dtype(setting: Setting, kernel: Kernel, tensor: str, home: Home) -> str:
    if home.dtype:
        return home.dtype
    main = kernel.homes.get(tensor)
    if main is not None and main.dtype:
        return main.dtype
    view = setting.operator.views.get(tensor)
    if view is not None:
        return setting.dtypes.get(view.port, "f32")
    return stored_dtype(setting.kernels, tensor) or "f32"


def stored_dtype(kernels: tuple[Kernel, ...], tensor: str) -> str | None:
    """The dtype in which some kernel puts a tensor into the workspace."""
    for kernel in kernels:
        for home in (*kernel.views.get(tensor, ()), kernel.homes.get(tensor)):
            if home is not None and home.memory == "workspace" and home.dtype:
                return home.dtype
    return None


def _instances(setting: Setting, tensor: str) -> int:
    """How many copies of a graph tensor a call has: one for each value of the outer indices that it is made for."""
    indices = setting.operator.indices.values()
    steps = tensor_steps(setting.operator, (s.stage for s in setting.graph.stages),
                         (c.carry for c in setting.graph.carries)).get(tensor, setting.operator.steps)  # fmt: skip
    covered = {index.name for index in indices if index.mode == "sequential" and index.name != steps}
    total = 1
    for index in indices:
        if index.name == steps and index.slots is not None:
            total *= evaluate(index.slots, setting.env)
            covered |= {index.name, *names_in(index.slot)}
    for index in indices:
        if index.mode != "local" and index.name not in covered:
            total *= launched(setting, index)
    return total


def launched(setting: Setting, index: Index) -> int:
    """The values of an index that a launch enumerates: its bound where it has one. Raises Undecided."""
    expr = index.most if index.most is not None else index.extent
    return evaluate(inlined(expr, setting.operator), setting.env)


def inlined(expr: n.Expr, operator: Operator) -> n.Expr:
    """The expression with definitions replaced by their bodies."""
    key = ("inlined", id(expr))
    if key not in operator.memo:
        found = expr
        while any(isinstance(x, n.Call) and x.function.text in operator.definitions for x in walk(found)):
            found = _inline(found, operator)
        operator.memo[key] = found
    return operator.memo[key]


def _inline(expr, operator: Operator):
    if isinstance(expr, tuple):
        return tuple(_inline(item, operator) for item in expr)
    if isinstance(expr, n.Call) and expr.function.text in operator.definitions:
        definition = operator.definitions[expr.function.text]
        arguments = dict(zip(definition.parameters, expr.arguments, strict=False))
        return n.Group(expr.span, substitute(definition.body, arguments))
    if not isinstance(expr, n.Node):
        return expr
    values = {a.name: getattr(expr, a.name) for a in expr.__attrs_attrs__}
    changes = {k: _inline(v, operator) for k, v in values.items() if isinstance(v, (n.Node, tuple))}
    return evolve(expr, **changes) if changes else expr


def grid_extents(setting: Setting, kernel: Kernel) -> dict[str, int | None]:
    """Blocks along every launch axis; None where a call decides it."""
    found: dict[str, int | None] = {}
    for axis in kernel.grid:
        total: int | None = 1
        for loop in axis.loops:
            try:
                index = setting.operator.indices[loop.index]
                extent = evaluate(index.slots, setting.env) if loop.within else launched(setting, index)
                total = None if total is None else total * -(-extent // max(loop.tile, 1))
            except (Undecided, NotStatic):
                total = None
        found[axis.axis] = total
    return found
