"""`kdsl lsp`: the language server, for editors."""

from __future__ import annotations

import logging
import sys

import click

LEVELS = ("error", "warning", "info", "debug")
EXIT_TOOL = 3


@click.command()
@click.option("--stdio", is_flag=True, help="Talk over standard input and output; the default.")
@click.option(
    "--tcp",
    metavar="PORT",
    type=click.IntRange(1, 65535),
    help="Wait for one editor on a port of this machine.",
)
@click.option(
    "--log",
    type=click.Choice(LEVELS),
    default="error",
    show_default=True,
    help="What goes to standard error.",
)
def lsp(stdio: bool, tcp: int | None, log: str) -> None:
    """Start the language server that editors talk to. Needs the extra `lsp`: pip install "kdsl[lsp]".

    Exit: 0 the editor is done, 3 pygls is missing.
    """
    if stdio and tcp is not None:
        raise click.UsageError("either --stdio or --tcp")
    logging.basicConfig(level=log.upper(), stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    try:
        from kdsl.lsp.server import server
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.split(".")[0] not in ("pygls", "lsprotocol"):
            raise
        click.echo('the language server needs pygls: pip install "kdsl[lsp]"', err=True)
        sys.exit(EXIT_TOOL)
    if tcp is not None:
        server.start_tcp("127.0.0.1", tcp)
    else:
        server.start_io()
