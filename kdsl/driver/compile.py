"""The straight line from a rule to a bundle, and the compiler's answer to a call that no bundle fits."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from attrs import field, frozen

from kdsl import __version__
from kdsl.bundle import manifest as m
from kdsl.bundle.cache import Cache
from kdsl.bundle.codec import decode
from kdsl.bundle.write import write_bundle
from kdsl.check.library import Library, load
from kdsl.check.model import RulePoint, Specialization
from kdsl.check.rules import rule_at
from kdsl.data import data_root
from kdsl.plan.derive import derive
from kdsl.plan.model import Plan

RULES_VARIABLE = "KDSL_RULES"


@frozen
class NoRule(Exception):
    """No rule claims the call; `refusals` say why, one line a rule."""

    call: str
    refusals: tuple[str, ...] = field(factory=tuple)

    def __str__(self) -> str:
        return "\n  ".join([f"no rule claims {self.call}", *self.refusals])


@frozen
class ContractFailed(Exception):
    """A clause of `ensure` does not hold for the code that was made, so no bundle is written."""

    rule: str
    verdicts: tuple[m.Verdict, ...]

    def __str__(self) -> str:
        lines = [f"{v.clause}: {v.verdict} ({v.evidence}); found {v.found}, needed {v.needed}" for v in self.verdicts]
        return "\n  ".join([f"rule `{self.rule}`: its contract does not hold, no bundle was written", *lines])


@lru_cache(maxsize=1)
def shipped_library() -> Library:
    """The standard library, the shipped rules, and the files and folders of KDSL_RULES."""
    places = [data_root() / "rules", *map(Path, filter(None, os.environ.get(RULES_VARIABLE, "").split(os.pathsep)))]
    return load(file for place in places for file in rule_files(place))


def rule_files(place: Path) -> list[Path]:
    return sorted(place.rglob("*.kds")) if place.is_dir() else [place]


def plan_of(
    library: Library, rule: str, target: str, choices: Mapping[str, object], specialization: Specialization
) -> Plan:
    """Raises PlanRefused."""
    found = library.rules[rule]
    point = rule_at(found, library.targets[target], {**found.defaults, **choices}, library.tactics)
    return derive(point, library.operators[found.operator], specialization)


def versions() -> dict[str, str]:
    return {
        "kdsl": __version__, "python": platform.python_version(), "tvm": version("apache-tvm"),
        "tvm_ffi": version("apache-tvm-ffi"),
    }  # fmt: skip


def content_key(plan: Plan) -> str:
    """Everything that makes the bundle: texts, choices, specialization, versions, flags."""
    from kdsl.lower.toolchain import cc

    compiler = cc.find()
    point, special = plan.point, plan.specialization
    parts = {
        "versions": versions(), "compiler": [compiler.name, compiler.version, *compiler.flags],
        "rule": plan.rule.declaration.span.text, "operator": plan.operator.declaration.span.text,
        "target": [point.target.name, sorted(map(str, point.target.fields.items()))],
        "kernels": repr(point.kernels), "choices": sorted(map(str, point.choices.items())),
        "dtypes": sorted(special.dtypes.items()), "options": sorted(map(str, special.options.items())),
        "sizes": sorted(special.sizes.items()), "source": source_digest(),
    }  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@lru_cache(maxsize=1)
def source_digest() -> str:
    """The compiler itself: a change of plan/ or lower/ makes other bundles."""
    package = Path(__file__).resolve().parent
    digest = hashlib.sha256()
    for folder in ("check", "plan", "lower"):
        for file in sorted((package / folder).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()
