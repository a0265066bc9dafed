"""What the contract says of a rule before anything is lowered, and what its kernels keep where."""

from __future__ import annotations

from collections.abc import Iterator

from kdsl.check.blueprint import blueprint
from kdsl.check.evaluate import NotStatic, Undecided
from kdsl.check.library import Library
from kdsl.check.model import DTYPE_BYTES, Kernel, Rule, RulePoint
from kdsl.check.rules import points, rule_at
from kdsl.check.sizes import Sizes
from kdsl.contract.banks import PIECE
from kdsl.contract.decide import decide
from kdsl.contract.facts import conflict_degree, plan_facts
from kdsl.contract.resources import Buffer, Setting, memory_use
from kdsl.contract.verdict import Status, Verdict
from kdsl.lsp.analysis import Analysis
from kdsl.lsp.names import Symbol
from kdsl.lsp.scope import Scope

MOST_POINTS = 256  # points of a rule that a hover decides
MOST_ROWS = 16  # of them it lists
SIGNS = {
    Status.HOLDS: "holds",
    Status.FAILS: "**fails**",
    Status.UNKNOWN: "unknown",
    Status.PENDING: "pending",
}
PLACED = ("registers", "shared", "stack", "workspace", "tensor_memory")


def default_point(library: Library, rule: Rule) -> RulePoint | None:
    """The rule at its default choices on its first target; None if that cannot be settled."""
    return next(_points(library, rule, 1), None)


def _points(library: Library, rule: Rule, most: int = MOST_POINTS) -> Iterator[RulePoint]:
    count = 0
    for name in rule.targets:
        target = library.targets.get(name)
        for choices in points(rule, name) if target is not None else ():
            if count == most:
                return
            count += 1
            try:
                yield rule_at(rule, target, choices, library.tactics)
            except (Undecided, NotStatic, KeyError):
                continue


def setting_of(library: Library, point: RulePoint) -> Setting:
    """The point with the largest sizes that its rule takes, and the widest dtypes."""
    operator = library.operators[point.rule.operator]
    env = {**{f"target.{k}": v for k, v in point.target.fields.items()}, **point.choices, **point.form}
    env.update(Sizes.of(operator, list(point.rule.require), env).largest() or {})
    dtypes = {port.name: max(port.dtypes, key=DTYPE_BYTES.get) for port in operator.ports.values() if port.dtypes}
    return Setting(operator, blueprint(operator).under(point.form), env, dtypes, point.target.family, point.kernels)


def verdicts(library: Library, rule: Rule) -> Iterator[tuple[RulePoint, tuple[Verdict, ...]]]:
    """Every clause at the first points of a rule, by arithmetic alone."""
    for point in _points(library, rule):
        setting = setting_of(library, point)
        facts, _ = plan_facts(setting, point.kernels)
        yield point, decide(point, facts, setting.env)


def at_text(point: RulePoint, several: bool) -> str:
    chosen = ", ".join(f"{name} = {value}" for name, value in point.choices.items()) or "no choices"
    return f"{chosen} on {point.target.name}" if several else chosen


def contract(analysis: Analysis, name: str) -> str:
    """The contract of a rule: a line for each clause, its worst verdict over the choose points."""
    rule = analysis.library.rules.get(name)
    if rule is None:
        return "No verdicts: the rule has errors."
    rows: dict[str, list[tuple[RulePoint, Verdict]]] = {}
    for point, found in verdicts(analysis.library, rule):
        for verdict in found:
            rows.setdefault(verdict.clause, []).append((point, verdict))
    if not rows:
        return "The rule promises nothing."
    lines = [clause_row(clause, found) for clause, found in rows.items()]
    if max(map(len, rows.values())) == MOST_POINTS:
        lines.append(f"\nat the first {MOST_POINTS} points only; `kdsl check` decides all")
    return "| clause | verdict | evidence | found |\n|---|---|---|---|\n" + "\n".join(lines)


def clause_row(clause: str, found: list[tuple[RulePoint, Verdict]]) -> str:
    """One clause: its worst verdict, and how many points share it."""
    order = [Status.FAILS, Status.UNKNOWN, Status.PENDING, Status.HOLDS]
    worst = min((v.status for _, v in found), key=order.index)
    same = [(point, v) for point, v in found if v.status is worst]
    first = same[0][1]
    count = f" at {len(same)} of {len(found)} points" if len(found) > 1 and len(same) < len(found) else ""
    values = list(dict.fromkeys(v.found for _, v in same if v.found))
    value = values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}" if values else first.note
    return f"| `{clause}` | {SIGNS[worst]}{count} | {evidence_text(first)} | {value} |"


def evidence_text(verdict: Verdict) -> str:
    """How a verdict is known; nothing for one that is still open."""
    return verdict.evidence.value if verdict.status in (Status.HOLDS, Status.FAILS) else ""


def clause_text(analysis: Analysis, rule: str, clause: str) -> str | None:
    """One clause of a rule at every point: what was found and what is needed."""
    resolved = analysis.library.rules.get(rule)
    if resolved is None:
        return None
    rows, notes = [], []
    known = False
    for point, found in verdicts(analysis.library, resolved):
        for verdict in found:
            if verdict.clause == clause:
                known = known or verdict.status in (Status.HOLDS, Status.FAILS)
                at = at_text(point, len(resolved.targets) > 1)
                rows.append(
                    f"| {at} | {SIGNS[verdict.status]} | {evidence_text(verdict)} | {verdict.found} "
                    f"| {verdict.needed} |"
                )
                notes.append(verdict.note)
    if not rows:
        return None
    notes = [note for note in dict.fromkeys(notes) if note]
    if not known:
        return "\n\n".join([f"`{clause}`", "open at every choose point", *notes])
    if len(rows) > MOST_ROWS:
        notes.append(f"and {len(rows) - MOST_ROWS} points more; those that do not hold come first")
        rows.sort(key=lambda row: f"| {SIGNS[Status.HOLDS]} |" in row)
        rows = rows[:MOST_ROWS]
    table = "| at | verdict | evidence | found | needed |\n|---|---|---|---|---|\n" + "\n".join(rows)
    return "\n\n".join([f"`{clause}`", table, *notes])


def choice_text(analysis: Analysis, symbol: Symbol) -> Iterator[str]:
    rule = analysis.library.rules.get(symbol.owner.rpartition("#")[2])
    if rule is not None and symbol.name in rule.choices:
        values = ", ".join(map(str, rule.choices[symbol.name]))
        own = "".join(f", {chosen[symbol.name]} on {target}" for target, chosen in rule.target_defaults.items()
                      if symbol.name in chosen)  # fmt: skip
        yield f"```kds\n{symbol.name} in [{values}] default {rule.defaults[symbol.name]}{own}\n```"
        yield f"a choice of rule `{rule.name}`: everything that can be decided is decided at every value"


def kernel_text(scope: Scope, analysis: Analysis, symbol: Symbol) -> Iterator[str]:
    """A kernel's memories at the default choices, against the limits of its target."""
    rule = analysis.library.rules.get(symbol.owner.rpartition("#")[2])
    point = default_point(analysis.library, rule) if rule is not None else None
    kernel = next((k for k in point.kernels if k.name == symbol.name), None) if point is not None else None
    if kernel is None:
        return
    yield f"```kds\nkernel {kernel.name} computes {', '.join(kernel.parts)}\n```"
    limits = {"shared": "shared_bytes_per_block", "stack": "stack_bytes_per_task"}
    for use in uses(setting_of(analysis.library, point), kernel).values():
        limit = point.target.fields.get(limits.get(use.memory, ""))
        of = f" of {limit}" if limit is not None else ""
        yield f"{use.memory}: {use.bytes}{of} bytes ({use.listed()})"
    yield from launch_text(point, kernel)
    yield f"at {at_text(point, True)}"


def launch_text(point: RulePoint, kernel: Kernel) -> Iterator[str]:
    """The kernel that shares its launch, what passes between them, and in how many slots."""
    for taker in point.kernels:
        homes = [home for home in taker.homes.values() if home.beside is not None]
        if homes and kernel.name in (taker.name, homes[0].beside):
            slots = homes[0].attributes.get("ring", 1)
            yield (f"one launch of `{homes[0].beside}` and `{taker.name}`: {slots} groups of warps of the one pass "
                   f"{', '.join(home.tensor for home in homes)} to the warps of the other")  # fmt: skip


def uses(setting: Setting, kernel: Kernel) -> dict:
    found = {}
    for memory in PLACED:
        try:
            found.update(memory_use(setting, kernel, (memory,)))
        except (Undecided, NotStatic, KeyError):
            continue
    return found


def buffers(hover, operator, tensor: str) -> Iterator[tuple[str, list[Buffer], Kernel]]:
    """(rule, tiles of the tensor, kernel) of the rules in the file: default choices, largest sizes."""
    from kdsl.lsp.graph_hover import kernels_of

    library = hover.analysis.library
    seen: dict[str, Setting] = {}
    for name, kernel in kernels_of(hover, operator):
        if name not in seen:
            seen[name] = setting_of(library, default_point(library, library.rules[name]))
        found = [b for use in uses(seen[name], kernel).values() for b in use.buffers if b.tensor == tensor]
        if found:
            yield name, found, kernel


def bank_text(kernel: Kernel, buffer: Buffer) -> str:
    """What ldmatrix needs for eight rows of a 16-bit tile in shared memory; nothing for other tiles."""
    if buffer.memory != "shared" or buffer.dtype not in ("bf16", "f16") or not buffer.shape:
        return ""
    homes = (kernel.homes.get(buffer.tensor), *kernel.views.get(buffer.tensor, ()))
    home = next((h for h in homes if h is not None and h.span is buffer.span), None)
    swizzle = int(home.attributes.get("swizzle", 0)) if home is not None else 0
    row = buffer.shape[-1] * DTYPE_BYTES[buffer.dtype]
    if row < PIECE or swizzle > row:
        return ""
    degree = conflict_degree(swizzle or row, buffer.pad, swizzle, buffer.dtype)
    return "ldmatrix free of conflicts" if degree == 1 else f"ldmatrix takes {degree} wavefronts where 1 is ideal"
