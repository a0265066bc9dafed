"""The operator's expressions as TIR. All arithmetic on values is float32; storage types are casts at the edges."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, evolve, field

from kdsl.check.evaluate import decide
from kdsl.check.graph import strip
from kdsl.check.model import View
from kdsl.lower.panels import in_panels
from kdsl.lower.tir.function import Signature, workspace_axes
from kdsl.lower.tvm import Bind, BufferLoad, Cast, Expr, Var, op, structural_walk, tirx
from kdsl.plan.model import Tensor
from kdsl.syntax import nodes as n

FLOAT = "float32"
LOAD = "TensorLoad"  # TVM's class of what BufferLoad makes


def constant(value, dtype: str):
    return tirx.const(value, dtype)


def magnitude(x):
    return op.max(x, -x)


def softplus(x):
    """log(1 + exp(x)), from the side that cannot overflow."""
    zero = constant(0.0, FLOAT)
    return op.max(x, zero) + op.log1p(op.exp(-magnitude(x)))


def sigmoid(x):
    return constant(1.0, FLOAT) / (constant(1.0, FLOAT) + op.exp(-x))


UNARY = {
    "exp": op.exp, "exp2": op.exp2, "log": op.log, "log1p": op.log1p, "sqrt": op.sqrt, "tanh": op.tanh,
    "rsqrt": lambda x: constant(1.0, FLOAT) / op.sqrt(x), "sigmoid": sigmoid, "softplus": softplus,
}  # fmt: skip
COMPARE = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b, ">": lambda a, b: a > b,
}  # fmt: skip


def is_number(value) -> bool:
    return isinstance(value, (bool, int, float))


def is_float(value) -> bool:
    return isinstance(value, float) if is_number(value) else str(value.ty.dtype).startswith(("float", "bfloat"))


def as_float(value):
    """A float32 TIR value."""
    if is_number(value):
        return constant(float(value), FLOAT)
    return value if str(value.ty.dtype) == FLOAT else value.astype(FLOAT)


def reads_memory(value) -> bool:
    kinds: set = set()
    structural_walk(value, lambda node: kinds.add(type(node).__name__))
    return LOAD in kinds


def of_run(index: str) -> str:
    """The name under which a scope has the number of a step within its run."""
    return f"{index}.run"


def label(argument) -> str | None:
    """The name of a variable, or of the memory that an index of the task is kept in."""
    argument = argument.value if isinstance(argument, Cast) else argument
    named = argument if isinstance(argument, Var) else getattr(argument, "source", None)
    return str(named.name) if named is not None else None


def as_index(value):
    """An int64 TIR value: addresses outside the kernel's own tensors."""
    if is_number(value):
        return constant(int(value), "int64")
    return value if str(value.ty.dtype) == "int64" else value.astype("int64")


@define
class Scope:
    """What names mean at one place: indices as TIR variables, everything else through the signature."""

    signature: Signature
    buffers: Mapping[str, object]
    indices: Mapping[str, object]
    renamed: Mapping[str, str] = field(factory=dict)
    own: str | None = None  # the tensor of a scan, whose earlier elements its stage reads
    offsets: Mapping[str, object] = field(factory=dict)  # where the block's tile of an index starts
    places: Mapping[str | None, object] = field(factory=dict)  # where tensors of a step lie in workspaces, by index
    loads: list = field(factory=list)  # every buffer element read, in order

    @property
    def settings(self) -> Mapping[str, object]:
        return self.signature.plan.settings

    def with_indices(self, indices: Mapping[str, object]) -> Scope:
        """The same scope with other index variables; its loads go to the same list."""
        return evolve(self, indices=indices, loads=self.loads)

    # ---- values ----
    def value(self, expr: n.Expr):
        """A TIR expression, or a Python number where the value is static."""
        static = decide(expr, self.settings) if not isinstance(expr, n.Name) else None
        if is_number(static):
            return static
        return _TRANSLATE[type(expr)](self, expr)

    def name(self, e: n.Name):
        if e.text in self.indices:
            return self.shifted(e.text, self.indices[e.text])
        if e.text in self.settings:
            return self.settings[e.text]
        option = self.signature.plan.operator.options.get(e.text)
        if option is not None and option.kind == "scalar":
            return self.signature.scalar(e.text)
        return self.signature.size(e.text)

    def binary(self, e: n.Binary):
        left, right = self.value(e.left), self.value(e.right)
        if e.operator == "**":
            return self._power(left, right)
        if is_float(left) or is_float(right):
            left, right = as_float(left), as_float(right)
            return {"+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right,
                    "/": lambda: left / right}[e.operator]()  # fmt: skip
        if e.operator in "/%" and self.fits_int32(left) and self.fits_int32(right):
            left, right = left.astype("int32"), right.astype("int32")  # a 64-bit division is a call on a GPU
            divide = tirx.truncdiv if e.operator == "/" else tirx.truncmod
            return divide(left, right).astype("int64")
        # indices are never negative where the language divides them, so truncation is the floor
        return {"+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right,
                "/": lambda: tirx.truncdiv(left, right),
                "%": lambda: tirx.truncmod(left, right)}[e.operator]()  # fmt: skip

    def fits_int32(self, value) -> bool:
        """Sizes and the indices of a grid do: only offsets pass 2^31. So do quotients of the two."""
        if is_number(value):
            return False
        known = [*self.signature.task, *self.signature.sizes.values()]
        return any(value is v for v in known) or (isinstance(value, Cast) and str(value.value.ty.dtype) == "int32")

    def _power(self, base, exponent):
        base = as_float(base)
        if isinstance(exponent, int) and 1 <= exponent <= 8:
            result = base
            for _ in range(exponent - 1):
                result = result * base
            return result
        return op.pow(base, as_float(exponent))

    def signed(self, e: n.Signed):
        value = self.value(e.operand)
        return -value if e.sign == "-" else value

    def comparison(self, e: n.Comparison):
        within = self.within_row(e)
        if within is not None:
            return within
        left, right = self.value(e.left), self.value(e.right)
        if is_float(left) or is_float(right):
            left, right = as_float(left), as_float(right)
        return COMPARE[e.operator](left, right)

    def within_row(self, e: n.Comparison):
        """`start + i < end` for an index of the kernel's own tensors, as `i < end - start` in 32 bits.

        What is left of the end is one number for all elements of the step, and each of them takes one comparison.
        """
        sum_ = strip(e.left)
        if e.operator != "<" or not isinstance(sum_, n.Binary) or sum_.operator != "+":
            return None
        index = self.value(sum_.right) if isinstance(strip(sum_.right), n.Name) else None
        if not isinstance(index, Var) or str(index.ty.dtype) != "int32":
            return None
        left = as_index(self.value(e.right)) - as_index(self.value(sum_.left))
        left = op.min(op.max(left, constant(0, "int64")), constant(2**31 - 1, "int64"))
        return index < left.astype("int32")

    def logical(self, e: n.Logical):
        """Static sides decide or drop out."""
        sides = [self.value(side) for side in (e.left, e.right)]
        settles = e.operator == "or"
        left = [side for side in sides if not is_number(side)]
        if any(is_number(side) and bool(side) == settles for side in sides):
            return settles
        if len(left) < 2:
            return left[0] if left else not settles
        return tirx.any(*left) if settles else tirx.all(*left)

    def negation(self, e: n.Not):
        value = self.value(e.operand)
        return (not value) if is_number(value) else tirx.Not(value)

    def conditional(self, e: n.Conditional):
        condition = self.value(e.condition)
        if is_number(condition):
            return self.value(e.then if condition else e.otherwise)
        then, otherwise = self.value(e.then), self.value(e.otherwise)
        if is_float(then) or is_float(otherwise):
            then, otherwise = as_float(then), as_float(otherwise)
        else:
            then, otherwise = as_index(then), as_index(otherwise)
        return op.if_then_else(condition, then, otherwise)

    def call(self, e: n.Call):
        function = e.function.text
        if function == "given":
            return self.signature.flag(e.arguments[0].text) != 0
        definition = self.signature.plan.operator.definitions.get(function)
        if definition is not None:
            return self.definition(definition, [self.value(a) for a in e.arguments])
        arguments = [self.value(a) for a in e.arguments]
        if function in ("min", "max"):
            return self._extreme(function, arguments)
        if function == "abs":
            return magnitude(as_float(arguments[0]))
        return UNARY[function](as_float(arguments[0]))

    def definition(self, definition, arguments: list):
        """The value of a definition; one that only the task decides is computed once, at the task's start."""
        key = (definition.name, *map(label, arguments))
        of_task = all(any(a is v for v in self.signature.task) for a in arguments)
        if of_task and key in self.signature.bound:
            return self.signature.bound[key]
        inside = dict(zip(definition.parameters, arguments))
        value = self.with_indices({**self.indices, **inside}).value(definition.body)
        if not of_task or not isinstance(value, Expr) or isinstance(value, Var):
            return value
        self.signature.bound[key] = self.kept(definition.name, value)
        return self.signature.bound[key]

    def kept(self, name: str, value):
        """A value in a variable, computed at the task's start.

        TVM writes a bound value out again at every use unless it reads memory. A quotient would be divided each time,
        and a condition would split every loop it stands in, so they are kept in an element of memory, which ends up
        in a register.
        """
        quotient = isinstance(value, Cast) and str(value.value.ty.dtype) == "int32"
        if quotient or not reads_memory(value) or self.reads_held(value):
            statement, loaded = self.signature.hold(name, value)
            self.signature.bindings.append(statement)
            return loaded
        variable = Var(name, str(value.ty.dtype))
        self.signature.bindings.append(Bind(variable, value))
        return variable

    def reads_held(self, value) -> bool:
        """Whether a value reads what the task keeps in memory of its own: TVM has no variables of such values."""
        sources: list = []
        structural_walk(value, lambda node: sources.append(node.source) if type(node).__name__ == LOAD else None)
        return any(source.same_as(held) for source in sources for held in self.signature.held)

    def _extreme(self, function: str, arguments):
        convert = as_float if any(is_float(a) for a in arguments) else as_index
        result, *others = (convert(a) for a in arguments)
        for other in others:
            result = getattr(op, function)(result, other)
        return result

    # ---- tensors ----
    def raw_view(self, view: View, indices):
        """A window of a port as it is stored: for copies, which change no type."""
        inside = self.inside(view, indices)
        buffer = self.signature.port(view.port)
        loaded = self.load(buffer, [as_index(inside.value(i)) for i in view.port_indices])
        condition = inside.value(view.condition) if view.condition is not None else True
        if is_number(condition):
            return loaded
        return op.if_then_else(condition, loaded, constant(0.0, str(buffer.dtype)))

    def reference(self, e: n.Reference):
        name = e.name.text
        operator = self.signature.plan.operator
        if name in operator.ports:
            return self.port(name, [self.value(i) for i in e.indices])
        if name in operator.views and name not in self.signature.kernel.tensors:
            return self.view(operator.views[name], [self.position(i) for i in e.indices])
        return self.tensor(name, e.indices)

    def port(self, name: str, indices):
        value = self.load(self.signature.port(name), [as_index(i) for i in indices])
        return as_float(value) if is_float(value) else value

    def shifted(self, index: str, value):
        """An index of the block's tile as an index of the whole."""
        return self.offsets[index] + as_index(value) if index in self.offsets else value

    def inside(self, view: View, indices) -> Scope:
        """The scope of a view's own expressions."""
        whole = {index: self.shifted(index, value) for index, value in zip(view.indices, indices)}
        return evolve(self, indices={**self.indices, **whole}, offsets={}, loads=self.loads)

    def position(self, expr: n.Expr):
        """An index of a tensor or a view, counted within the block's tile."""
        return evolve(self, offsets={}, loads=self.loads).value(expr)

    def view(self, view: View, indices):
        """A window of a port: its value where the condition holds, else what the operator says."""
        inside = self.inside(view, indices)
        condition = inside.value(view.condition) if view.condition is not None else True
        loaded = inside.port(view.port, [inside.value(i) for i in view.port_indices])
        if is_number(condition):
            return loaded if condition else as_float(inside.value(view.otherwise))
        return op.if_then_else(condition, loaded, as_float(inside.value(view.otherwise)))

    def element(self, name: str, values: list) -> tuple:
        """The buffer of a graph tensor, and where in it these indices lie."""
        tensor = self.signature.kernel.tensors[name]
        if tensor.scope not in ("call", "passed"):
            stored = [values[axis] for axis in tensor.stored]
            if name in self.signature.kernel.passed or tensor.of_warps:
                stored = panelled(tensor, stored)
            if tensor.ring > 1:
                stepped = self.signature.kernel.sequential
                step = self.indices.get(of_run(stepped), self.indices[stepped])
                # steps are below 2^31, and a 64-bit remainder is a call on a GPU
                stored = [tirx.truncmod(step.astype("int32"), constant(tensor.ring, "int32")), *stored]
            return self.buffers[name], stored or [0]
        if tensor.scope == "passed":
            ring = self.signature.kernel.passes[name]
            return self.signature.workspace(tensor), [self.signature.group, *panelled(ring, values)]
        values = [self.shifted(index, value) for index, value in zip(tensor.indices, values)]
        places = (self.places[tensor.steps], *values)
        return self.signature.workspace(tensor), [as_index(i) for i in places]

    def workspace_place(self, steps: str | None):
        """The position of the tensors of a step in their workspaces: its slot, and the parallel indices in it."""
        place = None
        for index in workspace_axes(self.signature.plan, steps):
            at = self.signature.slots.get(index.name)
            if at is None:
                at = as_index(self.indices[index.name] if index.slot is None else self.value(index.slot))
            extent = self.signature.extent(index.slots or index.extent)
            place = at if place is None else place * as_index(extent) + at
        return place

    def tensor(self, name: str, indices: tuple[n.Expr, ...]):
        buffer, values = self.element(self.renamed.get(name, name), [self.position(i) for i in indices])
        if name != self.own:
            return as_float(self.load(buffer, values))
        guards = [
            v >= 0
            for v, i in zip(values[len(values) - len(indices) :], indices)
            if isinstance(strip(i), n.Binary) and not is_number(v)
        ]
        loaded = as_float(self.load(buffer, values))
        return op.if_then_else(tirx.all(*guards), loaded, constant(0.0, FLOAT)) if guards else loaded

    def load(self, buffer, indices):
        self.loads.append((buffer, indices))
        return BufferLoad(buffer, indices)


def panelled(tensor: Tensor, values: list) -> list:
    """Where an element lies in a matrix that may be stored in panels."""
    return list(in_panels(values, tensor.panel)) if tensor.panel else values


_TRANSLATE = {
    n.Number: lambda s, e: e.value,
    n.Name: Scope.name,
    n.Group: lambda s, e: s.value(e.inner),
    n.Binary: Scope.binary,
    n.Signed: Scope.signed,
    n.Comparison: Scope.comparison,
    n.Logical: Scope.logical,
    n.Not: Scope.negation,
    n.Conditional: Scope.conditional,
    n.Call: Scope.call,
    n.Reference: Scope.reference,
}
