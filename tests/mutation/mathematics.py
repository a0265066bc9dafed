"""Operators of the standard library as subjects: each mutant checked, lowered for the CPU, tried, proved.

A mutant is judged under settings in which the changed line takes part: the cases of `either` that enclose
it, and where that is no case, several settings one after the other.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
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
from .cpu_calls import ACCEPTED, results
from .math_operators import MATHEMATICS, declaration_of
from .mutant import Edit, Mutant, applied, mutants_of
from .verdict import FALSE_ACCEPT, Outcome

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
    judged = [judge_form(library, form) for form in forms]
    outcome = next((o for o in judged if not o.accepted), None) or merged(judged)
    if outcome.verdict == FALSE_ACCEPT and renames_forms(mutant):
        return evolve(outcome, reason="two forms exchange their names; both are proved under the other one")
    return outcome


def renames_forms(mutant: Mutant) -> bool:
    """Whether the mutant only exchanges the names of two forms: their conditions go with their stages."""
    operator = with_operator(subjects()[mutant.subject], mutant.subject).operators[mutant.subject]
    names = {name for values in operator.forms.values() for name in values}
    return mutant.operator == "other_option" and all(edit.new in names for edit in mutant.edits)


def merged(judged: list[Outcome]) -> Outcome:
    """Of several forms, the weakest reason to be accepted."""
    code, results = (all(getattr(o, name) for o in judged) for name in ("same_code", "same_output"))
    if code:
        return Outcome(same_code=True, reason="same generated code")
    reason = "the same results bit for bit, and proved equal over finite fields: nothing reads what differs"
    return Outcome(same_output=results, reason=reason if results else "")


def judge_form(library: Library, form: Form) -> Outcome:
    """A rejection under one form, or whether code or results are those of the right operator."""
    try:
        lowering = Lowering(plan_of_form(library, form))
        sources = [source.source for source in lowering.sources]
    except PlanRefused as refusal:
        return Outcome("plan", refusal.diagnostic.message[:160])
    except StepRefused as refusal:
        return Outcome("schedule", refusal.diagnostic.message[:160])
    if sources == right_sources(form_key(form)):
        return Outcome(same_code=True, same_output=True)
    for seed in SEEDS:
        found = tried(lowering.plan, lowering, seed)
        if found:
            return Outcome("trial", found)
    proof = prove(Lowering(lowering.plan), scheduled=False, trials=1, fresh=True)
    if not proof.proved:
        return Outcome("prove", f"{proof.verdict}: {proof.found}"[:160])
    found = more_calls(lowering.plan, lowering)
    if not found.startswith(ACCEPTED):
        return Outcome("calls", found)
    return Outcome(same_output=found == right_results(form_key(form)))


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
    needs = '    gate is bounded and lower_bound >= -5.0 else "bounded gates"\n'
    needs = needs if form.form.get("decay") in ("factored", "centred") else ""
    if form.form.get("span") == "segmented":  # which keeps S states
        needs += '    K == 16 and V == 16 else "small heads"\n'
    needs = f"  require {{\n{needs}  }}\n" if needs else ""
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
    every.sort(
        key=lambda form: hashlib.sha256(form.label.encode()).hexdigest()
    )  # all options vary among a few
    return [*every[:TRIED], *longer(every)]


def longer(forms: list[Form]) -> list[Form]:
    """The first form that allows chunks of 32 tokens, with them."""
    form = next((f for f in forms if "C" in f.form and f.form["decay"] != "factored"), None)
    return [evolve(form, form={**form.form, "C": 32})] if form is not None else []


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

    def run(program) -> str:
        trial = TRIALS[plan.operator.name](plan, program, np.random.default_rng(seed))
        return "" if trial.accepted else trial.found

    return on_program(plan, lowering, run)


def more_calls(plan: Plan, lowering: Lowering) -> str:
    """As `tried`, on the calls of `cpu_calls`."""
    return on_program(plan, lowering, lambda program: results(plan, program))


@lru_cache(maxsize=256)
def right_results(key: Key) -> str:
    plan = plan_of_form(load(), Form(key.operator, dict(key.form), dict(key.options)))
    found = more_calls(plan, Lowering(plan))
    assert found.startswith(ACCEPTED), found
    return found


def on_program(plan: Plan, lowering: Lowering, run: Callable) -> str:
    with quick_compiler(), tempfile.TemporaryDirectory(prefix="kdsl-") as folder:
        variant, files = variant_files(lowering, f"{0:016d}")
        path = write_bundle(Path(folder) / "mutant.kdsb", manifest_of((plan,), (variant,)), files)
        program = open_first(path)
        return in_child(lambda: run(program))


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
