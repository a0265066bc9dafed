"""The proofs of forms that are on record, so that a check without TVM can ask for them.

`kdsl prove PATH --record` writes `ledger.json`: for each operator a digest of its text, without comments and
blanks, and the forms proved for it. `missing` compares; it needs neither TVM nor a compiler.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from kdsl.check.model import Operator
from kdsl.prove.proof import Proof
from kdsl.source.diagnostic import Diagnostic

LEDGER = Path(__file__).with_name("ledger.json")
MISSING = "P103"


def form_name(form: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in form.items()) or "the only form"


def text_digest(operator: Operator) -> str:
    """Equal for texts that differ in comments and blanks only."""
    lines = (line.partition("#")[0].split() for line in operator.declaration.span.text.splitlines())
    return hashlib.sha256(" ".join(word for words in lines for word in words).encode()).hexdigest()


def read(path: Path = LEDGER) -> dict:
    """The ledger, or an empty one where there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def record(
    operator: Operator, proofs: Iterable[tuple[Mapping[str, object], Proof]], path: Path = LEDGER
) -> None:
    """Write down the forms whose every proof holds, for this text of the operator."""
    forms: dict[str, dict] = {}
    refused: set[str] = set()
    for form, proof in proofs:
        name = form_name(form)
        entry = forms.setdefault(name, {"programs": 0, "bound": 0.0})
        entry["programs"] += 1
        entry["bound"] = max(entry["bound"], proof.bound)
        refused |= set() if proof.proved else {name}
    kept = {name: entry for name, entry in forms.items() if name not in refused}
    ledger = {**read(path), operator.name: {"text": text_digest(operator), "forms": kept}}
    path.write_text(json.dumps(ledger, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def missing(
    operator: Operator, forms: Iterable[Mapping[str, object]], path: Path = LEDGER
) -> Diagnostic | None:
    """The finding that some of `forms` (see `form_settings`) have no proof for this text, or None."""
    entry = read(path).get(operator.name, {})
    proved = entry.get("forms", {}) if entry.get("text") == text_digest(operator) else {}
    unproved = [name for name in map(form_name, forms) if name not in proved]
    if not unproved:
        return None
    return Diagnostic(
        MISSING,
        f"no proof on record for {len(unproved)} forms of {operator.name}",
        operator.declaration.name.span,
        observed="; ".join(unproved),
        help=("`kdsl prove FILE --record` proves every form and writes it down",),
    )
