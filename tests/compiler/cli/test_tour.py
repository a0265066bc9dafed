"""The tour asserts what it shows; here it also has to show all of it."""

import subprocess
import sys

STEPS = ("text", "tree", "check", "select", "plan", "decisions", "schedule", "TIR", "C", "bundle", "run",
         "error", "report")  # fmt: skip


def test_the_tour_walks_the_whole_way():
    command = [sys.executable, "-m", "kdsl.tour"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("-- ")]
    assert shown == list(STEPS)
    assert "o is accepted: its rms error is 0.001" in done.stdout
