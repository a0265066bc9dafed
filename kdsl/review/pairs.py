"""Which rule of A is compared with which of B, and on which target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kdsl.bundle.load import read_bundle
from kdsl.data import data_root
from kdsl.review.bundles import is_bundle, origin, settings_of, variant_of
from kdsl.review.difference import Difference, Side, difference, lowered_side, side_of
from kdsl.review.manifests import manifest_side
from kdsl.review.subject import NotReviewable, Subject, subjects


def differences(
    old: str, new: str, target: str | None, only: str | None, settings: Mapping[str, object], levels: tuple[str, ...]
) -> Iterator[Difference | str]:
    """One for each rule; a rule that only one side has is a sentence. Raises NotReviewable, BundleError."""
    if is_bundle(old) or is_bundle(new):
        yield of_bundles(old, new, target, only, settings, levels)
        return
    before, after = by_name(old, only), by_name(new, only)
    if len(before) == len(after) == 1:  # a rule may have another name
        after = {next(iter(before)): next(iter(after.values()))}
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            yield f"rule `{name}` is in {old} alone\n"
        elif name not in before:
            yield f"rule `{name}` is in {new} alone\n"
        else:
            yield of_rules(before[name], after[name], target, settings, levels)


def by_name(given: str, only: str | None) -> dict[str, Subject]:
    found = {subject.rule.name: subject for subject in subjects(given) if only in (None, subject.rule.name)}
    if not found:
        raise NotReviewable(given, f"there is no rule{f' `{only}`' if only else ''}")
    return found


def of_rules(old: Subject, new: Subject, target: str | None, settings, levels) -> Difference:
    common = [t for t in old.rule.targets if t in new.rule.targets]
    chosen = target or next(iter(common), None)
    if chosen is None:
        raise NotReviewable(new.given, f"rule `{new.rule.name}` has no target that {old.given} has too")
    sides = [side_of(subject, chosen, settings, levels) for subject in (old, new)]
    name = old.rule.name if old.rule.name == new.rule.name else f"{old.rule.name} -> {new.rule.name}"
    return difference(name, chosen, *sides, levels)


def of_bundles(old: str, new: str, target: str | None, only: str | None, settings, levels) -> Difference:
    """At least one is a bundle: its settings decide those of the other."""
    first = old if is_bundle(old) else new
    variant = variant_of(read_bundle(first), first, target)
    settings = {**settings_of(variant), **settings}
    sides = [side_of_either(given, variant.target, only, settings, levels) for given in (old, new)]
    if any(side.absent for side in sides):  # what one of them has no record of is read from both alike
        sides = [
            manifest_side(given, variant.target) if is_bundle(given) else side for given, side in zip((old, new), sides)
        ]
    return difference(read_bundle(first).manifest.rule.name, variant.target, *sides, levels)


def side_of_either(given: str, target: str, only: str | None, settings, levels) -> Side:
    """A bundle through the shipped rule that made it, if that still makes it; else its manifest alone."""
    if not is_bundle(given):
        (subject,) = by_name(given, only).values()
        return side_of(subject, target, settings, levels)
    try:
        return lowered_side(given, origin(given, target, (str(data_root() / "rules"),)).lowering, levels)
    except NotReviewable:
        return manifest_side(given, target)
