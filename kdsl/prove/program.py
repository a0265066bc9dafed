"""The kernels of a lowered rule as one C program over the fields, and the same program over degrees."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cached_property, lru_cache
from pathlib import Path

from attrs import field, frozen

from kdsl.prove import meaning as m
from kdsl.prove.emit import emit
from kdsl.prove.intrinsics import intrinsic_of
from kdsl.prove.levels import Inference

HEADERS = Path(__file__).with_name("c")
RUNTIME = ("common", "state", "values", "field", "product", "degree", "algebra")
LONG = 60_000  # characters that are worth a compiler of their own
SHARED = ("tensor", "workspace", "scalar")


def header(name: str) -> str:
    return (HEADERS / f"{name}.h").read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def runtime() -> str:
    """The C text of what every program calls: both algebras."""
    return "\n".join(map(header, RUNTIME))


def halves(texts: list[str]) -> list[list[str]]:
    """The texts in their order, in two parts of about the same length, or in one where all are short."""
    total = sum(map(len, texts))
    if total < LONG:
        return [texts]
    cut = min(range(1, len(texts)), key=lambda cut: abs(total - 2 * sum(map(len, texts[:cut]))))
    return [texts[:cut], texts[cut:]]


@frozen
class Function:
    """A TIR function and what its parameters are, in order (`kdsl.lower.tir.function.Argument`)."""

    name: str
    func: object = field(repr=False)
    arguments: tuple = field(repr=False)
    plain: bool = False  # not scheduled: the grid is still serial loops


@frozen
class Traced:
    """A buffer whose contents the program can log: its kernel, the indices in scope, its shape and level."""

    kernel: str
    tensor: str
    indices: tuple[str, ...]
    shape: tuple[int, ...]
    level: int


@frozen
class Program:
    """Functions that run one after the other, over values of inferred levels.

    `depth` is the height of the tower needed; `levels` the level of each float port, workspace and scalar.
    """

    functions: tuple[Function, ...]
    texts: tuple[str, ...] = field(repr=False)  # C, one for each function
    literals: tuple[tuple[m.Literal, int], ...]
    messages: tuple[str, ...] = field(repr=False)
    traced: tuple[Traced, ...] = field(repr=False)
    levels: Mapping[str, int]
    depth: int
    assumptions: tuple[str, ...]
    trusted: tuple[str, ...]

    @classmethod
    def of(cls, functions: Iterable[Function], pins: Mapping[str, int]) -> Program:
        """Infer and emit. `pins` are the levels that the specification gives to ports and scalars. Raises
        NoMeaning."""
        functions = tuple(functions)
        inference = Inference()
        used = {a.name for f in functions for a in f.arguments if a.kind in SHARED}
        for name in sorted(used & set(pins)):
            inference.pin(name, pins[name])
        events = []
        for f in functions:
            inference.events = []
            inference.function(f.func, dict(_float_parameters(f)))
            events.append(inference.events)
        depth = inference.levels.solve()
        texts, literals, messages, traced = [], [], [], []
        for number, f in enumerate(functions):
            text, emitter = emit(f.func, inference, events[number], f"kernel{number}", f.plain)
            texts.append(_renumbered(text, len(messages), len(traced), emitter.literals, literals))
            messages += emitter.messages
            traced += [Traced(f.name, *entry) for entry in emitter.traced]
        levels = {name: inference.levels.level(unknown) for name, unknown in inference.ports.items()}
        trusted = dict.fromkeys(name for f in functions for name in intrinsics_in(f.func.body))
        return cls(
            functions,
            tuple(texts),
            tuple(literals),
            tuple(messages),
            tuple(traced),
            levels,
            max(depth, 1),
            tuple(sorted(inference.assumed)),
            tuple(trusted),
        )

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The C texts that make a library with `runtime()`: of about the same length, to compile side by side."""
        calls = "\n".join(f"  kernel{k}(a[{k}], lengths[{k}]);" for k in range(len(self.texts)))
        declared = "\n".join(f"void kernel{k}(void **a, const i64 *lengths);" for k in range(len(self.texts)))
        main = f"{declared}\nvoid kernels(void ***a, const i64 **lengths) {{\n{calls}\n}}\n"
        head = header("common") + header("values")
        return tuple("\n".join([head, *part]) for part in halves([main, *self.texts]))

    @property
    def float_text(self) -> str:
        """One C text of its own, over ordinary numbers."""
        calls = "\n".join(f"  kernel{k}(a[{k}], lengths[{k}]);" for k in range(len(self.texts)))
        return "\n".join(
            [
                *map(header, ("common", "state")),
                f"#define LIT_COUNT {len(self.literals)}",
                header("float"),
                *self.texts,
                f"void kernels(void ***a, const i64 **lengths) {{\n{calls}\n}}\n",
            ]
        )

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


def _renumbered(text: str, messages: int, traced: int, own: list, literals: list) -> str:
    """The text of one kernel with its literals, messages and traces numbered across the program."""
    places = []
    for entry in own:
        if entry not in literals:
            literals.append(entry)
        places.append(literals.index(entry))
    text = re.sub(r"\bLIT\[(\d+)\]", lambda found: f"LIT[{places[int(found[1])]}]", text)
    text = re.sub(r"@M(\d+)@", lambda found: str(int(found[1]) + messages), text)
    return re.sub(r"@T(\d+)@", lambda found: str(int(found[1]) + traced), text)


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
