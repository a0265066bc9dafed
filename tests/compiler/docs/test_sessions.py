"""Documents show what the commands print: each session is run again and compared, but for times.

`pytest --update-goldens` writes the new output into the document.
"""

from __future__ import annotations

import pytest

from kdsl.data import data_root

from .session import replayed, steps, without_times

DOCUMENTS = ("docs/first-ten-minutes.md",)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_session_is_real(name, tmp_path, request):
    path = data_root() / name
    text = path.read_text("utf-8")
    now = replayed(text, tmp_path)
    if request.config.getoption("--update-goldens"):
        path.write_text(now, encoding="utf-8", newline="\n")
    assert without_times(now) == without_times(path.read_text("utf-8"))


def test_a_changed_output_is_noticed(tmp_path):
    text = "```console\n$ echo 1.5 s\n0.2 s\n$ echo two\ntwo\n```\n"
    now = replayed(text, tmp_path)
    assert without_times(now) == without_times(text)
    assert without_times(now) != without_times(text.replace("two\n`", "three\n`"))


def test_commands_over_lines():
    block = "$ cat > a <<'EOF'\n$ not a command\nEOF\n$ echo \\\n  b\nb\n"
    assert [step.command for step in steps(block)] == ["cat > a <<'EOF'\n$ not a command\nEOF", "echo \\\n  b"]
    assert [step.output for step in steps(block)] == ["", "b"]
