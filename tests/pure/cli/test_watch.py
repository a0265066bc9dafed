"""`kdsl watch` in a process of its own, while its file changes."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading

import pytest

RIGHT = "target mine extends cpu {\n  stack_bytes_per_task = 1 MiB\n}\n"


def interruptible() -> None:
    """CTRL-C reaches the command even where whoever started the tests ignores it, as a shell's background jobs do."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Watching:
    def __init__(self, path):
        command = [sys.executable, "-u", "-m", "kdsl.cli.main", "watch", str(path)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=interruptible)
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)

    def until(self, wanted: str) -> str:
        while True:
            line = self.lines.get(timeout=60)
            if wanted in line:
                return line

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=20)


@pytest.fixture
def watching(tmp_path):
    path = tmp_path / "a.kds"
    path.write_text(RIGHT)
    found = Watching(tmp_path)
    yield path, found
    found.process.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="CTRL-C is another signal there")
def test_changes_are_checked(watching):
    path, found = watching
    assert "all: no findings" in found.until("findings")
    path.write_text(RIGHT.replace("extends cpu", "extends cqu"))
    assert "unknown target `cqu`" in found.until("error[")
    assert "a.kds: 1 error" in found.until("1 error")
    path.write_text(RIGHT)
    assert "a.kds: no findings" in found.until("findings")
    path.with_name("b.kds").write_text("rule {")
    assert " error" in found.until("b.kds: ")
    assert found.stop() == 1


def test_a_path_that_is_not_there(tmp_path):
    command = [sys.executable, "-m", "kdsl.cli.main", "watch", str(tmp_path / "gone")]
    assert subprocess.run(command, capture_output=True).returncode == 2
