"""Generated CUDA as subjects: the kernels of the shipped rules, each mutant of one run in place of it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from attrs import evolve, frozen

from kdsl.data import data_root
from kdsl.driver.emulation import LoweredProgram, program
from kdsl.emulate.findings import Finding
from kdsl.emulate.run import EmulationResult, RunnerFault, emulate
from kdsl.validate import bfloat16, oracle
from kdsl.validate.acceptance import acceptance
from kdsl.validate.call import reference

from .calls import SWITCHES, Tried, calls_of
from .cuda_text import KERNEL
from .mutant import Mutant, applied
from .verdict import Outcome

TARGET = "sm_90a"
# rule: its file, and the settings that its kernels are generated for
RULES = {
    "mma_bounded": ("kda.chunk_forward/mma_bounded.kds", {"gate": "bounded", **SWITCHES}),
    "mma_any_gate": ("kda.chunk_forward/mma_any_gate.kds", {"gate": "softplus", **SWITCHES}),
    "wgmma_fused": ("kda.chunk_forward/wgmma_fused.kds", {"gate": "bounded", **SWITCHES}),
    "lane_columns": ("kda.decode/lane_columns.kds", {"gate": "bounded", **SWITCHES}),
}
SECONDS = 20.0  # the unchanged kernels take less than one


@lru_cache(maxsize=8)
def lowered(rule: str) -> LoweredProgram:
    file, settings = RULES[rule]
    return program(data_root() / "rules" / file, TARGET, settings)


@lru_cache(maxsize=8)
def calls(rule: str) -> tuple[Tried, ...]:
    return calls_of(lowered(rule))


@lru_cache(maxsize=1)
def subjects() -> dict[str, str]:
    """Kernel texts by name; what another rule has too, up to names of arguments, is one subject."""
    found: dict[str, str] = {}
    for rule in RULES:
        for source in lowered(rule).lowering.sources:
            if unnamed(source.source) not in map(unnamed, found.values()):
                found[f"{rule}.{source.kernel}"] = source.source
    return found


def unnamed(text: str) -> str:
    """The kernel without the order and the names of its workspace arguments."""
    return KERNEL.sub("", text).replace("_for_recurrence", "")


@lru_cache(maxsize=64)
def expected(rule: str, number: int):
    tried = calls(rule)[number]
    judged = {
        name: np.ascontiguousarray(v) if isinstance(v, np.ndarray) else v for name, v in tried.judged.items()
    }
    return oracle.decode(**judged) if lowered(rule).operator == "kda.decode" else reference(judged)


@frozen(eq=False)
class Ran:
    """One run: what the emulator says and the bytes of the results."""

    result: EmulationResult
    accepted: bool
    explained: str
    content: bytes


def run(rule: str, number: int, kernel: str = "", text: str = "", launch=None, seed: int | None = None) -> Ran:
    """Call `number` of the rule with another text of a kernel, other numbers of its launch, or in another order."""
    found, tried = lowered(rule), calls(rule)[number]
    bound = found.bind(tried.call, tried.final_state)
    symbols = {s.symbol: s.kernel for s in found.lowering.sources}
    launches = []
    for one in bound.launches:
        if symbols[one.symbol] == kernel:
            one = evolve(one, source=text) if text else one
            one = changed_launch(one, launch or {})
        launches.append(one)
    result = emulate(launches, target=TARGET, seed=tried.seed if seed is None else seed, seconds=SECONDS)
    if result.refusal is not None:
        return Ran(result, False, result.explain(), b"")
    o, state = expected(rule, number)
    judged = acceptance(values(bound.o), values(bound.state), o, state if tried.final_state else bound.state)
    return Ran(result, judged.accepted, judged.explain(), bound.o.tobytes() + bound.state.tobytes())


def changed_launch(launch, changes):
    axes = {"x": 0, "y": 1, "z": 2}
    grid, block, shared = list(launch.grid), list(launch.block), launch.dynamic_shared_bytes
    for name, delta in changes.items():
        kind, _, axis = name.partition(".")
        if kind == "grid":
            grid[axes[axis]] += delta
        elif kind == "block":
            block[axes[axis]] += delta
        else:
            shared += delta
    return evolve(launch, grid=tuple(grid), block=tuple(block), dynamic_shared_bytes=shared)


def values(array: np.ndarray) -> np.ndarray:
    return bfloat16.decode(array) if array.dtype == np.uint16 else array


@lru_cache(maxsize=64)
def unchanged(rule: str, number: int) -> bytes:
    ran = run(rule, number)
    assert ran.result.verdict == "pass" and ran.accepted, (
        f"{rule}, {calls(rule)[number].name}: {ran.explained}"
    )
    return ran.content


def judge(mutant: Mutant) -> Outcome:
    """Every call until one rejects it. The first is what `kdsl emulate` would draw."""
    rule, kernel = mutant.subject.split(".")
    text = applied(subjects()[mutant.subject], mutant.edits)
    equal = True
    for number, tried in enumerate(calls(rule)):
        try:
            ran = run(rule, number, kernel, text, mutant.launch)
        except RunnerFault as fault:
            return Outcome("emulator", f"runner fault: {str(fault)[:120]}")
        stage, detail = rejected(ran)
        if stage:
            return Outcome(
                stage if number == 0 or stage == "compiler" else "calls",
                detail if number == 0 else f"{tried.name}: {detail}",
            )
        equal = equal and ran.content == unchanged(rule, number)
    return Outcome(same_output=equal)


def rejected(ran: Ran) -> tuple[str, str]:
    """(stage, what was found), or two empty texts."""
    if ran.result.refusal is not None:
        return "compiler", str(ran.result.refusal)[:160]
    if ran.result.findings:
        first: Finding = ran.result.findings[0]
        return "emulator", f"{first.kind}: {first.explain().splitlines()[0][:140]}"
    if not ran.accepted:
        return "acceptance", ran.explained[:160]
    return "", ""
