"""What the tests of the compiler share: rules from text, plans, and bundles that are built once a run.

Workers of one run share the bundles through the cache in KDSL_CACHE_DIR, which `tests/conftest.py` sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from attrs import evolve

from kdsl.bundle.cache import Cache
from kdsl.check import check_paths
from kdsl.check.library import Library
from kdsl.check.model import Specialization
from kdsl.contract.verdict import Verdict
from kdsl.data import data_root
from kdsl.driver import build, plan_of, rehearsal
from kdsl.driver.compile import content_key
from kdsl.driver.emulation import LoweredProgram
from kdsl.driver.trial import open_first
from kdsl.kda import chunk_kda
from kdsl.lower.lowering import Lowering
from kdsl.plan.model import Plan
from kdsl.plan.specialize import specialize
from kdsl.runtime.launch import Program
from kdsl.source.render.text import render_text
from kdsl.validate.acceptance import Acceptance, acceptance
from kdsl.validate.call import reference

RULES = Path(__file__).parent / "rules"  # that keep what no shipped rule uses working
TRACES = data_root() / "data" / "traces"
TORCH_DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def library_of(folder: Path, text: str, name: str = "rule") -> Library:
    """The standard library and the declarations of `text`, which has to be right."""
    file = folder / f"{name}.kds"
    file.write_text(text, encoding="utf-8")
    result = check_paths([file])
    assert result.ok, render_text(result.diagnostics)
    return result.library


def tactic_text(name: str) -> str:
    """A tactic of the shipped pieces for mma.sync, as it is written."""
    text = (data_root() / "stdlib/tactics/mma.kds").read_text(encoding="utf-8")
    start = text.index(f"tactic {name}(")
    return text[start : text.index("\n}\n", start) + 3]


def change_launches(monkeypatch, change: Callable[[str, str], str]) -> None:
    """From here on the emulator runs what `change(name of a kernel, its text)` gives."""
    honest = LoweredProgram.launch

    def launch(self, plan, source, *rest):
        return honest(self, plan, evolve(source, source=change(plan.name, source.source)), *rest)

    monkeypatch.setattr(LoweredProgram, "launch", launch)


def role_text(source: str, kernel: str) -> str:
    """The text of a kernel that shares a launch."""
    return source.split(f"void kdsl_{kernel}_kernel_role(")[1].split("\n}\n")[0]


def rehearsed_with(monkeypatch, lowering: Lowering, kernel: str, old: str, new: str) -> Verdict:
    """The verdict of the emulator with the text of a kernel changed, which must have `old`."""

    def change(name: str, text: str) -> str:
        changed = text.replace(old, new)
        assert name != kernel or changed != text, old
        return changed

    change_launches(monkeypatch, change)
    (verdict,) = rehearsal.rehearsed(lowering)
    return verdict


@lru_cache(maxsize=1)
def shipped() -> Library:
    """The standard library and the shipped rules."""
    result = check_paths([data_root() / "rules"])
    assert result.ok, render_text(result.diagnostics)
    return result.library


NOT_SHIPPED = tuple(sorted(path.stem for path in RULES.glob("*.kds")))  # they claim the same calls


@lru_cache(maxsize=4)
def library_with(rule: str) -> Library:
    """The shipped rules, or the one of the tests that has this name."""
    if rule not in NOT_SHIPPED:
        return shipped()
    result = check_paths([RULES / f"{rule}.kds"])
    assert result.ok, render_text(result.diagnostics)
    return result.library


def plan(
    library: Library,
    rule: str,
    choices: Mapping[str, object] = {},
    dtypes: Mapping[str, str] = {},
    sizes: Mapping[str, int] = {},
    target: str = "cpu",
    **options: object,
) -> Plan:
    """The plan of a rule for these settings."""
    declared = library.rules[rule]
    special: Specialization = specialize(
        library.operators[declared.operator], declared, dtypes, options, sizes
    )
    return plan_of(library, rule, target, choices, special)


def bundle(made: Plan) -> Path:
    """The bundle of a plan, built once a run."""
    return Cache().put(content_key(made), lambda path: build([made], path))


def program(made: Plan) -> Program:
    return open_first(bundle(made))


# ---- calls through the public functions


def as_torch(array: np.ndarray) -> torch.Tensor:
    """The same memory as a tensor; uint16 are bfloat16 patterns."""
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The values as NumPy has them, bfloat16 widened."""
    return tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def run_call(call: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """A runner (see `kdsl.validate.call`) that is `kdsl.kda.chunk_kda` on the CPU."""
    arguments = {n: as_torch(x) if isinstance(x, np.ndarray) else x for n, x in call.items()}
    o, state = chunk_kda(**{**arguments, "output_final_state": True})
    return as_numpy(o), as_numpy(state)


def verdict(call: Mapping[str, Any], run: Callable = run_call, **limits: float) -> Acceptance:
    """What acceptance says of a runner on a call."""
    return acceptance(*run(call), *reference(call), **limits)


def figures(result: Acceptance) -> tuple[float, ...]:
    """The four numbers of the error table: rms ratio and worst element's share of its limit, o then state."""
    pairs = (result.o, result.final_state)
    return tuple(x for one in pairs for x in (one.rms_ratio, one.worst_share))


def tactic_body(name: str, file: str = "mma.kds") -> str:
    """The lines of a tactic of stdlib/tactics, to stand in a kernel in place of `apply`."""
    text = (data_root() / "stdlib" / "tactics" / file).read_text(encoding="utf-8")
    return text.split(f"tactic {name}(")[1].split("\n}\n")[0].split('"""')[2]


def chunk_operands() -> str:
    """What `apply chunk_operands(prepare)` stands for."""
    return tactic_body("chunk_operands").replace("kernel.", "prepare.")
