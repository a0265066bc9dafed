"""compute-sanitizer over a few small calls, in a process of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from glob import glob
from pathlib import Path

import numpy as np

from harness.cases import decode_call, precomputed
from harness.outcome import SOFTPLUS, Checks, Context
from harness.runner import Runner, decode
from kdsl.bench.device import Device
from kdsl.bench.outcome import Outcome, Skip, Unknown
from kdsl.bundle import Bundle
from kdsl.runtime import NoVariant
from kdsl.validate import bfloat16
from kdsl.validate.call import copy_of
from kdsl.validate.probes import random_call

TOOLS = ("memcheck", "racecheck")
PLACES = ("/usr/local/cuda*/bin", "/usr/local/cuda*/compute-sanitizer", "/opt/nvidia/*/compute-sanitizer")
DONE = "small calls done:"
FOUND = 86
LONGEST = 150
LENGTHS = (1, 0, 16, 33, 64, 5)
LONG = (2000, 85)
MANY = (5, 0, 17, 16) * 12 + (167,)
_SUMMARY = re.compile(r"SUMMARY: (\d+) (?:error|hazard)")


def sanitizing(context: Context) -> Checks:
    """memcheck, and racecheck, which sees ordinary accesses of shared memory."""
    for tool in TOOLS:
        yield tool, partial(_sanitized, context, tool)


def sanitizer() -> str | None:
    """Where compute-sanitizer is."""
    found = shutil.which("compute-sanitizer")
    places = (path for pattern in PLACES for path in sorted(glob(f"{pattern}/compute-sanitizer"))[::-1])
    return found or next((path for path in places if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def _sanitized(context: Context, tool: str) -> Outcome:
    if not context.device.is_gpu:
        raise Skip("compute-sanitizer needs a GPU")
    program = sanitizer()
    if program is None:
        raise Unknown("compute-sanitizer is not installed")
    script = Path(__file__).resolve().parents[1] / "run.py"
    # Without PyTorch's cache every tensor is an allocation of its own, whose ends are then guarded. Errors
    # that calls return are our own to handle.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "KDSL_POISON": "1"}
    command = [
        program, "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "20",
        *(("--report-api-errors", "no") if tool == "memcheck" else ()),
        sys.executable, str(script), "--small-calls", str(context.bundle.path), "--seed", str(context.seed),
    ]  # fmt: skip
    try:
        said = subprocess.run(
            command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=max(min(context.seconds_left, LONGEST), 1),
        )  # fmt: skip
    except subprocess.TimeoutExpired as failure:
        raise Unknown(f"{tool} took longer than {failure.timeout:.0f} s") from None
    return judged(tool, said.returncode, said.stdout)


def judged(tool: str, status: int, text: str) -> Outcome:
    """What a sanitizer's output means. Raises Unknown if it did not look at the calls, or at none."""
    counts = [int(count) for count in _SUMMARY.findall(text)]
    tail = "\n".join(text.splitlines()[-60:])
    numbers = {"exit_status": status, "output": tail}
    done = re.search(rf"{DONE} (\d+)", text)
    if status == FOUND or any(counts):
        lines = [line for line in text.splitlines() if line.startswith("=========")]
        return Outcome(False, f"{tool} found {max(counts, default=1)}: " + " ".join(lines[1:6]), numbers)
    if done is None or status or not counts:
        raise Unknown(f"{tool} ended with status {status} and no summary of the calls: {tail[-600:]}")
    if done.group(1) == "0":
        raise Unknown("the bundle takes none of the small calls")
    return Outcome(True, f"{done.group(1)} small calls, nothing found", numbers)


def small_calls(device: Device, bundle: Bundle, seed: int) -> int:
    """Run the small calls that the bundle takes; how many those are."""
    rng, done = np.random.default_rng(seed), 0
    if bundle.manifest.operator == "kda.decode":
        table = {"ssm_state_indices": np.array([3, -1, 5, 2**40])}
        tokens = np.array([[1, 2], [4, 3], [-1, -1], [6, 0]])
        counted = {"ssm_state_indices": tokens, "num_accepted_tokens": np.array([2, 1, 1, 1])}
        calls = [decode_call(rng, 4, 1), decode_call(rng, 4, 1, slots=7) | table,
                 decode_call(rng, 4, 2, slots=7) | counted]  # fmt: skip
        run = partial(decode, device)
    else:
        packed = random_call(rng, sum(LENGTHS), lengths=LENGTHS)
        turned = {"initial_state": packed["initial_state"].swapaxes(-1, -2), "state_v_first": True}
        given = precomputed(random_call(rng, 50), -1.0)
        long = random_call(rng, sum(LONG), lengths=LONG)  # for rules whose few heads have long sequences
        many = random_call(rng, sum(MANY), lengths=MANY)  # for rules whose blocks fill the device
        wide = copy_of(many, **{name: bfloat16.values_of(name, many[name], np.float32) for name in ("g", "beta")})
        calls = [packed, random_call(rng, 50, with_state=False), packed | SOFTPLUS, packed | turned, given, long, many,
                 wide]  # fmt: skip
        run = Runner(device)
    for call in calls:
        try:
            run(call)
        except NoVariant:
            continue
        done += 1
    return done
