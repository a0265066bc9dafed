"""What machine this is, in the words a bundle uses for what it needs."""

from __future__ import annotations

import platform
from functools import lru_cache
from pathlib import Path

import attrs

_ARCHITECTURES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
_CPU_TABLE = Path("/proc/cpuinfo")


@attrs.frozen
class Machine:
    """A host.

    `system` as platform.system() says ("Linux"); `arch` "x86_64", "aarch64", ...; `features` CPU features by
    Linux's names ("avx2", "fma"), sorted. Features are empty where the system does not list them.
    """

    system: str
    arch: str
    features: tuple[str, ...] = attrs.field(default=(), converter=lambda names: tuple(sorted(set(names))))


@lru_cache(maxsize=1)
def this_machine() -> Machine:
    """Describe the machine this process runs on (read once)."""
    arch = platform.machine().lower()
    return Machine(platform.system(), _ARCHITECTURES.get(arch, arch), cpu_features(_CPU_TABLE))


def cpu_features(table: Path) -> tuple[str, ...]:
    """The features that every CPU of a /proc/cpuinfo table has (`flags` on x86, `Features` on Arm)."""
    try:
        lines = table.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    rows = [
        set(line.partition(":")[2].split())
        for line in lines
        if line.partition(":")[0].strip() in ("flags", "Features")
    ]
    return tuple(sorted(set.intersection(*rows))) if rows else ()


def shortfall(needed: Machine | None, here: Machine) -> str:
    """Why code built for `needed` (None: for any host) cannot run on `here`, or "" if it can."""
    if needed is None:
        return ""
    if needed.system != here.system:
        return f"found system {here.system}, needed {needed.system}"
    if needed.arch != here.arch:
        return f"found architecture {here.arch}, needed {needed.arch}"
    missing = [name for name in needed.features if name not in here.features]
    if not missing:
        return ""
    have = (
        f"a CPU without {', '.join(missing)}" if here.features else "a system that does not list CPU features"
    )
    return f"found {have}, needed {', '.join(needed.features)}"
