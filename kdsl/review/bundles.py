"""From a bundle back to the rule that made it: the same text of the rule, lowered to the same CUDA."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from attrs import frozen

from kdsl.bundle.load import Bundle, read_bundle
from kdsl.bundle.manifest import MANIFEST_NAME, Variant
from kdsl.lower.lowering import Lowering
from kdsl.review.subject import NotReviewable, Subject, subjects


@frozen
class Origin:
    """A variant of a bundle with the rule that makes the same code today."""

    bundle: Bundle
    variant: Variant
    subject: Subject
    lowering: Lowering


def is_bundle(given: str) -> bool:
    return (Path(given) / MANIFEST_NAME).is_file()


def variant_of(bundle: Bundle, given: str, target: str | None) -> Variant:
    """The only variant, or the first for the target. Raises NotReviewable."""
    found = [v for v in bundle.manifest.variants if target in (None, v.target)]
    if not found or (target is None and len({v.target for v in found}) > 1):
        targets = ", ".join(dict.fromkeys(v.target for v in bundle.manifest.variants)) or "none"
        raise NotReviewable(given, f"name one of its targets with --target: {targets}")
    return found[0]


def origin(given: str, target: str | None, rules: Iterable[str]) -> Origin:
    """The rule behind a bundle, from files and folders of rules. Raises NotReviewable if it is not there, or if what
    it becomes today is not the bundle's code: lines would then be of something else."""
    bundle = read_bundle(given)
    variant = variant_of(bundle, given, target)
    wanted = bundle.manifest.rule
    same_name = [s for path in rules for s in subjects(path) if s.rule.name == wanted.name]
    digest = {s.given: hashlib.sha256(s.rule.declaration.span.text.encode()).hexdigest() for s in same_name}
    subject = next((s for s in same_name if digest[s.given] == wanted.sha256), None)
    if subject is None:
        reason = "has another text there" if same_name else "is not there"
        where = ", ".join(rules)
        raise NotReviewable(given, f"it was made from rule `{wanted.name}` ({wanted.file}), which {reason}: {where}")
    lowering = subject.lowering(variant.target, settings_of(variant))
    changed = changed_kernels(bundle, variant, lowering)
    if changed:
        names = ", ".join(f"`{name}`" for name in changed)
        raise NotReviewable(given, f"this kdsl makes other code for kernel {names}; lower the rule again")
    return Origin(bundle, variant, subject, lowering)


def settings_of(variant: Variant) -> dict[str, object]:
    return {**variant.options, **variant.dtypes, **variant.sizes, **variant.choices}


def changed_kernels(bundle: Bundle, variant: Variant, lowering: Lowering) -> list[str]:
    """Kernels whose source in the bundle is not what the rule is lowered to now."""
    made = {source.kernel: source.source for source in lowering.sources}
    return [kernel.name for kernel in variant.kernels if made.get(kernel.name) != source_text(bundle, kernel.file)]


def source_text(bundle: Bundle, file: str) -> str:
    """The C or CUDA beside a kernel's machine code."""
    stem, _, suffix = file.rpartition(".")
    name = f"{stem}.{'cu' if suffix == 'cubin' else 'c'}"
    return bundle.file(name).read_text(encoding="utf-8") if name in bundle.manifest.files else ""
