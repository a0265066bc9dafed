"""Terminal sessions in documents: ```console blocks, whose commands begin with `$ ` and whose other lines are output.

A command goes on after a backslash at its end and until the end of a here-document. All commands of a document run in
one folder, with `rules` in it as in a clone; output is stdout and stderr together.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from attrs import frozen

from kdsl.data import data_root

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
TIME = re.compile(r"\b\d+(\.\d+)? (s|ms)\b")


@frozen
class Step:
    command: str
    output: str


def steps(block: str) -> list[Step]:
    """The commands of a block with the output that the document shows."""
    found: list[Step] = []
    lines = block.splitlines()
    while lines:
        line = lines.pop(0)
        assert line.startswith("$ "), f"a block begins with a command, not {line!r}"
        command = [line.removeprefix("$ ")]
        end = re.search(r"<<\s*'?(\w+)'?", command[0])
        while command[-1].endswith("\\") or (end and command[-1] != end[1]):
            command.append(lines.pop(0))
        output = []
        while lines and not lines[0].startswith("$ "):
            output.append(lines.pop(0))
        found.append(Step("\n".join(command), "\n".join(output)))
    return found


def run(command: str, folder: Path) -> str:
    """What a command prints, without the machine's own paths."""
    environment = {
        **os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100",
        "XDG_CACHE_HOME": str(folder / ".cache"), "KDSL_POISON": "",
    }  # fmt: skip
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300)  # fmt: skip
    return done.stdout.rstrip("\n").replace(f"{data_root()}{os.sep}", "").replace(f"{folder}{os.sep}", "")


def prepare(folder: Path) -> None:
    shutil.copytree(data_root() / "rules", folder / "rules")


def replayed(text: str, folder: Path) -> str:
    """The document with the output that its commands give now."""
    prepare(folder)

    def again(match: re.Match) -> str:
        lines = []
        for step in steps(match[1]):
            output = run(step.command, folder)
            lines += [f"$ {step.command}", *([output] if output else [])]
        return "```console\n" + "\n".join(lines) + "\n```"

    return BLOCK.sub(again, text)


def without_times(text: str) -> str:
    """Seconds and milliseconds differ from run to run, and so does the room before them."""
    return re.sub(r"(-?) *TIME", r"\1 TIME", TIME.sub("TIME", text))
