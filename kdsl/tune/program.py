"""`kdsl tune`: prepare, walk and write the diff, in one go or on two machines."""

from __future__ import annotations

import argparse
import importlib.util
import math
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

from kdsl.bench.cases import CASES, Case
from kdsl.bench.device import Device, NoDevice, torch_here
from kdsl.bench.measure import Stand
from kdsl.bench.program import EXIT_FINDINGS, EXIT_INTERRUPTED, EXIT_MISSING, EXIT_USAGE, picked, told, writable
from kdsl.bench.subjects import RULE_SUFFIX, NoCompiler, NotCompiled, NotUsable
from kdsl.runtime.targets import acceptable_targets
from kdsl.tune.log import Log
from kdsl.tune.prepared import LOG, Prepared, read
from kdsl.tune.walk import DeviceLost, Walk
from kdsl.tune.winners import Scored, devices, scored, table
from kdsl.validate.latency import FEWEST_RUNS

RUNS = 200
HOME = Path("build/tune")
EPILOG = """\
examples:
  kdsl tune rules/kda.decode/lane_columns.kds                 where the compiler and the GPU are
  kdsl tune RULE.kds --target sm_90a --prepare build/tune/a   where the compiler is; then, where the GPU is
  kdsl tune build/tune/a                                      (without click: python -m kdsl tune build/tune/a)
  kdsl tune RULE.kds --target sm_90a --from build/tune/a --output a.patch

Exit status: 0 done, 1 the rule is wrong, nothing could be compared or what was prepared is out of date, 2 wrong usage,
3 a device or the compiler is missing, 130 interrupted; the same command goes on where it stopped."""


def parser() -> argparse.ArgumentParser:
    """The command line of `kdsl tune`."""
    made = argparse.ArgumentParser(
        "kdsl tune", epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Find the values of `choose` that are fastest on a target, and print a diff of the rule.\n\n"
        "Every point is lowered and judged; one whose contract fails never runs. On the device each is held against\n"
        "the oracle before it is timed. The log goes on after a kill and counts for the code it was made with.\n"
        "The winner has the least geometric mean, over the cases, of medians against those of the default.",
    )  # fmt: skip
    made.add_argument("subject", type=Path, metavar="RULE.kds|DIR", help="A rule, or a folder that was prepared.")
    made.add_argument("--rule", metavar="NAME", help="Of several rules in the file, this one.")
    made.add_argument("--target", metavar="T", help="The GPU to tune for; by default the one that is here.")
    made.add_argument("--choose", action="append", metavar="NAME=VALUE[|VALUE]",
                      help="Walk these values of a choice only, and the default.")  # fmt: skip
    made.add_argument("--prepare", type=Path, metavar="DIR", help="Only lower and judge the points, into this folder.")
    made.add_argument("--from", type=Path, dest="source", metavar="DIR", help="Only write the diff, from its log.")
    made.add_argument("--cases", metavar="KEY[,KEY...]",
                      help=f"Those that are timed and compared, of {', '.join(CASES)}.")  # fmt: skip
    made.add_argument("--runs", type=int, default=RUNS, help=f"Samples of each case at each point (default {RUNS}).")
    made.add_argument("--seconds", type=float, default=math.inf, help="Stop after so many seconds; go on later.")
    made.add_argument("--seed", type=int, help="Of all inputs; drawn anew unless it is given.")
    made.add_argument("--least", type=float, default=1.0, metavar="PERCENT",
                      help="How much faster than the default a winner is at least (default 1).")  # fmt: skip
    made.add_argument("--output", type=Path, metavar="FILE", help="The diff, in place of the terminal.")
    return made


def main(words: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    return run(parser().parse_args(words))


def run(asked: argparse.Namespace) -> int:
    """The command with its arguments read."""
    try:
        if asked.runs < FEWEST_RUNS:
            raise NotUsable(f"--runs {asked.runs}: fewer than {FEWEST_RUNS} say nothing of the 95th percentile")
        return _step(asked)
    except NotUsable as wrong:
        return told(f"kdsl tune: {wrong}", EXIT_USAGE)
    except NotCompiled as wrong:
        return told(str(wrong), EXIT_FINDINGS)
    except (NoDevice, NoCompiler) as missing:
        return told(f"kdsl tune: {missing}", EXIT_MISSING)
    except DeviceLost as lost:
        return told(f"kdsl tune: {lost}; run the command again to go on", EXIT_FINDINGS)
    except KeyboardInterrupt:
        return told("kdsl tune: interrupted; what was found is kept, and the same command goes on", EXIT_INTERRUPTED)


def _step(asked: argparse.Namespace) -> int:
    subject = asked.subject
    if not subject.exists():
        raise NotUsable(f"there is nothing at {subject}")
    if asked.prepare and asked.source:
        raise NotUsable("--prepare and --from are two steps: give one of them")
    if subject.is_dir():
        with_rules = {"--prepare": asked.prepare, "--from": asked.source, "--rule": asked.rule,
                      "--choose": asked.choose, "--output": asked.output}  # fmt: skip
        if given := [name for name, value in with_rules.items() if value]:
            raise NotUsable(f"{subject} is a folder; {' and '.join(given)} goes with a rule (NAME{RULE_SUFFIX})")
        prepared = read(subject)
        if asked.target not in (None, prepared.target):
            raise NotUsable(f"{subject} is prepared for {prepared.target}, not for {asked.target}")
        walked(asked, subject, prepared)
        return summary(asked, prepared, Log.read(subject / LOG), subject)
    if asked.prepare:
        return prepared_into(asked, asked.prepare, asked.target)
    if asked.source:
        return patched(asked, asked.source, asked.target)
    return whole(asked)


def whole(asked: argparse.Namespace) -> int:
    """All three steps on this machine."""
    device = opened(asked.target or "a GPU")
    target = asked.target or device.target
    if target not in acceptable_targets(device.target):
        raise NoDevice(target, f"the device here is {device.target}")
    folder = HOME / f"{asked.rule or asked.subject.stem}-{target}"
    status = prepared_into(asked, folder, target)
    if status:
        return status
    prepared = read(folder)
    walked(asked, folder, prepared)
    summary(asked, prepared, Log.read(folder / LOG), folder)
    return patched(asked, folder, target)


# ---- with the compiler


def space_of(asked: argparse.Namespace, target: str | None):
    """The rule's choose points. Raises NotUsable, NotCompiled, NoCompiler."""
    if lacking := [name for name in ("lark", "tvm") if importlib.util.find_spec(name) is None]:
        raise NoCompiler(f"{' and '.join(lacking)} to compile {asked.subject} is not installed here; prepare it on a "
                         f"machine with the compiler, and give the folder here")  # fmt: skip
    from kdsl.bench.compiled import library_of
    from kdsl.tune.prepare import Space

    library = library_of([asked.subject])
    named = [rule for rule in library.rules.values() if asked.rule in (None, rule.name)]
    if len(named) != 1:
        names = ", ".join(library.rules) or "none"
        raise NotUsable(f"{asked.subject} has the rules {names}: name one with --rule" if not asked.rule or named
                        else f"{asked.subject} has no rule {asked.rule}; it has {names}")  # fmt: skip
    rule = named[0]
    if target is None:
        raise NotUsable(f"say the GPU with --target; rule {rule.name} is for {', '.join(rule.targets)}")
    if target not in rule.targets:
        raise NotUsable(f"rule {rule.name} is not for {target}; it is for {', '.join(rule.targets)}")
    return Space(library, rule, target, cases_of(asked.cases, target, rule.operator), chosen(asked.choose or ()))


def chosen(texts: Sequence[str]) -> dict[str, list[object]]:
    """`depth=2|3` to the values of a choice. Raises NotUsable."""
    found: dict[str, list[object]] = {}
    for text in texts:
        name, equals, values = (part.strip() for part in text.partition("="))
        if not name or not equals or not values:
            raise NotUsable(f"--choose {text} is not NAME=VALUE, as in depth=2|3")
        found[name] = [int(value) if value.strip().lstrip("-").isdigit() else value.strip()
                       for value in values.split("|")]  # fmt: skip
    return found


def prepared_into(asked: argparse.Namespace, folder: Path, target: str | None) -> int:
    """Lower and judge every point into a folder."""
    writable(folder)
    space = space_of(asked, target)
    from kdsl.lower.toolchain.cc import ToolMissing
    from kdsl.lower.tvm import TvmMissing
    from kdsl.tune.prepare import prepare

    try:
        found = prepare(space, folder, lambda line: print(line, flush=True))
    except (ToolMissing, TvmMissing) as missing:
        raise NoCompiler(str(missing)) from None
    count = len(found.runnable)
    print(f"{count} of {found.total} points of {found.rule} for {found.target} are in {folder}, "
          f"{found.total - count} discarded; next, on the device: kdsl tune {folder}", flush=True)  # fmt: skip
    return 0 if count else EXIT_FINDINGS


def patched(asked: argparse.Namespace, folder: Path, target: str | None) -> int:
    """Print the winner as a diff of the rule."""
    prepared = read(folder)
    space = space_of(asked, target or prepared.target)
    from kdsl.tune.patch import diff, edited, stale, text_of

    if why := stale(space, prepared):
        return told(f"kdsl tune: {folder} is out of date: {why}; prepare it again (times of the same code are kept)",
                    EXIT_FINDINGS)  # fmt: skip
    log = Log.read(folder / LOG)
    found = devices(log)
    if len(found) != 1:
        raise NotUsable(f"{folder / LOG} has times on {' and '.join(found) or 'no device'}; a diff comes from one")
    scores = scored(prepared, log, found[0], keys_of(asked, prepared))
    winner = best(scores, prepared, asked.least)
    if winner is None:
        return told(f"kdsl tune: nothing to compare: {'; '.join(dict.fromkeys(s.note for s in scores if s.note))}",
                    EXIT_FINDINGS)  # fmt: skip
    path, before = text_of(space.rule)
    text = diff(path, before, edited(before, space.rule, space.target, winner.point.choices))
    said = f"{winner.point.name}: {winner.ratio:.3f} of the default's time on {found[0]}"
    if not text:
        return told(f"kdsl tune: no diff: the default is the fastest, or within {asked.least:g}% of it", 0)
    if asked.output is None:
        print(text, end="")
    else:
        written(asked.output, text)
        said += f"; {asked.output}: review it, then git apply"
    return told(said, 0)


def best(scores: Sequence[Scored], prepared: Prepared, least: float) -> Scored | None:
    """The fastest point; the default unless another is faster by `least` percent. None if none has a ratio."""
    compared = [one for one in scores if one.ratio is not None]
    default = next((one for one in compared if one.point.choices == prepared.default), None)
    if not compared or default is None:
        return None
    return compared[0] if compared[0].ratio <= 1 - least / 100 else default


def written(path: Path, text: str) -> None:
    """Write the diff. Raises NotUsable."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as failure:
        raise NotUsable(f"cannot write {path}: {failure.strerror or failure}") from None


# ---- with the device


def opened(target: str) -> Device:
    """The device for a target. Raises NoDevice."""
    torch_here(target)
    return Device("cpu" if target == "cpu" else "cuda")


def walked(asked: argparse.Namespace, folder: Path, prepared: Prepared) -> None:
    """Validate and time what the log of the folder does not have. Raises NoDevice, NotUsable, DeviceLost."""
    device = opened(prepared.target)
    if prepared.target not in acceptable_targets(device.target):
        raise NoDevice(prepared.target, f"the device here is {device.target}")
    if not prepared.runnable:
        raise NotUsable(f"no point in {folder} can run: all {len(prepared.points)} were discarded")
    cases = cases_of(asked.cases, prepared.target, prepared.operator)
    cases = [attrs.evolve(case, gate=prepared.gate) for case in cases]
    if len(prepared.points) < prepared.total:
        print(f"only {len(prepared.points)} of {prepared.total} points are prepared", file=sys.stderr)
    log = Log.read(folder / LOG)
    if log.torn:
        print(f"{folder / LOG}: the last line was cut off, and is dropped", file=sys.stderr)
    log.writable()
    seed = secrets.randbelow(2**31) if asked.seed is None else asked.seed
    stand = Stand(device, seed, asked.runs, time.monotonic() + asked.seconds)
    name = str(device.environment().get("gpu", "cpu"))
    print(f"{prepared.rule} for {prepared.target}: {len(prepared.runnable)} points, {len(cases)} cases, on {name}, "
          f"seed {seed}", flush=True)  # fmt: skip
    walk = Walk(folder, prepared, cases, stand, log, name, lambda line: print(line, flush=True))
    walk.run()
    left = f", {walk.left()} left: the same command goes on" if walk.left() else ""
    print(f"{walk.measured} measured now{left}; the log is {folder / LOG}", flush=True)


def summary(asked: argparse.Namespace, prepared: Prepared, log: Log, folder: Path) -> int:
    """Print what the log says of each point; the exit status."""
    status = EXIT_FINDINGS
    for device in devices(log):
        found = scored(prepared, log, device, keys_of(asked, prepared))
        print(f"\n{device}\n{table(prepared, found)}")
        if any(one.ratio is not None for one in found):
            status = 0
    print(f"\nthe diff, on a machine with the compiler: kdsl tune RULE{RULE_SUFFIX} --target {prepared.target} "
          f"--from {folder}")  # fmt: skip
    return status


def keys_of(asked: argparse.Namespace, prepared: Prepared) -> list[str]:
    """The cases that points are compared on: those asked for, or all that the log has."""
    return [case.key for case in cases_of(asked.cases, prepared.target, prepared.operator)] if asked.cases else []


def cases_of(keys: str | None, target: str, operator: str) -> list[Case]:
    """The cases of the keys that are the operator's; small ones for a host. Raises NotUsable if there is none."""
    known = picked(keys, "cpu" if target == "cpu" else "cuda")
    found = [case for case in known if case.operator == operator]
    if not found:
        raise NotUsable(f"none of the cases {keys} is of {operator}")
    return found
