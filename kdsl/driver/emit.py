"""What `kdsl lower --emit` can write: one entry a stage. A text stage goes to the terminal, a binary one to a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from attrs import asdict, frozen

from kdsl.driver.report import report_text
from kdsl.lower.lowering import Lowering
from kdsl.plan.derive import decisions_text
from kdsl.plan.listing import plan_text
from kdsl.syntax import nodes as n

Content = str | bytes


@frozen
class Emitter:
    """`files` gives (name, content) of one rule; `families` are the target families that have the stage."""

    name: str
    summary: str
    files: Callable[[Lowering], Iterator[tuple[str, Content]]]
    binary: bool = False
    families: tuple[str, ...] = ("cpu", "cuda")


def ast(lowering: Lowering):
    yield "ast.json", json.dumps(tree_document(lowering.plan.rule.declaration), indent=1) + "\n"


def tree_document(node):
    """A syntax node as JSON: its kind, its line, its fields."""
    if isinstance(node, tuple):
        return [tree_document(item) for item in node]
    if not isinstance(node, n.Node):
        return node
    if isinstance(node, (n.Id, n.Name)):
        return node.text
    fields = {k: v for k, v in asdict(node, recurse=False).items() if k != "span" and v not in (None, ())}
    return {"kind": type(node).__name__, "line": node.span.line, **{k: tree_document(v) for k, v in fields.items()}}


def decisions(lowering: Lowering):
    yield "decisions.kds", decisions_text(lowering.plan)


def plan(lowering: Lowering):
    yield "plan.txt", plan_text(lowering.plan)


def schedule(lowering: Lowering):
    for kernel in lowering.scheduled:
        yield f"{kernel.function.name}.schedule.py", kernel.trace_python
        yield f"{kernel.function.name}.schedule.json", kernel.trace_json


def tir(lowering: Lowering):
    for kernel in lowering.scheduled:
        yield f"{kernel.function.name}.tir.py", kernel.tir


def source(lowering: Lowering):
    for kernel in lowering.sources:
        yield f"{kernel.kernel}.c", kernel.source


def device_source(lowering: Lowering):
    for kernel in lowering.sources:
        yield f"{kernel.kernel}.cu", kernel.source


def ptx(lowering: Lowering):
    for kernel, objects in zip(lowering.sources, lowering.objects):
        yield f"{kernel.kernel}.ptx", objects.ptx


def cubin(lowering: Lowering):
    for kernel, objects in zip(lowering.sources, lowering.objects):
        yield f"{kernel.kernel}.cubin", objects.cubin


def sass(lowering: Lowering):
    from kdsl.inspect.sass import text_of

    for kernel, objects in zip(lowering.sources, lowering.objects):
        yield f"{kernel.kernel}.sass", text_of(objects.cubin)


def library(lowering: Lowering):
    for kernel, content in zip(lowering.sources, lowering.libraries):
        yield f"{kernel.kernel}.so", content


def report(lowering: Lowering):
    yield "report.txt", report_text(lowering)


EMITTERS = {
    e.name: e
    for e in (
        Emitter("ast", "the rule's syntax tree, JSON", ast),
        Emitter("decisions", "every derived choice as `pin` lines that the rule accepts back", decisions),
        Emitter("plan", "homes, order, loops and schedule steps with their lines", plan),
        Emitter("schedule", "the trace of the tvm.s_tir.Schedule, Python and JSON", schedule),
        Emitter("tir", "the scheduled TIR", tir),
        Emitter("c", "C source", source, families=("cpu",)),
        Emitter("cuda", "CUDA C++ source", device_source, families=("cuda",)),
        Emitter("ptx", "PTX", ptx, families=("cuda",)),
        Emitter("cubin", "machine code of the GPU", cubin, binary=True, families=("cuda",)),
        Emitter("sass", "disassembly of the machine code", sass, families=("cuda",)),
        Emitter("so", "shared library", library, binary=True, families=("cpu",)),
        Emitter("report", "memory, roundings, contract and versions", report),
    )
}
