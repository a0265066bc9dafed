"""`kdsl completion SHELL`: what makes TAB complete commands, options and paths."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
      bash: kdsl completion bash > ~/.local/share/bash-completion/completions/kdsl
      zsh:  kdsl completion zsh > "${fpath[1]}/_kdsl"
      fish: kdsl completion fish > ~/.config/fish/completions/kdsl.fish
    """
    from kdsl.cli.main import cli

    kind = get_completion_class(shell)
    click.echo(kind(cli, {}, "kdsl", "_KDSL_COMPLETE").source())
