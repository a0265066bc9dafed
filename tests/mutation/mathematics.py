"""Operators of the standard library as subjects: each mutant checked, lowered for the CPU, tried, proved.

A mutant is judged under settings in which the changed line takes part: the cases of `either` that enclose
it, and where that is no case, several settings one after the other.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import numpy as np
from attrs import evolve, frozen

from kdsl.bundle.write import write_bundle
from kdsl.check import check_paths
from kdsl.check.library import Library, load
from kdsl.check.model import Operator as OperatorModel
from kdsl.check.model import walk
from kdsl.check.operators import resolve_operator
from kdsl.data import data_root
from kdsl.driver.package import manifest_of, variant_files
from kdsl.driver.trial import TRIALS, open_first
from kdsl.lower.lowering import Lowering
from kdsl.lower.stir.schedule import StepRefused
from kdsl.lower.toolchain import cc
from kdsl.plan.model import Plan
from kdsl.plan.refusal import PlanRefused
from kdsl.prove.forms import Form, form_settings, option_settings, plan_of_form
from kdsl.prove.lowered import prove
from kdsl.source.diagnostic import Severity
from kdsl.syntax import nodes as n

from .child import in_child
from .math_operators import MATHEMATICS, declaration_of
from .mutant import Edit, Mutant, applied, mutants_of
from .verdict import Outcome

TRIED = 3  # settings, where the changed line is in all of them
SEEDS = (1, 2)


@lru_cache(maxsize=1)
def subjects() -> dict[str, str]:
    folder = data_root() / "stdlib" / "operators"
    texts = [file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.kds"))]
    return {declaration_of(text).name.text: text for text in texts}


def mutants() -> Iterator[Mutant]:
    for name, text in subjects().items():
        yield from mutants_of("mathematics", name, text, MATHEMATICS)


def judge(mutant: Mutant) -> Outcome:
    text = applied(subjects()[mutant.subject], mutant.edits)
    forms = forms_of(mutant)
    refusal = checked(text, mutant.subject, forms[0])
    if refusal:
        return Outcome("check", refusal)
    library = with_operator(text, mutant.subject)
    same = True
    for form in forms:
        outcome, equal = judge_form(library, form)
        if outcome is not None:
            return outcome
        same = same and equal
    return Outcome(same_code=same, reason="same generated code" if same else "")


def judge_form(library: Library, form: Form) -> tuple[Outcome | None, bool]:
    """A rejection under one form, or None and whether the code is that of the right operator."""
    try:
        lowering = Lowering(plan_of_form(library, form))
        sources = [source.source for source in lowering.sources]
    except PlanRefused as refusal:
        return Outcome("plan", refusal.diagnostic.message[:160]), False
    except StepRefused as refusal:
        return Outcome("schedule", refusal.diagnostic.message[:160]), False
    if sources == right_sources(form_key(form)):
        return None, True
    for seed in SEEDS:
        found = tried(lowering.plan, lowering, seed)
        if found:
            return Outcome("trial", found), False
    proof = prove(Lowering(lowering.plan), scheduled=False, trials=1, fresh=True)
    if not proof.proved:
        return Outcome("prove", f"{proof.verdict}: {proof.found}"[:160]), False
    return None, False


def checked(text: str, name: str, form: Form) -> str:
    """The first error of `kdsl check` on the operator under another name, with a rule that schedules it."""
    other = f"{name}_changed"
    rule = rule_text(other, form, with_operator(subjects()[name], name).operators[name])
    with tempfile.TemporaryDirectory(prefix="kdsl-") as folder:
        file = Path(folder, "operator.kds")
        file.write_text(text.replace(f"operator {name} ", f"operator {other} ", 1) + rule, encoding="utf-8")
        errors = [d for d in check_paths([file]).diagnostics if d.severity is Severity.ERROR]
    return f"{errors[0].code}: {errors[0].message}"[:160] if errors else ""


def rule_text(name: str, form: Form, operator: OperatorModel) -> str:
    grid = ", ".join(i for i, index in operator.indices.items() if index.mode == "parallel")
    lines = "".join(f"    {key} = {value}\n" for key, value in form.form.items())
    block = f"  form {{\n{lines}  }}\n" if lines else ""
    needs = '  require { gate is bounded and lower_bound >= -5.0 else "bounded gates" }\n'
    needs = needs if form.form.get("decay") in ("factored", "centred") else ""
    parts = ", ".join(operator.parts)
    kernel = f"  kernel all computes {parts} {{ grid {{ task : {grid} }} }}\n"
    return f"rule graph schedules {name} on cpu {{\n{needs}{block}{kernel}}}\n"


def with_operator(text: str, name: str) -> Library:
    library = load()
    library.operators[name] = resolve_operator(declaration_of(text))
    return library


# ---- settings in which a change takes part
def forms_of(mutant: Mutant) -> list[Form]:
    """The settings of the cases that enclose the change; the rest is varied."""
    operator = with_operator(subjects()[mutant.subject], mutant.subject).operators[mutant.subject]
    fixed = enclosing(subjects()[mutant.subject], mutant.edits[0])
    every = [
        Form(operator.name, form, options)
        for form in form_settings(operator)
        for options in option_settings(operator)
        if fixed.items() <= {**form, **options}.items() and possible(form, options)
    ]
    assert every, mutant.name
    step = max(len(every) // TRIED, 1)
    return every[step // 2 :: step][:TRIED]


def possible(form: Mapping[str, object], options: Mapping[str, object]) -> bool:
    return form.get("decay") not in ("factored", "centred") or options["gate"] == "bounded"


def enclosing(text: str, edit: Edit) -> dict[str, object]:
    """`either` names with the case that the edit is in."""
    found: dict[str, object] = {}
    for node in walk(declaration_of(text)):
        if isinstance(node, n.Either):
            for case in node.cases:
                if case.span.first <= edit.start and edit.end <= case.span.last:
                    value = case.name.text
                    found[node.name.text] = {"true": True, "false": False}.get(value, value)
    return found


# ---- running
@frozen
class Key:
    operator: str
    form: tuple
    options: tuple


def form_key(form: Form) -> Key:
    return Key(form.operator, tuple(sorted(form.form.items())), tuple(sorted(form.options.items())))


@lru_cache(maxsize=256)
def right_sources(key: Key) -> list[str]:
    form = Form(key.operator, dict(key.form), dict(key.options))
    return [source.source for source in Lowering(plan_of_form(load(), form)).sources]


def tried(plan: Plan, lowering: Lowering, seed: int) -> str:
    """What is wrong with the results of the compiled code, or nothing. It runs in a process of its own."""
    with quick_compiler(), tempfile.TemporaryDirectory(prefix="kdsl-") as folder:
        variant, files = variant_files(lowering, f"{seed:016d}")
        path = write_bundle(Path(folder) / "mutant.kdsb", manifest_of((plan,), (variant,)), files)
        program = open_first(path)

        def run() -> str:
            trial = TRIALS[plan.operator.name](plan, program, np.random.default_rng(seed))
            return "" if trial.accepted else trial.found

        return in_child(run)


@contextmanager
def quick_compiler() -> Iterator[None]:
    """The C compiler without optimisation: it is asked for every mutant anew."""
    find = cc.find
    quick = evolve(find(), flags=tuple(f for f in find().flags if f != "-O3") + ("-O0",))
    cc.find = lambda: quick
    try:
        yield
    finally:
        cc.find = find
