"""SASS as instructions, from the text of nvdisasm or cuobjdump ("CUDA Binary Utilities", NVIDIA).

`nvdisasm -c -gi` gives labels and, before the instructions that they belong to, lines such as
`//## File "kernel.cu", line 160 inlined at "kernel.cu", line 183`, innermost first. `cuobjdump -sass` gives
the same instructions with their encoding in comments. Control codes in the styles of CuAssembler
(`[B------:R-:W0:-:S01]`) and of newer disassemblers (`&wr=0x0 ?WAIT1_END`) are skipped.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from attrs import define, field

from kdsl.inspect.listing import SASS, Function, Instruction, Listing, Place, split_operands
from kdsl.lower.toolchain import cuda
from kdsl.lower.toolchain.cc import CompilerFailed

_TARGET = re.compile(r"(?:\.target\s+|code for\s+|EF_CUDA_)(sm_\w+|SM\d+\w*)")
_SECTION = re.compile(r'\.section\s+"?\.text\.([^",\s]+)"?')
_FUNCTION = re.compile(r"^\s*Function : (\S+)")
_LABEL = re.compile(r"^(\.L\w*|\$\w+|[\w$.]+):\s*$")
_ENTRY = re.compile(r"STO_CUDA_ENTRY")
_OTHER = re.compile(r"^\s*\.other\s+\"?([^\",\s]+)")
_SOURCE = re.compile(r'//## File "([^"]*)", line (\d+)')
_INSTRUCTION = re.compile(
    r"^\s*(?:\[[^\]]*\]\s*)?/\*(?P<address>[0-9a-fA-F]{4,})\*/\s*(?:\[B[^\]]*\]\s*)?(?P<body>[^;]*?)\s*;"
)
_BODY = re.compile(r"(?:@(?P<guard>!?\w+)\s+)?(?P<name>[A-Z][\w.]*)\s*(?P<operands>.*)", re.DOTALL)
_CONTROL = re.compile(r"\s+(?:&\w+=\S+|\?\w+)")


def disassemble(cubin: bytes) -> Listing:
    """The cubin's SASS with source lines where it has them. Raises ToolMissing or CompilerFailed."""
    return parse(text_of(cubin), str(cuda.nvdisasm()))


def text_of(cubin: bytes) -> str:
    """What nvdisasm prints of a cubin. Raises ToolMissing or CompilerFailed."""
    tool = cuda.nvdisasm()
    with tempfile.TemporaryDirectory(prefix="kdsl-") as folder:
        Path(folder, "kernel.cubin").write_bytes(cubin)
        command = [tool.path, "-c", "-gi", "kernel.cubin"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompilerFailed(" ".join([tool.name, *command[1:]]), done.stderr.strip()[:4000])
    return done.stdout


def parse(text: str, tool: str = "") -> Listing:
    """Any number of functions; text that is no instruction is passed over."""
    reading = _Reading()
    for line in text.splitlines():
        reading.line(line)
    reading.close()
    return Listing(SASS, reading.arch, tuple(reading.functions), tool)


@define
class _Reading:
    arch: str = ""
    functions: list[Function] = field(factory=list)
    entries: set[str] = field(factory=set)
    entries_known: bool = False
    name: str | None = None
    instructions: list[Instruction] = field(factory=list)
    labels: dict[str, int] = field(factory=dict)
    waiting: list[str] = field(factory=list)  # labels that the next instruction carries
    places: tuple[Place, ...] = ()
    chain: list[Place] = field(factory=list)  # source lines read since the last instruction

    def line(self, line: str) -> None:
        if found := _INSTRUCTION.match(line):
            self._instruction(found)
        elif found := _SOURCE.search(line):
            self.chain.append(Place(found[1], int(found[2])))
        elif found := _SECTION.search(line) or _FUNCTION.match(line):
            self.close()
            self.name = found[1]
        elif found := _LABEL.match(line):
            self.waiting.append(found[1])
        elif found := _OTHER.match(line):
            self.entries_known = True
            if _ENTRY.search(line):
                self.entries.add(found[1])
        elif not self.arch and (found := _TARGET.search(line)):
            self.arch = found[1].lower().replace("sm", "sm_").replace("__", "_")

    def _instruction(self, found: re.Match) -> None:
        body = _BODY.match(_CONTROL.sub("", f" {found['body']} ").strip())
        if body is None:
            return
        if self.chain:
            self.places, self.chain = tuple(self.chain), []
        address = int(found["address"], 16)
        self.labels.update((label, address) for label in self.waiting)
        self.waiting.clear()
        opcode, *modifiers = body["name"].split(".")
        operands = split_operands(body["operands"])
        self.instructions.append(
            Instruction(address, opcode, tuple(modifiers), operands, body["guard"], self.places)
        )

    def close(self) -> None:
        """The function ends; the next starts without a place."""
        if self.name is not None and self.instructions:
            entry = not self.entries_known or self.name in self.entries
            self.functions.append(Function(self.name, tuple(self.instructions), dict(self.labels), entry))
        self.instructions, self.labels, self.waiting = [], {}, []
        self.places, self.chain = (), []
