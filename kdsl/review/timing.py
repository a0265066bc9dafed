"""The latency of one variant, and of what it is held against, on the same tensors in the same process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import define

from kdsl import kda
from kdsl.bench.alone import alone
from kdsl.bench.baselines import NoBaseline, baseline_call
from kdsl.bundle.load import Bundle
from kdsl.bundle.manifest import Variant
from kdsl.contract.verdict import Fact
from kdsl.emulate import calls
from kdsl.review.bench import Bench
from kdsl.source.diagnostic import Evidence
from kdsl.validate.latency import rotation, time_calls

TOKENS, HOST_TOKENS, HEADS, ROWS = 8192, 256, 16, 64  # of the call that is timed, on a GPU and on a host
PREVIOUS = "previous"


def timed_call(operator: str, variant: Variant, device: str) -> dict[str, Any]:
    """The call whose time is taken, as arrays: the variant's own options, no sequence or row left out."""
    rng, settings = np.random.default_rng(0), {**variant.options, **variant.dtypes}
    sizes = {**calls.SIZES, **variant.sizes, "H": HEADS}
    if operator != "kda.decode":
        return calls.chunk_call(rng, sizes | {"T": HOST_TOKENS if device == "cpu" else TOKENS}, None, settings)
    call = calls.decode_call(rng, sizes | {"N": ROWS}, settings)
    call["ssm_state_indices"] = rng.permutation(len(call["pool"]))[:ROWS].astype(np.int64)
    return call


def compulsory_bytes(call: Mapping[str, Any]) -> int:
    """What a call must move: every input read once, every output written once. States are written as they are read."""
    kept = ("initial_state", "pool")
    states = [call[name].nbytes for name in kept if name in call]
    if "ssm_state_indices" in call:  # rows of a pool, not all of it
        states = [size * len(call["ssm_state_indices"]) // len(call["pool"]) for size in states]
    others = [x.nbytes for name, x in call.items() if isinstance(x, np.ndarray) and name not in kept]
    return sum(others) + 2 * sum(states) + call["v"].nbytes


@define
class Stopwatch:
    """One variant's call in as many copies as keep the L2 cold, and how it is timed."""

    operator: str
    bench: Bench
    runs: int
    sets: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, operator: str, variant: Variant, bench: Bench, runs: int) -> Stopwatch:
        call = timed_call(operator, variant, bench.device.type)
        nbytes = sum(x.nbytes for x in call.values() if isinstance(x, np.ndarray))
        made = bench.decode_arguments if operator == "kda.decode" else bench.chunk_arguments
        return cls(operator, bench, runs, [made(call) for _ in range(rotation(nbytes, bench.l2_bytes))])

    def p95(self, run: Callable[[int], Any]) -> Fact:
        """The 95th percentile in seconds."""
        samples = time_calls(run, len(self.sets), self.bench.clock, runs=self.runs)
        return Fact(samples.p95 * 1e-6, "s", Evidence.MEASURED, self.bench.name)

    def own(self, bundle: Bundle, variant: Variant) -> Fact:
        run = kda.fused_recurrent_kda if self.operator == "kda.decode" else kda.chunk_kda
        with alone(bundle, variant):
            return self.p95(lambda turn: run(**self.sets[turn]))

    def previous(self, baseline: Bundle | None, variant: Variant) -> Fact:
        """The same call on another bundle's variant for the same settings. Raises NoBaseline."""
        if baseline is None:
            raise NoBaseline("no earlier bundle was given: --baseline OLD.kdsb")
        same = [v for v in baseline.manifest.variants if settings_of(v) == settings_of(variant)]
        if not same:
            raise NoBaseline("the baseline bundle has no variant for the same target, options and dtypes")
        return self.own(baseline, same[0])

    def library(self, name: str) -> Fact:
        """A library's function on the same tensors. Raises NoBaseline."""
        called = [baseline_call(name, self.operator, tensors) for tensors in self.sets]
        try:
            return self.p95(lambda turn: called[turn]())
        except Exception as theirs:
            raise NoBaseline(f"{name} failed: {type(theirs).__name__}: {theirs}") from theirs


def settings_of(variant: Variant) -> tuple:
    return variant.target, variant.options, variant.dtypes


def baseline_fact(watch: Stopwatch, name: str, previous: Bundle | None, variant: Variant) -> Fact:
    """What `baseline NAME` stands for. Raises NoBaseline."""
    if name == PREVIOUS:
        return watch.previous(previous, variant)
    return watch.library(name)
