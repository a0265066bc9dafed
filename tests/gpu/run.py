"""Tests and times prebuilt bundles on a GPU: `python tests/gpu/run.py FOLDER`, or `make gpu-test`.

Runs from a checkout, with PyTorch, NumPy and attrs alone: neither TVM nor a compiler. FOLDER holds bundles
(`NAME.kdsb`); it defaults to the environment variable KDSL_GPU_BUNDLES, else to `build/gpu`. Prints a table,
writes `report.json` and `report.txt`, and ends with status 0 only if everything that was asked for was seen
to be right.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
for folder in (ROOT, HERE):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from harness.sanitizing import DONE, small_calls  # noqa: E402
from harness.sections import SECTIONS  # noqa: E402
from harness.supervisor import Findings, supervise  # noqa: E402
from harness.worker import Order, bundles_below, only_the_bundle_under_test, plan_of, work  # noqa: E402

from kdsl import kda  # noqa: E402
from kdsl.bench.device import Device  # noqa: E402
from kdsl.bundle import Bundle, BundleError, read_bundle  # noqa: E402
from kdsl.validate.gpu_report import FAILED, PASSED, Check, document, table, verdict  # noqa: E402

BUNDLES_VARIABLE = "KDSL_GPU_BUNDLES"
FULL_SECONDS, QUICK_SECONDS = 465.0, 55.0


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    default = os.environ.get(BUNDLES_VARIABLE) or str(ROOT / "build" / "gpu")
    parser.add_argument("bundles", nargs="?", default=default, help=f"folder (default: {default})")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help=f"within {QUICK_SECONDS:.0f} s: a part of it")
    parser.add_argument("--sections", help=f"some of {','.join(SECTIONS)}")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31), help="of all inputs; random")
    parser.add_argument("--baseline", choices=("none", "one", "all"), help="cases that FLA is timed on")
    parser.add_argument("--seconds", type=float, help="for everything")
    parser.add_argument("--section-seconds", type=float, help="for each section with each bundle")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "gpu-report", help="folder")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--small-calls", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Returns the exit status: 0 passed, 1 failed or unknown, 2 nothing to do."""
    asked = arguments(words)
    if asked.worker:
        return work(Order.of(asked.worker))
    if asked.small_calls:
        return _small_calls(asked)
    sections = asked.sections.split(",") if asked.sections else [
        name for name, section in SECTIONS.items() if section.in_quick or not asked.quick
    ]  # fmt: skip
    unknown = [name for name in sections if name not in SECTIONS]
    if unknown:
        print(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}", file=sys.stderr)
        return 2
    bundles, broken = _bundles(Path(asked.bundles).resolve())
    if not bundles and not broken:
        print(
            f"found no NAME.kdsb below {asked.bundles}; build some with `kdsl precompile` or `kdsl lower`, "
            f"and give their folder or set {BUNDLES_VARIABLE}",
            file=sys.stderr,
        )
        return 2
    return _run(asked, bundles, broken, plan_of(bundles, sections))


def _run(
    asked: argparse.Namespace, bundles: list[Bundle], broken: list[Check], plan: tuple[tuple[str, str], ...]
) -> int:
    asked.output.mkdir(parents=True, exist_ok=True)
    listed = [_described(bundle) for bundle in bundles]
    for line in (f"seed {asked.seed}", *listed, *(f"{check.bundle}: {check.detail}" for check in broken)):
        print(line, flush=True)

    def keep(findings: Findings) -> None:
        checks = [*broken, *findings.checks]
        facts = {"seed": asked.seed, "quick": asked.quick, "bundles": listed, "plan": plan,
                 "environment_afterwards": findings.afterwards}  # fmt: skip
        text = document(findings.environment, checks, **facts)
        for name, content in (("report.json", text), ("report.txt", table(checks))):
            (asked.output / name).write_text(content, encoding="utf-8")

    order = Order(
        plan=plan, device=asked.device, seed=asked.seed, quick=asked.quick, seconds=0.0,
        section_seconds=asked.section_seconds,
        baseline=asked.baseline or ("none" if asked.quick or asked.device == "cpu" else "one"),
    )  # fmt: skip
    seconds = asked.seconds or (QUICK_SECONDS if asked.quick else FULL_SECONDS)
    findings = supervise(order, seconds, lambda line: print(line, flush=True), keep)
    checks = [*broken, *findings.checks]
    print(f"\n{table(checks, brief=True)}\n{asked.output / 'report.json'}", flush=True)
    return 0 if verdict(checks) == PASSED else 1


def _bundles(folder: Path) -> tuple[list[Bundle], list[Check]]:
    """The bundles below a folder, and a failed check for each that is none."""
    found, broken = [], []
    for path in bundles_below(folder):
        try:
            found.append(read_bundle(path))
        except BundleError as failure:
            name = path.name.removesuffix(".kdsb")
            broken.append(Check("bundles", name, "to be read", FAILED, str(failure)))
    return found, broken


def _described(bundle: Bundle) -> str:
    manifest = bundle.manifest
    targets = ", ".join(dict.fromkeys(variant.target for variant in manifest.variants))
    name = bundle.path.name.removesuffix(".kdsb")
    made = f"rule {manifest.rule.name}, {len(manifest.variants)} variants for {targets}"
    return f"{name}: {manifest.operator}, {made}, {manifest.made_with.compiler}, sha256 {bundle.digest[:16]}"


def _small_calls(asked: argparse.Namespace) -> int:
    only_the_bundle_under_test()
    bundle = kda.use_bundle(asked.small_calls)
    print(DONE, small_calls(Device(asked.device), bundle, asked.seed), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
