"""What ptxas -v says of a module: registers, spills and memory of each function, and its warnings.

The lines are those of "CUDA Compiler Driver NVCC", section "Printing Code Generation Statistics". The codes
of advisories (C7510) are printed by ptxas and documented nowhere: their meaning is their text.
"""

from __future__ import annotations

import re

from attrs import field, frozen

# "wgmma.mma_async instructions are serialized due to ...": every wgmma of the function waits for itself.
SERIALISED = {
    "C7509": "a call to an external function",
    "C7510": "a pipeline that crosses a function call",
    "C7511": "too few registers for the wgmma pipeline",
    "C7512": "too few registers for the function",
    "C7513": "input registers written between start and end of a pipeline stage",
    "C7514": "accumulators read between start and end of a pipeline stage",
    "C7515": "accumulators written between start and end of a pipeline stage",
    "C7516": "an ill-formed pipeline stage",
    "C7518": "a wait inserted by the compiler in a divergent path",
    "C7520": "an arrive inserted by the compiler in a divergent path",
}
# "warpgroup.wait is injected ... to allow use of registers defined by GMMA": one place waits that need not.
WAIT_INJECTED = "C7517"
# "warpgroup.arrive is injected": a fence, which waits for nothing. Reported, never counted as a wait.
ARRIVE_INJECTED = "C7519"

_COMPILING = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SHARED = re.compile(r"(\d+) bytes smem")
_CONSTANT = re.compile(r"(\d+) bytes cmem\[(\d+)\]")
_MESSAGE = re.compile(
    r"^ptxas\s+(?:(?P<place>[^;:]*?);\s*)?(?P<level>info|warning|error|fatal)\s*:\s*"
    r"(?:\((?P<code>C\d+)\)\s*)?(?P<text>.*)$"
)
_LINE = re.compile(r"line (\d+)")
_FUNCTION = re.compile(r"(?:function|entry) '([^']+)'")


@frozen
class FunctionUse:
    """One function of the module. Bytes; `constant` maps a bank to its bytes; `entry` is false for callees.

    `spill_stores` and `spill_loads` are bytes that a thread's spill code moves, each instruction counted
    once. A stack frame alone is no spill: local arrays with computed indices live there too.
    """

    name: str
    entry: bool = True
    registers: int | None = None
    stack: int = 0
    spill_stores: int | None = 0
    spill_loads: int | None = 0
    static_shared: int = 0
    barriers: int = 0
    constant: tuple[tuple[int, int], ...] = ()


@frozen
class PtxasMessage:
    """A warning or a coded advisory: C7510 with its text, the line and the function where it names them."""

    level: str
    code: str | None
    text: str
    line: int | None = None
    function: str | None = None

    @property
    def waits(self) -> bool:
        """Whether it says that wgmma waits where the source does not."""
        return (
            self.code in SERIALISED
            or self.code == WAIT_INJECTED
            or "wgmma.mma_async instructions are serialized" in self.text
            or "warpgroup.wait is injected" in self.text
        )

    def __str__(self) -> str:
        return f"{self.code}: {self.text}" if self.code else self.text


@frozen
class PtxasLog:
    functions: tuple[FunctionUse, ...]
    messages: tuple[PtxasMessage, ...]
    text: str = field(repr=False, default="")

    def of(self, kernel: str) -> FunctionUse:
        """The entry function of that name. Raises KeyError with the names that there are."""
        for use in self.functions:
            if use.name == kernel and use.entry:
                return use
        names = ", ".join(use.name for use in self.functions if use.entry) or "none"
        raise KeyError(f"no kernel {kernel} in the ptxas log; it has: {names}")


def parse(text: str) -> PtxasLog:
    """The log as facts, functions in the order of the module."""
    uses: dict[str, dict] = {}
    entries: set[str] = set()
    messages: list[PtxasMessage] = []
    entry = current = None
    for line in text.splitlines():
        message = _MESSAGE.match(line)
        body = message["text"] if message else line
        if found := _COMPILING.search(body):
            entry = current = found[1]
            entries.add(entry)
            uses.setdefault(entry, {})
        elif found := _PROPERTIES.search(body):
            current = found[1]
            uses.setdefault(current, {})
        elif found := _FRAME.search(body):
            if current is not None:
                stack, stores, loads = map(int, found.groups())
                uses[current] |= {"stack": stack, "spill_stores": stores, "spill_loads": loads}
        elif _USED.search(body):
            if (name := entry or current) is not None:
                uses[name].update(_usage(body))
        elif message and (message["level"] != "info" or message["code"]):
            messages.append(_message(message, entry))
    functions = tuple(FunctionUse(name, name in entries, **use) for name, use in uses.items())
    return PtxasLog(functions, tuple(messages), text)


def _usage(body: str) -> dict:
    barriers, shared = _BARRIERS.search(body), _SHARED.search(body)
    return {
        "registers": int(_USED.search(body)[1]),
        "barriers": int(barriers[1]) if barriers else 0,
        "static_shared": int(shared[1]) if shared else 0,
        "constant": tuple(sorted((int(bank), int(size)) for size, bank in _CONSTANT.findall(body))),
    }


def _message(found: re.Match, entry: str | None) -> PtxasMessage:
    text = found["text"].strip()
    line, named = _LINE.search(found["place"] or text), _FUNCTION.search(text)
    function = named[1] if named else entry
    return PtxasMessage(found["level"], found["code"], text, int(line[1]) if line else None, function)
