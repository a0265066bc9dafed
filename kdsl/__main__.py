"""`python -m kdsl COMMAND`: every command; `bench` and `tune` also on a machine that has no click."""

from __future__ import annotations

import importlib
import sys

# Commands that run where PyTorch, NumPy and attrs are all there is.
PROGRAMS = {"bench": "kdsl.bench.program", "tune": "kdsl.tune.program"}


def main() -> None:
    words = sys.argv[1:]
    if words and words[0] in PROGRAMS:
        sys.exit(importlib.import_module(PROGRAMS[words[0]]).main(words[1:]))
    try:
        from kdsl.cli.main import main as command
    except ImportError as missing:
        sys.exit(f"kdsl: {missing}; pip install kdsl. Without it there are: {', '.join(PROGRAMS)}")
    command()


if __name__ == "__main__":
    main()
