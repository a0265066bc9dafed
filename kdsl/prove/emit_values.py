"""Expressions as C: integers and conditions, values at a known level, places in buffers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from attrs import define, field

from kdsl.prove import meaning as m
from kdsl.prove.levels import Inference
from kdsl.prove.ranges import PAIRS, Interval, interval
from kdsl.prove.refusal import NoMeaning, shortened

INTEGER_FUNCTIONS = {
    "FloorDiv": "floordiv",
    "FloorMod": "floormod",
    "Div": "truncdiv",
    "Mod": "truncmod",
    "Min": "smaller",
    "Max": "larger",
}
INFIX = {"Add": "+", "Sub": "-", "Mul": "*", "And": "&&", "Or": "||", **m.COMPARISONS}


@define
class ValueText:
    inference: Inference
    events: Iterator[int]  # the level unknowns of allocations and stores, as the inference met them
    held_levels: dict[int, int] = field(factory=dict)  # of each buffer's tensor here
    writers: dict[int, str | None] = field(factory=dict)  # the stage that wrote last to each
    names: dict[int, str] = field(factory=dict)  # those in scope
    named: int = 0
    parameters: set[int] = field(factory=set)
    known: dict[int, Interval] = field(factory=dict)  # what integer variables in scope can be
    windows: dict[int, tuple] = field(factory=dict)  # matched buffers: source, offsets with their intervals
    messages: list[str] = field(factory=list)
    literals: list[tuple[m.Literal, int]] = field(factory=list)
    stage: str | None = None

    def name(self, variable) -> str:
        """The C name of a variable or buffer that is defined here."""
        key = hash(variable)
        if key not in self.names:
            self.named += 1
            self.names[key] = re.sub(r"\W", "_", str(variable.name)) + f"_{self.named}"
        return self.names[key]

    def root(self, buffer):
        while hash(buffer) in self.windows:
            buffer = self.windows[hash(buffer)][0]
        return buffer

    def level_of(self, variable) -> int:
        """The level of a variable, or of the tensor that a buffer holds here."""
        key = hash(self.root(variable))
        unknown = self.held_levels.get(key)
        return self.inference.levels.level(self.inference.variable(variable) if unknown is None else unknown)

    def wrote(self, buffer, level: int) -> None:
        """A stage has written to a buffer: what it holds is of this level unknown now, and that stage's tensor."""
        key = hash(self.root(buffer))
        self.held_levels[key], self.writers[key] = level, self.stage

    def used(self, variable) -> str:
        """The C name of a variable or buffer that was defined before, around here."""
        if hash(variable) not in self.names:
            self.refuse(
                "a name is used where it has no value", variable, "define it before its use, around its use"
            )
        return self.names[hash(variable)]

    def refuse(self, what: str, e, remedy: str = m.REMEDY_TABLE):
        raise NoMeaning(what, shortened(e), self.stage, remedy)

    # ---- integers and conditions ----
    def integer(self, e) -> str:
        k = m.kind(e)
        if k == "IntImm":
            return f"{int(e.value)}LL"
        if k == "Var":
            return self.used(e)
        if k == "Cast":
            if m.is_float(m.dtype_of(e.value)):
                self.refuse("a float becomes an integer", e, m.REMEDY_SIZE)
            return self.integer(e.value)
        if k in ("FloorDiv", "FloorMod") and m.kind(e.b) == "IntImm" and int(e.b.value) > 0:
            return self._by_constant(e, int(e.b.value))
        if k in INTEGER_FUNCTIONS:
            return f"{INTEGER_FUNCTIONS[k]}({self._whole(e.a)}, {self._whole(e.b)})"
        if k == "Add":
            return plus(self._whole(e.a), self._whole(e.b))
        if k in INFIX:
            return f"({self._whole(e.a)} {INFIX[k]} {self._whole(e.b)})"
        if k == "Not":
            return f"(!{self.integer(e.a)})"
        if k in ("TensorLoad", "BufferLoad"):
            return self.place(e.source, e.indices)
        if k == "Select":
            sides = ", ".join(map(self.integer, (e.condition, e.true_value, e.false_value)))
            return f"pick({sides})"
        if k == "Call":
            return self._integer_call(e)
        return self.refuse("no integer meaning", e)

    def _whole(self, e) -> str:
        if m.is_float(m.dtype_of(e)):
            self.refuse("an index or a condition looks at a value", e, m.REMEDY_SIZE)
        return self.integer(e)

    def _by_constant(self, e, divisor: int) -> str:
        """Floor division by a positive constant, or its remainder, in the machine's operations where they agree."""
        a, division = self._whole(e.a), m.kind(e) == "FloorDiv"
        if divisor & (divisor - 1) == 0:  # arithmetic shifts and masks round down, for negative numbers too
            return f"({a} >> {divisor.bit_length() - 1})" if division else f"({a} & {divisor - 1}LL)"
        if (interval(e.a, self.known) or (-1, 0))[0] >= 0:
            return f"({a} {'/' if division else '%'} {divisor}LL)"
        return f"{INTEGER_FUNCTIONS[m.kind(e)]}({a}, {divisor}LL)"

    def learn(self, variable, found: Interval | None) -> None:
        """What a variable can be, from here to the end of its scope."""
        self.known.pop(hash(variable), None)
        if found is not None:
            self.known[hash(variable)] = found

    def bounded(self, e) -> tuple[str, Interval | None]:
        return self.integer(e), interval(e, self.known)

    def _integer_call(self, e) -> str:
        name, args = m.called(e)
        if name in m.SELECTS:
            return f"({self.integer(args[0])} ? {self.integer(args[1])} : {self.integer(args[2])})"
        if name in m.LIKELY:
            return self.integer(args[0])
        operator = m.INTEGER_CALLS.get(name.split(".")[-1])
        if operator is None:
            self.refuse(f"no integer meaning for `{name}`", e)
        return f"({self.integer(args[0])} {operator} {self.integer(args[1])})"

    # ---- values ----
    def value(self, e, level: int) -> str:
        """The float `e` at `level`."""
        method = _VALUES.get(m.kind(e))
        if method is None:
            self.refuse(f"no meaning for {m.kind(e)}", e)
        return method(self, e, level)

    def _literal(self, e, level: int) -> str:
        found = m.literal(e)
        if found.symbol:
            text = f"{found.symbol.upper()}[{level}]"
            return f"negate({level}, {text})" if found.negative else text
        key = (found, level)
        if key not in self.literals:
            self.literals.append(key)
        return f"LIT[{self.literals.index(key)}]"

    def _variable(self, e, level: int) -> str:
        self._at(self.level_of(e), level, e)
        return self.used(e)

    def _load(self, e, level: int) -> str:
        self._at(self.level_of(e.source), level, e)
        return self.place(e.source, e.indices)

    def _at(self, found: int, level: int, e) -> None:
        if found != level:
            self.refuse(f"a value of level {found} where level {level} is needed", e)

    def _cast(self, e, level: int) -> str:
        if m.is_float(m.dtype_of(e.value)):
            return self.value(e.value, level)
        return f"integer({level}, {self.integer(e.value)})"

    def _arithmetic(self, e, level: int) -> str:
        x = m.softplus_argument(e)
        if x is not None:
            return self._random(e, x, level, "softplus")
        return f"{m.ARITHMETIC[m.kind(e)]}({level}, {self.value(e.a, level)}, {self.value(e.b, level)})"

    def _select(self, e, level: int) -> str:
        condition = self.integer(e.condition)  # TVM evaluates both sides of a Select
        return f"choose({condition}, {self.value(e.true_value, level)}, {self.value(e.false_value, level)})"

    def _call(self, e, level: int) -> str:
        name, args = m.called(e)
        if name in m.SELECTS:
            then, otherwise = self.value(args[1], level), self.value(args[2], level)
            return f"({self.integer(args[0])} ? {then} : {otherwise})"
        if name in m.LIKELY:
            return self.value(args[0], level)
        if name in m.FREE:
            return self._random(e, args[0], level, name.split(".")[-1])
        if name == m.POWER:
            return f"{m.POWERS[float(args[1].value)]}({level}, {self.value(args[0], level)})"
        if name in m.QUOTIENTS:
            return f"divide({level}, {self.value(args[0], level)}, {self.value(args[1], level)})"
        if name in m.KEEP:
            return f"{m.KEEP[name]}({level}, {self.value(args[0], level)})"
        if name not in m.DOWN:
            self.refuse(f"no meaning for `{name}`", e)
        return f"{m.DOWN[name]}({level}, {self.value(args[0], level + 1)})"

    def _random(self, e, x, level: int, function: str) -> str:
        source = self.inference.levels.level(self.inference.free[hash(e)][1])
        if function == "softplus":
            argument = f"add({source}, ONE[{source}], exp_({source}, {self.value(x, source + 1)}))"
        elif function == "log1p":
            argument = f"add({source}, ONE[{source}], {self.value(x, source)})"
        else:
            argument = self.value(x, source)
        text = f"log_({level}, {source}, {argument})"
        return f"mul({level}, {text}, LOG2E[{level}])" if function == "log2" else text

    # ---- memory ----
    def place(self, buffer, indices) -> str:
        """The element, with every index checked against the shape; those that cannot leave it need no check."""
        indices = [self.bounded(i) for i in indices]
        while hash(buffer) in self.windows:
            buffer, offsets = self.windows[hash(buffer)]
            lead = len(offsets) - len(indices)
            indices = offsets[:lead] + [_sum(o, i) for o, i in zip(offsets[lead:], indices, strict=False)]
        self.messages.append(f"`{buffer.name}` is indexed outside its shape in stage `{self.stage}`")
        checked = [
            text
            if m.kind(d) == "IntImm" and found is not None and found[0] >= 0 and found[1] < int(d.value)
            else f"at({text}, {self.integer(d)}, message + {len(self.messages) - 1})"
            for (text, found), d in zip(indices, buffer.shape, strict=False)
        ]
        if hash(buffer) in self.parameters and len(buffer.strides):  # the strides of the call
            flat = " + ".join(
                f"{c} * {self.integer(s)}" for c, s in zip(checked, buffer.strides, strict=False)
            )
        else:
            flat = "0LL"
            for c, extent in zip(checked, buffer.shape, strict=False):
                flat = c if flat == "0LL" else plus(f"({flat}) * {self.integer(extent)}", c)
        name = self.used(buffer)
        if hash(buffer) in self.parameters:  # strides that do not fit the shape may lead out of the storage
            flat = f"at({flat}, {name}_length, message + {len(self.messages) - 1})"
        return f"{name}[{flat}]"


def _sum(a: tuple[str, Interval | None], b: tuple[str, Interval | None]) -> tuple[str, Interval | None]:
    found = None if a[1] is None or b[1] is None else PAIRS["Add"](a[1], b[1])
    return plus(a[0], b[0]), found


def plus(a: str, b: str) -> str:
    return b if a == "0LL" else a if b == "0LL" else f"({a} + {b})"


_VALUES = {
    "FloatImm": ValueText._literal,
    "Var": ValueText._variable,
    "TensorLoad": ValueText._load,
    "BufferLoad": ValueText._load,
    "Cast": ValueText._cast,
    **dict.fromkeys(m.ARITHMETIC, ValueText._arithmetic),
    "Select": ValueText._select,
    "Call": ValueText._call,
}
