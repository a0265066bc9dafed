"""`measure` clauses of a bundle decided on a device: error on the judge's probes, latency, profiler metrics.

A probe that the variant refuses by name (another gate, other switches) is no evidence; calls drawn for the variant's
own options always fit. A clause of which nothing was measured stays pending, with the reason.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping

import numpy as np
from attrs import define, evolve, field, frozen

from kdsl.bundle.load import Bundle
from kdsl.bundle.manifest import Variant
from kdsl.bundle.manifest import Verdict as Recorded
from kdsl.contract.decide import decide_claim
from kdsl.contract.predicates import keyed
from kdsl.contract.verdict import Fact, Status
from kdsl.emulate import calls
from kdsl.review.bench import Bench, alone
from kdsl.review.profiler import METRICS, NoProfiler, profile
from kdsl.runtime.errors import NoVariant
from kdsl.source.diagnostic import Evidence
from kdsl.source.span import SourceFile
from kdsl.syntax import nodes as n
from kdsl.syntax.parse import parse_source
from kdsl.validate import oracle
from kdsl.validate.acceptance import acceptance
from kdsl.validate.call import reference
from kdsl.validate.judge import judge
from kdsl.validate.latency import rotation, time_calls
from kdsl.validate.probes import PROBES

LENGTHS = ((70, 0, 1, 69), (16, 33, 64, 15))  # of the calls drawn for a variant's own options
TOKENS, HOST_TOKENS, HEADS = 8192, 256, 16  # of the call whose latency is taken, on a GPU and on a host
PREVIOUS = "baseline previous"
RUNS = 1000


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
    if baseline is not None:
        add_baseline(measured, baseline, variant, bench, effort)
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
    known = {PREVIOUS: measured.facts[PREVIOUS].value} if PREVIOUS in measured.facts else {}
    found = decide_claim(claim, measured.facts, known, tuple(kernel.name for kernel in variant.kernels))
    if found.status not in (Status.HOLDS, Status.FAILS):
        why = [note for name, note in measured.notes.items() if name in verdict.clause]
        note = "; ".join(dict.fromkeys(why)) or found.note
        return Settled(variant.id, variant.target, verdict, verdict, note)
    text = f"{found.found} on {bench.name}" if found.found else bench.name
    after = Recorded(verdict.clause, found.status.value, Evidence.MEASURED.value, text, found.needed or None)
    return Settled(variant.id, variant.target, verdict, after, found.found)


def measure(measured: Measured, bundle: Bundle, variant: Variant, bench: Bench, effort: Effort, claims) -> None:
    """What the clauses speak of, and no more."""
    claims = [claim for claim in claims if claim is not None]
    mentions: list = []
    for claim in claims:
        if isinstance(claim.predicate, n.Within):
            key = f"error within {claim.predicate.acceptance.text}"
            measured.facts[key] = error_fact(bundle, variant, bench, effort)
        else:
            keyed(claim.predicate, mentions)
    names = {mention.name.text for mention in mentions}
    if "p95_latency" in names:
        measured.facts["p95_latency"] = latency_fact(bundle, variant, bench, effort)
    if asked := names & set(METRICS):
        try:
            measured.facts |= profile(bundle, variant, bench.name, sorted(asked))
        except NoProfiler as missing:
            measured.notes |= dict.fromkeys(asked, str(missing))


def add_baseline(measured: Measured, baseline: Bundle, variant: Variant, bench: Bench, effort: Effort) -> None:
    """`baseline previous` is the same call on the baseline bundle's variant for the same settings."""
    same = [v for v in baseline.manifest.variants if (v.target, v.options, v.dtypes) == key_of(variant)]
    if not same or "p95_latency" not in measured.facts:
        measured.notes[PREVIOUS] = "the baseline bundle has no variant for the same target, options and dtypes"
        return
    with alone(baseline, same[0]):
        measured.facts[PREVIOUS] = latency_fact(baseline, same[0], bench, effort)


def key_of(variant: Variant) -> tuple:
    return variant.target, variant.options, variant.dtypes


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


# ---- latency


def latency_fact(bundle: Bundle, variant: Variant, bench: Bench, effort: Effort) -> Fact:
    """The 95th percentile in seconds, inputs rotated through more than the L2 holds, the device waited for."""
    from kdsl import kda

    rng, settings = np.random.default_rng(0), {**variant.options, **variant.dtypes}
    if bundle.manifest.operator == "kda.decode":
        call = calls.decode_call(rng, {**calls.SIZES, **variant.sizes, "N": 64, "H": HEADS}, settings)
        made, run = bench.decode_arguments, kda.fused_recurrent_kda
    else:
        tokens = HOST_TOKENS if bench.device.type == "cpu" else TOKENS
        call = calls.chunk_call(rng, {**calls.SIZES, **variant.sizes, "T": tokens, "H": HEADS}, None, settings)
        made, run = bench.chunk_arguments, kda.chunk_kda
    nbytes = sum(x.nbytes for x in call.values() if isinstance(x, np.ndarray))
    tensors = [made(call) for _ in range(rotation(nbytes, bench.l2_bytes))]
    samples = time_calls(lambda turn: run(**tensors[turn]), len(tensors), bench.clock, runs=effort.runs)
    return Fact(samples.p95 * 1e-6, "s", Evidence.MEASURED, bench.name)


# ---- the manifest


def with_verdicts(variant: Variant, settled: Mapping[str, Settled]) -> Variant:
    """The variant with its clauses as they now stand."""
    found = tuple(settled[v.clause].after if v.clause in settled else v for v in variant.verdicts)
    return evolve(variant, verdicts=found)
