"""A bundle by itself, where the rule that made it is not at hand: its manifest and its machine code."""

from __future__ import annotations

from collections.abc import Iterator

from kdsl.bundle.load import Bundle, read_bundle
from kdsl.bundle.manifest import Kernel, Variant
from kdsl.check.library import load
from kdsl.inspect.counts import counts
from kdsl.inspect.resources import resources, use_of_cubin
from kdsl.inspect.sass import disassemble
from kdsl.lower.toolchain.cc import ToolMissing
from kdsl.review.bundles import variant_of
from kdsl.review.difference import CODE, SCHEDULE, TIR, Side
from kdsl.review.meaning import Line, plain

NO_TRACE = "a bundle whose rule is not at hand keeps no schedule and no TIR"


def manifest_side(given: str, target: str | None) -> Side:
    """What the manifest says, and counts of the machine code. Raises NotReviewable, BundleError."""
    bundle = read_bundle(given)
    variant = variant_of(bundle, given, target)
    absent = {SCHEDULE: NO_TRACE, TIR: NO_TRACE}
    try:
        figures = {
            kernel.name: figures_of(bundle, variant, kernel) for kernel in variant.kernels if kernel.launch == "cuda"
        }
    except ToolMissing as missing:
        figures, absent[CODE] = {}, str(missing)
    return Side(given, tuple(lines_of(bundle, variant)), figures=figures, absent=absent)


def lines_of(bundle: Bundle, variant: Variant) -> Iterator[Line]:
    manifest = bundle.manifest
    yield Line("rule", "schedules", manifest.operator)
    yield Line("rule", "name", manifest.rule.name)
    yield Line("rule", "text", f"sha256 {manifest.rule.sha256[:16]}")
    for section, found in (
        ("compiled for", {**variant.sizes, **variant.options, **variant.dtypes}),
        ("form", variant.form), ("choices", variant.choices),
    ):  # fmt: skip
        yield from (Line(section, name, f"= {plain(value)}") for name, value in found.items())
    for claim in variant.requires:
        yield Line("require", claim.text, f'else "{claim.otherwise}"' if claim.otherwise else "")
    for kernel in variant.kernels:
        grid = ", ".join(f"{axis} {text}" for axis, text in kernel.grid.items())
        yield Line(kernel.name, "launch", f"grid {grid}; block {kernel.block}; {kernel.shared_bytes} bytes shared")
    for verdict in variant.verdicts:
        found = f" {verdict.found}" if verdict.found is not None else ""
        yield Line("verdicts", verdict.clause, f"{verdict.verdict} ({verdict.evidence}){found}")


def figures_of(bundle: Bundle, variant: Variant, kernel: Kernel) -> dict[str, float]:
    """Resources and instructions that a cubin alone tells: spills are not among them."""
    cubin = bundle.file(kernel.file).read_bytes()
    sass = disassemble(cubin)
    target = load().targets[variant.target]
    threads = 1
    for extent in kernel.block or ():
        threads *= extent
    used = use_of_cubin(cubin, target, kernel.symbol, sass.of(kernel.symbol))
    use, kinds = resources(used, target, kernel.shared_bytes, threads), counts(sass, kernel.symbol)
    found: dict[str, float] = {
        "threads": threads, "registers": use.registers, "shared bytes": use.shared,
        "blocks per SM": use.occupancy.blocks, "instructions": kinds.total, "shuffles": kinds.shuffles,
    }  # fmt: skip
    found |= kinds.matrix
    found |= {f"{name} (barrier)": number for name, number in kinds.barriers.items()}
    found |= {str(access): number for access, number in kinds.accesses.items()}
    return found
