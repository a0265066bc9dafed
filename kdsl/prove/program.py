"""The kernels of a lowered rule as one C program over the fields, and the same program over degrees."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path

from attrs import field, frozen

from kdsl.prove import meaning as m
from kdsl.prove.emit import PARAMETERS, SYMBOL, Emitter, emit
from kdsl.prove.intrinsics import intrinsic_of
from kdsl.prove.levels import Inference

HEADERS = Path(__file__).with_name("c")
RUNTIME = ("common", "state", "values", "field", "product", "degree", "algebra")
SHARED = ("tensor", "workspace", "scalar")


@lru_cache(maxsize=16)
def header(name: str) -> str:
    return (HEADERS / f"{name}.h").read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def runtime() -> str:
    """The C text of what every program calls: both algebras."""
    return "\n".join(map(header, RUNTIME))


def symbol_of(text: str) -> str:
    """The C name of a kernel: equal texts are one function."""
    return f"kernel_{hashlib.sha256(text.encode()).hexdigest()[:20]}"


def named(text: str) -> str:
    return text.replace(f"void {SYMBOL}(", f"void {symbol_of(text)}(", 1)


def compiled_text(text: str) -> str:
    """What the compiler is given of a kernel."""
    return header("common") + header("values") + named(text)


@frozen
class Function:
    """A TIR function and what its parameters are, in order (`kdsl.lower.tir.function.Argument`)."""

    name: str
    func: object = field(repr=False)
    arguments: tuple = field(repr=False)
    plain: bool = False  # not scheduled: the grid is still serial loops


@frozen
class Traced:
    """A buffer whose contents the program can log: its kernel, the indices in scope, its shape and level, whether that
    is as a step begins, in place of when its block is left, and the stage that wrote to it last."""

    kernel: str
    tensor: str
    indices: tuple[str, ...]
    shape: tuple[int, ...]
    level: int
    begins: bool = False
    writer: str | None = None


@frozen
class Program:
    """Functions that run one after the other, over values of inferred levels.

    `depth` is the height of the tower needed; `levels` the level of each float port, workspace and scalar.
    """

    functions: tuple[Function, ...]
    texts: tuple[str, ...] = field(repr=False)  # C, one for each function
    own_literals: tuple[tuple[tuple[m.Literal, int], ...], ...]  # of each function, as the next two
    own_messages: tuple[tuple[str, ...], ...] = field(repr=False)
    own_traced: tuple[tuple[Traced, ...], ...] = field(repr=False)
    levels: Mapping[str, int]
    depth: int
    assumptions: tuple[str, ...]
    trusted: tuple[str, ...]

    @classmethod
    def of(
        cls,
        functions: Iterable[Function],
        pins: Mapping[str, int],
        *,
        names: Collection[str] | None = None,
        made: Callable[[str], None] | None = None,
    ) -> Program:
        """Infer and emit. `pins` are the levels that the specification gives to ports and scalars. Raises
        NoMeaning.

        Where `functions` are made one after the other, `names` are those of what they share, and `made` is given the
        compiler's text of each as soon as no later one can change it.
        """
        if names is None:
            functions = tuple(functions)
            names = {a.name for f in functions for a in f.arguments if a.kind in SHARED}
        inference = Inference()
        for name in sorted(set(names) & set(pins)):
            inference.pin(name, pins[name])
        events: list[list[int]] = []
        known: list[Function] = []
        kernels: list[tuple[str, Emitter]] = []
        for f in functions:
            inference.events = []
            inference.function(f.func, dict(_float_parameters(f)))
            known.append(f)
            events.append(inference.events)
            if made is not None and len(kernels) == len(known) - 1 and inference.levels.grounded():
                inference.levels.solve()
                kernels.append(emit(f.func, inference, inference.events, f.plain))
                made(compiled_text(kernels[-1][0]))
        depth = inference.levels.solve()
        for number in range(len(kernels), len(known)):
            kernels.append(emit(known[number].func, inference, events[number], known[number].plain))
        levels = {name: inference.levels.level(unknown) for name, unknown in inference.ports.items()}
        trusted = dict.fromkeys(name for f in known for name in intrinsics_in(f.func.body))
        return cls(
            tuple(known),
            tuple(text for text, _ in kernels),
            tuple(tuple(emitter.literals) for _, emitter in kernels),
            tuple(tuple(emitter.messages) for _, emitter in kernels),
            tuple(
                tuple(Traced(f.name, *entry) for entry in emitter.traced)
                for f, (_, emitter) in zip(known, kernels, strict=True)
            ),
            levels,
            max(depth, 1),
            tuple(sorted(inference.assumed)),
            tuple(trusted),
        )

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The C texts that make a library with `runtime()`, one for each kernel and one that calls them."""
        texts = tuple(dict.fromkeys(map(compiled_text, self.texts)))
        return (header("common") + header("values") + self._calls(), *texts)

    def _calls(self) -> str:
        """C that declares the kernels and calls them in their order, each with its place among the program's literals,
        messages and traces."""
        declared = "".join(f"void {symbol_of(text)}({PARAMETERS});\n" for text in self.texts)
        lines, places = [], [0, 0, 0]
        for number, text in enumerate(self.texts):
            literals, message, traced = places
            own = f"a[{number}], lengths[{number}], literal_values + {literals}, {message}, {traced}"
            lines.append(f"  {symbol_of(text)}({own});\n")
            for at, found in enumerate((self.own_literals, self.own_messages, self.own_traced)):
                places[at] += len(found[number])
        return f"{declared}void kernels(void ***a, const i64 **lengths) {{\n{''.join(lines)}}}\n"

    @property
    def float_text(self) -> str:
        """One C text of its own, over ordinary numbers."""
        head = map(header, ("common", "state", "float"))
        kernels = dict.fromkeys(map(named, self.texts))
        return "\n".join([f"#define LIT_COUNT {len(self.literals)}", *head, *kernels, self._calls()])

    @cached_property
    def literals(self) -> tuple[tuple[m.Literal, int], ...]:
        return tuple(chain.from_iterable(self.own_literals))

    @cached_property
    def messages(self) -> tuple[str, ...]:
        return tuple(chain.from_iterable(self.own_messages))

    @cached_property
    def traced(self) -> tuple[Traced, ...]:
        return tuple(chain.from_iterable(self.own_traced))

    @cached_property
    def body(self) -> str:
        return "\n".join(self.texts)

    @cached_property
    def digest(self) -> str:
        """Equal for programs that compute alike: their C text without anything that a trial draws."""
        text = repr((self.body, self.literals, sorted(self.levels.items())))
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def strides(self) -> dict[str, tuple[int | None, ...]]:
        """Strides of ports that the program has built in, which its rule requires of a call; None where any
        will do."""
        found: dict[str, tuple[int | None, ...]] = {}
        for f in self.functions:
            for param, argument in zip(f.func.params, f.arguments, strict=False):
                if argument.kind == "tensor" and len(param.strides):
                    new = tuple(int(s.value) if m.kind(s) == "IntImm" else None for s in param.strides)
                    old = found.get(argument.name, new)
                    found[argument.name] = tuple(
                        a if a is not None else b for a, b in zip(new, old, strict=False)
                    )
        return found

    @property
    def exact_literals(self) -> list[Fraction]:
        return [literal.value for literal, _ in self.literals]


def _float_parameters(f: Function):
    for param, argument in zip(f.func.params, f.arguments, strict=False):
        dtype = param.dtype if m.kind(param.ty) == "BufferType" else param.ty.dtype
        if argument.kind in SHARED and m.is_float(dtype):
            yield hash(param), argument.name


def intrinsics_in(statement) -> list[str]:
    """Device functions that tensorized blocks call, in order."""
    found: list[str] = []
    stack = [statement]
    while stack:
        s = stack.pop()
        k = m.kind(s)
        if k == "SBlockRealize":
            name = intrinsic_of(s.block)
            found += [name] if name else []
            stack.append(s.block.body)
        elif k == "SeqStmt":
            stack.extend(reversed(list(s.seq)))
        elif k == "IfThenElse":
            stack.extend(x for x in (s.then_case, s.else_case) if x is not None)
        elif hasattr(s, "body"):
            stack.append(s.body)
    return found
