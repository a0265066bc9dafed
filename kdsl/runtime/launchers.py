"""The table of launchers: one small file for each way to start a kernel, registered here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import attrs

from kdsl.bundle.manifest import Kernel
from kdsl.runtime import cuda, host_range, workspace
from kdsl.runtime.frame import Frame


class Memory(Protocol):
    """Memory for one launch: where it is, and how to give it back once the kernels are enqueued."""

    @property
    def address(self) -> int:
        """Where its first byte is."""

    def free(self) -> None:
        """Give it back; once only."""


@attrs.frozen
class Launcher:
    """A way to start kernels.

    `device` is the type of device whose memory its pointers point to; `prepare(file, kernel)` loads the code
    and returns the function that launches it on a frame; `allocate(bytes, device)` takes memory for a launch.
    """

    device: str
    prepare: Callable[[Path, Kernel], Callable[[Frame], None]]
    allocate: Callable[[int, str], Memory]


LAUNCHERS: Mapping[str, Launcher] = MappingProxyType(
    {
        "host_range": Launcher("cpu", host_range.prepare, workspace.allocate),
        "cuda": Launcher("cuda", cuda.prepare, cuda.allocate),
    }
)
