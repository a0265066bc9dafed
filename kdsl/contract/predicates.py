"""The predicates of `ensure` and `measure`: one entry each, and nothing else knows them by name.

To add one, add an entry. `decided` says who gives the fact: "plan" (arithmetic, known to `kdsl check`),
"binary" (ptxas and SASS, known to `kdsl lower`), "run" (the kernel run without a GPU) or "gpu" (`kdsl
validate`).
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve, fields, frozen, has

from kdsl.check.types import BOOL, FLOAT, INT, SIZE_IN_BYTES, TIME, Type
from kdsl.syntax import nodes as n

ENSURE, MEASURE = "ensure", "measure"


@frozen
class Predicate:
    """`arguments`: code (a mnemonic), stage or tensor; `optional` of them may be left out.

    `levels` are what may follow `at`: names, or "role" for any role of the kernel, "kernel" for any kernel of
    the rule. `combine` makes one number of those of several kernels.
    """

    name: str
    type: Type
    decided: str
    summary: str
    arguments: tuple[str, ...] = ()
    optional: int = 0
    levels: tuple[str, ...] = ()
    level_needed: bool = False
    where: tuple[str, ...] = (ENSURE,)
    combine: str = "max"  # max, min, sum
    unit: str = ""
    operand: bool = False  # stands beside a predicate and claims nothing alone


TABLE = {
    entry.name: entry
    for entry in (
        Predicate("shared_bytes", SIZE_IN_BYTES, "plan", "shared memory of a block", unit="bytes"),
        Predicate("stack_bytes", SIZE_IN_BYTES, "plan", "stack of a task", unit="bytes"),
        Predicate("workspace_bytes", SIZE_IN_BYTES, "plan", "memory between kernels", combine="sum",
                  unit="bytes"),
        Predicate("grid_x", INT, "plan", "blocks along x", unit="blocks"),
        Predicate("grid_y", INT, "plan", "blocks along y", unit="blocks"),
        Predicate("grid_z", INT, "plan", "blocks along z", unit="blocks"),
        Predicate("grid_tasks", INT, "plan", "tasks of a CPU kernel", unit="tasks"),
        Predicate("bank_conflicts", FLOAT, "plan", "worst wavefronts of a shared access over the ideal",
                  arguments=("tensor",), optional=1),
        Predicate("spills", SIZE_IN_BYTES, "binary", "bytes spilled", combine="sum", unit="bytes"),
        Predicate("registers_per_thread", INT, "binary", "registers", levels=("role",), unit="registers"),
        Predicate("count", INT, "binary", "instructions in the code", arguments=("code",),
                  levels=("ptx", "sass"),
                  level_needed=True, combine="sum"),
        Predicate("occupancy", INT, "binary", "blocks that fit one SM at once", combine="min", unit="blocks"),
        Predicate("blocks_per_sm", INT, "binary", "blocks that fit one SM at once", combine="min",
                  unit="blocks"),
        Predicate("vector_width", SIZE_IN_BYTES, "binary", "bytes of one access of a tensor",
                  arguments=("tensor",),
                  combine="min", unit="bytes"),
        Predicate("overlapped", FLOAT, "binary",
                  "share of a stage's instructions between issue and wait of another",
                  arguments=("stage", "stage"), combine="min"),
        Predicate("injected_waits", INT, "binary", "waits that ptxas added", combine="sum"),
        Predicate("dram_bytes", SIZE_IN_BYTES, "gpu", "bytes moved from and to memory", levels=("kernel",),
                  where=(ENSURE, MEASURE), combine="sum", unit="bytes"),
        Predicate("compulsory", SIZE_IN_BYTES, "gpu", "bytes of all inputs and outputs", where=(ENSURE, MEASURE),
                  combine="sum", unit="bytes", operand=True),
        Predicate("same_algorithm", BOOL, "run", "equal to the operator over finite fields"),
        Predicate("p95_latency", TIME, "gpu", "95th percentile of 1000 runs", where=(MEASURE,), unit="s"),
        Predicate("l1_hit_rate", FLOAT, "gpu", "share of L1 hits", levels=("kernel",), where=(MEASURE,),
                  combine="min"),
        Predicate("achieved_occupancy", FLOAT, "gpu", "share of resident warps", levels=("kernel",),
                  where=(MEASURE,), combine="min"),
        Predicate("tensor_core_utilisation", FLOAT, "gpu", "share of cycles with the Tensor Cores busy",
                  levels=("kernel",), where=(MEASURE,), combine="min"),
        Predicate("error", FLOAT, "run", "error against the float64 oracle", where=(ENSURE, MEASURE)),
    )
}  # fmt: skip
BASELINES = ("fla", "flashkda", "previous")


@frozen
class Mention:
    """A predicate where a claim speaks of it."""

    node: n.Node
    name: n.Id
    arguments: tuple[n.Expr, ...]
    level: n.Id | None

    @property
    def key(self) -> str:
        """The name of its fact: `count(shfl.sync) at ptx`."""
        text = self.name.text
        if self.arguments:
            text += f"({', '.join(argument_text(a) for a in self.arguments)})"
        return f"{text} at {self.level.text}" if self.level is not None else text


def argument_text(argument: n.Expr) -> str:
    return argument.text if isinstance(argument, n.Name) else argument.span.text


def mention(node: n.Node) -> Mention | None:
    """The predicate that a node is, if it is one."""
    if isinstance(node, n.AtLevel):
        inner = mention(node.subject)
        return (
            evolve(inner, node=node, level=node.level) if inner is not None and inner.level is None else None
        )
    if isinstance(node, n.Group):
        return None
    if isinstance(node, n.Call) and node.function.text in TABLE:
        return Mention(node, node.function, node.arguments, None)
    if isinstance(node, n.Name) and node.text in TABLE:
        return Mention(node, n.Id(node.span, node.text), (), None)
    return None


def keyed(expr: n.Expr, found: list[Mention]) -> n.Expr:
    """The claim with every predicate as one name, the key of its fact; what was found is added to `found`."""
    spoken = mention(expr)
    if spoken is not None:
        found.append(spoken)
        return n.Name(expr.span, spoken.key)
    if isinstance(expr, n.Baseline):
        return n.Name(expr.span, f"baseline {expr.name.text}")
    if not has(type(expr)):
        return expr
    changes = {}
    for attribute in fields(type(expr)):
        value = getattr(expr, attribute.name)
        if isinstance(value, n.Node):
            new = keyed(value, found)
        elif isinstance(value, tuple):
            new = tuple(keyed(item, found) if isinstance(item, n.Node) else item for item in value)
        else:
            continue
        if new is not value:
            changes[attribute.name] = new
    return evolve(expr, **changes) if changes else expr


def entries(where: str) -> Iterator[Predicate]:
    return (entry for entry in TABLE.values() if where in entry.where)
