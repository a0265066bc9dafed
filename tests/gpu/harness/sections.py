"""The sections of a run, in order: which operators they are about, and how long each may take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import attrs

from harness import cases, decoding, numerics, repeating, sanitizing, timing
from harness.outcome import Checks, Context

CHUNK, DECODE = "kda.chunk_forward", "kda.decode"


@attrs.frozen
class Section:
    """`checks` maps an operator to what is checked of its bundles; `seconds` is the limit for one bundle. What takes
    longest, the baseline's tuning, stands last: if the time is up, it alone is missing."""

    name: str
    seconds: float
    checks: Mapping[str, Callable[[Context], Checks]]
    in_quick: bool = True


SECTIONS: Mapping[str, Section] = MappingProxyType(
    {
        section.name: section
        for section in (
            Section("cases", 60, {CHUNK: cases.chunk_cases, DECODE: cases.decode_cases}),
            Section("decoding", 60, {DECODE: decoding.decoding}),
            Section("traces", 60, {CHUNK: numerics.traces}),
            Section("probes", 90, {CHUNK: numerics.probes}),
            Section("relations", 40, {CHUNK: numerics.relations}),
            Section("forms", 60, {CHUNK: numerics.forms}),
            Section("repeats", 60, {CHUNK: repeating.chunk_repeats, DECODE: repeating.decode_repeats}),
            Section("sanitizer", 180, {CHUNK: sanitizing.sanitizing, DECODE: sanitizing.sanitizing},
                    in_quick=False),
            Section("times", 200, {CHUNK: timing.times, DECODE: timing.times}),
        )
    }
)  # fmt: skip
