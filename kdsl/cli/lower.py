"""`kdsl lower PATH... --target T`: rules to schedules, TIR, source, reports and bundles."""

from __future__ import annotations

import sys
import time
from itertools import product
from pathlib import Path

import click

from kdsl.cli.settings import number_or_text, parse_pairs, parse_shape

STAGES = ("ast", "decisions", "plan", "schedule", "tir", "c", "cuda", "ptx", "cubin", "sass", "so", "report", "bundle")
BINARY = ("so", "cubin", "bundle")
EXIT_FINDINGS, EXIT_TOOL = 1, 3


def parse_stages(context, parameter, text: str) -> tuple[str, ...]:
    stages = tuple(filter(None, (part.strip() for part in text.split(","))))
    for stage in stages:
        if stage not in STAGES:
            raise click.BadParameter(f"`{stage}` is no stage; there are {', '.join(STAGES)}")
    return stages


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--target", required=True, metavar="T[,T...]", help="The GPU or CPU to lower for; several for one bundle."
)
@click.option("--emit", "stages", default="report", show_default=True, metavar="STAGE[,STAGE...]",
              callback=parse_stages,
              help=f"What to write: {', '.join(STAGES)}.")  # fmt: skip
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), help="A folder for the files.")
@click.option("--shape", callback=parse_shape, metavar="K=128,V=128", help="Sizes that shape the kernel's tensors.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE[|VALUE]",
              help="An option (gate=bounded) or a dtype (q=bf16); with | a variant for each.")  # fmt: skip
@click.option(
    "--choose", "choices", multiple=True, callback=parse_pairs, metavar="NAME=VALUE", help="A choice of the rule."
)
@click.option("--rule", "only", metavar="NAME", help="Only this rule of the files.")
def lower(paths, target, stages, output, shape, settings, choices, only):
    """Lower every rule of PATHS for a target. Text stages go to the terminal, or to files under --output.

    \b
      kdsl lower rules/kda.chunk_forward/cpu_split.kds --target cpu --emit schedule
      kdsl lower rules/ --target sm_100a --emit cuda,report --output build

    Exit status: 0 done, 1 a rule is wrong or its contract does not hold, 2 wrong usage, 3 a tool is missing.
    """
    binary = [stage for stage in stages if stage in BINARY]
    if binary and output is None:
        raise click.UsageError(f"{' and '.join(binary)} cannot go to the terminal: add --output DIR")
    sys.exit(Run(paths, tuple(target.split(",")), stages, output, shape, settings, choices, only).run())


class Run:
    """One call of the command: check, choose the rules, lower each, write."""

    def __init__(self, paths, targets, stages, output, shape, settings, choices, only):
        self.paths, self.targets, self.stages, self.output = paths, targets, stages, output
        self.shape, self.settings, self.only = shape, settings, only
        self.choices = {name: number_or_text(value) for name, value in choices.items()}
        self.several = False

    def run(self) -> int:
        from kdsl.check import check_paths
        from kdsl.source.render.text import render_text

        result = check_paths(self.paths)
        if result.diagnostics:
            click.echo(render_text(result.diagnostics), err=True, nl=False)
        if not result.ok:
            return EXIT_FINDINGS
        self.library = result.library
        for target in self.targets:
            if target not in self.library.targets:
                raise click.UsageError(f"no target `{target}`; there are {', '.join(self.library.targets)}")
        rules = self.rules()
        self.several = len(rules) * len(self.targets) > 1
        status = 0
        for rule in rules:
            status = max(status, self.lowered(rule))
        return status

    def rules(self):
        rules = [r for r in self.library.rules.values() if set(r.targets) & set(self.targets)]
        if self.only is not None:
            rules = [rule for rule in rules if rule.name == self.only]
        if not rules:
            names = ", ".join(f"{r.name} ({', '.join(r.targets)})" for r in self.library.rules.values()) or "none"
            raise click.UsageError(f"no rule for {', '.join(self.targets)}; rules found: {names}")
        for rule in rules:
            for name, value in self.choices.items():
                if name not in rule.choices or value not in rule.choices[name]:
                    allowed = ", ".join(f"{n} in {list(v)}" for n, v in rule.choices.items()) or "nothing"
                    raise click.UsageError(f"rule `{rule.name}` cannot choose {name} = {value}; it chooses {allowed}")
        return rules

    def lowered(self, rule) -> int:
        """Lower one rule for every target it has; a refusal is printed and the next rule goes on."""
        from kdsl.driver.compile import ContractFailed
        from kdsl.lower.stir.schedule import StepRefused
        from kdsl.lower.toolchain.cc import ToolMissing
        from kdsl.lower.tvm import TvmMissing
        from kdsl.plan.refusal import PlanRefused
        from kdsl.plan.specialize import SettingRefused
        from kdsl.source.render.text import render_text

        started = time.perf_counter()
        try:
            plans = [self.plan(rule, target, special) for target in self.targets if target in rule.targets
                     for special in self.specializations(rule)]  # fmt: skip
            self.write(rule, plans)
        except (PlanRefused, StepRefused) as refusal:
            click.echo(render_text([refusal.diagnostic]), err=True, nl=False)
            return EXIT_FINDINGS
        except ContractFailed as failure:
            click.echo(str(failure), err=True)
            return EXIT_FINDINGS
        except SettingRefused as refusal:
            raise click.UsageError(str(refusal)) from None
        except (ToolMissing, TvmMissing) as missing:
            click.echo(str(missing), err=True)
            return EXIT_TOOL
        if self.output is not None:
            click.echo(f"{rule.name}: {', '.join(self.stages)} in {time.perf_counter() - started:.1f} s", err=True)
        return 0

    def specializations(self, rule):
        """Every combination of the values of --set."""
        from kdsl.plan.specialize import SettingRefused, parse_setting, specialize

        operator = self.library.operators[rule.operator]
        pairs = []
        for text in self.settings:
            name, equals, values = (part.strip() for part in text.partition("="))
            if not equals or not values:
                raise click.UsageError(f"`--set {text}` is not NAME=VALUE, as in gate=bounded")
            pairs.append([(name, parse_setting(operator, name, value.strip())) for value in values.split("|")])
        for combination in product(*pairs):
            chosen = dict(combination)
            options = {n: v for n, v in chosen.items() if n in operator.options}
            dtypes = {n: v for n, v in chosen.items() if n not in operator.options}
            for name in self.shape:
                if name not in operator.static_sizes:
                    raise SettingRefused(name, str(self.shape[name]), f"one of {', '.join(operator.static_sizes)}")
            yield specialize(operator, rule, dtypes, options, self.shape)

    def plan(self, rule, target, special):
        from kdsl.driver.compile import plan_of

        return plan_of(self.library, rule.name, target, self.choices, special)

    def write(self, rule, plans) -> None:
        from kdsl.driver.compile import build
        from kdsl.driver.emit import EMITTERS
        from kdsl.lower.lowering import Lowering

        for number, plan in enumerate(plans):
            lowering = Lowering(plan)
            for stage in self.stages:
                emitter = EMITTERS.get(stage)
                if emitter is None:
                    continue
                if plan.target.family not in emitter.families:
                    raise click.UsageError(f"target {plan.target.name} has no stage `{stage}`")
                for name, content in emitter.files(lowering):
                    self.put(rule, plan, number if len(plans) > 1 else None, name, content)
        if "bundle" in self.stages:
            self.output.mkdir(parents=True, exist_ok=True)
            click.echo(str(build(plans, self.output / f"{rule.name}.kdsb", replace=True, proved=True)))

    def put(self, rule, plan, number, name: str, content) -> None:
        if self.output is None:
            heading = f"# {rule.name} {plan.target.name} {name}\n" if self.several or len(self.stages) > 1 else ""
            if not name.endswith(".json") or len(self.stages) == 1:
                click.echo(heading + content, nl=False)
            return
        folder = self.output / rule.name / plan.target.name / (str(number) if number is not None else "")
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            (folder / name).write_text(content, encoding="utf-8", newline="\n")
