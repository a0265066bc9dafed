"""What a check comes back with, and how one is run so that nothing it does stops the others."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import numpy as np

from harness.device import Device
from harness.runner import Runner
from kdsl.bundle import Bundle
from kdsl.runtime import NoVariant
from kdsl.validate.acceptance import RMS_LIMIT, acceptance
from kdsl.validate.call import Call, reference
from kdsl.validate.gpu_report import FAILED, PASSED, REFUSED, SKIPPED, UNKNOWN, Check, error_numbers
from kdsl.validate.probes import random_call

SOFTPLUS = {"lower_bound": None, "safe_gate": False}


@attrs.frozen
class Outcome:
    """Whether a check passed; `detail` is one sentence, `numbers` what it rests on."""

    passed: bool
    detail: str = ""
    numbers: Mapping[str, Any] = attrs.field(factory=dict)


class Skip(Exception):
    """The check has no meaning here: on this device, or with what is installed."""


class Unknown(Exception):
    """The check could not be made."""


Named = tuple[str, Callable[[], Outcome]]
Checks = Iterator[Named]


@attrs.frozen(eq=False)
class Context:
    """What checks of one bundle work with. `quick` asks for little, `small` for inputs that a CPU can do."""

    device: Device
    run: Runner
    seed: int
    quick: bool
    bundle: Bundle
    baseline: str
    deadline: float

    @property
    def small(self) -> bool:
        return not self.device.is_gpu

    @property
    def label(self) -> str:
        return self.bundle.path.name.removesuffix(".kdsb")

    @property
    def gate(self) -> str:
        """The bounded gate, or softplus where the bundle is for that and not for a bounded one."""
        built = {variant.options.get("gate") for variant in self.bundle.manifest.variants}
        return "softplus" if "softplus" in built and "bounded" not in built else "bounded"

    def random_call(self, rng: np.random.Generator, tokens: int, **options: Any) -> dict[str, Any]:
        """A call of ordinary data (kdsl.validate.probes) with the gate that the bundle is for."""
        call = random_call(rng, tokens, **options)
        return call if self.gate == "bounded" else call | SOFTPLUS

    def rng(self, *key: int) -> np.random.Generator:
        """A stream of its own for each key, from the seed of this run."""
        return np.random.default_rng([self.seed, *key])

    @property
    def seconds_left(self) -> float:
        return max(self.deadline - time.monotonic(), 0.0)


def accepted(context: Context, call: Call, state_rms_limit: float = RMS_LIMIT, **facts: Any) -> Outcome:
    """Run a call and hold it against the oracle."""
    result = acceptance(*context.run(call), *reference(call), state_rms_limit=state_rms_limit)
    return Outcome(result.accepted, result.explain(), {**error_numbers(result), **facts})


def run_check(section: str, context: Context, name: str, check: Callable[[], Outcome]) -> Check:
    """Run one check. Whatever it raises becomes its result."""
    begin = time.monotonic()
    found = {"section": section, "bundle": context.label, "name": name}
    if not context.seconds_left:
        return Check(**found, status=UNKNOWN, detail="not run: the section's time was up")
    try:
        outcome = check()
        status = PASSED if outcome.passed else FAILED
        return Check(
            **found, status=status, detail=outcome.detail, numbers=dict(outcome.numbers),
            seconds=time.monotonic() - begin,
        )  # fmt: skip
    except Skip as skip:
        return Check(**found, status=SKIPPED, detail=str(skip), seconds=time.monotonic() - begin)
    except NoVariant as refusal:
        status, detail, trace = REFUSED, "; ".join(map(_reason, refusal.refusals)) or str(refusal), ""
    except Unknown as failure:
        status, detail, trace = UNKNOWN, str(failure), ""
    except Exception as failure:
        status, detail, trace = FAILED, f"{type(failure).__name__}: {failure}", traceback.format_exc()
    return Check(**found, status=status, detail=detail, seconds=time.monotonic() - begin, traceback=trace)


def _reason(refusal: str) -> str:
    """A refusal without the path of the bundle."""
    return refusal.partition(" variant ")[2] or refusal
