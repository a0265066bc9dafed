"""Launch "host_range": a C function in a shared library that runs the tasks [begin, end) of its last
arguments.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

from kdsl.bundle.expression import parse_number
from kdsl.bundle.manifest import Kernel
from kdsl.runtime.errors import LaunchError
from kdsl.runtime.frame import Frame, c_type, reader
from kdsl.runtime.threads import run_range


def prepare(file: Path, kernel: Kernel) -> Callable[[Frame], None]:
    """Load the library and return the function that launches `kernel` on a frame and waits for it.

    Raises LaunchError if the library does not load or lacks the symbol.
    """
    try:
        function = getattr(ctypes.CDLL(str(file)), kernel.symbol)
    except (OSError, AttributeError) as failure:
        raise LaunchError(
            kernel.name,
            f"library {file.name}",
            str(failure),
            f"a shared library of this system with the symbol {kernel.symbol}",
            "rebuild the bundle on this system with `kdsl lower`",
        ) from None
    function.restype = None
    function.argtypes = [c_type(argument) for argument in kernel.arguments]
    readers = [reader(argument) for argument in kernel.arguments]
    kinds = [argument.kind for argument in kernel.arguments]
    begin_at, end_at = kinds.index("grid_begin"), kinds.index("grid_end")
    tasks = parse_number(kernel.grid["tasks"])

    def launch(frame: Frame) -> None:
        values = [read(frame) for read in readers]

        def run(begin: int, end: int) -> None:
            part = values.copy()
            part[begin_at] = begin
            part[end_at] = end
            function(*part)

        run_range(run, tasks.evaluate(frame.sizes), frame.threads)

    return launch
