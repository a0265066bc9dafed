"""Instructions of compiled code, the same for PTX and SASS: counting and locating are written once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from attrs import field, frozen

PTX, SASS = "ptx", "sass"


@frozen
class Place:
    """A line of a source file, as `#line` and the compiler name it."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@frozen
class Instruction:
    """One instruction. `address` is in bytes for SASS; for PTX it is the line of the text.

    `places` is where it comes from: the innermost line first, then the lines it was inlined at. `guard` is
    its predicate without the @: "!P0".
    """

    address: int
    opcode: str
    modifiers: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    guard: str | None = None
    places: tuple[Place, ...] = field(default=(), eq=False)

    @property
    def name(self) -> str:
        """LDS.128, mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32."""
        return ".".join((self.opcode, *self.modifiers))

    @property
    def executes(self) -> bool:
        """False for what is there for its encoding alone: `@!PT LDS RZ, [RZ]`."""
        return self.guard not in ("!PT", "!UPT")

    def __str__(self) -> str:
        guard = f"@{self.guard} " if self.guard else ""
        return f"{guard}{self.name} {', '.join(self.operands)}".rstrip()


@frozen
class Function:
    """A kernel or a device function. `labels` maps a label to the address of the instruction it precedes."""

    name: str
    instructions: tuple[Instruction, ...] = field(repr=False)
    labels: Mapping[str, int] = field(factory=dict, repr=False)
    entry: bool = True


@frozen
class Listing:
    """The code of a module at one level, "ptx" or "sass"; `tool` names what made it, with its version."""

    level: str
    arch: str
    functions: tuple[Function, ...]
    tool: str = ""

    def of(self, kernel: str | None = None) -> Function:
        """The kernel of that name; without one, the only kernel. Raises KeyError naming those there are."""
        found = [f for f in self.functions if (f.name == kernel if kernel else f.entry)]
        if len(found) == 1:
            return found[0]
        names = ", ".join(f.name for f in self.functions) or "none"
        raise KeyError(f"{kernel or 'one kernel'} asked for; the {self.level} has: {names}")


Selection = Callable[[Instruction], bool]


def on_lines(lines: Iterable[int], file: str | None = None) -> Selection:
    """Instructions that come from these lines, themselves or through a function inlined there."""
    wanted = frozenset(lines)
    return lambda i: any(p.line in wanted and (file is None or p.file == file) for p in i.places)


def executing(function: Function, selected: Selection | None = None) -> Iterator[Instruction]:
    """Its instructions, less those that never run and those not selected."""
    return (i for i in function.instructions if i.executes and (selected is None or selected(i)))


def split_operands(text: str) -> tuple[str, ...]:
    """`R4, [R2+0x10], {%r1, %r2}` at the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        if char in "[{(":
            depth += 1
        elif char in "]})":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    return tuple(part for part in parts if part)
