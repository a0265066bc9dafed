"""The README's set-up in Neovim itself: the server is started, answers, and edits as the keys ask it to."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kdsl.data import data_root

from .highlighters import EDITOR

NEOVIM = EDITOR / "neovim"
RULE = data_root() / "rules" / "kda.chunk_forward" / "cpu_split.kds"
SCRIPT = Path(__file__).with_name("neovim.lua")


def version() -> tuple[int, int] | None:
    """(0, 11) for Neovim 0.11.4; None if there is none."""
    if shutil.which("nvim") is None:
        return None
    said = subprocess.run(["nvim", "--version"], capture_output=True, text=True, timeout=60).stdout
    found = re.match(r"NVIM v(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else None


FOUND = version()
neovim = pytest.mark.skipif(
    FOUND is None or FOUND < (0, 8),
    reason="Neovim is not installed" if FOUND is None else f"Neovim {FOUND} is older than 0.8 and starts no server so",
)


def setup_lines(release: tuple[int, int]) -> str:
    """The Lua that the README gives for a release."""
    blocks = re.findall(r"```lua\n(.*?)```", (NEOVIM / "README.md").read_text("utf-8"), re.DOTALL)
    newer, older = blocks[:2]
    assert "vim.lsp.enable" in newer and "vim.lsp.start" in older
    text = newer if release >= (0, 11) else older
    return f'vim.opt.runtimepath:prepend("{NEOVIM}")\n' + text.replace(
        'vim.opt.runtimepath:prepend("/path/to/kdsl/editor/neovim")\n', ""
    )


def seen(folder: Path, release: tuple[int, int]) -> dict:
    setup, out, file = folder / "setup.lua", folder / "seen.json", folder / "rule.kds"
    setup.write_text(setup_lines(release), encoding="utf-8")
    file.write_text(RULE.read_text("utf-8"), encoding="utf-8")
    environment = {
        **os.environ, "KDS_FILE": str(file), "KDS_OUT": str(out),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        **{f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "DATA", "STATE", "CACHE")},
    }  # fmt: skip
    command = ["nvim", "--headless", "-u", str(setup), "-i", "NONE", "-c", f"luafile {SCRIPT}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300,
                          stdin=subprocess.DEVNULL)  # fmt: skip
    assert out.exists(), done.stderr
    return json.loads(out.read_text("utf-8"))


@neovim
@pytest.mark.parametrize("lines", ["0.8", "0.11"])
def test_neovim_talks_to_the_server(tmp_path, lines):
    release = (0, 11) if lines == "0.11" else (0, 8)
    if release > FOUND:
        pytest.skip(f"this is Neovim {FOUND}, and these lines are for {lines}")
    found = seen(tmp_path, release)
    assert "fault" not in found, found
    assert found["filetype"] == "kds" and found["commentstring"] == "# %s" and found["syntax"] == "kdsClause"
    assert found["attached"]
    assert "K x V of f32" in found["hover"] and "262144" in found["hover"]
    assert "holds" in found["clause"] and "proved" in found["clause"]
    assert found["definition"].endswith("stdlib/operators/kda.chunk_forward.kds") and found["references"] > 1
    assert "did you mean `split`" in found["finding"] and found["mended"]
    assert found["renamed"] and found["formatted"]


def test_without_a_server_the_lines_differ():
    assert setup_lines((0, 11)) != setup_lines((0, 8))
