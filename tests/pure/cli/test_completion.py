"""Shell completion, and the hooks for pre-commit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kdsl.cli.main import COMMANDS, cli

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(shell):
    done = CliRunner().invoke(cli, ["completion", shell])
    assert done.exit_code == 0 and f"_KDSL_COMPLETE={shell}_complete" in done.output


@pytest.mark.parametrize(
    "words, wanted", [("kdsl ", set(COMMANDS)), ("kdsl do", {"doctor"}), ("kdsl doctor --f", {"--format"})]
)
def test_what_bash_is_told(words, wanted):
    count = len(words.split(" ")) - 1
    environment = {
        **os.environ,
        "COMP_WORDS": words,
        "COMP_CWORD": str(count),
        "_KDSL_COMPLETE": "bash_complete",
    }
    code = "from kdsl.cli.main import cli; cli(prog_name='kdsl')"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert {line.partition(",")[2] for line in done.stdout.split()} == wanted


def test_every_command_says_what_it_does_and_how_it_ends():
    for name in COMMANDS:
        done = CliRunner().invoke(cli, [name, "--help"])
        assert done.exit_code == 0 and done.output.startswith("Usage: ")


def test_the_hooks_call_commands_that_are_there():
    text = (ROOT / ".pre-commit-hooks.yaml").read_text("utf-8")
    assert re.findall(r"entry: kdsl (\w+)", text) == ["fmt", "check"]
    assert set(re.findall(r"entry: kdsl (\w+)", text)) <= set(COMMANDS)
