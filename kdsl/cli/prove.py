"""`kdsl prove PATH...`: that rules and forms compute their operators, over finite fields."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click

from kdsl.cli.settings import number_or_text, parse_pairs, parse_shape

SCHEMA = 1
EXIT_PROVED, EXIT_FINDINGS, EXIT_TOOL = 0, 1, 3


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--target", metavar="T", help="Prove rules for this target only.")
@click.option(
    "--shape",
    callback=parse_shape,
    metavar="T=64,K=128,...",
    help="Sizes of the calls; by default a few with tails, empty sequences, several heads.",
)
@click.option(
    "--trials",
    type=click.IntRange(1, 1000),
    help="Trials of each call; by default what a bound of 1e-18 needs.",
)
@click.option(
    "--points",
    type=click.Choice(("all", "default")),
    default="all",
    show_default=True,
    help="Choose points of a rule.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    callback=parse_pairs,
    metavar="NAME=VALUE",
    help="Fix an option (gate=bounded); by default every value of every option occurs.",
)
@click.option(
    "--choose", "choices", multiple=True, callback=parse_pairs, metavar="NAME=VALUE", help="Fix a choice."
)
@click.option(
    "--every-option", is_flag=True, help="For operators: every combination of options with every form."
)
@click.option("--seed", type=click.IntRange(0), help="Repeat the draws of an earlier proof.")
@click.option(
    "--threads",
    is_flag=True,
    help="CUDA rules only: run the text for the device, a fiber for each thread, in place of the schedule.",
)
@click.option("--fresh", is_flag=True, help="Prove again what was proved before.")
@click.option(
    "--record", is_flag=True, help="Write the forms proved into the ledger that `kdsl check` reads."
)
@click.option("--format", "form", type=click.Choice(("text", "json", "markdown")), default="text", show_default=True)
def prove(paths, target, shape, trials, points, settings, choices, every_option, seed, threads, fresh, record, form):
    """Prove that scheduled rules, and the forms of operators, compute what the operator means.

    \b
      kdsl prove rules/kda.chunk_forward/cpu_split.kds
      kdsl prove stdlib/operators --format json
      kdsl prove rules/ --target cpu --points default --shape T=64,K=128,V=128
      kdsl prove rules/kda.decode/lane_columns.kds --target sm_90a --threads

    Rules are run after scheduling, operators form by form, over random finite fields beside the
    token-by-token recurrence. With --threads it is the generated CUDA that runs,
    with barriers, waits and copies in flight: thread order and arrivals are drawn
    at random, and a race is a finding by itself. Exit status: 0 all proved,
    1 something is rejected or unknown, 2 wrong usage, 3 a tool is missing.
    """
    run = Run(paths, target, shape, trials, points, settings, choices, every_option, form)
    run.record, run.threads = record, threads
    if threads and record:
        raise click.UsageError("--record writes down forms of operators; --threads proves texts of CUDA rules")
    sys.exit(run.run(seed=seed, **({} if threads else {"fresh": fresh})))


class Run:
    """One call of the command: check, list what there is to prove, prove it, print."""

    record = threads = False

    def __init__(self, paths, target, shape, trials, points, settings, choices, every_option, form):
        self.paths, self.target, self.shape, self.trials = paths, target, shape or None, trials
        self.every_point, self.every_option, self.form = points == "all", every_option, form
        self.settings = {name: _switch(value) for name, value in settings.items()}
        self.choices = {name: number_or_text(value) for name, value in choices.items()}

    def run(self, **options) -> int:
        from kdsl.check import check_paths
        from kdsl.source.render.text import render_text

        self.result = check_paths(self.paths)
        if not self.result.ok:
            click.echo(render_text(self.result.diagnostics), err=True, nl=False)
            return EXIT_FINDINGS
        self.library = self.result.library
        if self.target is not None and self.target not in self.library.targets:
            raise click.UsageError(f"no target `{self.target}`; there are {', '.join(self.library.targets)}")
        try:
            return self.prove_all(options)
        except Exception as problem:
            if type(problem).__name__ in ("ToolMissing", "TvmMissing"):
                click.echo(str(problem), err=True)
                return EXIT_TOOL
            raise

    def prove_all(self, options) -> int:
        from kdsl.prove.jobs import proof_of_job

        started = time.perf_counter()
        jobs = list(self.jobs())
        if self.threads:
            from kdsl.driver.threads import prove_rule_threads

            jobs = [(job, span) for job, span in jobs if self.is_cuda(job.target)]
            options["how"] = prove_rule_threads
        if not jobs:
            raise click.UsageError(
                "there is no CUDA rule in these files for that target and these choices"
                if self.threads
                else "there is no rule and no operator in these files for that target and these choices"
            )
        proofs, diagnostics = [], {}
        for number, (job, span) in enumerate(jobs):
            if self.form != "text" or sys.stderr.isatty():
                click.echo(f"[{number + 1}/{len(jobs)}] {job.label}", err=True)
            proof = proof_of_job(job, self.shape, self.trials, **options)
            proofs.append(proof)
            found = proof.diagnostic(span)
            if found is not None:
                diagnostics.setdefault((found.code, found.order[:2], proof.found), []).append(found)
            if self.form == "text":
                click.echo(line(proof))
        if self.record:
            self.write_ledger([job for job, _ in jobs], proofs)
        self.report([job for job, _ in jobs], proofs, diagnostics, time.perf_counter() - started)
        return EXIT_PROVED if all(proof.proved for proof in proofs) else EXIT_FINDINGS

    def is_cuda(self, target: str) -> bool:
        return target in self.library.targets and self.library.targets[target].family == "cuda"

    def jobs(self):
        """What the files declare: their rules, their operators."""
        from kdsl.prove.jobs import form_jobs, rule_jobs

        files = set(self.result.files)
        for rule in self.library.rules.values():
            if rule.declaration.span.path not in files:
                continue
            self.refuse_unknown(rule)
            for target in rule.targets:
                if self.target in (None, target):
                    for job in rule_jobs(
                        self.library,
                        rule,
                        target,
                        every_point=self.every_point,
                        sizes=self.shape or {},
                        settings=self.settings,
                        choices=self.choices,
                    ):
                        yield job, rule.declaration.name.span
        for operator in self.library.operators.values():
            if operator.declaration.span.path in files:
                for job in form_jobs(self.library, operator, every=self.every_option):
                    yield job, operator.declaration.name.span

    def refuse_unknown(self, rule) -> None:
        operator = self.library.operators[rule.operator]
        for name, value in self.settings.items():
            option = operator.options.get(name)
            if option is None or value not in option.values:
                known = ", ".join(
                    f"{n} in {list(o.values)}" for n, o in operator.options.items() if o.kind != "scalar"
                )
                raise click.UsageError(f"{operator.name} has no option {name} = {value}; it has {known}")
        for name, value in self.choices.items():
            if name not in rule.choices or value not in rule.choices[name]:
                known = ", ".join(f"{n} in {list(v)}" for n, v in rule.choices.items()) or "nothing"
                raise click.UsageError(
                    f"rule `{rule.name}` cannot choose {name} = {value}; it chooses {known}"
                )
        for name in self.shape or {}:
            if name not in operator.sizes:
                raise click.UsageError(
                    f"{operator.name} has no size {name}; it has {', '.join(operator.sizes)}"
                )

    def write_ledger(self, jobs, proofs) -> None:
        from kdsl.prove import ledger

        files = set(self.result.files)
        for operator in self.library.operators.values():
            if operator.declaration.span.path in files:
                own = [(j.form, p) for j, p in zip(jobs, proofs, strict=True) if j.of(operator)]
                ledger.record(operator, own, ledger.place(operator))

    def report(self, jobs, proofs, diagnostics, seconds: float) -> None:
        proved = sum(proof.proved for proof in proofs)
        if self.form == "json":
            document = {"schema": SCHEMA, "proved": proved, "proofs": [proof.document for proof in proofs]}
            click.echo(json.dumps(document, indent=1))
        elif self.form == "markdown":
            from kdsl.prove.table import markdown

            click.echo(markdown(zip(jobs, proofs, strict=True)), nl=False)
        elif diagnostics:
            from kdsl.source.render.text import render_text, wants_color

            click.echo()
            click.echo(
                render_text(map(together, diagnostics.values()), color=wants_color(sys.stdout)), nl=False
            )
        if self.form == "text":
            for text in dict.fromkeys(text for proof in proofs if proof.proved for text in proof.assumptions):
                click.echo(f"assumed: {text}", err=True)
            for name in dict.fromkeys(name for proof in proofs for name in proof.trusted):
                click.echo(f"trusted: {name} does what its description says", err=True)
        click.echo(f"{proved} of {len(proofs)} proved in {seconds:.1f} s", err=True)


def together(findings):
    """One finding for all programs that fail in the same way at the same place."""
    first, *others = findings
    more = (f"and {len(others)} more program{'s' * (len(others) > 1)} in the same way",) if others else ()
    return first.with_(notes=(*first.notes, *more))


def _switch(value: str) -> object:
    return {"true": True, "false": False}.get(value, value)


def line(proof) -> str:
    """One proof on one line."""
    if not proof.proved:
        return f"{proof.verdict:9} {proof.subject}"
    how = "proved before" if proof.recalled else f"{proof.seconds:.2f} s"
    return (
        f"{proof.verdict:9} {proof.subject}  [{proof.trials} trials, false accept {proof.bound:.0e}, {how}]"
    )
