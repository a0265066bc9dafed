"""Target and instruction declarations: fields, features, operand maps."""

from __future__ import annotations

from collections.abc import Mapping

from kdsl.check.domains import MOST_VALUES
from kdsl.check.evaluate import NotStatic, Undecided, evaluate
from kdsl.check.findings import Findings, duplicate, listed, recursion, unknown_name, unknown_target
from kdsl.check.fragments import lane_maps
from kdsl.check.infer import expect_int
from kdsl.check.model import DTYPE_BYTES, Instruction
from kdsl.check.scope import Scope, index_symbol
from kdsl.check.targets import resolve_instruction
from kdsl.source.diagnostic import Diagnostic, Evidence, Label
from kdsl.source.span import Span
from kdsl.syntax import nodes as n

FAMILIES = ("cpu", "cuda")
NEEDED = {
    "cpu": ("tool", "stack_bytes_per_task"),
    "cuda": ("tool", "shared_bytes_per_block", "registers_per_thread_max"),
}
EXTENTS = ("m", "n", "k", "threads")
MAPS = ("lane", "slot", "column", "swizzle")


def check_target(declaration: n.Target, declarations: Mapping[str, n.Target], findings: Findings) -> None:
    base = declaration.extends
    if base is not None and base.text not in declarations:
        findings.add(unknown_target(base.text, base.span, declarations))
        return
    if extends_circle(declaration, declarations, findings):
        return
    _once(declaration.items, findings)
    for item in declaration.items:
        if isinstance(item, n.Field):
            static_field(item, findings)
        elif isinstance(item, n.Lacks):
            _lacks(item, declaration, declarations, findings)
    _needed(declaration, declarations, findings)


def extends_circle(declaration: n.Target, declarations: Mapping[str, n.Target], findings: Findings) -> bool:
    """Whether the chain of `extends` never ends; reported at the circle's first name in order."""
    path, at = [declaration.name.text], declaration
    while at.extends is not None and at.extends.text in declarations:
        at = declarations[at.extends.text]
        if at.name.text in path:
            cycle = path[path.index(at.name.text) :]
            if declaration.name.text == min(cycle):
                spans = [declarations[name].name.span for name in cycle[1:]]
                findings.add(recursion("target", [*cycle, cycle[0]], declaration.name.span, spans))
            return True
        path.append(at.name.text)
    return False


def _once(items: tuple[n.Node, ...], findings: Findings) -> None:
    seen: dict[str, Span] = {}
    for item in items:
        if isinstance(item, n.Field):
            if item.name.text in seen:
                findings.add(duplicate("field", item.name.text, item.name.span, seen[item.name.text]))
            seen.setdefault(item.name.text, item.name.span)


def static_field(item: n.Field, findings: Findings) -> object | None:
    """The field's value, or a finding and None."""
    if isinstance(item.value, n.Name):
        return item.value.text
    try:
        return evaluate(item.value, {})
    except Undecided as undecided:
        findings.add(
            Diagnostic(
                "E115", f"field `{item.name.text}` must be a constant, and {undecided}", item.value.span
            )
        )
    except NotStatic as problem:
        findings.add(Diagnostic("E115", f"field `{item.name.text}`: {problem}", problem.node.span))
    return None


def chain(declaration: n.Target, declarations: Mapping[str, n.Target]) -> list[n.Target]:
    found = [declaration]
    while found[-1].extends is not None and found[-1].extends.text in declarations:
        found.append(declarations[found[-1].extends.text])
    return found


def _lacks(item: n.Lacks, declaration, declarations, findings: Findings) -> None:
    had = {
        name.text
        for d in chain(declaration, declarations)
        for i in d.items
        if isinstance(i, n.Has)
        for name in i.names
    }
    for name in item.names:
        if name.text not in had:
            findings.add(
                unknown_name("feature", name.text, name.span, sorted(had), ": there is nothing to lack")
            )


def _needed(declaration: n.Target, declarations, findings: Findings) -> None:
    fields: dict[str, n.Field] = {}
    for owner in reversed(chain(declaration, declarations)):
        fields.update({item.name.text: item for item in owner.items if isinstance(item, n.Field)})
    family = fields.get("family")
    value = family.value.text if family is not None and isinstance(family.value, n.Name) else None
    if value not in FAMILIES:
        if (family is not None and family not in declaration.items) or (
            family is None and declaration.extends
        ):
            return  # the target that it extends has the finding
        where = family.value.span if family is not None else declaration.name.span
        found = "none" if family is None else family.value.span.text
        findings.add(Diagnostic("E220", f"target `{declaration.name.text}` has no known family", where,
                                observed=found,
                                required=" or ".join(FAMILIES),
                                help=("write `family = cuda` or `family = cpu`",)))  # fmt: skip
        return
    missing = [name for name in NEEDED[value] if name not in fields]
    if missing:
        findings.add(Diagnostic("E220",
                                f"target `{declaration.name.text}` lacks the fields {listed(missing)}",
                                declaration.name.span, observed="not there", required=listed(NEEDED[value]),
                            help=(f"add `{missing[0]} = ...`, or extend a target that has it",)))  # fmt: skip


# ---- instructions ------------------------------------------------------------------------------------------


def check_instruction(declaration: n.Instruction, findings: Findings) -> None:
    before = len(findings)
    _once(declaration.items, findings)
    fields = {item.name.text: item for item in declaration.items if isinstance(item, n.Field)}
    for name in EXTENTS:
        if name not in fields:
            findings.add(Diagnostic("E220", f"instruction `{declaration.name.text}` lacks the field {name}",
                                    declaration.name.span, required=listed(EXTENTS),
                                    help=(f"add `{name} = ...`",)))  # fmt: skip
    for item in fields.values():
        value = static_field(item, findings)
        if item.name.text in EXTENTS and value is not None and not _extent(value):
            findings.add(Diagnostic("E117", f"`{item.name.text}` is a positive integer or a list of them",
                                    item.value.span,
                                    observed=item.value.span.text))  # fmt: skip
    seen: dict[str, Span] = {}
    for item in declaration.items:
        if isinstance(item, n.Operand):
            name = item.target.name
            if name.text in seen:
                findings.add(duplicate("operand", name.text, name.span, seen[name.text]))
            seen.setdefault(name.text, name.span)
            _operand(item, findings)
    if len(findings) == before:
        _enumerate(resolve_instruction(declaration), findings)


def _extent(value: object) -> bool:
    values = value if isinstance(value, tuple) else (value,)
    return bool(values) and all(isinstance(v, int) and 0 < v <= MOST_VALUES for v in values)


def _operand(item: n.Operand, findings: Findings) -> None:
    indices: dict[str, Span] = {}
    for index in item.target.indices:
        if not (isinstance(index, n.Name) and index.text in ("m", "n", "k")):
            findings.add(
                unknown_name("extent", index.span.text, index.span, ("m", "n", "k"), " of an operand")
            )
        elif index.text in indices:
            findings.add(duplicate("index", index.text, index.span, indices[index.text]))
        else:
            indices[index.text] = index.span
    for dtype in item.dtypes:
        if dtype.name not in DTYPE_BYTES:
            findings.add(unknown_name("dtype", dtype.name, dtype.span, DTYPE_BYTES).with_(code="E116"))
    scope = Scope("an operand map", {name: index_symbol(span) for name, span in indices.items()})
    for entry in item.maps:
        if entry.name.text not in MAPS:
            findings.add(unknown_name("operand map", entry.name.text, entry.name.span, MAPS))
        elif entry.name.text != "swizzle":
            expect_int(entry.value, scope, findings, f"`{entry.name.text}`")


def _enumerate(instruction: Instruction, findings: Findings) -> None:
    """Every lane exists, and no two elements share a register."""
    for name, operand in instruction.operands.items():
        maps = {entry.name.text: entry for entry in operand.maps}
        if "lane" not in maps or "slot" not in maps:
            continue
        found = lane_maps(instruction, name)
        if found is None:
            findings.add(Diagnostic("E221",
                                    f"operand `{name}` of `{instruction.name}` has a map with no value",
                                    operand.span, help=("divide by constants that are not 0",)))  # fmt: skip
            continue
        threads = instruction.fields["threads"]
        outside = [lane for lane, _ in found.values() if not 0 <= lane < threads]
        if outside:
            findings.add(Diagnostic("E221",
                                    f"operand `{name}` of `{instruction.name}` names lane {outside[0]}",
                                    maps["lane"].span, observed=f"lane {outside[0]}",
                                    required=f"0 to {threads - 1}",
                                    evidence=Evidence.PROVED))  # fmt: skip
            return
        owner: dict[tuple, tuple] = {}
        for element, place in found.items():
            other = owner.setdefault(place, element)
            if other != element:
                findings.add(Diagnostic("E221",
                                        f"operand `{name}` of `{instruction.name}` puts two elements in one "
                                        "register",
                                        maps["slot"].span, label=f"{element} and {other} are both lane "
                                                                 f"{place[0]}, slot "
                                        f"{place[1]}", labels=(Label(maps["lane"].span, "with these lanes"),),
                                        evidence=Evidence.PROVED))  # fmt: skip
                break
