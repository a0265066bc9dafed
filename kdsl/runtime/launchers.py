"""The table of launchers: one small file for each way to start a kernel, registered here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import attrs

from kdsl.bundle.manifest import Kernel
from kdsl.runtime import host_range
from kdsl.runtime.frame import Frame


@attrs.frozen
class Launcher:
    """A way to start kernels.

    `device` is the type of device whose memory its pointers point to; `prepare(file, kernel)` loads the code
    and returns the function that launches it on a frame.
    """

    device: str
    prepare: Callable[[Path, Kernel], Callable[[Frame], None]]


LAUNCHERS: Mapping[str, Launcher] = MappingProxyType({"host_range": Launcher("cpu", host_range.prepare)})

# Device type of the tensors to the target that a variant for them names.
TARGETS: Mapping[str, Callable[[object], str]] = MappingProxyType({"cpu": lambda device: "cpu"})
