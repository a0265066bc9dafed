"""`kdsl precompile`: bundles for calls that are to come, for several targets, without a GPU."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import click

EXIT_FINDINGS, EXIT_TOOL = 1, 3
LINE_FORM = "kda.chunk_forward --shape B=1,T=8192,H=96,K=128,V=128 --set gate=bounded"


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--target", "targets", required=True, metavar="T[,T...]", help="GPUs or CPU of the calls.")
@click.option("--shape", help="Sizes of a call: B=1,T=8192,H=96,K=128,V=128.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE[|VALUE]",
              help="An option (gate=bounded) or a dtype (q=bf16); with | a call for each.")  # fmt: skip
@click.option("--operator", help="The operator, where the sizes do not tell it.")
@click.option("--calls", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help=f"A file with a call on each line: {LINE_FORM}")  # fmt: skip
@click.option("--output", type=click.Path(file_okay=False, path_type=Path),
              help="A folder: one bundle for each rule. Without it, the user's cache.")  # fmt: skip
@click.option("--proved", is_flag=True, help="Prove each variant too, for callers that take proved code only.")
def precompile(paths, targets, shape, settings, operator, calls, output, proved):
    """Build what calls will need before anybody makes them, on a machine that needs no GPU.

    Calls are described as for `kdsl select`; the rule that claims one is lowered for it. PATHS are rules;
    without them the shipped ones and those of KDSL_RULES.

    \b
      kdsl precompile --target sm_90a,sm_100a --shape B=1,T=8192,H=96,K=128,V=128 \\
          --set "gate=bounded|softplus" --set use_qk_l2norm_in_kernel=true --output bundles
      kdsl precompile --target sm_90a --calls calls.txt

    `use_bundle("bundles/mma_bounded.kdsb")` or KDSL_BUNDLES registers them; a device takes the variants that
    are for it. Exit status: 0 done, 1 no rule claims a call or a contract does not hold, 2 wrong usage, 3 a
    tool is missing.
    """
    if (shape is None) == (calls is None):
        raise click.UsageError("say the call with --shape, or several with --calls FILE")
    if calls is not None and (settings or operator):
        raise click.UsageError("--calls FILE has the settings and the operator on its lines")
    library = library_of(paths)
    for target in targets.split(","):
        if target not in library.targets:
            raise click.UsageError(f"there is no target `{target}`; known: {', '.join(library.targets)}")
    from kdsl.contract.call import WrongCall

    try:
        found = list(file_calls(library, calls) if calls else described(library, operator, shape, settings))
        sys.exit(built(library, found, targets.split(","), output, proved))
    except WrongCall as wrong:
        raise click.UsageError(str(wrong)) from None


def library_of(paths):
    """The rules in scope; those that do not check end the command."""
    from kdsl.check import check_paths
    from kdsl.driver.compile import RulesWrong, shipped_library
    from kdsl.source.render.text import render_text

    if not paths:
        try:
            return shipped_library()
        except RulesWrong as wrong:
            click.echo(str(wrong), err=True)
            sys.exit(EXIT_FINDINGS)
    result = check_paths(paths)
    if result.diagnostics:
        click.echo(render_text(result.diagnostics), err=True, nl=False)
    if not result.ok:
        sys.exit(EXIT_FINDINGS)
    return result.library


def described(library, operator: str | None, shape: str, settings) -> Iterator:
    """The calls of one description: one for each combination of values with a bar. Raises WrongCall."""
    from kdsl.cli.select import read_settings, read_shape, the_operator
    from kdsl.driver.ahead import Described

    sizes = read_shape(shape)
    name = the_operator(library, operator, sizes)
    for combination in product(*(values_of(text) for text in settings)):
        call = Described(name, sizes, *read_settings(library.operators[name], combination))
        call.completed(library)
        yield call


def values_of(setting: str) -> list[str]:
    """`gate=bounded|softplus` as `gate=bounded` and `gate=softplus`."""
    name, sign, values = setting.partition("=")
    return [f"{name}{sign}{value.strip()}" for value in values.split("|")]


def file_calls(library, path: Path) -> Iterator:
    """The calls of a file, one a line; `#` begins a comment. A wrong line is a usage error with its number."""
    from kdsl.contract.call import WrongCall

    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            words = shlex.split(line, comments=True)
            if words:
                yield from described(library, *line_parts(words))
        except (ValueError, WrongCall, click.UsageError) as wrong:
            said = wrong.message if isinstance(wrong, click.UsageError) else str(wrong)
            raise click.UsageError(f"{path}:{number}: {said}") from None


def line_parts(words: list[str]) -> tuple[str, str, list[str]]:
    """Operator, shape and settings of a line. Raises ValueError."""
    name, *rest = words
    shapes = [value for option, value in zip(rest[::2], rest[1::2]) if option == "--shape"]
    settings = [value for option, value in zip(rest[::2], rest[1::2]) if option == "--set"]
    if name.startswith("-") or len(shapes) != 1 or 2 * (len(shapes) + len(settings)) != len(rest):
        raise ValueError(f"a call is written {LINE_FORM}")
    return name, shapes[0], settings


def built(library, calls, targets, output, proved) -> int:
    """Build, tell each bundle as it is there, then what no rule claims; the exit status."""
    from kdsl.driver.ahead import plans_for, precompile
    from kdsl.driver.compile import ContractFailed
    from kdsl.lower.stir.schedule import StepRefused
    from kdsl.lower.toolchain.cc import ToolMissing
    from kdsl.lower.tvm import TvmMissing
    from kdsl.plan.refusal import PlanRefused
    from kdsl.source.render.text import render_text

    started = time.perf_counter()
    try:
        plans, refused = plans_for(library, calls, targets)
        for path, own in precompile(plans, output, proved):
            names = ", ".join(dict.fromkeys(plan.target.name for plan in own))
            click.echo(f"{path}: rule {own[0].rule.name}, {counted(len(own))} for {names}")
    except (PlanRefused, StepRefused) as refusal:
        click.echo(render_text([refusal.diagnostic]), err=True, nl=False)
        return EXIT_FINDINGS
    except ContractFailed as failure:
        click.echo(str(failure), err=True)
        return EXIT_FINDINGS
    except (ToolMissing, TvmMissing) as missing:
        click.echo(str(missing), err=True)
        return EXIT_TOOL
    for refusal in refused:
        click.echo(str(refusal), err=True)
    click.echo(f"{counted(len(plans))} in {time.perf_counter() - started:.1f} s", err=True)
    return EXIT_FINDINGS if refused else 0


def counted(variants: int) -> str:
    return f"{variants} variant{'s' * (variants != 1)}"
