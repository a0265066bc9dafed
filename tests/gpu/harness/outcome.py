"""What checks of one bundle work with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np

from harness.runner import Runner
from kdsl.bench.device import Device
from kdsl.bench.outcome import Outcome
from kdsl.bundle import Bundle
from kdsl.validate.acceptance import RMS_LIMIT, acceptance
from kdsl.validate.call import Call, reference
from kdsl.validate.gpu_report import error_numbers
from kdsl.validate.probes import random_call

SOFTPLUS = {"lower_bound": None, "safe_gate": False}


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
