"""`kdsl`: one command a file, imported when it is called, so that `kdsl check` never waits for a compiler."""

from __future__ import annotations

import gc
import importlib
import os
import sys

import click

COMMANDS = {
    "check": "type-check rules and decide their contracts",
    "select": "which rule claims a call, and why the others refuse",
    "lower": "a rule to its schedule, TIR, source and bundle",
    "precompile": "bundles for calls that are to come, for several GPUs, on a machine without any",
    "emulate": "run a rule's generated CUDA on CPU threads against the oracle",
    "inspect": "costly instructions of the machine code, with the rule lines behind them and verified edits",
    "diff": "two rules, revisions or bundles: lines of the rule, schedule, TIR, resources and instructions",
    "viz": "the schedule as a picture: stages, loops, where every tensor lives and how long",
    "validate": "decide what waits for a device: error, latency, profiler metrics of a bundle",
    "bench": "times of the published cases on a device, judged first, beside a library",
    "tune": "the values of `choose` that are fastest on a device, as a diff for review",
    "verdicts": "every clause of every rule on every target, as tables",
    "prove": "the scheduled program computes the operator: equality over finite fields",
    "fmt": "rewrite files in the one canonical form",
    "explain": "what a diagnostic code means, with examples",
    "new": "begin a rule, an operator or a target that checks",
    "test": "check that `expect pass` and `expect refuse` blocks hold",
    "watch": "check again after every change",
    "doctor": "what is missing on this machine, and how to get it",
    "completion": "what makes TAB complete commands and options",
    "lsp": "the language server that editors talk to",
}
EXIT_FAULT = 4
PATIENT = (100_000, 50, 100)  # trees are made and kept: a collector that looks after every 700 objects finds nothing


class Lazy(click.Group):
    """Loads `kdsl.cli.NAME:NAME` when the command is used; lists them without loading any."""

    def list_commands(self, ctx):
        return list(COMMANDS)

    def get_command(self, ctx, name):
        if name not in COMMANDS:
            return None
        return getattr(importlib.import_module(f"kdsl.cli.{name.replace('-', '_')}"), name.replace("-", "_"))

    def resolve_command(self, ctx, args):
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, 1)
            hint = f" Did you mean `kdsl {near[0]}`?" if near else ""
            raise click.UsageError(f"no command `{args[0]}`.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx, formatter):
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kdsl", prog_name="kdsl")
def cli():
    """Schedules for Kimi Delta Attention kernels: checked, lowered through TVM, verified on the machine code.

    \b
      kdsl check rules/
      kdsl select rules/ --target cpu --shape B=1,T=8192,H=96,K=128,V=128 --set gate=bounded
      kdsl lower rules/kda.chunk_forward/cpu_split.kds --target cpu --emit schedule
    """


def main() -> None:
    """Run, with exit status 0 fine, 1 findings, 2 wrong usage, 3 a tool is missing, 4 a fault of kdsl."""
    gc.set_threshold(*PATIENT)
    try:
        cli(prog_name="kdsl")
    except Exception as fault:
        if os.environ.get("KDSL_TRACEBACK"):
            raise
        where = fault.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        place = f"{os.path.basename(where.tb_frame.f_code.co_filename)}:{where.tb_lineno}" if where else "unknown place"
        click.echo(f"internal fault: {type(fault).__name__}: {fault} ({place})", err=True)
        click.echo(
            "This is a fault of kdsl, not of your rule. KDSL_TRACEBACK=1 shows where; please report it.", err=True
        )
        sys.exit(EXIT_FAULT)


if __name__ == "__main__":
    main()
