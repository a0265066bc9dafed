"""CUDA text to C++ over the headers of `device/`, line by line: what stands on line n stays on line n.

Pointers become `Pointer<T>`, local arrays of kernels `Registers<T, n>`, shared arrays pointers into the
shared window, asm statements calls (see `assembly`). Everything else is the compiler's business: what it does
not know, a function that is not in the headers for one, it names, and that is the refusal.
"""

from __future__ import annotations

import re

from attrs import evolve, frozen

from kdsl.emulate.assembly import replace_assembly
from kdsl.emulate.refusal import CannotEmulate, Refusal
from kdsl.emulate.text import closing, line_of, split, without_comments

HEADERS = (
    "cstdint",
    "type_traits",
    "cuda.h",
    "cuda_runtime.h",
    "cuda_fp16.h",
    "cuda_bf16.h",
    "math_constants.h",
    "cooperative_groups.h",
    "cuda/barrier",
)
_VECTORS = "|".join(f"u?{t}[1-4]" for t in ("char", "short", "int", "longlong")) + "|float[1-4]|double[1-4]"
_NAME = (
    r"(?:unsigned|signed)(?:\s+(?:char|short|int|long\s+long|long))?|long\s+long|long|char|short|int|float|"
    r"double|bool|"
    r"void|half[24]?|__half2?|(?:__)?nv_bfloat16[24]?|(?:__)?nv_bfloat162|uchar|ushort|uint|size_t|dim3|"
    r"u?int(?:8|16|32|64)_t|signed\s+char|ulonglong[1-4]|" + _VECTORS
)
_POINTER = re.compile(rf"(?<![\w.])((?:(?:const|volatile)\s+)*)({_NAME})(\s+const)?\s*\*(?:\s*const\b)?")
_KERNEL = re.compile(
    r'(?:extern\s+"C"\s+)?__global__\s+(?:void\s+)?'
    r"(?:__launch_bounds__\s*\(([^)]*)\)\s*)?(?:void\s+)?(\w+)\s*\("
)
_ROLE = re.compile(r"__device__\s+__forceinline__\s+void\s+\w+_kernel_role\s*\(")  # of a kernel in another's launch
_SHARED = re.compile(
    r"(extern\s+)?__shared__\s+(?:(?:__align__|alignas)\s*\((\w+)\)\s+)?"
    r"([\w ]+?)\s+(\w+)\s*\[\s*(\w*)\s*\]\s*;"
)
_LOCAL_ARRAY = re.compile(rf"(?<![\w.])({_NAME})\s+(\w+)\s*\[\s*(\d+)\s*\]\s*;")
_OUTPUT = re.compile(r"\b(?:float|u?int(?:16|32|64)_t)\s*&\s*(__\w+)")  # of a helper around one instruction
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"]+)[>\"]", re.M)


@frozen
class Parameter:
    """`type_name` as the C++ text has it; a buffer where it is a pointer."""

    name: str
    type_name: str

    @property
    def is_buffer(self) -> bool:
        return self.type_name.startswith("kdsl::Pointer<")


@frozen
class KernelText:
    """One `__global__` function: its parameters in order, and the most threads its launch bounds allow, if
    any.
    """

    symbol: str
    parameters: tuple[Parameter, ...]
    most_threads: int | None


@frozen
class Translation:
    """`source` is C++ whose lines are numbered as the CUDA text's."""

    source: str
    kernels: tuple[KernelText, ...]


@frozen
class SharedArray:
    type_name: str
    elements: str
    alignment: str


def translate(cuda: str, field: bool = False) -> Translation:
    """C++ over numbers, or over the elements of `field`. Raises CannotEmulate for what has no meaning there."""
    text = without_comments(cuda)
    _check_headers(text)
    text = re.sub(r"^[ \t]*#[ \t]*line\b.*$", "", text, flags=re.M)  # lines are those of this text
    text = _OUTPUT.sub(r"auto&& \1", replace_assembly(text))  # what it binds may be an element of memory
    text = re.sub(r"\b(?:reinterpret_cast|const_cast)\s*<", "kdsl::cast_to<", text)
    text = _with_roles(_POINTER.sub(_pointer, text))
    kernels, tables, parts, last = [], [], [], 0
    for match in _KERNEL.finditer(text):
        end = closing(text, match.end() - 1)
        body = re.compile(r"\s*\{").match(text, end + 1)
        if body is None:
            continue
        stop = closing(text, body.end() - 1)
        kernel = KernelText(match[2], _parameters(text[match.end() : end]), _most_threads(match[1]))
        if any(kernel.symbol == other.symbol for other in kernels):
            raise CannotEmulate(
                Refusal(f"two kernels called {kernel.symbol}", line=line_of(text, match.start()))
            )
        rewritten, arrays, dynamic = _kernel_body(text[body.end() : stop], line_of(text, body.end()))
        parts += [text[last : body.end()], rewritten]
        last = stop
        kernels.append(kernel)
        tables.append(_table(kernel, arrays, dynamic))
    if not kernels:
        raise CannotEmulate(Refusal("a text without a `__global__` function"))
    body = "\n".join(["".join([*parts, text[last:]]), *tables])
    if field:
        body = over_fields(body)
        kernels = [evolve(k, parameters=tuple(map(_over_fields, k.parameters))) for k in kernels]
    source = ['#include "device.h"', '#line 1 "kernel.cu"', body]
    return Translation("\n".join(source) + "\n", tuple(kernels))


def _with_roles(text: str) -> str:
    """The text with the bodies of device functions that are kernels but for their launch changed as a kernel's."""
    parts, last = [], 0
    for match in _ROLE.finditer(text):
        body = re.compile(r"\s*\{").match(text, closing(text, match.end() - 1) + 1)
        if body is None:
            continue
        stop, line = closing(text, body.end() - 1), line_of(text, body.end())
        rewritten, arrays, _ = _kernel_body(text[body.end() : stop], line)
        if arrays:
            raise CannotEmulate(Refusal("a __shared__ array of a device function", line=line))
        parts += [text[last : body.end()], rewritten]
        last = stop
    return "".join([*parts, text[last:]])


_CELLS = (  # types whose values may be elements, and those of device/field/cells.h that hold them
    (re.compile(r"\bfloat\b"), "kdsl::F32"),
    (re.compile(r"\b(?:uint32_t|unsigned\s+int)\b|\bunsigned\b(?!\s+(?:char|short|long|int)\b)"), "kdsl::U32"),
    (re.compile(r"\b(?:uint16_t|unsigned\s+short)\b"), "kdsl::U16"),
)
_UNION = re.compile(r"\bunion\s+\w+\s*(?=\{)")


def over_fields(text: str) -> str:
    """C++ in which numbers are cells. Unions, which take integers apart (matrix descriptors), keep their types."""
    parts, last = [], 0
    for match in _UNION.finditer(text):
        stop = closing(text, match.end())
        parts += [_renamed(text[last : match.start()]), text[match.start() : stop]]
        last = stop
    return "".join([*parts, _renamed(text[last:])])


def _renamed(text: str) -> str:
    for pattern, name in _CELLS:
        text = pattern.sub(name, text)
    return text


def _over_fields(parameter: Parameter) -> Parameter:
    return evolve(parameter, type_name=_renamed(parameter.type_name))


def _check_headers(text: str) -> None:
    """Headers of the C++ library in the branch for NVRTC are never read."""
    for match in _INCLUDE.finditer(text):
        if match[1] not in HEADERS and not match[1].startswith("cuda/std/"):
            remedy = f"known are {', '.join(HEADERS)}"
            raise CannotEmulate(Refusal(f"the header <{match[1]}>", remedy, line_of(text, match.start())))


def _pointer(match: re.Match) -> str:
    before, name, after = match.groups()
    constant = "const " if "const" in before or after else ""
    return f"kdsl::Pointer<{constant}{' '.join(name.split())}>" + "\n" * match[0].count("\n") + " "


def _parameters(text: str) -> tuple[Parameter, ...]:
    found = []
    for part in split(text, ","):
        words = re.sub(r"\b(?:__restrict__|__restrict|__grid_constant__)\b", " ", part).strip()
        if words:
            type_name, name = re.fullmatch(r"(.*?)\s*(\w+)", words, re.S).groups()
            found.append(Parameter(name, re.sub(r"^const\s+", "", " ".join(type_name.split()))))
    return tuple(found)


def _most_threads(bounds: str | None) -> int | None:
    first = (bounds or "").split(",")[0].strip()
    return int(first) if first.isdigit() else None


def _kernel_body(body: str, first_line: int) -> tuple[str, list[SharedArray], str]:
    """The body with its arrays replaced and its line numbers noted; its static shared arrays; the dynamic
    alignment.
    """
    arrays: list[SharedArray] = []
    dynamic = "16"

    def shared(match: re.Match) -> str:
        nonlocal dynamic
        external, alignment, type_name, name, elements = match.groups()
        kept = "\n" * match[0].count("\n")
        if external:
            dynamic = alignment or "16"
            return f"kdsl::Pointer<{type_name}> {name} = kdsl::dynamic_shared<{type_name}>();{kept}"
        arrays.append(SharedArray(type_name, elements, alignment or f"alignof({type_name})"))
        return (
            f"kdsl::Pointer<{type_name}> {name} = kdsl::static_shared<{type_name}>({len(arrays) - 1});{kept}"
        )

    body = _SHARED.sub(shared, body)
    left = re.search(r"\b__shared__\b", body)
    if left:
        line = first_line + body.count("\n", 0, left.start())
        raise CannotEmulate(Refusal("a __shared__ declaration that is no array of one dimension", line=line))
    body = _LOCAL_ARRAY.sub(r"kdsl::Registers<\1, \3> \2;", body)
    places = "threadIdx", "blockIdx", "blockDim", "gridDim"
    built_in = " ".join(f"[[maybe_unused]] const kdsl::Place {name} = ::{name};" for name in places)
    return f" {built_in}{_noting_lines(body, first_line)}", arrays, dynamic


def _noting_lines(body: str, first_line: int) -> str:
    """`kdsl::line = n;` before each line that begins a statement."""
    lines, before = body.split("\n"), "{"
    for index, text in enumerate(lines):
        words = text.strip()
        starts = (
            before[-1] in ";{}"
            and bool(words)
            and words[0] not in "}{#"
            and not re.match(r"(else|case|default)\b", words)
        )
        if starts:
            lines[index] = f"kdsl::line = {first_line + index}; {text}"
        if words and not words.startswith("#"):
            before = words
    return "\n".join(lines)


def _table(kernel: KernelText, arrays: list[SharedArray], dynamic: str) -> str:
    """How the runtime starts the kernel: `kdsl::Kernel` of device/interface.h."""
    symbol = kernel.symbol
    arguments = ", ".join(
        f"kdsl::Parameter<{p.type_name}>::from(arguments[{i}])" for i, p in enumerate(kernel.parameters)
    )
    rows = "".join(f"{{kdsl::kBytes<{a.type_name}> * ({a.elements}), {a.alignment}}}, " for a in arrays)
    return (
        f"static void kdsl_body_{symbol}([[maybe_unused]] const kdsl::Argument* arguments) {{\n"
        f"  {symbol}({arguments});\n}}\n"
        f"static const kdsl::StaticArray kdsl_arrays_{symbol}[] = {{{rows}{{0, 1}}}};\n"
        f'extern "C" KDSL_INTERFACE const kdsl::Kernel kdsl_kernel_{symbol} = '
        f"{{kdsl_body_{symbol}, kdsl_arrays_{symbol}, {len(arrays)}, {dynamic}}};"
    )
