"""`kdsl bench`: the command line, the order of the cases, and what is kept of them."""

from __future__ import annotations

import argparse
import math
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from kdsl.bench.alone import alone
from kdsl.bench.baselines import NoBaseline, installed
from kdsl.bench.cases import CASES, SMALL_CASES, Case, variant_for
from kdsl.bench.device import Device, NoDevice, torch_here
from kdsl.bench.measure import OURS, Stand, measure, measure_library
from kdsl.bench.outcome import Outcome, run_check
from kdsl.bench.plot import plot
from kdsl.bench.subjects import NoCompiler, NotCompiled, NotUsable, Subject, subjects
from kdsl.validate.gpu_report import FAILED, PASSED, UNKNOWN, Check, document, table, verdict
from kdsl.validate.latency import FEWEST_RUNS, RUNS

EXIT_FINDINGS, EXIT_USAGE, EXIT_MISSING, EXIT_INTERRUPTED = 1, 2, 3, 130
FLOOR = "compulsory bytes over the bandwidth of a copy measured in the same run"
SECTION = "times"
EPILOG = """\
example:
  kdsl bench build/gpu --baseline fla
  kdsl bench rules/kda.decode/lane_columns.kds --cases n1,n256 --runs 200

On a machine without click: python -m kdsl bench build/gpu

Exit status: 0 every case timed, 1 a result is wrong, a time is impossible or missing, 2 wrong usage, 3 a device or
the compiler is missing, 130 interrupted."""


def parser() -> argparse.ArgumentParser:
    """The command line of `kdsl bench`."""
    made = argparse.ArgumentParser(
        "kdsl bench", epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Time bundles, or rules compiled for the device that is here, on the published cases.\n\n"
        "Each result is held against the float64 oracle first, outputs filled with NaN; a wrong one is not timed.\n"
        "Inputs rotate through more than the L2 holds; decoding runs in a CUDA graph. A median below the floor,\n"
        f"{FLOOR}, is refused.",
    )  # fmt: skip
    made.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="Bundles, rules, or folders of either.")
    made.add_argument("--baseline", choices=("fla",), help="flash-linear-attention on the same tensors, after ours.")
    made.add_argument("--cases", metavar="KEY[,KEY...]", help=f"Some of {', '.join(CASES)}.")
    made.add_argument("--runs", type=int, default=RUNS, help=f"Samples of each case (default {RUNS}).")
    made.add_argument("--seconds", type=float, default=math.inf, help="No further sample after so many seconds.")
    made.add_argument("--seed", type=int, help="Of all inputs; drawn anew unless it is given.")
    made.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: small cases, no floor.")
    made.add_argument("--output", type=Path, default=Path("build/bench"), metavar="DIR",
                      help="Folder for report.json, report.txt and times.svg (default build/bench).")  # fmt: skip
    return made


def main(words: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    return run(parser().parse_args(words))


def run(asked: argparse.Namespace) -> int:
    """The command with its arguments read."""
    try:
        cases = picked(asked.cases, asked.device)
        if asked.runs < FEWEST_RUNS:
            raise NotUsable(f"--runs {asked.runs}: fewer than {FEWEST_RUNS} say nothing of the 95th percentile")
        writable(asked.output)
        torch_here("a GPU" if asked.device == "cuda" else "cpu")
        if asked.baseline:
            installed(asked.baseline)
        device = Device(asked.device)
        found, left_out = subjects(asked.paths, device.target, cases)
    except NotUsable as wrong:
        return told(f"kdsl bench: {wrong}", EXIT_USAGE)
    except NotCompiled as wrong:
        return told(str(wrong), EXIT_FINDINGS)
    except (NoDevice, NoCompiler, NoBaseline) as missing:
        return told(f"kdsl bench: {missing}", EXIT_MISSING)
    for line in left_out:
        print(line, file=sys.stderr)
    if not found:
        return told(f"kdsl bench: nothing that was given runs on the {device.target} that is here", EXIT_MISSING)
    return Run(asked, device, cases, found).run()


def told(text: str, status: int) -> int:
    print(text, file=sys.stderr)
    return status


def picked(keys: str | None, device: str) -> list[Case]:
    """The cases of the keys, in the published order. Raises NotUsable for a key that there is not."""
    known = CASES if device == "cuda" else SMALL_CASES
    asked = [key.strip() for key in keys.split(",")] if keys else list(known)
    if unknown := [key for key in asked if key not in known]:
        raise NotUsable(f"no case {', '.join(unknown)}; there are {', '.join(known)}")
    return [case for key, case in known.items() if key in asked]


def writable(folder: Path) -> None:
    """Make the folder, and see that files can be written there. Raises NotUsable."""
    probe = folder / f".writable-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as failure:
        why = failure.strerror or failure
        raise NotUsable(f"cannot write to {folder}: {why}; name another folder with --output") from None


@attrs.define
class Run:
    """One call of the command: its checks so far, and the files that have them after each."""

    asked: argparse.Namespace
    device: Device
    cases: list[Case]
    subjects: list[Subject]
    checks: list[Check] = attrs.field(factory=list)
    environment: dict[str, Any] = attrs.field(factory=dict)

    def run(self) -> int:
        seed = secrets.randbelow(2**31) if self.asked.seed is None else self.asked.seed
        stand = Stand(self.device, seed, self.asked.runs, time.monotonic() + self.asked.seconds)
        self.environment = {**self.device.environment(), "seed": seed, "floor": FLOOR}
        for key, value in self.environment.items():
            print(f"{key:>18}  {value}", flush=True)
        planned = list(self.planned(stand))
        try:
            for subject, name, check in planned:
                if not self.keeps(subject, run_named(subject, name, check, stand)):
                    return told(f"kdsl bench: the device is lost after {name}; a new process may find it again", 1)
        except KeyboardInterrupt:
            kept = f"{self.asked.output / 'report.json'} has them" if self.checks else "nothing was kept"
            return told(f"kdsl bench: interrupted after {len(self.checks)} of {len(planned)} times; {kept}",
                        EXIT_INTERRUPTED)  # fmt: skip
        print(f"\n{table(self.checks)}floor: {FLOOR}, {self.device.bandwidth / 1e12:.2f} TB/s")
        print(self.asked.output / "report.json", flush=True)
        return 0 if verdict(self.checks) == PASSED else EXIT_FINDINGS

    def planned(self, stand: Stand) -> Iterator[tuple[Subject | None, str, Callable[[], Outcome]]]:
        """Ours first; a library last, for it may tune itself for a minute."""
        for subject in self.subjects:
            for case in subject.cases(self.cases):
                variant = variant_for(subject.bundle.manifest.variants, case, self.device.target)
                yield subject, f"{case.label}, {OURS}", partial(measure, stand, case, variant)
        library = self.asked.baseline
        compared = dict.fromkeys(case for subject in self.subjects for case in subject.cases(self.cases))
        for case in compared if library else ():
            yield None, f"{case.label}, {library}", partial(measure_library, stand, case, library)

    def keeps(self, subject: Subject | None, check: Check) -> bool:
        """Add a check to the report; False if the device no longer answers."""
        self.checks.append(check)
        print(f"{check.status:>8}  {check.bundle} {check.name} ({check.seconds:.1f} s): {check.detail}", flush=True)
        bundles = {s.label: {"rule": s.bundle.manifest.rule.name, "sha256": s.bundle.digest} for s in self.subjects}
        files = {
            "report.json": document(self.environment, self.checks, bundles=bundles),
            "report.txt": table(self.checks),
            "times.svg": plot(self.checks, self.environment.get("gpu", "this machine's CPU")),
        }
        for name, content in files.items():
            replace_text(self.asked.output / name, content)
        if self.device.is_gpu:
            self.device.torch.cuda.empty_cache()
        return check.status not in (FAILED, UNKNOWN) or not self.device.trouble()


def run_named(subject: Subject | None, name: str, check: Callable[[], Outcome], stand: Stand) -> Check:
    """One check, with its bundle as the only one that calls can take."""
    if subject is None:
        return run_check(SECTION, "", name, check, stand.seconds_left)
    with alone(subject.bundle):
        return run_check(SECTION, subject.label, name, check, stand.seconds_left)


def replace_text(path: Path, content: str) -> None:
    """Write a file in one step: whoever reads it, or is interrupted, has the old or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(content, encoding="utf-8")
    os.replace(fresh, path)
