"""One rule from its text to its report, through the functions of the commands, each step shown and asserted.

    python -m kdsl.tour

Read it beside the folders: text, tree, check, select, plan, schedule, TIR, C, bundle, run, error, report.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from textwrap import wrap

from kdsl.bundle.load import load_bundle
from kdsl.check import check_paths
from kdsl.check.model import GridLoop
from kdsl.contract.select import select
from kdsl.contract.verdict import Status
from kdsl.data import data_root
from kdsl.driver import build
from kdsl.driver.report import report_text
from kdsl.driver.trial import chunk_runner, open_first
from kdsl.lower.lowering import Lowering
from kdsl.lower.stir.schedule import replays
from kdsl.plan.derive import decisions_text, derive
from kdsl.plan.listing import picture
from kdsl.plan.specialize import specialize
from kdsl.syntax import nodes as n
from kdsl.syntax.parse import parse_file
from kdsl.syntax.print import print_tree
from kdsl.validate.acceptance import acceptance
from kdsl.validate.call import reference
from kdsl.validate.traces import first_sequences, load_trace

RULE = data_root() / "rules" / "kda.chunk_forward" / "cpu_split.kds"
TRACE = data_root() / "data" / "traces" / "bounded_layer0.npz"
OPTIONS = {"gate": "bounded", "use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True}
SIZES = {"B": 1, "T": 8192, "H": 96, "K": 128, "V": 128}
_begun = time.perf_counter()


def show(step: str, said: str, lines: str = "", most: int = 6) -> None:
    """A heading and the first lines of what the step made."""
    print(f"\n-- {step} ({time.perf_counter() - _begun:.2f} s): {said}")
    kept = [line.rstrip() for line in lines.splitlines() if line.strip()]
    for line in kept[:most]:
        print(f"   {line[:108]}")
    if len(kept) > most:
        print(f"   ... {len(kept) - most} more lines")


def main() -> None:
    library = text_to_rule()
    point = rule_to_point(library)
    lowering = point_to_code(library, point)
    with tempfile.TemporaryDirectory(prefix="kdsl-tour-") as folder:
        code_to_error(lowering, Path(folder))
    show("report", "memory, roundings, contract, versions", report_text(lowering), most=40)


def text_to_rule():
    """kdsl/syntax and kdsl/check: from a file to a typed rule."""
    text = RULE.read_text(encoding="utf-8")
    show("text", f"{RULE.name}, {len(text)} characters", text, most=40)

    tree = parse_file(RULE)
    (rule,) = tree.declarations
    assert isinstance(rule, n.Rule) and rule.name.text == "cpu_split"
    assert print_tree(tree) == text, "shipped files are in their canonical form"
    kinds = ", ".join(type(item).__name__ for item in rule.items)
    show("tree", f"a {type(rule).__name__} at line {rule.span.line}; printing it gives the text back", kinds)

    result = check_paths([RULE])
    assert result.ok and not result.diagnostics
    wrong = check_paths([RULE.parent / "no_such_file.kds"])
    assert not wrong.ok and wrong.diagnostics[0].code == "E030"
    typed = result.library.rules["cpu_split"]
    choices = "; ".join(f"{name} in {list(values)}" for name, values in typed.choices.items())
    show("check", "no findings at any choose point", choices)
    return result.library


def rule_to_point(library):
    """kdsl/contract: which rule takes a call, and why not."""
    options = {**OPTIONS, "lower_bound": -5.0}
    taken = select(library, "cpu", "kda.chunk_forward", SIZES, {"q": "bf16"}, options)
    assert taken.chosen is not None and taken.chosen.rule.name == "cpu_split"
    assert taken.chosen.verdicts[0].status is Status.HOLDS
    refused = select(library, "cpu", "kda.chunk_forward", {**SIZES, "K": 100}, {"q": "bf16"}, options)
    assert refused.chosen is None and "pad to 112" in refused.refusals[0].remedy
    claimed = f"{taken.chosen.verdicts[0].clause}: found {taken.chosen.verdicts[0].found}"
    refusal = f"K = 100: {refused.refusals[0].found}; {refused.refusals[0].remedy}"
    show("select", f"{taken.chosen.rule.name} takes the call", f"{claimed}\n{refusal}")
    return taken.chosen.point


def point_to_code(library, point) -> Lowering:
    """kdsl/plan and kdsl/lower: from a rule at a point to C."""
    operator, rule = library.operators["kda.chunk_forward"], library.rules["cpu_split"]
    plan = derive(point, operator, specialize(operator, rule, {}, OPTIONS))
    (kernel,) = plan.kernels
    assert kernel.grid == (("task", (GridLoop("n"), GridLoop("h"))),) and kernel.sequential == "c"
    show("plan", f"{len(kernel.stages)} sblocks, {len(kernel.steps)} schedule steps", picture(plan), most=12)
    show("decisions", "what the rule left open, as lines that it accepts back", decisions_text(plan))

    lowering = Lowering(plan)
    (scheduled,) = lowering.scheduled
    assert replays(scheduled), "the trace alone gives the same TIR"
    show("schedule", "the trace of a tvm.s_tir.Schedule; replayed, it gives the same TIR",
         "\n".join(scheduled.trace_python.splitlines()[5:]))  # fmt: skip
    assert 'T.sblock("state_update_update")' in scheduled.tir
    show("TIR", "one sblock for every stage", scheduled.tir)

    (source,) = lowering.sources
    assert source.source.count(f"void {source.symbol}(") == 1
    show("C", f"{source.symbol}, {len(source.arguments)} arguments", source.source.split(source.symbol, 1)[1])
    return lowering


def code_to_error(lowering: Lowering, folder: Path) -> None:
    """kdsl/driver, bundle, runtime, validate: a bundle, tried before it is written, and run."""
    path = build([lowering.plan], folder / "cpu_split.kdsb")
    bundle = load_bundle(path)
    verdicts = bundle.manifest.variants[0].verdicts
    assert verdicts and all(v.verdict == "holds" for v in verdicts)
    listing = "\n".join(f"{name} {sha[:12]}" for name, sha in bundle.manifest.files.items())
    show("bundle", "manifest and code, every file with its sha256", listing)

    call = first_sequences(load_trace(TRACE), 3)
    o, state = chunk_runner(open_first(path))(call)
    show("run", f"{TRACE.stem}, the first three sequences: o {o.shape}, final state {state.shape}")

    result = acceptance(o, state, *reference(call))
    assert result.accepted, result.explain()
    wrong = acceptance(o * 1.05, state, *reference(call))
    assert not wrong.accepted, "five percent off is not accepted"
    said = wrap(f"{result.o.explain()} {result.final_state.explain()}", 100)
    show("error", "against the float64 recurrence", "\n".join(said))


if __name__ == "__main__":
    main()
