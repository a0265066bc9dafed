"""`emulate`: launches run on the CPU in a process of their own, and everything that was wrong with them."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from attrs import define, evolve, field, frozen

from kdsl.emulate import compiler
from kdsl.emulate.findings import HARMLESS, Finding, SharedTraffic, place_of
from kdsl.emulate.launches import Launch, Memory, as_buffer, bits_of
from kdsl.emulate.refusal import CannotEmulate, Refusal, RunnerFault
from kdsl.emulate.translate import KernelText, Translation, translate

EVIDENCE = "simulated"
MOST_THREADS = 1024
# Bytes of shared memory that a block may have (CUDA C++ programming guide, table of compute capabilities).
SHARED_BYTES = {80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99}
STATIC_SHARED_BYTES = 48
_ARRAYS = {-2: "shared memory", -3: "registers", -4: "an unknown address"}


@frozen
class EmulationResult:
    """Everything that was seen. What kernels wrote is in the caller's arrays, unless it is refused.

    `refusal` is what the emulator cannot run; `findings` is empty for a kernel that did nothing wrong.
    `notes` are things that change no result. `seconds` are of the kernels alone, `compile_seconds` of
    everything before them.
    """

    findings: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    shared: tuple[SharedTraffic, ...] = ()
    refusal: Refusal | None = None
    seconds: float = 0.0
    compile_seconds: float = 0.0
    evidence: str = EVIDENCE
    seen: Mapping[str, int] = field(factory=dict)  # of a run over fields: exponents, softplus, random, division
    constants: tuple[tuple[float, int], ...] = ()  # of a run over fields: factor, and 1 for log2 e, 2 for ln 2

    @property
    def verdict(self) -> str:
        """`unknown` for a refusal, `fail` for any finding, else `pass`."""
        return "unknown" if self.refusal else "fail" if self.findings else "pass"

    def explain(self) -> str:
        if self.refusal:
            return f"unknown: the emulator does not have {self.refusal}"
        return "\n".join(f.explain() for f in self.findings) or "pass: nothing wrong was seen"


def emulate(
    kernels: Iterable[Launch | Sequence],
    *,
    target: str = "sm_90a",
    seed: int = 0,
    seconds: float = 60.0,
    field: str | None = None,
) -> EmulationResult:
    """Run the launches one after the other; outputs and updated buffers are written into their arrays.

    A launch is a Launch or a tuple of its fields. `seed` orders blocks and warps and decides when
    asynchronous copies land. `seconds` bound the run; a kernel that takes longer hangs, which is a finding.
    `field` runs the launches over finite fields: the tower in the words of `kdsl.prove.device`, and buffers of
    cells, twice the bytes of the device's.
    Raises TypeError or ValueError for arguments that do not fit a kernel's parameters, and RunnerFault.
    """
    launches = [launch if isinstance(launch, Launch) else Launch(*launch) for launch in kernels]
    begin = time.perf_counter()
    try:
        run = _prepare(launches, target, field)
        compiler.runner(field is not None)
    except CannotEmulate as stop:
        return EmulationResult(refusal=stop.refusal, compile_seconds=time.perf_counter() - begin)
    refused = tuple(_launch_findings(run, target))
    if refused:
        return EmulationResult(findings=refused, compile_seconds=time.perf_counter() - begin)
    ready = time.perf_counter()
    text = _execute(run, seed, seconds)
    result = _read_report(run, text, target)
    return evolve(result, seconds=time.perf_counter() - ready, compile_seconds=ready - begin)


@frozen
class Prepared:
    """One launch with its kernel's text and library; `arguments` as the runner reads them."""

    launch: Launch
    kernel: KernelText
    library: Path
    arguments: tuple[str, ...]


@define
class Run:
    memory: Memory = field(factory=Memory)
    launches: list[Prepared] = field(factory=list)
    algebra: str | None = None  # the tower of fields, None for numbers


def capability(target: str) -> int:
    """`sm_90a` is 90. Raises ValueError for a target without shared-memory limits here."""
    digits = target.removeprefix("sm_").rstrip("af")
    if not digits.isdigit() or int(digits) not in SHARED_BYTES:
        raise ValueError(f"target {target!r} is none of {', '.join(f'sm_{n}' for n in SHARED_BYTES)}")
    return int(digits)


@lru_cache(maxsize=64)
def _translated(source: str, over_fields: bool) -> Translation:
    return translate(source, over_fields)


def _prepare(launches: Sequence[Launch], target: str, algebra: str | None) -> Run:
    run, over_fields = Run(algebra=algebra), algebra is not None
    for launch in launches:
        translation = _translated(launch.source, over_fields)
        kernel = next((k for k in translation.kernels if k.symbol == launch.symbol), None)
        if kernel is None:
            raise ValueError(
                f"no kernel {launch.symbol!r}; found {', '.join(k.symbol for k in translation.kernels)}"
            )
        if len(kernel.parameters) != len(launch.arguments):
            needed, found = len(kernel.parameters), len(launch.arguments)
            raise ValueError(f"kernel {launch.symbol!r}: {found} arguments found, {needed} needed")
        arguments = []
        for argument, parameter in zip(launch.arguments, kernel.parameters, strict=True):
            if parameter.is_buffer and argument is None:
                arguments.append("v0")
            elif parameter.is_buffer:
                buffer = as_buffer(argument, parameter, 2 if over_fields else 1)
                arguments.append(f"b{run.memory.place(buffer, parameter.name):x}")
            else:
                arguments.append(f"v{bits_of(argument, parameter):x}")
        library = compiler.library(translation.source, 10 * capability(target), over_fields)
        run.launches.append(Prepared(launch, kernel, library, tuple(arguments)))
    return run


def _launch_findings(run: Run, target: str):
    """What the driver would refuse before any thread runs."""
    for prepared in run.launches:
        launch, symbol = prepared.launch, prepared.launch.symbol
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        most = prepared.kernel.most_threads or MOST_THREADS
        if min(launch.grid) < 1 or threads < 1:
            yield Finding(
                "launch",
                symbol,
                detail=f"grid {launch.grid} and block {launch.block}: all have to be positive",
            )
        elif threads > min(most, MOST_THREADS):
            yield Finding(
                "launch",
                symbol,
                detail=f"{threads} threads a block; at most {min(most, MOST_THREADS)} may be",
            )
        limit = SHARED_BYTES[capability(target)] << 10
        if launch.dynamic_shared_bytes > limit:
            found = launch.dynamic_shared_bytes
            yield Finding(
                "launch", symbol, detail=f"{found} bytes of shared memory; {target} has {limit} a block"
            )


def _execute(run: Run, seed: int, seconds: float) -> str:
    with tempfile.TemporaryDirectory(prefix="kdsl-emulate-") as folder:
        memory = Path(folder, "memory")
        run.memory.write(memory)
        command = [str(compiler.runner(run.algebra is not None)), str(memory)]
        try:
            done = subprocess.run(
                command, input=_job(run, seed, seconds), capture_output=True, text=True, check=False,
                timeout=seconds + 10,
            )  # fmt: skip
        except subprocess.TimeoutExpired as stop:
            raise RunnerFault(f"no answer after {seconds + 10:g} s: {stop.stdout or ''}") from None
        if done.returncode or not done.stdout.endswith("end\n"):
            raise RunnerFault(f"status {done.returncode}: {done.stderr or done.stdout[-1000:]}")
        run.memory.read_back(memory)
        return done.stdout


def _job(run: Run, seed: int, seconds: float) -> str:
    lines = [f"seed {seed % 2**32}", f"seconds {seconds}"]
    if run.algebra is not None:
        lines.append(f"field {run.algebra}")
    for slot in run.memory.slots:
        shift = min(slot.buffer.array.itemsize, 4).bit_length() - 1
        lines.append(f"buffer {slot.role} {shift} {slot.offset} {slot.buffer.span}")
    for prepared in run.launches:
        launch = prepared.launch
        numbers = (*launch.grid, *launch.block, launch.dynamic_shared_bytes)
        lines.append(
            " ".join(
                ["launch", str(prepared.library), launch.symbol, *map(str, numbers), *prepared.arguments]
            )
        )
    return "\n".join([*lines, "end", ""])


def _read_report(run: Run, text: str, target: str) -> EmulationResult:
    findings, limits, shared, refusal, seen, constants = [], [], [], None, {}, []
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "finding":
            findings.append(_finding(run, _fields(rest, last="detail")))
        elif kind == "times":
            fields = _fields(rest)
            number = int(fields["finding"])
            findings[number] = evolve(findings[number], times=int(fields["count"]))
        elif kind == "shared":
            fields = _fields(rest)
            symbol, access = run.launches[int(fields.pop("kernel"))].launch.symbol, fields.pop("access")
            shared.append(
                SharedTraffic(kernel=symbol, access=access, **{k: int(v) for k, v in fields.items()})
            )
        elif kind == "static":
            limits += _static_findings(run, _fields(rest), target)
        elif kind in ("field", "division"):
            seen |= {kind: 1} if kind == "division" else {k: int(v) for k, v in _fields(rest).items()}
        elif kind == "constant":
            fields = _fields(rest)
            constants.append((float.fromhex(fields["factor"]), int(fields["symbol"])))
        elif kind == "refusal":
            fields = _fields(rest, last="what")
            refusal = Refusal(fields["what"], line=int(fields["line"]))
    harmless = tuple(f for f in findings if f.kind in HARMLESS)
    wrong = (*limits, *(f for f in findings if f.kind not in HARMLESS))
    return EmulationResult(wrong, harmless, tuple(shared), refusal, seen=seen, constants=tuple(constants))


def _fields(text: str, last: str = "") -> dict[str, str]:
    """`a=1 b=2`; the value of `last` goes to the end of the line."""
    head, found, tail = text.partition(f"{last}=") if last else (text, "", "")
    fields = dict(part.split("=", 1) for part in head.split())
    return {**fields, last: tail} if found else fields


def _static_findings(run: Run, fields: dict[str, str], target: str):
    launch, found = run.launches[int(fields["kernel"])].launch, int(fields["bytes"])
    limit = SHARED_BYTES[capability(target)] << 10
    if found > STATIC_SHARED_BYTES << 10:
        limit = STATIC_SHARED_BYTES << 10
        yield Finding(
            "launch", launch.symbol, detail=f"{found} bytes of static shared memory; {limit} are allowed"
        )
    elif found + launch.dynamic_shared_bytes > limit:
        found += launch.dynamic_shared_bytes
        yield Finding(
            "launch", launch.symbol, detail=f"{found} bytes of shared memory; {target} has {limit} a block"
        )


def _finding(run: Run, fields: dict[str, str]) -> Finding:
    launch = run.launches[int(fields["kernel"])].launch
    number = {
        name: int(fields[name])
        for name in ("line", "thread", "other_line", "other_thread", "array", "offset", "bytes")
    }
    line = number["line"] if number["line"] > 0 else None
    thread = place_of(number["thread"], launch.block)
    array = number["array"]
    return Finding(
        kind=fields["kind"], kernel=launch.symbol, line=line, thread=thread,
        block=tuple(map(int, fields["block"].split(","))) if thread is not None else None,
        other_line=number["other_line"] if number["other_line"] > 0 else None,
        other_thread=place_of(number["other_thread"], launch.block),
        array=run.memory.slots[array].name if array >= 0 else _ARRAYS.get(array, ""),
        offset=None if array == -1 and number["offset"] < 0 else number["offset"],
        bytes=None if number["bytes"] < 0 else number["bytes"],
        detail=fields.get("detail", "").strip(),
        source=_source_line(launch.source, line),
    )  # fmt: skip


def _source_line(source: str, line: int | None) -> str:
    return source.splitlines()[line - 1].strip()[:200] if line is not None else ""
