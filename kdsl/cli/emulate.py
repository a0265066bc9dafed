"""`kdsl emulate RULE --target T`: the CUDA of a rule run on this machine's CPU, against the oracle."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from attrs import asdict

from kdsl.cli.settings import number_or_text, parse_pairs, parse_shape

EXIT_FINDINGS, EXIT_TOOL = 1, 3
SHOWN_LINES = 10
# Norm and sigmoid are in the kernel unless a setting says otherwise.
IN_KERNEL = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True}


def lowering():
    """`kdsl.driver.emulation.program`, a `kdsl.emulate.program.Lower`."""
    from kdsl.driver.emulation import program

    return program


def parse_lengths(context, parameter, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        lengths = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"`{text}` is not a list of lengths, as in 70,0,1,69") from None
    if any(length < 0 for length in lengths):
        raise click.BadParameter("a length is 0 or more")
    return lengths


@click.command()
@click.argument("rule", type=click.Path(exists=True, path_type=Path))
@click.option("--target", required=True, metavar="T", help="The GPU that the rule is lowered for.")
@click.option(
    "--shape", callback=parse_shape, metavar="T=140,H=2", help="Sizes of the call; N rows for decoding."
)
@click.option("--lengths", callback=parse_lengths, metavar="L[,L...]",
              help="Sequences packed along T. Without it and without T: 70,0,1,69.")  # fmt: skip
@click.option("--set", "settings", multiple=True, callback=parse_pairs, metavar="NAME=VALUE",
              help="An option (gate=bounded), a dtype (q=bf16) or a choice of the rule.")  # fmt: skip
@click.option(
    "--seed", default=0, show_default=True, help="Data, order of blocks and warps, arrival of copies."
)
@click.option("--seconds", default=60.0, show_default=True, help="A kernel that runs longer hangs.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def emulate(rule, target, shape, lengths, settings, seed, seconds, form):
    """Run the CUDA that RULE is lowered to, warp by warp on the CPU, and judge it.

    Every access is checked: races, missed barriers and waits, bounds, alignment, memory that nobody wrote.
    Results are held against the float64 oracle. Shared-memory conflicts are counted. Evidence: simulated.

    \b
      kdsl emulate rules/kda.chunk_forward/portable_mma.kds --target sm_90a
      kdsl emulate RULE --target sm_80 --lengths 1,0,63,64 --set gate=softplus --format json

    Exit status: 0 passed, 1 something is wrong or unknown, 2 wrong usage, 3 a tool is missing.
    """
    trial = _tried(rule, target, shape, lengths, settings, seed, seconds)
    click.echo(json.dumps(document(trial), indent=1) if form == "json" else text_of(trial))
    refusal = trial.emulation.refusal
    if refusal is not None and refusal.what.endswith("is missing"):
        sys.exit(EXIT_TOOL)
    sys.exit(0 if trial.verdict == "pass" else EXIT_FINDINGS)


def _tried(rule, target, shape, lengths, settings, seed, seconds):
    import numpy as np

    from kdsl.emulate import calls
    from kdsl.emulate.program import try_program
    from kdsl.emulate.run import capability

    settings = {name: number_or_text(value) for name, value in settings.items()}
    sizes = {**calls.SIZES, **shape}
    rng = np.random.default_rng(seed)
    try:
        capability(target)
    except ValueError as wrong:
        raise click.UsageError(str(wrong)) from None
    try:
        program = lowering()(rule, target, {**IN_KERNEL, **settings})
    except ValueError as wrong:
        raise click.UsageError(str(wrong)) from None
    settings = program.settings
    sizes.update({name: settings[name] for name in ("K", "V")})
    try:
        if program.operator == "kda.decode":
            call = calls.decode_call(rng, sizes, settings)
        else:
            packed = lengths if lengths is not None or "T" in shape else calls.LENGTHS
            call = calls.chunk_call(rng, sizes, packed, settings)
    except ValueError as wrong:
        raise click.UsageError(str(wrong)) from None
    return try_program(program, call, target=target, seed=seed, seconds=seconds)


def document(trial) -> dict:
    """The trial as plain data: verdict, findings, notes, conflicts, errors, seconds."""
    result = trial.emulation
    found = {
        "verdict": trial.verdict,
        "evidence": result.evidence,
        "findings": [asdict(finding) for finding in result.findings],
        "notes": [asdict(note) for note in result.notes],
        "shared": [{**asdict(traffic), "conflict": traffic.conflict} for traffic in result.shared],
        "refusal": asdict(result.refusal) if result.refusal else None,
        "seconds": result.seconds,
        "compile_seconds": result.compile_seconds,
    }
    if trial.acceptance is not None:
        found["results"] = {
            one.name: {"accepted": one.accepted, "rms_ratio": one.rms_ratio, "worst_share": one.worst_share}
            for one in (trial.acceptance.o, trial.acceptance.final_state)
        }
    return found


def text_of(trial) -> str:
    """Findings, errors and the worst shared accesses, then the verdict."""
    result = trial.emulation
    lines = [trial.explain(), *(note.explain() for note in result.notes)]
    conflicts = sorted((s for s in result.shared if s.conflict > 1), key=lambda s: s.ideal - s.wavefronts)
    lines += [f"conflict: {traffic.explain()}" for traffic in conflicts[:SHOWN_LINES]]
    if len(conflicts) > SHOWN_LINES:
        lines.append(f"and {len(conflicts) - SHOWN_LINES} more lines with conflicts")
    seconds = f"{result.compile_seconds:.1f} s to compile, {result.seconds:.1f} s to run"
    return "\n".join([*lines, f"{trial.verdict} ({result.evidence}; {seconds})"])
