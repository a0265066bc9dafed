"""Contracts of a rule at every point: broken promises, memory over budget, what its form requires."""

from __future__ import annotations

from collections.abc import Mapping

from kdsl.check.alternatives import lost_names
from kdsl.check.blueprint import holds
from kdsl.check.evaluate import NotStatic, Undecided, ceildiv, evaluate
from kdsl.check.findings import listed, warning
from kdsl.check.model import DTYPE_BYTES, names_in
from kdsl.check.placement import block_extent, known_tensors, row_bytes
from kdsl.check.points import KernelAtPoint, Point
from kdsl.check.products import place_for
from kdsl.check.rule_lines import possible_dtypes
from kdsl.contract.calls import call_text, speaks
from kdsl.contract.claims import Claims
from kdsl.contract.conditions import Condition
from kdsl.contract.decide import clause_text, decide_claim, quantity
from kdsl.contract.facts import conflict_degree, conflict_fact, loads_with, plan_facts, with_warps_beside
from kdsl.contract.predicates import keyed
from kdsl.contract.resources import MemoryUse, Setting, taken_from
from kdsl.contract.satisfy import components, law_conditions, search
from kdsl.contract.verdict import Fact, Status
from kdsl.source.diagnostic import Diagnostic, Evidence, Label
from kdsl.syntax import nodes as n

LIMITS = {"shared": "shared_bytes_per_block", "stack": "stack_bytes_per_task"}
WIDE, NARROW = 8, 2  # bytes of the dtypes of a call
FACT_OF = {"shared": "shared_bytes", "stack": "stack_bytes"}


def check_contracts(point: Point, claims: Claims) -> None:
    """Budgets, promises and the form's own requirements at one point."""
    largest = point.sizes.largest() or {}
    facts, uses = _fitting_facts(point, largest)
    broken = {FACT_OF[use.memory] for use in uses if _over_budget(point, use, largest)}
    for kernel in point.kernels:
        degrees = _conflicts(point, kernel)
        facts.update({f"{kernel.name}/{key}": fact for key, fact in conflict_fact(degrees).items()})
    _promises(point, claims, facts, largest, broken)
    if not point.rule.form_guessed:
        _form_requirements(point)


def _fitting_facts(point: Point, largest: Mapping[str, int]) -> tuple[dict[str, Fact], list[MemoryUse]]:
    """With the widest dtypes that the rule takes; where these do not fit the target and narrower ones do, with those:
    of a call that does not fit no point is chosen."""
    facts, uses = _facts(point, largest, WIDE)
    if any(_exceeds(point, use) for use in uses):
        narrow = _facts(point, largest, NARROW)
        if not any(_exceeds(point, use) for use in narrow[1]):
            return narrow
    return facts, uses


def _exceeds(point: Point, use: MemoryUse) -> bool:
    limit = point.target.fields.get(LIMITS.get(use.memory, ""))
    return isinstance(limit, int) and use.bytes > limit


def _facts(point: Point, largest: Mapping[str, int], most: int) -> tuple[dict[str, Fact], list[MemoryUse]]:
    """Of every kernel, with dtypes of `most` bytes; the same kernel at another point has the same facts."""
    memo = point.rule.memo
    if ("widest", most) not in memo:
        memo["widest", most] = _widest(point, most)
    kernels = tuple(k.kernel for k in point.kernels)
    setting = Setting(point.rule.operator, point.graph, {**point.env, **largest}, memo["widest", most],
                      point.target.family,
                      kernels)  # fmt: skip
    facts: dict[str, Fact] = {}
    uses: list[MemoryUse] = []
    for kernel in (k for k in point.kernels if "place" not in k.lines.doubtful):
        alive = (kernel.kernel, point.graph, point.sizes)
        others = (tuple(k.name for k in kernels), tuple(taken_from(kernel.kernel, kernels)))
        key = ("facts", most, *map(id, alive), point.target.family, *others)
        if key not in memo:
            memo[key] = (alive, plan_facts(setting, [kernel.kernel]))
        facts.update(memo[key][1][0])
        uses += memo[key][1][1]
    return with_warps_beside(facts, uses, kernels)


def _widest(point: Point, most: int) -> dict[str, str]:
    """The widest dtype that each port may have in a call that the rule takes: of `most` bytes, if it may be that."""
    found = {}
    for name, port in point.rule.operator.ports.items():
        allowed = possible_dtypes(point.rule.operator, port)
        for claim in point.rule.require:
            if isinstance(claim.predicate, n.Typed) and name in [x.text for x in claim.predicate.names]:
                asked = [d.name for d in claim.predicate.dtypes if not d.like]
                allowed = tuple(d for d in allowed if d in asked) or allowed
        allowed = [dtype for dtype in allowed if DTYPE_BYTES[dtype] <= most] or allowed
        found[name] = max(allowed, key=lambda d: (d in ("f32", "i64"), d == "i64"))
    return found


# ---- budgets -----------------------------------------------------------------------------------------------


def _over_budget(point: Point, use: MemoryUse, sizes: Mapping[str, int]) -> bool:
    if not _exceeds(point, use):
        return False
    limit = point.target.fields[LIMITS[use.memory]]
    kernel = next(k for k in point.kernels if k.name == use.kernel)
    notes = [use.listed()]
    if sizes and any(len(point.sizes.values[name] or ()) > 1 for name in sizes):
        notes.append("at the largest call it takes: " + ", ".join(f"{k} = {v}" for k, v in sizes.items()))
    labels = tuple(
        Label(b.span, f"{b.bytes} bytes") for b in use.buffers[:4] if b.span is not kernel.kernel.span
    )
    point.report(
        Diagnostic(
            "E302",
            f"kernel `{use.kernel}` needs {use.bytes} bytes of {use.memory} memory, "
            f"{point.target.name} has {limit}",
            kernel.lines.declaration.name.span,
            label=f"{len(use.buffers)} buffers",
            labels=labels,
            observed=f"{use.bytes} bytes",
            required=f"at most {limit} bytes",
            evidence=Evidence.PROVED,
            notes=tuple(notes),
            help=(_smaller(use, use.bytes - limit, _ring_choice(kernel)), *_grid_help(point, kernel, use)),
        ),
        subject=use.memory,
    )
    return True


def _ring_choice(kernel: KernelAtPoint) -> str:
    """The choice that says how many slots rings have, where it is one and the same."""
    depths = {x.value.text if isinstance(x.value, n.Name) else "" for line in kernel.nodes("place")
              for x in line.attributes if x.kind == "ring"}  # fmt: skip
    return depths.pop() if len(depths) == 1 else ""


def _smaller(use: MemoryUse, over: int, choice: str) -> str:
    rings = [b for b in use.buffers if b.slots > 1]
    slot = sum(b.bytes // b.slots for b in rings)
    depth = min((b.slots for b in rings), default=0) - ceildiv(over, max(slot, 1))
    if rings and depth >= 1:
        saved = sum(b.bytes // b.slots * (b.slots - depth) for b in rings)
        which = listed([b.tensor for b in rings], 6)
        if choice:
            return f"{over} bytes are over: `{choice}`, the ring of {which}, must be at most {depth} there"
        return f"{over} bytes are over: `ring {depth}` on {which} saves {saved}"
    needed, held = [], 0
    for buffer in use.buffers:
        if held < over:
            needed.append(buffer.tensor)
            held += buffer.bytes
    return (
        f"{over} bytes are over: keep {listed(needed, 4)} in another memory, with a smaller `pad`,"
        " or narrower where the operator offers it"
    )


def _grid_help(point: Point, kernel: KernelAtPoint, use: MemoryUse) -> tuple[str, ...]:
    shapes = known_tensors(point, kernel)
    indices = shapes.get(use.buffers[0].tensor, ())
    dealt = {name for axis in kernel.kernel.grid for name, _ in axis.indices}
    dealt |= {i for s in kernel.graph.stages for i in (*s.stage.contracted, s.stage.scan)}
    free = [i for i in indices if i not in dealt and (block_extent(point, kernel, i) or 0) > 16]
    return (
        (f"or deal `{free[-1]}` over the grid: `{free[-1]} by ...`",)
        if free and use.memory == "shared"
        else ()
    )


# ---- bank conflicts ----------------------------------------------------------------------------------------


def _conflicts(point: Point, kernel: KernelAtPoint) -> dict[str, int]:
    """Conflict degree of every operand that a matrix instruction loads from shared memory."""
    degrees: dict[str, int] = {}
    shapes = known_tensors(point, kernel)
    for made in kernel.graph.stages:
        computation = kernel.kernel.computations.get(made.stage.name)
        instruction = (
            point.rule.declarations.right_instructions.get(computation.instruction or "")
            if computation
            else None
        )
        if loads_with(instruction) != "ldmatrix":
            continue
        for read in made.stage.reads:
            home = place_for(kernel, made.stage, read.tensor)
            if (
                home is None
                or home.memory != "shared"
                or read.tensor in degrees
                or not shapes.get(read.tensor)
            ):
                continue
            line = next(
                (x for x in kernel.nodes("place") for name in x.names if name.span is home.span), None
            )
            row = (
                row_bytes(point, kernel, read.tensor, shapes[read.tensor], line) if line is not None else None
            )
            dtype = home.dtype or "bf16"
            if row is None or row < 16 or dtype not in ("bf16", "f16"):
                continue
            pad, swizzle = int(home.attributes.get("pad", 0)), int(home.attributes.get("swizzle", 0))
            if swizzle > row:
                continue  # a finding of its own
            degrees[read.tensor] = conflict_degree(row, pad, swizzle, dtype)
            if degrees[read.tensor] > 1:
                _conflict(point, kernel, read.tensor, home, row, dtype, degrees[read.tensor])
    return degrees


def _conflict(
    point: Point, kernel: KernelAtPoint, tensor: str, home, row: int, dtype: str, degree: int
) -> None:
    fixes = [f"`pad {p}`" for p in (8,) if conflict_degree(row, p, 0, dtype) == 1]
    fixes += [f"`swizzle {s}`" for s in (128, 64, 32) if s <= row and conflict_degree(row, 0, s, dtype) == 1][:1]
    point.report(warning(
        "W501", f"ldmatrix of `{tensor}` takes {degree} wavefronts where 1 is ideal", home.span,
        label=f"rows of {row} bytes", observed=str(degree), required="1", evidence=Evidence.SIMULATED,
        help=(f"{' or '.join(fixes)} is free of conflicts",) if fixes else ()))  # fmt: skip


# ---- promises ----------------------------------------------------------------------------------------------


def _promises(
    point: Point, claims: Claims, facts: Mapping[str, Fact], sizes: Mapping[str, int], broken: set[str]
) -> None:
    kernels = tuple(k.name for k in point.kernels)
    env = {**point.env, **sizes}
    for kernel, clauses in claims.ensure.items():
        if kernel is not None and kernel not in kernels:
            continue
        for claim in clauses:
            problem = no_value(claim.predicate, env)
            if problem is not None:
                point.report(Diagnostic("E115", str(problem), problem.node.span, label="no value here",
                                        help=("a promise without a value holds for no kernel",)))  # fmt: skip
                continue
            if broken & set(names_in(claim.predicate)):
                point.findings.leave_open(point, "E501", claim.predicate.span)
                continue
            verdict = decide_claim(claim, facts, env, kernels, kernel)
            if verdict.status is not Status.FAILS:
                continue
            notes = []
            if sizes and any(len(point.sizes.values[name] or ()) > 1 for name in sizes):
                notes.append(
                    "at the largest call it takes: " + ", ".join(f"{k} = {v}" for k, v in sizes.items())
                )
            point.report(Diagnostic(
                "E501", f"`{verdict.clause}` does not hold: found {verdict.found}", claim.predicate.span,
                label=f"found {verdict.found}", observed=verdict.found, required=verdict.needed,
                evidence=verdict.evidence,
                notes=tuple(notes), help=_promise_help(claim)))  # fmt: skip


def no_value(predicate: n.Node, env: Mapping[str, object]) -> NotStatic | None:
    """Why a claim has no value, whatever the facts of the kernel are."""
    if isinstance(predicate, (n.Uses, n.Within)):
        return None
    try:
        evaluate(keyed(predicate, []), env)
    except NotStatic as problem:
        return problem
    except Undecided:
        pass
    return None


def _promise_help(claim: n.Claim) -> tuple[str, ...]:
    if claim.message is not None:
        return (claim.message.value,)
    return ("change the schedule, or drop the choices that break the promise",)


# ---- the form's own requirements ---------------------------------------------------------------------------


def _form_requirements(point: Point) -> None:
    """E140: a call that the rule takes and that the form cannot compute."""
    operator = point.rule.operator
    for alternatives in point.graph.eithers:
        name = alternatives.node.name.text
        if name not in operator.forms or not holds(alternatives.guards, point.form):
            continue
        case = next((c for c in alternatives.node.cases if c.name.text == point.form.get(name)), None)
        if case is None or case.requires is None:
            continue
        predicate = case.requires.predicate
        memo = point.rule.memo
        if ("of form", id(case)) not in memo:
            memo["of form", id(case)] = _with_form(point, predicate)
        conditions, spoken = memo["of form", id(case)]
        key = ("form", id(case), *((x, point.env[x]) for x in spoken if x in point.env))
        if key not in memo:
            memo[key] = None
            if not search(operator, conditions, point.env).refuted:
                whole = [*(Condition(c.predicate) for c in point.rule.require), Condition(predicate, False)]
                memo[key] = search(operator, whole, point.env).call
        if memo[key] is not None:
            _form_needs(point, name, case, memo[key])


def _with_form(point: Point, predicate: n.Expr) -> tuple[list[Condition], list[str]]:
    """What a call must meet that a form cannot compute, as far as it shares a name with what the form requires; and
    the names that it speaks of."""
    broken = Condition(predicate, False)
    all_ = [*(Condition(c.predicate) for c in point.rule.require), broken, *law_conditions(point.rule.operator)]
    own = next(part for part in components(point.rule.operator, all_) if broken in part)
    return own, sorted({name for c in own for name in names_in(c.predicate)})


def _form_needs(point: Point, name: str, case: n.FormCase, call: Mapping[str, object]) -> None:
    line = next(
        (x for x in point.rule.declaration.items if isinstance(x, n.Block) and x.kind == "form"), None
    )
    chosen = next((x for x in line.items if x.name.text == name), None) if line is not None else None
    span = chosen.span if chosen is not None else point.rule.declaration.name.span
    values = {**point.env, **call}
    used = [
        x for x in names_in(case.requires.predicate) if x in values and speaks(point.rule.operator, x, values)
    ]
    found = ", ".join(f"{x} = {quantity(values[x])}" for x in used)
    others = _other_forms(point, name, case)
    message = f": {case.requires.message.value}" if case.requires.message is not None else ""
    text = clause_text(case.requires)
    remedy = f"add `{text}` to `require`" + "".join(f", or {other}" for other in others)
    point.report(Diagnostic(
        "E140", f"form `{name} = {case.name.text}` requires `{text}`, and the rule also takes "
                f"{found}{message}", span,
        label="chosen here", labels=(Label(case.requires.span, "required here"),), observed=found,
        required=text,
        evidence=Evidence.PROVED, notes=(f"for example the call {call_text(point.rule.operator, call)}",),
        help=(remedy,)))  # fmt: skip


def _other_forms(point: Point, name: str, chosen: n.FormCase) -> list[str]:
    """The alternatives whose own requirements the rule meets, each with what the kernels then no longer make."""
    cases = [case for e in point.graph.eithers if e.node.name.text == name for case in e.node.cases]
    found = []
    for case in cases:
        if case.name.text == chosen.name.text:
            continue
        if case.requires is not None:
            asked = [*(Condition(c.predicate) for c in point.rule.require), Condition(case.requires.predicate, False)]
            if not search(point.rule.operator, asked, point.env).refuted:
                continue
        lost = lost_names(point.rule, {**point.form, name: case.name.text})
        drop = f" and drop {listed(f'`{x}`' for x in lost)} from the kernels" if lost else ""
        found.append(f"take `{name} = {case.name.text}`{drop}")
    return found
