"""The half of tuning that runs on the device: every prepared point validated, then timed, then written to the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import attrs

from kdsl.bench.alone import alone
from kdsl.bench.cases import Case, variant_for
from kdsl.bench.measure import Stand, measure
from kdsl.bench.outcome import run_check
from kdsl.bundle.load import Bundle
from kdsl.tune.log import WRONG, Entry, Log
from kdsl.tune.prepared import Point, Prepared, broken_clauses, bundle_of
from kdsl.validate.gpu_report import FAILED, UNKNOWN

SECTION = "tune"


class DeviceLost(Exception):
    """The device no longer answers; the message says where it was lost."""


@attrs.define
class Walk:
    """Cases one after the other, each at every point: what is compared is timed close together.

    A point whose contract does not hold never runs, and one that was wrong in a case is not tried in another.
    """

    folder: Path
    prepared: Prepared
    cases: Sequence[Case]
    stand: Stand
    log: Log
    device: str  # how the log names it
    tell: Callable[[str], None]
    measured: int = 0
    barred: set[str] = attrs.field(factory=set)  # codes whose contract does not hold

    def run(self) -> None:
        """Work off what the log does not have yet. Raises NotUsable for a damaged bundle, DeviceLost."""
        points = [(point, bundle) for point in self.prepared.runnable if (bundle := self.bundle(point)) is not None]
        for case in self.cases:
            for point, bundle in points:
                if self.stand.seconds_left:
                    self.visit(case, point, bundle)

    def left(self) -> int:
        """Cases at points that no entry answers yet, those of points that never run aside."""
        return sum(
            not self.known(case, point) for point in self.prepared.runnable for case in self.cases
            if point.code not in self.barred
        )  # fmt: skip

    def known(self, case: Case, point: Point) -> bool:
        """Whether the log answers a case at a point: by its own entry, or because the code was wrong in some case."""
        return self.log.settled(point.code, case.key, self.device) is not None or any(
            entry.status == WRONG for entry in self.log.of(point.code)
        )

    def bundle(self, point: Point) -> Bundle | None:
        """The point's bundle, unless a clause of its contract does not hold."""
        bundle = bundle_of(self.folder, point)
        broken = [clause for variant in bundle.manifest.variants for clause in broken_clauses(variant)]
        for clause in broken:
            self.tell(f"{point.name}: not run, its contract does not hold: {clause}")
        if broken:
            self.barred.add(point.code)
        return None if broken else bundle

    def visit(self, case: Case, point: Point, bundle: Bundle) -> None:
        """One case at one point, if nobody knows it yet."""
        if self.known(case, point):
            return
        variant = variant_for(bundle.manifest.variants, case, self.stand.device.target)
        with alone(bundle):
            check = run_check(SECTION, point.name, case.label, partial(measure, self.stand, case, variant),
                              self.stand.seconds_left)  # fmt: skip
        entry = Entry.of(check, point.code, case.key, self.device, dict(point.choices))
        self.log.add(entry)
        self.measured += 1
        self.tell(f"{entry.status:>11}  {case.label}, {point.name} ({check.seconds:.1f} s): {check.detail}")
        if check.status in (FAILED, UNKNOWN) and (trouble := self.stand.device.trouble()):
            raise DeviceLost(f"the device is lost after {case.label} at {point.name}: {trouble}")
        if self.stand.device.is_gpu:
            self.stand.device.torch.cuda.empty_cache()
