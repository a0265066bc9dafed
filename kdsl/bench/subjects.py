"""What a command line names: bundles, folders of them, or rules that are compiled for the device that is here."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import attrs

from kdsl.bench.cases import GATES, Case, variant_for
from kdsl.bundle.errors import BundleError
from kdsl.bundle.load import Bundle, read_bundle
from kdsl.runtime.targets import acceptable_targets

SUFFIX = ".kdsb"
RULE_SUFFIX = ".kds"


class NotUsable(Exception):
    """A word of the command line that nothing can be made of; the message says what and what to do."""


class NotCompiled(Exception):
    """A rule of which no bundle comes: it is wrong, refuses the call, or a clause of its contract fails."""


class NoCompiler(Exception):
    """Rules were given, and what compiles them is not installed."""


@attrs.frozen
class Subject:
    """A bundle and how the report calls it, with the gate of the calls that it is for."""

    label: str
    bundle: Bundle
    gate: str

    def cases(self, asked: Iterable[Case]) -> Iterator[Case]:
        """The cases of its operator, with its gate."""
        for case in asked:
            if case.operator == self.bundle.manifest.operator:
                yield attrs.evolve(case, gate=self.gate)


def subjects(paths: Sequence[Path], target: str, cases: Sequence[Case]) -> tuple[list[Subject], list[str]]:
    """Bundles that take some of the cases on a device of the target, and a line for each that is left out.

    Raises NotUsable for a path without bundles and rules or a bundle that is damaged, NotCompiled, NoCompiler.
    """
    found: dict[Path, Bundle] = {}
    names: list[tuple[str, str]] = []  # of the folder and of the bundle; a rule's bundle has the rule's
    for path in paths:
        given = bundles_at(path)
        for place in given or _compiled(path, target, cases):
            if place.resolve() not in found:
                bundle = found[place.resolve()] = _read(place.resolve())
                name = bundle.path.name.removesuffix(SUFFIX) if given else bundle.manifest.rule.name
                names.append((bundle.path.parent.name if given else "rule", name))
    kept, left_out = [], []
    for label, bundle in zip(_labels(names), found.values(), strict=True):
        gate = gate_of(bundle, target, cases)
        if gate:
            kept.append(Subject(label, bundle, gate))
        else:
            left_out.append(f"{label} is left out: {_why(bundle, target, cases)}")
    return kept, left_out


def bundles_at(path: Path) -> list[Path]:
    """The bundles in a folder or its folders, or the folder itself if it is one."""
    if (path / "manifest.json").is_file():
        return [path]
    return sorted(file.parent for file in path.glob(f"**/*{SUFFIX}/manifest.json")) if path.is_dir() else []


def gate_of(bundle: Bundle, target: str, cases: Iterable[Case]) -> str:
    """The first gate for which some variant takes a case on a device of the target; "" if none does."""
    own = [case for case in cases if case.operator == bundle.manifest.operator]
    for gate in GATES:
        if any(variant_for(bundle.manifest.variants, attrs.evolve(case, gate=gate), target) for case in own):
            return gate
    return ""


def _why(bundle: Bundle, target: str, cases: Iterable[Case]) -> str:
    variants = bundle.manifest.variants
    if not set(acceptable_targets(target)) & {variant.target for variant in variants}:
        return f"it is for {', '.join(dict.fromkeys(v.target for v in variants))}, the device here is {target}"
    if bundle.manifest.operator not in {case.operator for case in cases}:
        return f"no case asked for is of {bundle.manifest.operator}"
    return "no variant takes bf16 tokens, fp32 states and a bounded or softplus gate, all in the kernel"


def _read(path: Path) -> Bundle:
    try:
        return read_bundle(path)
    except BundleError as wrong:
        raise NotUsable(str(wrong)) from None


def _labels(names: Sequence[tuple[str, str]]) -> list[str]:
    """The bundles' names; with their folders where two have the same."""
    own = [name for _, name in names]
    return [name if own.count(name) == 1 else f"{folder}/{name}" for folder, name in names]


def _compiled(path: Path, target: str, cases: Sequence[Case]) -> list[Path]:
    if not path.exists():
        raise NotUsable(f"there is nothing at {path}")
    rules = [path] if path.suffix == RULE_SUFFIX else sorted(path.rglob(f"*{RULE_SUFFIX}")) if path.is_dir() else []
    if not rules:
        raise NotUsable(
            f"found neither bundles (NAME{SUFFIX}) nor rules (NAME{RULE_SUFFIX}) at {path}; build some with "
            f"`kdsl precompile` or `kdsl lower RULE --target {target} --emit bundle --output build`"
        )
    if lacking := [name for name in ("lark", "tvm") if importlib.util.find_spec(name) is None]:
        raise NoCompiler(
            f"{path} has rules, and {' and '.join(lacking)} to compile them is not installed here; on a machine with "
            f"the compiler `kdsl lower {path} --target {target} --emit bundle --output build`, here `kdsl bench build`"
        )
    from kdsl.bench.compiled import compiled

    return compiled(rules, target, cases)
