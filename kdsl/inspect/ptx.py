"""PTX as instructions ("Parallel Thread Execution ISA", section Syntax): statements end with a semicolon."""

from __future__ import annotations

import re

from attrs import define, field

from kdsl.inspect.listing import PTX, Function, Instruction, Listing, Place, split_operands

_TARGET = re.compile(r"^\s*\.target\s+(\w+)", re.MULTILINE)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+\d+(?:.*?inlined_at\s+(\d+)\s+(\d+))?")
_HEADER = re.compile(r"\.(?P<kind>entry|func)\b(?:\s*\.noreturn)?\s*(?:\([^)]*\)\s*)?(?P<name>[\w$]+)")
_LABEL = re.compile(r"^\s*([\w$]+):(?!:)\s*")
_BODY = re.compile(r"^(?:@(?P<guard>!?%?[\w$]+)\s+)?(?P<name>[a-z][\w.:]*)\s*(?P<operands>.*)$", re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def parse(text: str, tool: str = "") -> Listing:
    """Kernels and device functions of a module; directives and declarations are passed over."""
    target = _TARGET.search(text)
    reading = _Reading({int(number): name for number, name in _FILE.findall(text)})
    bare = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)
    for number, line in enumerate(bare.splitlines(), 1):
        reading.line(number, line.strip())
    return Listing(PTX, target[1] if target else "", tuple(reading.functions), tool)


@define
class _Reading:
    files: dict[int, str]
    functions: list[Function] = field(factory=list)
    header: str = ""  # of a function whose body has not begun
    name: str | None = None
    entry: bool = False
    depth: int = 0
    statement: str = ""  # an instruction that goes on
    start: int = 0
    instructions: list[Instruction] = field(factory=list)
    labels: dict[str, int] = field(factory=dict)
    waiting: list[str] = field(factory=list)
    places: tuple[Place, ...] = ()

    def line(self, number: int, line: str) -> None:
        if not line:
            return
        if self.name is None:
            self._outside(line)
        elif line.startswith(".loc") and not self.statement:
            self._loc(line)
        else:
            self._inside(number, line)

    def _outside(self, line: str) -> None:
        """Between functions: `.visible .entry name(` ... `{` opens one, `;` ends a declaration."""
        if self.header or _HEADER.search(line):
            self.header += line + "\n"
            end = re.search(r"[{;]\s*$", line)
            if end and end[0].strip() == "{":
                found = _HEADER.search(self.header)
                self.name, self.entry, self.depth = found["name"], found["kind"] == "entry", 1
            if end:
                self.header = ""

    def _loc(self, line: str) -> None:
        found = _LOC.match(line)
        if found is None:
            return
        file, at, outer, outer_at = found.groups()
        places = [Place(self.files.get(int(file), file), int(at))]
        if outer is not None:
            places.append(Place(self.files.get(int(outer), outer), int(outer_at)))
        self.places = tuple(places)

    def _inside(self, number: int, line: str) -> None:
        while line and not self.statement:  # blocks and labels before a statement, in any order
            if line[0] in "{}":
                self.depth += 1 if line[0] == "{" else -1
                line = line[1:].lstrip()
                if self.depth == 0:
                    self._close()
                    return
            elif found := _LABEL.match(line):
                self.waiting.append(found[1])
                line = line[found.end() :].lstrip()
            else:
                break
        if not line:
            return
        if not self.statement:
            self.start = number
        head, semicolon, rest = (self.statement + line).partition(";")
        if not semicolon:
            self.statement = head + " "
            return
        self.statement = ""
        self._statement(head.strip())
        if rest.strip():
            self._inside(number, rest.strip())

    def _statement(self, text: str) -> None:
        if text.startswith("."):
            return  # .reg, .shared, .pragma, .param
        found = _BODY.match(text)
        if found is None:
            return
        self.labels.update((label, self.start) for label in self.waiting)
        self.waiting.clear()
        opcode, *modifiers = found["name"].split(".")
        operands = split_operands(found["operands"])
        guard = found["guard"].replace("%", "") if found["guard"] else None
        self.instructions.append(
            Instruction(self.start, opcode, tuple(modifiers), operands, guard, self.places)
        )

    def _close(self) -> None:
        self.functions.append(Function(self.name, tuple(self.instructions), dict(self.labels), self.entry))
        self.name, self.instructions, self.labels, self.waiting, self.places = None, [], {}, [], ()
