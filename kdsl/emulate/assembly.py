"""asm statements as calls: `asm("OPCODE %0, [%1];" : "=r"(a) : "r"(b))` becomes `ptx::OPCODE(o0, o1)` on
temporaries.

So the instructions that a device would execute are executed, operand by operand, and a wrong address inside
an intrinsic is seen like any other. `device/ptx.h` says which opcodes there are.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from attrs import frozen

from kdsl.emulate.refusal import CannotEmulate, Refusal
from kdsl.emulate.text import closing, line_of, split

DEVICE = Path(__file__).resolve().parent / "device"
_ASM = re.compile(r"\b(?:asm|__asm__|__asm)\b(?:\s*(?:volatile|__volatile__))?\s*\(")
_LITERAL = re.compile(r'"((?:\\.|[^"\\])*)"')
_OPERAND = re.compile(r'\s*(?:\[\w+\]\s*)?"([^"]*)"\s*\(')
_REGISTER_TYPE = {
    "pred": "bool", "f32": "float", "f16x2": "uint32_t",
    "b16": "uint16_t", "u16": "uint16_t", "s16": "uint16_t",
    "b32": "uint32_t", "u32": "uint32_t", "s32": "uint32_t",
    "b64": "uint64_t", "u64": "uint64_t", "s64": "uint64_t",
}  # fmt: skip
_CONSTRAINT = {  # the type of its temporary, and how an expression becomes one
    "r": ("uint32_t", "word"), "f": ("float", ""), "l": ("auto", "wide"), "h": ("uint16_t", "halfword"),
    "n": ("auto", ""),
}  # fmt: skip
_OUTPUT_TYPE = {"r": "uint32_t", "f": "float", "l": "uint64_t", "h": "uint16_t"}


@lru_cache(maxsize=1)
def known_opcodes() -> frozenset[str]:
    """The functions of `kdsl::ptx` in `device/`: opcodes with `_` for `.` and `::`."""
    texts = [(DEVICE / name).read_text(encoding="utf-8").partition("namespace kdsl::ptx {")[2] for name in LISTS]
    return frozenset(name for text in texts for name in re.findall(r"\bvoid (\w+)\(", text))


LISTS = ("ptx.h", "asynchronous.h")
_WGMMA = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.bf16\.bf16")
# A try that comes back when the phase is over needs no loop around it.
_WAIT_LOOP = re.compile(
    r"(?P<loop>\w+):\s*(?P<wait>mbarrier\.try_wait[^;]*;)\s*@%?\w+\s+bra(?:\.uni)?\s+(?P<done>\w+);"
    r"\s*bra(?:\.uni)?\s+(?P=loop);\s*(?P=done):"
)


def function_of(opcode: str) -> str:
    product = _WGMMA.fullmatch(opcode)
    return f"wgmma_bf16<{product[1]}>" if product else re.sub(r"[.:]+", "_", opcode)


@frozen
class Statement:
    """One asm statement, taken apart."""

    template: str
    outputs: tuple[tuple[str, str], ...]  # constraint, expression
    inputs: tuple[tuple[str, str], ...]
    line: int


def replace_assembly(text: str) -> str:
    """Every asm statement as a block of calls, on as many lines as it had. Raises CannotEmulate."""
    parts, last = [], 0
    for match in _ASM.finditer(text):
        if match.start() < last:
            continue
        end = closing(text, match.end() - 1)
        statement = _parse(text[match.end() : end], line_of(text, match.start()))
        after = re.compile(r"\s*;").match(text, end + 1)
        stop = after.end() if after else end + 1
        call = _calls(statement)
        parts += [text[last : match.start()], call, "\n" * text.count("\n", match.start(), stop)]
        last = stop
    return "".join([*parts, text[last:]])


def _parse(body: str, line: int) -> Statement:
    sections = split(body, ":")
    template = "".join(_LITERAL.findall(sections[0]))
    template = re.sub(r"\\[nrt]", " ", template).replace("%%", "%")
    template = _WAIT_LOOP.sub(lambda found: found["wait"], template)
    operands = [
        tuple(_operand(part, line) for part in split(section, ",") if part.strip())
        for section in sections[1:3]
    ]
    outputs, inputs = (*operands, (), ())[:2]
    return Statement(template, outputs, inputs, line)


def _operand(text: str, line: int) -> tuple[str, str]:
    found = _OPERAND.match(text)
    if found is None:
        raise CannotEmulate(Refusal(f"an asm operand that cannot be read: `{text.strip()}`", line=line))
    constraint = found[1].strip("=+&%")
    if constraint not in _CONSTRAINT:
        raise CannotEmulate(Refusal(f"an asm operand with the constraint `{found[1]}`", line=line))
    return found[1], text[found.end() : closing(text, found.end() - 1)]


def _calls(statement: Statement) -> str:
    lines = ["do { using namespace kdsl;"]
    of_product = [c[-1] == "f" and "wgmma.mma_async" in statement.template for c, _ in statement.outputs]
    for number, (constraint, expression) in enumerate(statement.outputs):
        kind = constraint[-1]
        initial = "{}"
        if "+" in constraint:
            read = "parts::of_product" if of_product[number] else _CONSTRAINT[kind][1]
            initial = f" = {read}({expression})"
        elif of_product[number]:
            initial = f" = parts::before_product({expression})"
        lines.append(f"{_OUTPUT_TYPE[kind]} kdsl_{number}{initial};")
    for number, (constraint, expression) in enumerate(statement.inputs, len(statement.outputs)):
        type_name, conversion = _CONSTRAINT[constraint[-1]]
        lines.append(f"const {type_name} kdsl_{number} = {conversion}({expression});")
    lines += [_instruction(part.strip(), statement) for part in statement.template.split(";")]
    for number, (_, expression) in enumerate(statement.outputs):
        written = f"parts::to_product({expression}, kdsl_{number});"
        lines.append(written if of_product[number] else f"({expression}) = kdsl_{number};")
    return " ".join([*filter(None, lines), "} while (false);"])


def _instruction(text: str, statement: Statement) -> str:
    text = re.sub(r"^[{}\s]+|(?<=\s)}$|^}$", "", text)
    if not text:
        return ""
    declared = re.fullmatch(r"\.reg\s*\.(\w+)\s+([\w%,\s]+)", text)
    if declared:
        type_name = _REGISTER_TYPE.get(declared[1])
        if type_name is None:
            raise CannotEmulate(Refusal(f"a PTX register of type .{declared[1]}", line=statement.line))
        return " ".join(f"{type_name} kdsl_{name.strip().strip('%')}{{}};" for name in declared[2].split(","))
    found = re.fullmatch(r"(?:@(!?)%?(\w+)\s+)?([a-z][\w.:]*)\s*(.*)", text, re.S)
    if found is None or found[3].endswith(":"):
        raise CannotEmulate(Refusal(f"a PTX statement that cannot be read: `{text}`", line=statement.line))
    negated, predicate, opcode, operands = found.groups()
    name = function_of(opcode)
    if name.partition("<")[0] not in known_opcodes():
        remedy = f"give `{name}` a function in kdsl/emulate/device/ptx.h or asynchronous.h"
        raise CannotEmulate(Refusal(f"the PTX instruction `{opcode}`", remedy, statement.line))
    parts = [part.strip().removeprefix("_|") for part in re.sub(r"[{}\[\]]", "", operands).split(",")]
    arguments = ", ".join(_argument(part, statement) for part in parts if part not in ("", "_"))
    condition = f"if ({negated}kdsl_{predicate}) " if predicate else ""
    return f"{condition}ptx::{name}({arguments});"


def _argument(text: str, statement: Statement) -> str:
    if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)", text):
        return text
    bits = re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", text)
    if bits:
        return f"kdsl::f32_of_bits(0x{bits[1]}u)"
    found = re.fullmatch(r"%?(\w+)\s*(\+\s*\d+)?", text)
    if found is None:
        raise CannotEmulate(Refusal(f"the PTX operand `{text}`", line=statement.line))
    return f"kdsl_{found[1]}{found[2] or ''}"
