"""Programs that were proved before, in the user's cache folder: proved once, whatever rule or point they
come from.

Only proofs are kept. The key holds everything that the verdict rests on: the C text of the program and what
its parameters are, the calls, the options, the trials asked for, and the prover's own text.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from attrs import asdict

from kdsl.plan.model import Plan
from kdsl.prove.cases import Case
from kdsl.prove.proof import FIELD, CaseProof, Proof
from kdsl.prove.prover import Subject
from kdsl.source import cache

KIND = "proof"
HINT = "proved-before"


@lru_cache(maxsize=1)
def prover_digest() -> str:
    """The prover itself: a change of any of its files forgets every proof."""
    folder = Path(__file__).parent
    files = sorted([*folder.glob("*.py"), *folder.glob("c/*.h")])
    return cache.digest(*(file.read_text(encoding="utf-8") for file in files))


def key_of(subject: Subject, trials: int | None) -> str:
    arguments = [[(a.kind, a.name, a.axis) for a in f.arguments] for f in subject.program.functions]
    options = sorted((k, str(v)) for k, v in subject.options.items())
    sizes = sorted((k, v) for k, v in subject.settings.items() if k in subject.operator.sizes)
    return cache.digest(
        prover_digest(),
        subject.operator.name,
        subject.program.digest,
        repr(arguments),
        repr(options),
        repr(sizes),
        repr(subject.cases),
        repr(trials),
    )


def recalled(subject: Subject, trials: int | None) -> Proof | None:
    """The proof of an equal program under the name of this subject, or None."""
    text = cache.load(KIND, key_of(subject, trials))
    if text is None:
        return None
    found = json.loads(text)
    return Proof(
        FIELD,
        subject.name,
        tuple(CaseProof(**case) for case in found["cases"]),
        tuple(found["assumptions"]),
        subject.program.trusted,
        seed=found["seed"],
        seconds=found["seconds"],
        digest=subject.program.digest,
        recalled=True,
    )


def remember(subject: Subject, trials: int | None, proof: Proof) -> None:
    if proof.proved:
        document = {
            "cases": [asdict(case) for case in proof.cases],
            "assumptions": proof.assumptions,
            "seed": proof.seed,
            "seconds": proof.seconds,
        }
        cache.save(KIND, key_of(subject, trials), json.dumps(document))


def hint_of(name: str, plan: Plan, cases: tuple[Case, ...], trials: int | None) -> str:
    """Of a rule's point that was proved, before anything of it is scheduled. A hint expects its program on record and
    proves nothing: without it the program is compiled while it is made."""
    options = sorted((k, str(v)) for k, v in plan.specialization.options.items())
    return cache.digest("hint", prover_digest(), name, repr(options), repr(cases), repr(trials))


def hinted(key: str) -> bool:
    return cache.load(HINT, key) is not None


def hint(key: str) -> None:
    cache.save(HINT, key, "proved")
