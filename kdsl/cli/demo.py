"""`make demo`: the whole way on recorded inputs, from the rules to the error and the schedule's picture.

    python -m kdsl.cli.demo

Runs on the GPU if PyTorch sees one that a rule is for, else on the CPU. Exit status 1 if a step fails.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from attrs import frozen

from kdsl.bundle.cache import Cache
from kdsl.check import check_paths
from kdsl.check.library import Library
from kdsl.contract.select import Selection, select
from kdsl.contract.verdict import Status, Verdict
from kdsl.data import data_root
from kdsl.driver.compile import content_key, plan_of, shipped_library
from kdsl.driver.contract import broken, verdicts
from kdsl.driver.versions import versions
from kdsl.lower.lowering import Lowering
from kdsl.lower.toolchain.cc import ToolMissing
from kdsl.plan.derive import derive
from kdsl.plan.listing import picture
from kdsl.plan.model import Plan
from kdsl.plan.specialize import specialize
from kdsl.runtime.arguments import torch_module
from kdsl.runtime.targets import capability_target
from kdsl.validate.acceptance import Acceptance, acceptance
from kdsl.validate.call import Call, gate_of, reference
from kdsl.validate.traces import load_trace

OPERATOR = "kda.chunk_forward"
TRACES = ("bounded_layer0", "softplus_layer0")
LOWERED_FOR = ("sm_90a", "sm_100a")
GIVEN = {"cu_seqlens": True, "initial_state": True, "final_state": True, "A_log": True, "dt_bias": True}
SWITCHES = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True}


def main() -> int:
    started = time.perf_counter()
    found = ", ".join(f"{name} {version}" for name, version in versions().items())
    say(f"kdsl demo: {found}")
    library = checked()
    device, target = device_here(library)
    selected(library, target)
    promised = lowered(library)
    runs = [ran(library, name, device, target) for name in TRACES]
    say(error_table(runs))
    say(f"\nthe schedule of {runs[0].trace}, made from {runs[0].plan.rule.name} and nothing else")
    say(picture(runs[0].plan))
    passed = all(run.result.accepted for run in runs)
    if not promised:
        say("a clause of `ensure` does not hold: see above")
    word = "accepted" if passed else "NOT ACCEPTED"
    say(f"{word} on {len(runs)} traces; {time.perf_counter() - started:.1f} s in all")
    return 0 if passed and promised else 1


def say(text: str = "") -> None:
    print(text, flush=True)


@contextmanager
def step(name: str, what: str) -> Iterator[list[str]]:
    """A heading with the time that the block took, then the lines that it collected."""
    lines: list[str] = []
    begun = time.perf_counter()
    yield lines
    say(f"\n{name:8} {what:84} {time.perf_counter() - begun:6.2f} s")
    for line in lines:
        say(f"    {line}")


# ---- the steps


def checked() -> Library:
    with step("check", "rules and standard library: names, types, units, laws, contracts") as lines:
        result = check_paths([data_root() / "rules", data_root() / "stdlib"])
        lines.append(f"{len(result.files)} files, {len(result.diagnostics)} findings")
    if not result.ok:
        raise SystemExit("the shipped rules have findings: run `kdsl check rules stdlib`")
    return shipped_library()


def device_here(library: Library) -> tuple[str, str]:
    """("cuda", its target) if there is a GPU that some rule is for, else ("cpu", "cpu")."""
    torch = torch_module()
    if torch.cuda.is_available():
        target = capability_target(*torch.cuda.get_device_capability())
        if any(target in rule.targets for rule in library.rules.values()):
            return "cuda", target
    return "cpu", "cpu"


def selected(library: Library, target: str) -> None:
    targets = list(dict.fromkeys((target, *LOWERED_FOR)))
    sizes = {"T": 8192, "H": 96, "K": 128, "V": 128}
    with step("select", "who takes B = 1, T = 8192, H = 96, K = V = 128 with a bounded gate") as lines:
        for name in targets:
            lines += claim_lines(select_call(library, name, sizes))
        refused = select_call(library, "cpu", {**sizes, "K": 100})
        lines += [f"K = 100 on cpu: {r.rule} refuses: {r.found}; {r.remedy}" for r in refused.refusals]


def select_call(library: Library, target: str, sizes: Mapping[str, int]) -> Selection:
    """The call of these sizes as one sequence, in bf16, norm, bounded gate and sigmoid in the kernel."""
    options = {**SWITCHES, "gate": "bounded", "lower_bound": -5.0}
    whole = {"B": 1, "HV": sizes["H"], "N": 1, **sizes}
    return select(library, target, OPERATOR, whole, {"q": "bf16"}, options, {**GIVEN, "cu_seqlens": False})


def claim_lines(selection: Selection) -> Iterator[str]:
    chosen = selection.chosen
    if chosen is None:
        yield f"{selection.target.name:8} no rule takes it"
        return
    holds = [v for v in chosen.verdicts if v.status is Status.HOLDS]
    shown = "; ".join(f"{v.clause} ({v.evidence.value}: {v.found})" for v in holds)
    yield f"{selection.target.name:8} {chosen.rule.name}: {shown or 'no clause decided yet'}"
    if len(holds) < len(chosen.verdicts):
        others = "; ".join(v.clause for v in chosen.verdicts if v.status is not Status.HOLDS)
        yield f"{'':8} decided later: {others}"


def lowered(library: Library) -> bool:
    """CUDA without a GPU, with what the machine code says of each clause; whether all of `ensure` holds."""
    holds = True
    for target in LOWERED_FOR:
        rules = [r for r in library.rules.values() if target in r.targets and r.operator == OPERATOR]
        if not rules:
            say(f"\nlower    no rule for {target} is shipped yet")
            continue
        rule = rules[-1]
        with step("lower", f"{rule.name} for {target}: schedule, TIR, CUDA, PTX, cubin, contract") as lines:
            special = specialize(library.operators[OPERATOR], rule, {}, {**SWITCHES, "gate": "bounded"})
            lowering = Lowering(plan_of(library, rule.name, target, {}, special))
            try:
                found = verdicts(lowering)
            except ToolMissing as missing:
                lines.append(f"skipped: {missing}")
                continue
            lines += cuda_lines(lowering, found)
            holds = holds and not broken(found)
    return holds


def cuda_lines(lowering: Lowering, found: tuple[Verdict, ...]) -> Iterator[str]:
    for kernel, objects in zip(lowering.plan.launches, lowering.objects, strict=True):
        yield f"kernel {kernel.name}: {len(kernel.steps)} schedule steps, {len(objects.cubin)} bytes of cubin"
    for verdict in found:
        number = f", found {verdict.found}" if verdict.found else ""
        yield f"{verdict.clause}: {verdict.told}{number}"


# ---- the operator on recorded inputs


@frozen
class Run:
    trace: str
    plan: Plan
    result: Acceptance
    seconds: float


def ran(library: Library, trace: str, device: str, target: str) -> Run:
    """One trace through `kdsl.kda.chunk_kda`, twice: the first call compiles if no bundle is at hand."""
    from kdsl.kda import chunk_kda

    call = load_trace(data_root() / "data" / "traces" / f"{trace}.npz")
    torch = torch_module()
    arguments = {name: to_torch(torch, x, device) for name, x in call.items()}
    plan = plan_for(library, call, target)
    with step("run", f"{trace}: 5 sequences, 2048 tokens, 4 heads, bf16, on {device}") as lines:
        made = Cache().get(content_key(plan)) is None
        begun = time.perf_counter()
        chunk_kda(**arguments)
        built = time.perf_counter() - begun
        begun = time.perf_counter()
        o, state = chunk_kda(**arguments)
        if device == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - begun
        how = "compiled, tried and run" if made else "bundle from the cache, run"
        lines.append(f"{plan.rule.name}: first call {built:.2f} s ({how}), second {seconds * 1e3:.1f} ms")
    assert Cache().get(content_key(plan)) is not None, "the call ran on another bundle than the one shown"
    result = acceptance(to_numpy(o), to_numpy(state), *reference(call))
    return Run(trace, plan, result, seconds)


def plan_for(library: Library, call: Call, target: str) -> Plan:
    """The plan that `chunk_kda` compiles for this call."""
    heads, keys = call["q"].shape[2:]
    sizes = {"B": 1, "T": call["q"].shape[1], "H": heads, "HV": call["v"].shape[2],
             "N": len(call["cu_seqlens"]) - 1, "K": keys, "V": call["v"].shape[3]}  # fmt: skip
    gate = gate_of(call)
    options = {**SWITCHES, "gate": gate, "allow_neg_eigval": False, "state_v_first": False}
    bound = {"lower_bound": -5.0} if gate == "bounded" else {}
    chosen = select(library, target, OPERATOR, sizes, {"q": "bf16"}, options | bound, GIVEN).chosen
    if chosen is None:
        raise SystemExit(f"no rule takes the {gate} trace on {target}")
    special = specialize(library.operators[OPERATOR], chosen.rule, {}, options_of(library, options), {})
    return derive(chosen.point, library.operators[OPERATOR], special)


def options_of(library: Library, options: Mapping[str, object]) -> dict[str, object]:
    return {name: x for name, x in options.items() if name in library.operators[OPERATOR].options}


def to_torch(torch, value, device: str):
    """Arrays as tensors on the device, uint16 as bfloat16; everything else as it is."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == np.uint16:
        return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(value).to(device)


def to_numpy(tensor) -> np.ndarray:
    return tensor.float().cpu().numpy()


def error_table(runs: list[Run]) -> str:
    heads = f"    {'':16} {'o: rms':>9} {'worst element':>14} {'state: rms':>12} {'worst element':>14}"
    title = "error against the float64 oracle (limits: rms 0.01, the worst element 1 of its limit)"
    lines = ["", title, heads]
    for run in runs:
        o, state = run.result.o, run.result.final_state
        word = "accepted" if run.result.accepted else "REJECTED"
        lines.append(f"    {run.trace:16} {o.rms_ratio:9.2e} {o.worst_share:14.3f} {state.rms_ratio:12.2e}"
                     f" {state.worst_share:14.2e}   {word}")  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
