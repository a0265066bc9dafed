"""Every form of an operator, proved on its graph alone: where the trust in `either` comes from.

A form is proved on the unscheduled TIR of one kernel that computes every part, at small sizes, for a set of
option settings that covers every pair of an option's value and a form (`covering`), or for all of them
(`every`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from attrs import frozen

from kdsl.check.evaluate import decide
from kdsl.check.graph import build_graph
from kdsl.check.library import Library
from kdsl.check.model import Graph, Operator, RulePoint
from kdsl.check.rules import resolve_rule, rule_at
from kdsl.plan.derive import derive
from kdsl.plan.model import Plan
from kdsl.plan.specialize import specialize
from kdsl.prove.ledger import SMALL, form_settings
from kdsl.source.span import SourceFile
from kdsl.syntax import nodes as n
from kdsl.syntax.parse import parse


@frozen
class Form:
    """One choice of every `either` that is no option, of every parameter, and of every static option."""

    operator: str
    form: Mapping[str, object]
    options: Mapping[str, object]

    @property
    def label(self) -> str:
        values = {**self.form, **{k: v for k, v in self.options.items() if v is not False}}
        return f"{self.operator}: " + ", ".join(f"{k} = {str(v).lower()}" for k, v in values.items())


def option_settings(operator: Operator) -> list[dict[str, object]]:
    """Every combination of static options that no law decides against."""
    options = {name: o.values for name, o in operator.options.items() if o.kind != "scalar"}
    found = []
    for values in product(*options.values()):
        chosen = dict(zip(options, values, strict=False))
        given = {f"given.{name}": True for name in operator.ports}
        known = {**chosen, **given}
        if all(decide(law.predicate, known) is not False for law in operator.laws):
            found.append(chosen)
    return found


def every(operator: Operator) -> Iterator[Form]:
    """All forms under all options."""
    for form, options in product(form_settings(operator), option_settings(operator)):
        yield Form(operator.name, form, options)


def covering(operator: Operator) -> Iterator[Form]:
    """Fewer: each option's value occurs with each form."""
    settings = option_settings(operator)
    for number, form in enumerate(form_settings(operator)):
        missing = {(k, v) for options in settings for k, v in options.items()}
        rest = settings[number % len(settings) :] + settings[: number % len(settings)]
        while missing:
            best = max(rest, key=lambda options: len(missing & set(options.items())))
            missing -= set(best.items())
            yield Form(operator.name, form, best)


def plan_of_form(library: Library, form: Form, sizes: Mapping[str, int] | None = None) -> Plan:
    """The plan of a rule that says nothing but the form: a task for each parallel index, in one kernel, or in one for
    each part where parts are loops of their own."""
    operator = library.operators[form.operator]
    point = _bare_rule(library, operator, form)
    asked = sizes or dict.fromkeys(operator.static_sizes, SMALL)
    return derive(point, operator, specialize(operator, point.rule, {}, form.options, asked))


def _bare_rule(library: Library, operator: Operator, form: Form) -> RulePoint:
    lines = "\n".join(f"    {name} = {value}" for name, value in form.form.items())
    text = (
        f"rule graph schedules {operator.name} on cpu {{\n"
        + (f"  form {{\n{lines}\n  }}\n" if lines else "")
        + "\n".join(_kernels(operator, build_graph(operator, {**form.options, **form.form})))
        + "\n}\n"
    )
    (declaration,) = (
        d for d in parse(SourceFile("the operator's graph", text)).declarations if isinstance(d, n.Rule)
    )
    return rule_at(resolve_rule(declaration), library.targets["cpu"], {}, library.tactics)


def _kernels(operator: Operator, graph: Graph) -> Iterator[str]:
    """One kernel for all parts where one loop does for them; else one for each, what passes between in a workspace."""
    tasks = [name for name, index in operator.indices.items() if index.mode == "parallel"]
    loops = {(carry.over, carry.within) for carry in graph.carries}
    if len(loops) < 2 and not any(within for _, within in loops):
        yield f"  kernel all computes {', '.join(operator.parts)} {{ grid {{ task : {', '.join(tasks)} }} }}"
        return
    for part in operator.parts:
        own = graph.of_parts((part,))
        if not own.stages:
            continue
        grid = [*tasks, *dict.fromkeys(carry.within for carry in own.carries if carry.within is not None)]
        passed = [name for name in made_in(own) if name in read_outside(graph, part)]
        place = f"place {{ {', '.join(passed)} : f32 in workspace }}" if passed else ""
        yield f"  kernel {part} computes {part} {{\n    grid {{ task : {', '.join(grid)} }}\n    {place}\n  }}"


def made_in(graph: Graph) -> list[str]:
    ends = [carry.end.tensor for carry in graph.carries if carry.end is not None]
    return list(dict.fromkeys([*(stage.tensor for stage in graph.stages), *ends]))


def read_outside(graph: Graph, part: str) -> set[str]:
    """Tensors that the other parts read."""
    reads = [read for stage in graph.stages if stage.part != part for read in stage.reads]
    reads += [read for carry in graph.carries if carry.part != part for read in carry.reads]
    return {read.tensor for read in reads}
