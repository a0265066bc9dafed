"""What a folder for tuning holds: `tune.json` with every choose point of a rule on a target, and the points' bundles.

A point without a bundle was discarded: its contract fails, or it does not lower. `code` is the digest of what a bundle
runs, so a time stays a time of the same code whatever else of the rule or the compiler changes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from kdsl.bench.subjects import NotUsable
from kdsl.bundle.errors import BundleError
from kdsl.bundle.load import Bundle, read_bundle
from kdsl.bundle.manifest import Variant

FILE, POINTS, LOG = "tune.json", "points", "log.jsonl"
SCHEMA = 1
# A clause with this verdict says that the code breaks its contract, or that nobody knows.
BROKEN = ("fails", "unknown")


@attrs.frozen
class Point:
    """One value of every choice: `key` is the digest of everything that makes its bundle."""

    choices: Mapping[str, Any]
    key: str
    bundle: str = ""  # below the folder
    code: str = ""
    reasons: tuple[str, ...] = attrs.field(default=(), converter=tuple)  # why it was discarded

    @property
    def name(self) -> str:
        """`v_tile = 64, depth = 2`."""
        return ", ".join(f"{name} = {value}" for name, value in self.choices.items()) or "no choices"


@attrs.frozen
class Prepared:
    """A rule on a target at its points, the default first; `total` of them there are, also while some are not done."""

    rule: str
    operator: str
    target: str
    gate: str
    default: Mapping[str, Any]
    total: int
    points: tuple[Point, ...] = attrs.field(default=(), converter=tuple)

    @property
    def runnable(self) -> tuple[Point, ...]:
        return tuple(point for point in self.points if point.bundle)

    def write(self, folder: Path) -> None:
        """Replace `tune.json` in one step."""
        fresh = folder / f".{FILE}.new"
        fresh.write_text(json.dumps({"schema": SCHEMA, **attrs.asdict(self)}, indent=1) + "\n", encoding="utf-8")
        os.replace(fresh, folder / FILE)


def read(folder: Path) -> Prepared:
    """What was prepared in a folder. Raises NotUsable."""
    path = folder / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotUsable(
            f"{folder} has no {FILE}; prepare it where the compiler is: "
            f"kdsl tune RULE --target sm_90a --prepare {folder}"
        ) from None
    except (OSError, ValueError) as failure:
        raise NotUsable(f"{path} cannot be read: {failure}; prepare the folder again") from None
    try:
        schema = found.pop("schema")
        if schema != SCHEMA:
            raise ValueError(f"it has schema {schema}, this kdsl reads {SCHEMA}")
        points = tuple(Point(**point) for point in found.pop("points"))
        return Prepared(**found, points=points)
    except (AttributeError, KeyError, TypeError, ValueError) as wrong:
        raise NotUsable(f"{path} is not what `kdsl tune --prepare` writes: {wrong}; prepare the folder again") from None


def bundle_of(folder: Path, point: Point) -> Bundle:
    """The point's bundle. Raises NotUsable if it is damaged, or other code than `tune.json` says."""
    try:
        bundle = read_bundle(folder / point.bundle)
    except BundleError as wrong:
        raise NotUsable(f"{wrong}; prepare the folder again") from None
    if code_of(bundle) != point.code:
        raise NotUsable(f"{folder / point.bundle} is other code than {FILE} says; prepare the folder again")
    return bundle


def broken_clauses(variant: Variant) -> list[str]:
    """The clauses of a variant's contract that do not hold; one that waits for a device is none of them."""
    return [f"`{v.clause}`: {v.verdict}, found {v.found}" for v in variant.verdicts if v.verdict in BROKEN]


def code_of(bundle: Bundle) -> str:
    """The sha256 of everything that a bundle's variants run: their code, and how it is called."""
    found = []
    for variant in bundle.manifest.variants:
        settings = [sorted(one.items(), key=str) for one in (variant.dtypes, variant.options, variant.sizes)]
        found.append((variant.target, settings, [(w.name, w.dtype, w.bytes) for w in variant.workspace]))
        for kernel in variant.kernels:
            arguments = [sorted(attrs.asdict(argument).items(), key=str) for argument in kernel.arguments]
            found.append((bundle.manifest.files[kernel.file], kernel.symbol, kernel.launch, kernel.block,
                          kernel.shared_bytes, sorted(kernel.grid.items()), arguments))  # fmt: skip
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()
