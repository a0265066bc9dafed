"""The proofs of forms that are on record, so that a check without TVM can ask for them.

`kdsl prove PATH --record` writes `proofs.json` beside the file of each operator: a digest of the operator's text,
without comments and blanks, and the forms proved for it. `kdsl check` compares; it needs neither TVM nor a compiler.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from kdsl.check.driver import CheckResult
from kdsl.check.evaluate import decide
from kdsl.check.model import Operator
from kdsl.prove.recurrence import MEANINGS
from kdsl.prove.specification import meaning_of
from kdsl.source.diagnostic import Diagnostic

if TYPE_CHECKING:
    from kdsl.prove.proof import Proof

LEDGER = "proofs.json"
MISSING = "P103"
SMALL = 16  # every size that shapes tensors


def form_settings(operator: Operator) -> list[dict[str, object]]:
    """Every combination of the alternatives that a rule chooses; the parameters it has, at their smallest value."""
    found = []
    for values in product(*operator.forms.values()):
        form = dict(zip(operator.forms, values, strict=False))
        parameters = {
            name: (p.values or (SMALL,))[0] for name, p in operator.parameters.items()
            if p.condition is None or decide(p.condition, form)
        }  # fmt: skip
        found.append({**parameters, **form})
    return found


def form_name(form: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in form.items()) or "the only form"


def text_digest(operator: Operator) -> str:
    """Equal for texts that differ in comments and blanks only."""
    lines = (line.partition("#")[0].split() for line in operator.declaration.span.text.splitlines())
    return hashlib.sha256(" ".join(word for words in lines for word in words).encode()).hexdigest()


def place(operator: Operator) -> Path:
    """Where the proofs of an operator are on record."""
    return Path(operator.declaration.span.path).parent / LEDGER


def read(path: Path) -> dict:
    """The ledger, or an empty one where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def record(operator: Operator, proofs: Iterable[tuple[Mapping[str, object], Proof]], path: Path) -> None:
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


def missing(operator: Operator, path: Path | None = None) -> Diagnostic | None:
    """The finding that some forms have no proof for this text of the operator, or None.

    A graph in one form that no recurrence specifies is its own definition: there is nothing to hold it to.
    """
    specified = meaning_of(operator) is not None
    if not specified and len(form_settings(operator)) == 1:
        return None
    entry = read(path or place(operator)).get(operator.name, {})
    proved = entry.get("forms", {}) if entry.get("text") == text_digest(operator) else {}
    unproved = [name for name in map(form_name, form_settings(operator)) if name not in proved]
    if not unproved:
        return None
    count = len(unproved)
    return Diagnostic(
        MISSING,
        f"no proof on record for {count} form{'s' * (count > 1)} of {operator.name}",
        operator.declaration.name.span,
        observed="; ".join(unproved),
        required="every form proved equal to the operator's recurrence, for this text",
        help=(
            f"`kdsl prove {operator.declaration.span.path} --record` proves every form and writes it down"
            if specified
            else "keep one form, or give the operator the last name and the ports of one that has a recurrence: "
            + ", ".join(MEANINGS),
        ),
    )


def with_proofs(result: CheckResult) -> CheckResult:
    """A check with a finding for every operator that its files declare or schedule and that is not proved."""
    files = set(result.files)
    scheduled = {r.operator for r in result.library.rules.values() if r.declaration.span.path in files}
    asked = [o for name, o in result.library.operators.items()
             if name in scheduled or o.declaration.span.path in files]  # fmt: skip
    found = [diagnostic for diagnostic in map(missing, asked) if diagnostic is not None]
    return evolve(result, diagnostics=tuple(sorted((*result.diagnostics, *found), key=lambda d: d.order)))
