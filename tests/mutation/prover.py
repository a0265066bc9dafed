"""The prover under test: single edits of scheduled programs, and what it says of each.

    python -m tests.mutation.prover run --part 1/2     # judge what the log does not have yet
    python -m tests.mutation.prover run --rule mma_bounded
    python -m tests.mutation.prover report             # the table, in Markdown

An edit that is proved must be equal to the program. That is asked without any field and on other calls: both programs
run in double precision on random inputs of ordinary size, on every call of the proof and on calls drawn at random, in
both orders of threads. One that differs there is a false accept.
"""

from __future__ import annotations

import difflib
import json
import random
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import click
from attrs import evolve, frozen

from kdsl.check.library import load
from kdsl.data import data_root
from kdsl.lower.lowering import Lowering
from kdsl.prove.cases import Case, cases_of
from kdsl.prove.jobs import rule_jobs
from kdsl.prove.lowered import pins_of, prove_functions, scheduled_functions
from kdsl.prove.mutants import Mutant, Mutations, same_numbers
from kdsl.prove.program import Program
from kdsl.prove.prover import Subject

LOG = Path("build/mutation/prover.jsonl")
SEED = 7
NORMS = {"use_qk_l2norm_in_kernel": True}
SMALL = {"K": 16, "V": 16}


@frozen
class Source:
    """A rule under settings, and how many edits of each of its kernels are judged."""

    rule: str
    target: str
    settings: dict
    sizes: dict
    count: int


SOURCES = (  # what is quick to compile first
    Source("cpu_split", "cpu", {"gate": "bounded"}, SMALL, 500),
    Source("cpu_split", "cpu", {"gate": "softplus", **NORMS}, SMALL, 250),
    Source("cpu_stream", "cpu", {"gate": "softplus", **NORMS}, SMALL, 250),
    Source("lane_columns", "sm_90a", {"gate": "bounded"}, {}, 100),
    Source("mma_any_gate", "sm_90a", {"gate": "precomputed"}, {}, 40),
    Source("mma_bounded", "sm_90a", {"gate": "bounded", **NORMS}, {}, 30),
)
WORDS = {
    "rejected": "rejected: a value, an index, an element never written, an input written",
    "refused": "refused: no meaning in a field, or no program",
    "same": "proved; the text of the program that runs is the same",
    "barrier": "proved; a barrier or a last use of memory dropped: stages run one after the other here",
    "equal": "proved; equal numbers in double precision, on the proof's calls and on others",
    "false accept": "proved, and different",
}


@lru_cache(maxsize=1)
def library():
    return load(sorted((data_root() / "rules").rglob("*.kds")))


@lru_cache(maxsize=2)
def programs(number: int):
    """(plan, functions, the unchanged program as a subject) of a source."""
    source = SOURCES[number]
    job = next(
        rule_jobs(
            library(), library().rules[source.rule], source.target, every_point=False, sizes=source.sizes,
            settings=source.settings,
        )
    )  # fmt: skip
    plan = job.plan()
    functions = scheduled_functions(Lowering(plan))
    options, cases = plan.specialization.options, cases_of(plan.operator, plan.settings)
    subject = Subject("", plan.operator, plan.settings, options, Program.of(functions, pins_of(plan)), cases)
    return plan, functions, subject


def every(rules: tuple[str, ...] = ()) -> list[tuple[int, int, Mutant]]:
    """(source, kernel, edit), evenly over the kinds of edits of each kernel; of these rules, or of all."""
    found = []
    for number, source in enumerate(SOURCES):
        if rules and source.rule not in rules:
            continue
        _, functions, _ = programs(number)
        for kernel, function in enumerate(functions):
            chosen = Mutations(function.func).sample(source.count, random.Random(SEED))
            found += [(number, kernel, mutant) for mutant in chosen]
    return found


def name_of(number: int, kernel: int, mutant: Mutant) -> str:
    source = SOURCES[number]
    gate = source.settings["gate"]
    return f"{source.rule}, {gate}, kernel {kernel}: {mutant.label} {mutant.change}"


def judge(number: int, kernel: int, mutant: Mutant) -> tuple[str, str]:
    """What became of an edit, as a key of WORDS, and in words."""
    plan, functions, subject = programs(number)
    mutations = Mutations(functions[kernel].func)
    try:
        changed = [*functions]
        changed[kernel] = evolve(functions[kernel], func=mutations.make(mutant))
    except Exception as refusal:  # TVM does not take the tree
        return "refused", f"no program: {type(refusal).__name__}"
    proof = prove_functions(plan, changed, subject.cases, trials=1, fresh=True)
    if proof.verdict != "field":
        return ("rejected" if proof.verdict == "rejected" else "refused"), proof.found
    if Program.of(changed, pins_of(plan)).digest == subject.program.digest:
        return ("barrier" if mutant.kind == "statement dropped" else "same"), ""
    other = evolve(subject, cases=(*subject.cases, *random_calls(plan.operator.name, random.Random(SEED))))
    equal = same_numbers(other, Program.of(changed, pins_of(plan)), draws=2)
    return ("equal" if equal else "false accept"), difference(functions[kernel].func, changed[kernel].func)


def random_calls(operator: str, rng: random.Random) -> Iterator[Case]:
    """Calls unlike those of the proof: more sequences, other heads, slots in any order."""
    for number in range(16):
        heads = rng.randint(1, 3)
        sizes = {"H": heads, "HV": heads * rng.randint(1, 3)}
        order = ("contiguous", "gaps", "swapped")[number % 3]
        if operator == "kda.decode":
            rows, tokens = rng.randint(1, 6), rng.randint(1, 4)
            width, slots = rng.choice((1, tokens)), 30
            table = [[rng.randint(-1, slots) for _ in range(width)] for _ in range(rows)]
            free = iter(rng.sample(range(slots), rows * width))  # no slot has two owners
            table = tuple(tuple(next(free) if 0 <= s < slots else s for s in row) for row in table)
            integers = {"ssm_state_indices": table}
            if width == tokens and rng.random() < 0.5:
                integers["num_accepted_tokens"] = tuple(rng.randint(0, tokens + 1) for _ in range(rows))
            yield Case("", {**sizes, "N": rows, "T": tokens, "SLOTS": slots, "W": width}, (), integers, order)
            continue
        absent = tuple(n for n in ("initial_state", "final_state", "dt_bias") if rng.random() < 0.3)
        if number % 2:
            rows = rng.randint(1, 3)
            tokens = rng.choice((16 * rng.randint(1, 4), rng.randint(1, 70)))
            yield Case("", {**sizes, "B": rows, "T": tokens, "N": rows}, absent, {}, order)
            continue
        ends = [0]
        for _ in range(rng.randint(1, 5)):
            ends.append(ends[-1] + rng.choice((0, 1, 15, 16, rng.randint(2, 50))))
        yield Case("", {**sizes, "B": 1, "T": ends[-1], "N": len(ends) - 1}, absent, {"cu_seqlens": tuple(ends)}, order)


def difference(before, after) -> str:
    """The lines of TIR that an edit changes, in short."""
    lines = difflib.unified_diff(str(before).splitlines(), str(after).splitlines(), lineterm="", n=0)
    kept = [" ".join(line.split()) for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return "; ".join(line[:400] for line in kept[:4])


@click.group()
def main() -> None:
    """Edits of scheduled programs, judged by the prover."""


@main.command("run")
@click.option("--part", default="1/1", metavar="I/N")
@click.option("--rule", "rules", multiple=True, metavar="NAME", help="Edits of this rule only.")
@click.option("--log", default=LOG, type=click.Path(path_type=Path), show_default=True)
def run_command(part: str, rules: tuple[str, ...], log: Path) -> None:
    """Judge every edit that the log does not have."""
    index, count = map(int, part.split("/"))
    log.parent.mkdir(parents=True, exist_ok=True)
    done = {entry["name"] for entry in entries(log)}
    log = log.with_suffix(f".{index}of{count}{log.suffix}")
    with log.open("a", encoding="utf-8") as file:
        for number, kernel, mutant in every(rules)[index - 1 :: count]:
            name = name_of(number, kernel, mutant)
            if name in done:
                continue
            outcome, said = judge(number, kernel, mutant)
            entry = {"name": name, "rule": SOURCES[number].rule, "kind": mutant.kind, "outcome": outcome, "said": said}
            file.write(json.dumps(entry) + "\n")
            file.flush()
            if outcome == "false accept":
                click.echo(f"false accept: {name}")


def entries(log: Path) -> list[dict]:
    """Of the logs of all parts, each edit once."""
    files = sorted(log.parent.glob(f"{log.stem}.*{log.suffix}"))
    found = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return list({entry["name"]: entry for entry in found}.values())


@main.command("report")
@click.option("--log", default=LOG, type=click.Path(path_type=Path), show_default=True)
def report_command(log: Path) -> None:
    """By rule and by kind of edit; the accepted ones that differ in their text by name."""
    found = entries(log)
    for heading, key in (("rule", "rule"), ("edit", "kind")):
        click.echo(f"| {heading} | edits | " + " | ".join(WORDS) + " |")
        click.echo("|" + "---|" * (len(WORDS) + 2))
        groups = sorted({entry[key] for entry in found})
        for group in [*groups, "all"]:
            tally = Counter(e["outcome"] for e in found if group in (e[key], "all"))
            click.echo(f"| {group} | {sum(tally.values())} | " + " | ".join(str(tally[w] or "") for w in WORDS) + " |")
        click.echo()
    for outcome in ("equal", "false accept"):
        for entry in found:
            if entry["outcome"] == outcome:
                click.echo(f"- {outcome}: {entry['name']}: `{entry['said']}`")


if __name__ == "__main__":
    main()
