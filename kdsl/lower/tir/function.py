"""What a kernel's function takes: ports, workspaces, strides, sizes, flags and scalars, each made when first used."""

from __future__ import annotations

from attrs import define, field, frozen

from kdsl.check.evaluate import Undecided, evaluate
from kdsl.check.model import DTYPE_BYTES, names_in
from kdsl.lower.tvm import BufferLoad, BufferStore, Var, decl_buffer, tirx
from kdsl.plan.cuda.products import DESCRIBED_ROWS
from kdsl.plan.model import KernelPlan, Plan, Tensor
from kdsl.syntax import nodes as n

TVM_DTYPE = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "i32": "int32", "i64": "int64"}


@frozen
class Argument:
    """One argument of the compiled function, as the bundle's manifest names it."""

    kind: str  # tensor, workspace, stride, size, given, scalar, grid_begin, grid_end
    name: str
    dtype: str = ""
    axis: int = -1

    @property
    def record(self) -> dict:
        if self.kind in ("grid_begin", "grid_end"):
            return {"kind": self.kind}
        if self.kind == "stride":
            return {"kind": "stride", "tensor": self.name, "axis": self.axis}
        found = {"kind": self.kind, "name": self.name}
        if self.kind in ("tensor", "scalar"):
            found["dtype"] = self.dtype
        return found


@define
class Signature:
    """The arguments of one kernel, growing while its body is built."""

    plan: Plan
    kernel: KernelPlan
    ports: dict[tuple[str, bool], object] = field(factory=dict)
    workspaces: dict[str, object] = field(factory=dict)
    strides: dict[tuple[str, int], object] = field(factory=dict)
    sizes: dict[str, object] = field(factory=dict)
    given: dict[str, object] = field(factory=dict)
    scalars: dict[str, object] = field(factory=dict)
    task: list = field(factory=list)  # the variables that say which task this is
    bound: dict[tuple, object] = field(factory=dict)  # definitions already computed for the task
    bindings: list = field(factory=list)  # statements that compute them
    held: list = field(factory=list)  # and memory that some are kept in
    group: object = None  # the number of this group of warps, where groups take the steps in turn
    slots: dict[str, object] = field(factory=dict)  # of sequential indices whose slots the grid enumerates

    def size(self, name: str):
        """A constant where the specialization fixes it, else an int64 argument."""
        if name in self.plan.settings:
            return self.plan.settings[name]
        if name not in self.sizes:
            self.sizes[name] = Var(name, "int64")
        return self.sizes[name]

    def flag(self, name: str):
        """Whether an optional port was given: int32, 0 or 1."""
        if name not in self.given:
            self.given[name] = Var(f"{name}_given", "int32")
        return self.given[name]

    def scalar(self, name: str):
        if name not in self.scalars:
            self.scalars[name] = Var(name, "float32")
        return self.scalars[name]

    def port(self, name: str, written: bool = False):
        """The buffer of an input or output in its dtype of this specialization.

        A port that is updated in place is two buffers over one memory: what is read, and what is written. TVM's
        schedules need a task to read nothing that it writes, and a slot belongs to one task.
        """
        port = self.plan.operator.ports[name]
        key = (name, written and port.updated)
        if key not in self.ports:
            shape = [self.extent(expr) for expr in port.shape]
            strides = self.strides_of(name, shape) if port.strided else None
            dtype = TVM_DTYPE[self.plan.specialization.dtypes[name]]
            label = f"{name}_updated" if key[1] else name
            self.ports[key] = decl_buffer(shape, dtype, label, strides=strides, layout=None)
        return self.ports[key]

    def workspace(self, tensor: Tensor):
        if tensor.name in self.kernel.passes:
            self.workspaces.setdefault(tensor.name, ring_elsewhere(tensor, self.kernel.passes[tensor.name]))
        elif tensor.name not in self.workspaces:
            places = 1
            for index in workspace_axes(self.plan, tensor.steps):
                places = self.extent(index.slots or index.extent) * places
            self.workspaces[tensor.name] = decl_buffer(
                [places, *tensor.shape], TVM_DTYPE[tensor.dtype], tensor.name, layout=None
            )
        return self.workspaces[tensor.name]

    def hold(self, name: str, value) -> tuple:
        """A number in memory of its own, which ends up in a register: the statement that stores it, and its value."""
        scope = "local" if self.plan.target.family == "cuda" else "global"
        held = decl_buffer((1,), str(value.ty.dtype), name, scope=scope, layout=None)
        self.held.append(held)
        return BufferStore(held, value, [0]), BufferLoad(held, [0])

    def regions(self) -> tuple[list, list]:
        """Buffers of ports used so far: those read, those written."""
        ports = self.plan.operator.ports
        reads = [b for (name, updated), b in self.ports.items() if ports[name].direction == "input" and not updated]
        writes = [b for (name, updated), b in self.ports.items() if ports[name].direction == "output" or updated]
        return reads, writes

    def strides_of(self, name: str, shape: list) -> list:
        """Strides in elements: arguments, but for those that the rule requires to be what a dense tensor has.

        Where a kernel takes a port in pieces, strides are written as multiples of a piece, which the launcher checks:
        TVM emits a wide access only where it can prove the alignment.
        """
        strides = [self.stride(name, axis) for axis in range(len(shape))] if shape else []
        layout = self.plan.layouts.get(name)
        if layout == "unit_stride":
            strides[-1] = 1
        elif layout == "dense":
            transposed = bool(self.plan.settings.get(self.plan.transposed.get(name, ""), False))
            strides[-2:] = [1, shape[-2]] if transposed else [shape[-1], 1]
        for axis, stride in enumerate(strides):
            if isinstance(stride, int):
                del self.strides[name, axis]
        step = self.kernel.aligned.get(name, 1) // DTYPE_BYTES[self.plan.specialization.dtypes[name]]
        return [s if isinstance(s, int) or step <= 1 else tirx.floordiv(s, step) * step for s in strides]

    def stride(self, name: str, axis: int):
        if (name, axis) not in self.strides:
            self.strides[name, axis] = Var(f"{name}_stride{axis}", "int64")
        return self.strides[name, axis]

    def extent(self, expr: n.Expr):
        """A dimension of a port: sizes with integer arithmetic."""
        try:
            return evaluate(expr, self.plan.settings)
        except Undecided:
            pass
        if isinstance(expr, n.Group):
            return self.extent(expr.inner)
        if isinstance(expr, n.Name):
            return self.size(expr.text)
        left, right = self.extent(expr.left), self.extent(expr.right)
        return {"+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right,
                "/": lambda: tirx.truncdiv(left, right)}[expr.operator]()  # fmt: skip

    def parameters(self) -> tuple[list, list[Argument]]:
        """TVM's parameters and their descriptions, in the order of the compiled function."""
        plan = self.plan
        params, arguments = [], []
        order = {name: position for position, name in enumerate(plan.operator.ports)}
        for name, updated in sorted(self.ports, key=lambda key: (order[key[0]], key[1])):
            params.append(self.ports[name, updated])
            arguments.append(Argument("tensor", name, plan.specialization.dtypes[name]))
        for name, buffer in self.workspaces.items():
            params.append(buffer)
            arguments.append(Argument("workspace", name))
        for (name, axis), var in self.strides.items():
            params.append(var)
            arguments.append(Argument("stride", name, axis=axis))
        if self.group is not None:
            params.append(self.group)
            arguments.append(Argument("group", str(self.group.name)))
        for kind, found in (("size", self.sizes), ("given", self.given), ("scalar", self.scalars)):
            for name, var in found.items():
                params.append(var)
                arguments.append(Argument(kind, name, "f32" if kind == "scalar" else ""))
        return params, arguments


def workspace_axes(plan: Plan, steps: str | None):
    """The indices that a tensor of the graph carries besides its own, as a workspace stores them: the sequential one
    that it is made anew for, `steps`, and the parallel ones.

    The slot of a sequential index stands for the parallel indices that its expression mentions.
    """
    indices = plan.operator.indices.values()
    stored = [index for index in indices if index.name == steps and index.slot is not None]
    merged = {name for index in stored for name in names_in(index.slot)}
    return [*stored, *(index for index in indices if index.mode == "parallel" and index.name not in merged)]


def ring_elsewhere(tensor: Tensor, ring: Tensor):
    """The ring of the kernel beside that takes what this one makes: its rows as far apart as they are there."""
    strides, apart, laid = [], 1, panelled_shape(ring)
    for axis, extent in reversed(list(enumerate(laid))):
        strides.insert(0, apart)
        apart *= extent + (ring.pad if axis == len(laid) - 1 and len(laid) > 1 else 0)
    shape = [ring.ring, *laid]
    return decl_buffer(
        shape, TVM_DTYPE[ring.dtype], tensor.name, strides=[apart, *strides], scope="shared.dyn", layout=None
    )


def panelled_shape(tensor: Tensor) -> tuple[int, ...]:
    """The shape of a matrix in panels, one behind the other: panels, rows, columns of a panel. Others as they are."""
    if not tensor.panel:
        return tensor.shape
    return in_panels_shape(tensor.shape, tensor.panel)


def in_panels_shape(shape: tuple[int, ...], panel: int) -> tuple[int, ...]:
    *outer, rows, columns = shape
    return (*outer, columns // panel, rows, panel)


def local_buffer(tensor: Tensor, passed: bool = False):
    """A tensor of the kernel itself, in its storage order; a scalar is one element. One that the kernel beside passes
    has no stage whose schedule says where it lies, so that it says so itself; so does one in panels of warps, which the
    step names as a whole."""
    shape = tuple(tensor.shape[axis] for axis in tensor.stored)
    if tensor.of_warps:
        shape = in_panels_shape(shape, tensor.panel)
    if passed:
        shape = panelled_shape(tensor)
        shape = (*shape[:-1], shape[-1] + (tensor.pad if len(shape) > 1 else 0))
    if tensor.ring > 1:
        shape = (tensor.ring, *shape)
    # a swizzle that the hardware undoes goes by addresses, so its pattern begins where the tensor does
    aligned = {"data_alignment": DESCRIBED_ROWS * tensor.swizzle} if tensor.panel else {}
    scope = {"scope": "shared.dyn"} if passed else {}
    return decl_buffer(shape or (1,), TVM_DTYPE[tensor.dtype], tensor.name, layout=None, **aligned, **scope)
