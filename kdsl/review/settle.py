"""`measure` clauses of a bundle decided on a device: error on the judge's probes, latency, profiler metrics.

A probe that the variant refuses by name (another gate, other switches) is no evidence; calls drawn for the variant's
own options always fit. A clause of which nothing was measured stays pending, with the reason.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping

import numpy as np
from attrs import define, evolve, field, frozen

from kdsl.bench.alone import alone
from kdsl.bench.baselines import NoBaseline
from kdsl.bundle.load import Bundle
from kdsl.bundle.manifest import Variant
from kdsl.bundle.manifest import Verdict as Recorded
from kdsl.check.model import names_in
from kdsl.contract.decide import decide_claim
from kdsl.contract.predicates import keyed
from kdsl.contract.verdict import Fact, Status
from kdsl.emulate import calls
from kdsl.review.bench import Bench
from kdsl.review.profiler import METRICS, profile
from kdsl.review.timing import Stopwatch, baseline_fact, compulsory_bytes, timed_call
from kdsl.runtime.errors import NoVariant
from kdsl.source.diagnostic import Evidence
from kdsl.source.span import SourceFile
from kdsl.syntax import nodes as n
from kdsl.syntax.parse import parse_source
from kdsl.validate import oracle
from kdsl.validate.acceptance import acceptance
from kdsl.validate.call import reference
from kdsl.validate.judge import judge
from kdsl.validate.probes import PROBES

LENGTHS = ((70, 0, 1, 69), (16, 33, 64, 15))  # of the calls drawn for a variant's own options
RUNS = 1000
BASELINE = "baseline "  # how a baseline is called among facts: `baseline fla`


@frozen
class Settled:
    """One clause before and after. `note` says what was seen, or why nothing was."""

    variant: str
    target: str
    before: Recorded
    after: Recorded
    note: str = ""


@define
class Measured:
    """Facts of one variant, and by predicate the reason for those that were asked for and are missing."""

    facts: dict[str, Fact] = field(factory=dict)
    notes: dict[str, str] = field(factory=dict)


@frozen
class Effort:
    """How much is run: `runs` of a latency; the seed of all data is drawn anew unless it is given."""

    runs: int = RUNS
    seed: int | None = None


def settle(bundle: Bundle, variant: Variant, bench: Bench, effort: Effort, baseline: Bundle | None = None):
    """Every pending clause of the variant, decided where it can be."""
    pending = [verdict for verdict in variant.verdicts if verdict.verdict == Status.PENDING.value]
    claims = {verdict.clause: claim_of(verdict.clause) for verdict in pending}
    measured = Measured()
    with alone(bundle, variant):
        measure(measured, bundle, variant, bench, effort, claims.values())
    add_latencies(measured, bundle, variant, bench, effort, baseline, mentioned(claims.values()))
    for verdict in pending:
        yield decided(variant, verdict, claims[verdict.clause], measured, bench)


def claim_of(clause: str) -> n.Claim | None:
    """The clause of a manifest as syntax; None if this kdsl cannot read it."""
    text = f"rule clause schedules operator on target {{\n  measure {{ {clause} }}\n}}\n"
    parsed = parse_source(SourceFile("<manifest>", text))
    found = [item for rule in parsed.tree.declarations for item in getattr(rule, "items", ())]
    return found[0].items[0] if parsed.ok and found else None


def decided(variant: Variant, verdict: Recorded, claim: n.Claim | None, measured: Measured, bench: Bench) -> Settled:
    if claim is None:
        return Settled(variant.id, variant.target, verdict, verdict, "this kdsl cannot read the clause")
    known = {name: fact.value for name, fact in measured.facts.items() if name.startswith(BASELINE)}
    found = decide_claim(claim, measured.facts, known, tuple(kernel.name for kernel in variant.kernels))
    if found.status not in (Status.HOLDS, Status.FAILS):
        why = [note for name, note in measured.notes.items() if name in mentioned([claim])]
        note = "; ".join(dict.fromkeys(why)) or found.note
        return Settled(variant.id, variant.target, verdict, verdict, note)
    text = f"{found.found} on {bench.name}" if found.found else bench.name
    after = Recorded(verdict.clause, found.status.value, Evidence.MEASURED.value, text, found.needed or None)
    return Settled(variant.id, variant.target, verdict, after, found.found)


def mentioned(claims) -> set[str]:
    """Predicates and baselines that the claims speak of."""
    found: set[str] = set()
    for claim in claims:
        if claim is not None and not isinstance(claim.predicate, n.Within):
            mentions: list = []
            expr = keyed(claim.predicate, mentions)
            found |= {mention.name.text for mention in mentions}
            found |= {name for name in names_in(expr) if name.startswith(BASELINE)}
    return found


def measure(measured: Measured, bundle: Bundle, variant: Variant, bench: Bench, effort: Effort, claims) -> None:
    """Errors and a profiler's metrics, as far as the clauses speak of them."""
    acceptances = {c.predicate.acceptance.text for c in claims if c is not None and isinstance(c.predicate, n.Within)}
    for name in acceptances:
        measured.facts[f"error within {name}"] = error_fact(bundle, variant, bench, effort)
    if asked := mentioned(claims) & set(METRICS):
        facts, notes = profile(bundle, variant, bench.name, sorted(asked))
        measured.facts |= facts
        measured.notes |= notes
    if "compulsory" in mentioned(claims):
        call = timed_call(bundle.manifest.operator, variant, bench.device.type)
        measured.facts["compulsory"] = Fact(compulsory_bytes(call), "bytes", Evidence.MEASURED, bench.name)


def add_latencies(measured: Measured, bundle, variant: Variant, bench: Bench, effort: Effort, previous, names) -> None:
    """The variant's own latency and those of the baselines that clauses name."""
    if "p95_latency" not in names:
        return
    watch = Stopwatch.of(bundle.manifest.operator, variant, bench, effort.runs)
    measured.facts["p95_latency"] = watch.own(bundle, variant)
    for key in sorted(name for name in names if name.startswith(BASELINE)):
        try:
            measured.facts[key] = baseline_fact(watch, key.removeprefix(BASELINE), previous, variant)
        except NoBaseline as missing:
            measured.notes[key] = str(missing)


# ---- error


def error_fact(bundle: Bundle, variant: Variant, bench: Bench, effort: Effort) -> Fact:
    """True if every call that the variant takes is accepted; how many that were, and the largest errors."""
    seed = secrets.randbits(32) if effort.seed is None else effort.seed
    if bundle.manifest.operator == "kda.decode":
        results, rejected = list(decode_results(variant, bench, seed)), []
    else:
        results, rejected = chunk_results(variant, bench, seed)
    worst = max((max(r.o.rms_ratio, r.final_state.rms_ratio) for r in results), default=float("nan"))
    bad = [r.explain() for r in results if not r.accepted] + rejected
    text = f"{len(results)} calls, {worst:.2g} of the reference's rms"
    good = bool(results) and not bad
    return Fact(good, text if good else f"{text}; {bad[0] if bad else 'no call fits'}", Evidence.MEASURED, bench.name)


def chunk_results(variant: Variant, bench: Bench, seed: int):
    """Acceptances of the probes that fit and of calls drawn for the variant; reasons of probes that reject."""
    results, rejected = [], []
    for kind in PROBES.values():
        try:
            verdict = judge(kind.make(seed), bench.chunk)
        except NoVariant:
            continue
        results += verdict.results
        rejected += [] if verdict.accepted else [verdict.explain()]
    rng, settings = np.random.default_rng(seed), {**variant.options, **variant.dtypes}
    for lengths in LENGTHS:
        sizes = {**calls.SIZES, **variant.sizes, "HV": 2 * calls.SIZES["H"]}
        call = calls.chunk_call(rng, sizes, lengths, settings)
        results.append(acceptance(*bench.chunk(call), *reference(call)))
    return results, rejected


def decode_results(variant: Variant, bench: Bench, seed: int) -> Iterator:
    rng, settings = np.random.default_rng(seed), {**variant.options, **variant.dtypes}
    for rows, tokens in ((5, 1), (3, 4)):
        sizes = {**calls.SIZES, **variant.sizes, "N": rows, "T": tokens}
        call = calls.decode_call(rng, sizes, settings)
        needed = oracle.decode(**{name: np.copy(x) if isinstance(x, np.ndarray) else x for name, x in call.items()})
        yield acceptance(*bench.decode(call), *needed)


# ---- the manifest


def with_verdicts(variant: Variant, settled: Mapping[str, Settled]) -> Variant:
    """The variant with its clauses as they now stand."""
    found = tuple(settled[v.clause].after if v.clause in settled else v for v in variant.verdicts)
    return evolve(variant, verdicts=found)
