"""An `argparse` command line as a command of `kdsl`: for programs that also run where click is not installed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import click

SUPPRESSED = (argparse._HelpAction,)


def command_of(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> click.Command:
    """The same words, helps, defaults and choices; `run` gets what argparse would give it and returns the status."""

    def callback(**given) -> None:
        given = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
        sys.exit(run(argparse.Namespace(**given)))

    parameters = [_parameter(action) for action in parser._actions if not isinstance(action, SUPPRESSED)]
    description, epilog = parser.description or "", parser.epilog or ""
    text = "\n\n".join(f"\b\n{block}" for block in "\n\n".join((description, epilog)).split("\n\n"))
    return click.Command(
        parser.prog.split()[-1], callback=callback, params=parameters, help=text,
        short_help=description.partition(".")[0],
    )  # fmt: skip


def _parameter(action: argparse.Action) -> click.Parameter:
    kind = _kind(action)
    if not action.option_strings:
        many = action.nargs in ("+", "*")
        required = action.nargs not in ("*", "?")
        return click.Argument([action.dest], nargs=-1 if many else 1, required=required, type=kind,
                              metavar=f"{action.metavar}..." if many else action.metavar)  # fmt: skip
    return click.Option(
        [*action.option_strings, action.dest], type=kind, default=action.default, help=action.help,
        metavar=action.metavar, is_flag=action.nargs == 0, multiple=isinstance(action, argparse._AppendAction),
    )  # fmt: skip


def _kind(action: argparse.Action):
    if action.choices:
        return click.Choice(list(action.choices))
    return click.Path(path_type=Path) if action.type is Path else action.type
