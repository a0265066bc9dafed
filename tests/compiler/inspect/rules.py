"""The shipped CUDA rules, and rules from text, lowered once a run."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from kdsl.data import data_root
from kdsl.driver.compile import plan_of
from kdsl.inspect.stages import StagedCode, staged_code
from kdsl.lower.lowering import Lowering
from kdsl.plan.specialize import specialize
from kdsl.review.subject import checked, wrong
from kdsl.source.render.text import render_text

RULES = ("mma_bounded", "mma_any_gate", "mma_beside", "lane_columns")
FILES = {name: f"kda.decode/{name}.kds" for name in ("lane_columns", "cpu_stream")}
OWN = Path(__file__).parents[1] / "rules"


def file_of(rule: str) -> Path:
    own = OWN / f"{rule}.kds"
    return own if own.exists() else data_root() / "rules" / FILES.get(rule, f"kda.chunk_forward/{rule}.kds")


def text_of(rule: str) -> str:
    return file_of(rule).read_text(encoding="utf-8")


@lru_cache(maxsize=8)
def lowering_of(rule: str, target: str) -> Lowering:
    return lowered(file_of(rule), rule, target)


@lru_cache(maxsize=4)
def staged(rule: str, target: str) -> dict[str, StagedCode]:
    return {one.plan.name: one for one in staged_code(lowering_of(rule, target))}


def lowered(file: Path, rule: str, target: str) -> Lowering:
    """A rule of a file on a target, with the settings of a call that says nothing."""
    result = checked({str(file): file.read_text(encoding="utf-8")})  # a broken promise is no error here
    assert not wrong(result), render_text(result.diagnostics)
    declared = result.library.rules[rule]
    special = specialize(result.library.operators[declared.operator], declared)
    return Lowering(plan_of(result.library, rule, target, {}, special))


def padded(folder: Path, pad: int, ensure: str = "") -> Path:
    """mma_bounded as rule `padded`, with this pad for k_decayed in the recurrence, which has a line of its own
    in a tactic of its own. It promises nothing of conflicts; `ensure` are further clauses."""
    tactics = (data_root() / "stdlib/tactics/mma.kds").read_text(encoding="utf-8")
    start = tactics.index("tactic mma_recurrence")
    tactic = tactics[start : tactics.index("\n}", start) + 3]
    shared = re.search(r"    k_decayed, q_decayed, k_restored : (bf16 in shared) swizzle 128 (.*)\n", tactic)
    attribute = f" pad {pad}" if pad else ""
    own = f"    k_decayed             : {shared[1]}{attribute} {shared[2]}\n"
    rest = f"    q_decayed, k_restored : {shared[1]} swizzle 128 {shared[2]}\n"
    tactic = tactic.replace(shared[0], own + rest).replace("mma_recurrence", "padded_recurrence")
    rule = text_of("mma_bounded").replace("rule mma_bounded", "rule padded")
    rule = rule.replace("mma_recurrence", "padded_recurrence")
    rule = re.sub(r" +bank_conflicts .*\n", "", rule)
    if ensure:
        rule = rule.replace("  ensure {\n    spills", f"  ensure {{\n    {ensure}\n    spills")
    file = folder / "padded.kds"
    file.write_text(f"{rule}\n{tactic}", encoding="utf-8")
    return file
