"""Which memory an instruction touches, how, and with how many bytes a thread."""

from __future__ import annotations

import re

from attrs import frozen

from kdsl.inspect.listing import Instruction

_TYPE = re.compile(r"[a-z]+?(\d+)(?:x2)?$")
_SASS_SPACE = {
    "LDS": ("shared", "load"), "STS": ("shared", "store"),
    "LDSM": ("shared", "load"), "STSM": ("shared", "store"),
    "LDG": ("global", "load"), "STG": ("global", "store"),
    "LDL": ("local", "load"), "STL": ("local", "store"),
    "LD": ("generic", "load"), "ST": ("generic", "store"), "LDGSTS": ("global to shared", "copy"),
    "ATOMS": ("shared", "atomic"), "ATOMG": ("global", "atomic"), "RED": ("global", "atomic"),
    "ATOM": ("generic", "atomic"),
}  # fmt: skip
_SASS_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "32": 4, "64": 8, "128": 16, "256": 32}
_PTX_SPACES = ("shared", "global", "local")


@frozen
class Access:
    """One access of memory by a thread: `width` in bytes; a row of ldmatrix and stmatrix is 16."""

    space: str  # shared, global, local, generic, global to shared
    kind: str  # load, store, copy, atomic
    width: int

    def __str__(self) -> str:
        return f"{self.space} {self.kind} of {self.width} bytes"


def access(instruction: Instruction) -> Access | None:
    """The thread's access of memory that an instruction is, if it is one."""
    known = _SASS_SPACE.get(instruction.opcode)
    if known is not None:
        if instruction.opcode in ("LDSM", "STSM"):
            return Access(*known, 16)
        sizes = [_SASS_BYTES[m] for m in instruction.modifiers if m in _SASS_BYTES]
        return Access(*known, sizes[-1] if sizes else 4)
    return _ptx_access(instruction)


def _ptx_access(instruction: Instruction) -> Access | None:
    opcode, parts = instruction.opcode, instruction.modifiers
    if opcode in ("ldmatrix", "stmatrix"):
        return Access("shared", "load" if opcode == "ldmatrix" else "store", 16)
    if opcode == "cp" and parts[:1] == ("async",) and len(parts) > 1 and parts[1] in ("ca", "cg"):
        size = instruction.operands[2] if len(instruction.operands) > 2 else ""
        return Access("global to shared", "copy", int(size)) if size.isdigit() else None
    kind = {"ld": "load", "st": "store", "atom": "atomic", "red": "atomic"}.get(opcode)
    if kind is None or "param" in parts or "const" in parts:
        return None
    space = next((s for part in parts for s in _PTX_SPACES if part.split("::")[0] == s), "generic")
    lanes = next((int(part[1:]) for part in parts if part in ("v2", "v4", "v8")), 1)
    bits = next((int(found[1]) for part in reversed(parts) if (found := _TYPE.fullmatch(part))), None)
    return Access(space, kind, lanes * bits // 8) if bits else None
