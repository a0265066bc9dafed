"""Devices and the targets that variants name: what a device is called, and whose code it runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType, ModuleType
from typing import Any

from kdsl.runtime.errors import ArgumentValueError

# From compute capability 9.0 on, code for one architecture alone ("a") may use all that it has.
FIRST_SPECIFIC = 9
FIRST_FAMILY = 10
# Systems on a chip: code of desktop GPUs does not run there, nor theirs elsewhere (CUDA C++ Programming
# Guide, "Binary Compatibility").
_ON_CHIP = ("53", "62", "72", "87", "101", "110")


def capability_target(major: int, minor: int) -> str:
    """The target that uses all of a GPU of this compute capability: sm_86, sm_90a."""
    return f"sm_{major}{minor}{'a' if major >= FIRST_SPECIFIC else ''}"


@lru_cache(maxsize=64)
def acceptable_targets(target: str) -> tuple[str, ...]:
    """The targets whose code runs on `target`, best first.

    Machine code runs on its own architecture and, unless it is for one alone ("a"), on those of the same
    major version and a higher minor version: sm_89 also runs sm_86 and sm_80. From major version 10 on there
    is code that uses what a family has in common ("f"), which runs on the same GPUs.
    """
    match = re.fullmatch(r"sm_(\d+)(\d)(a?)", target)
    if match is None:
        return (target,)
    major, minor = match.group(1), int(match.group(2))
    plain = [f"{major}{number}" for number in range(minor, -1, -1)]
    runs = [name for name in plain if name == f"{major}{minor}" or name not in _ON_CHIP]
    if f"{major}{minor}" in _ON_CHIP:
        runs = runs[:1]
    family = [f"sm_{name}f" for name in runs if int(major) >= FIRST_FAMILY]
    return tuple(dict.fromkeys([target, *family, *(f"sm_{name}" for name in runs)]))


def _cuda(torch: ModuleType, device: Any) -> str:
    if torch.version.cuda is None:
        raise ArgumentValueError(
            "q", f"device {device} of a PyTorch without CUDA", "an NVIDIA GPU", "move the tensors with .cpu()"
        )
    return capability_target(*torch.cuda.get_device_capability(device))


# Device type of the tensors to the target that a variant for them names.
TARGETS: Mapping[str, Callable[[ModuleType, Any], str]] = MappingProxyType(
    {"cpu": lambda torch, device: "cpu", "cuda": _cuda}
)
