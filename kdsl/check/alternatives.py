"""What the kernels of a rule name that another alternative of a form does not make."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from kdsl.check.findings import Findings
from kdsl.check.operators import block
from kdsl.check.rule_lines import RuleNames, expanded
from kdsl.syntax import nodes as n


def lost_names(rule: RuleNames, form: Mapping[str, object]) -> tuple[str, ...]:
    """Tensors in `place` and stages in `compute` that the operator has, but not with these values of its forms."""
    rule = evolve(rule, findings=Findings(), used=set())  # what is wrong with a tactic's line is said elsewhere
    graph = rule.graph.under(form)
    made = {s.stage.tensor for s in graph.stages} | {c.carry.tensor for c in graph.carries} | set(rule.names.views)
    stages = {s.stage.name for s in graph.stages}
    lost: dict[str, None] = {}
    for kernel in (item for item in rule.declaration.items if isinstance(item, n.Kernel)):
        items = expanded(rule, kernel.items)
        for line in block(items, "place"):
            lost |= {x.text: None for x in line.names if x.text in rule.names.tensors and x.text not in made}
        for line in block(items, "compute"):
            lost |= {x.text: None for x in line.stages if x.text in rule.names.stages and x.text not in stages}
    return tuple(lost)
