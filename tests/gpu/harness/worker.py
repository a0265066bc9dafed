"""The process that works with the device. It tells its parent of each check as soon as it is made.

Events are lines of standard output that begin with MARK; everything else there is output of libraries.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from harness.outcome import Context
from harness.runner import Runner
from harness.sections import SECTIONS
from kdsl import kda
from kdsl.bench.device import Device, poison
from kdsl.bench.outcome import run_check
from kdsl.bundle import Bundle
from kdsl.runtime.shelf import BUNDLES_VARIABLE
from kdsl.validate.gpu_report import FAILED, UNKNOWN, Check

MARK = "@@kdsl "
STICKY = 3


@attrs.frozen
class Order:
    """What a worker is to do: (section, bundle) pairs, and how."""

    plan: tuple[tuple[str, str], ...] = attrs.field(converter=lambda pairs: tuple(map(tuple, pairs)))
    device: str
    seed: int
    quick: bool
    baseline: str
    seconds: float
    section_seconds: float | None = None

    def text(self) -> str:
        return json.dumps(attrs.asdict(self))

    @classmethod
    def of(cls, text: str) -> Order:
        return cls(**json.loads(text))


def tell(event: str, **facts: Any) -> None:
    """Send one event to the parent."""
    print(MARK + json.dumps({"event": event, **facts}, default=str), flush=True)


def work(order: Order) -> int:
    """Work off a plan. Returns STICKY if the device was lost on the way, else 0."""
    end = time.monotonic() + order.seconds
    only_the_bundle_under_test()
    device = Device(order.device)
    tell("environment", environment=device.environment())
    for section, path in order.plan:
        limit = min(order.section_seconds or SECTIONS[section].seconds, end - time.monotonic())
        tell("section", section=section, bundle=path, seconds=limit)
        kda.forget_bundles()
        bundle = kda.use_bundle(path)
        context = Context(
            device=device, run=Runner(device), seed=order.seed, quick=order.quick, bundle=bundle,
            baseline=order.baseline, deadline=time.monotonic() + limit,
        )  # fmt: skip
        if not _work_section(context, section):
            return STICKY
    tell("end", environment=device.environment())
    return 0


def only_the_bundle_under_test() -> None:
    """Neither bundles of the environment nor a compiler answer calls that it refuses."""
    os.environ.pop(BUNDLES_VARIABLE, None)
    os.environ[kda.COMPILE_VARIABLE] = "0"


def _work_section(context: Context, section: str) -> bool:
    """Make all checks of a section; False if the device no longer answers."""
    named = SECTIONS[section].checks[context.bundle.manifest.operator](context)
    while True:
        try:
            found = next(named, None)
        except Exception as failure:
            detail = f"{type(failure).__name__}: {failure}"
            _tell_check(Check(section, context.label, "its checks", FAILED, detail,
                              traceback=traceback.format_exc()))  # fmt: skip
            return not context.device.trouble()
        if found is None:
            return True
        with poison(True):
            check = run_check(section, context.label, *found, context.seconds_left)
        trouble = context.device.trouble() if check.status in (FAILED, UNKNOWN) else ""
        if trouble:
            check = dataclasses.replace(check, detail=f"{check.detail} (the device is lost: {trouble})")
        _tell_check(check)
        if trouble:
            return False
        if context.device.is_gpu and section == "times":
            context.device.torch.cuda.empty_cache()


def _tell_check(check: Check) -> None:
    tell("check", **{**vars(check), "numbers": dict(check.numbers)})


def plan_of(bundles: Sequence[Bundle], sections: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Each section with each bundle that it is about, section by section."""
    return tuple(
        (name, str(bundle.path))
        for name in sections
        for bundle in bundles
        if bundle.manifest.operator in SECTIONS[name].checks
    )


def bundles_below(folder: Path) -> list[Path]:
    """The bundles in `folder` or its folders, or `folder` itself if it is one."""
    if (folder / "manifest.json").is_file():
        return [folder]
    return sorted(file.parent for file in folder.glob("**/*.kdsb/manifest.json"))
