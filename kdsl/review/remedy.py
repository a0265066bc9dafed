"""Edits of a rule that remove a bank conflict: each is made, checked, lowered and judged before it is named.

A conflict is a matter of where rows lie, so the remedies change the placement line of the tensor: another pad,
a swizzle where the kernel's access can have one, another order of its indices, another width of its copies. An
edit is verified when the rule still checks, its machine code has fewer wavefronts at the accesses that conflicted,
none more at any other access of those tensors, and no more spills.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations

from attrs import evolve, field, frozen

from kdsl.check.model import DTYPE_BYTES, walk
from kdsl.inspect.shared import SharedUse
from kdsl.inspect.stages import StagedCode, launch_uses, staged_code
from kdsl.lower.lowering import Lowering
from kdsl.lower.stir.schedule import StepRefused
from kdsl.lower.toolchain.cc import CompilerFailed
from kdsl.plan.memory import kernel_bytes
from kdsl.plan.model import KernelPlan, Tensor
from kdsl.plan.refusal import PlanRefused
from kdsl.review.costs import CONFLICT, Cost
from kdsl.review.subject import NotReviewable, Subject, subjects_of
from kdsl.source.diagnostic import Edit
from kdsl.syntax import nodes as n

PAD_BYTES = (0, 2, 4, 8, 16, 32, 48, 64)
SWIZZLES = (128, 64, 32)
COPY_BYTES = (16, 8, 4)
VERIFIED = 2  # of the most promising edits are compiled


@frozen
class Judged:
    """What a kernel's shared accesses take: the worst degree of the tensors, of all others, shared bytes."""

    worst: float
    others: float
    shared: int

    @property
    def order(self) -> tuple:
        return self.worst, self.shared, self.others


@frozen
class Remedy:
    """A verified edit of one placement line, and what was found before and after it."""

    kernel: str
    tensors: tuple[str, ...]
    edit: Edit
    before: Judged
    after: Judged
    registers: tuple[int, int]
    spills: tuple[int, int]

    @property
    def whole(self) -> bool:
        """Whether no conflict is left at the line's tensors."""
        return self.after.worst == 1

    def __str__(self) -> str:
        left = "no conflict is left" if self.whole else f"{self.after.worst:g} wavefronts for one are left"
        return (
            f"verified: {left} where there were {self.before.worst:g} for one; shared memory {self.before.shared} -> "
            f"{self.after.shared} bytes, registers {self.registers[0]} -> {self.registers[1]}, spills "
            f"{self.spills[0]} -> {self.spills[1]} bytes"
        )


@frozen
class NoRemedy:
    """That none was found, and what was tried."""

    kernel: str
    tensors: tuple[str, ...]
    tried: int
    reason: str

    def __str__(self) -> str:
        return f"no edit found: {self.tried} variants of the placement tried; {self.reason}"


def remedies(subject: Subject, before: Lowering, kernels: Iterable[StagedCode], costs: Iterable[Cost]):
    """A Remedy or NoRemedy for every placement line with a conflict, in the order of the costs."""
    kernels = {one.plan.name: one for one in kernels}
    done = set()
    for cost in costs:
        if cost.kind != CONFLICT:
            continue
        one = kernels[cost.kernel]
        plan = one.plan_with(cost.stage, cost.tensor)
        line = placement_of(subject, plan, cost.tensor)
        if line is None or (cost.kernel, line.span) in done:
            continue
        done.add((cost.kernel, line.span))
        yield _Search(subject, before, one, plan, line).result()


def placement_of(subject: Subject, kernel: KernelPlan, tensor: str) -> n.Placement | None:
    """The line of the rule or a tactic that places a tensor of the kernel."""
    held = kernel.tensors.get(tensor)
    if held is None:
        return None
    for declaration in (subject.rule.declaration, *subject.library.tactics.values()):
        for node in walk(declaration):
            if isinstance(node, n.Placement) and any(name.span == held.span for name in node.names):
                return node
    return None


# ---- edits


def edits(line: n.Placement, dtype: str, orders: Iterable[tuple[str, ...]] = ()) -> Iterator[Edit]:
    """Variants of a placement line, none of which changes what is computed. `orders` are of the indices of all its
    tensors, other than the one they have."""
    text = line.span.text
    bare = re.sub(r" (?:pad \d+|swizzle \d+)", "", text)
    size = DTYPE_BYTES[dtype]
    for pad in dict.fromkeys(pad_bytes // size for pad_bytes in PAD_BYTES if pad_bytes % size == 0):
        attribute = f" pad {pad}" if pad else ""
        yield from _variant(line, text, bare.replace(" in shared", f" in shared{attribute}", 1), attribute or "no pad")
    for swizzle in SWIZZLES:
        yield from _variant(
            line, text, bare.replace(" in shared", f" in shared swizzle {swizzle}", 1), f"swizzle {swizzle}"
        )
    copies = re.search(r"of (\d+) bytes", text)
    for width in COPY_BYTES:
        if copies is not None and int(copies[1]) != width:
            yield from _variant(line, text, text.replace(copies[0], f"of {width} bytes", 1), f"copies of {width} bytes")
    for order in orders:
        named = f" order {', '.join(order)}"
        without = re.sub(r" order \w+(?:, \w+)*", "", text)
        yield from _variant(line, text, without.replace(" in shared", f" in shared{named}", 1), named)


def other_orders(tensors: list[Tensor]) -> list[tuple[str, ...]]:
    """Orders of the indices that tensors of a line share; none where they differ."""
    indices = {tensor.indices for tensor in tensors}
    if len(indices) != 1:
        return []
    (shared,) = indices
    now = {tensor.order or tensor.indices for tensor in tensors}
    return [order for order in permutations(shared) if len(shared) > 1 and now != {order}]


def _variant(line: n.Placement, before: str, after: str, title: str) -> Iterator[Edit]:
    if after != before:
        yield Edit(line.span, after, title.strip(), safe=True)


def edited(texts: Mapping[str, str], edit: Edit) -> dict[str, str]:
    """All texts with the edit made; that of a tactic of the standard library replaces the library's."""
    path, span = edit.span.path, edit.span
    text = texts.get(path, span.source.text)
    return {**texts, path: text[: span.first] + edit.replacement + text[span.last :]}


# ---- search


@frozen
class _Search:
    subject: Subject
    before: Lowering
    one: StagedCode = field(repr=False)
    plan: KernelPlan = field(repr=False)  # whose line it is
    line: n.Placement

    @property
    def tensors(self) -> tuple[str, ...]:
        """Tensors of the line that the kernel keeps."""
        return tuple(name.text for name in self.line.names if name.text in self.plan.tensors)

    def result(self) -> Remedy | NoRemedy:
        kernel, tensors = self.one.plan.name, self.tensors
        now = self.judged(self.one.plans, self.one.shared)
        dtype = self.plan.tensors[tensors[0]].dtype
        orders = other_orders([self.plan.tensors[name] for name in tensors])
        promising, tried = [], 0
        for edit in edits(self.line, dtype, orders):
            tried += 1
            judged = self.estimate(edit)
            if judged is not None and judged.worst < now.worst and judged.others <= max(now.others, now.worst):
                promising.append((judged, edit))
        promising.sort(key=lambda pair: pair[0].order)
        found = [r for _, edit in promising[:VERIFIED] if (r := self.verify(edit, now)) is not None]
        if not found:
            reason = f"{len(promising)} looked better and none held" if promising else "none has fewer wavefronts"
            return NoRemedy(kernel, tensors, tried, reason)
        return min(found, key=lambda remedy: remedy.after.order)

    def judged(self, plans: Iterable[KernelPlan], uses: Iterable[SharedUse]) -> Judged:
        """By the addresses, at the widths that the machine code had before the edit."""
        mine, others = [1.0], [1.0]
        for use in uses:
            into = mine if set(use.tensors) & set(self.tensors) else others
            into.append(self.degree(use))
        held = sum(size for plan in plans for size in kernel_bytes(plan, "shared").values())
        return Judged(max(mine), max(others), held)

    def degree(self, use: SharedUse) -> float:
        if use.note:
            return float("inf")
        fronts = self.one.wavefronts(use) if use.patterns else None
        if use.patterns and fronts is None:
            return float("inf")
        return fronts.degree if fronts is not None else 1.0

    def lowered(self, edit: Edit) -> Lowering | None:
        """The launch alone, of the rule with the edit; None where that does not check or cannot be planned."""
        names = {plan.name for plan in self.one.plans}
        try:
            found = subjects_of(self.subject.given, edited(self.subject.texts, edit))
            rule = next(s for s in found if s.rule.name == self.subject.rule.name)
            whole = rule.lowering(self.before.plan.target.name, settings_of(self.before)).plan
            return Lowering(evolve(whole, kernels=tuple(k for k in whole.kernels if k.name in names)))
        except (NotReviewable, PlanRefused, StopIteration):
            return None

    def estimate(self, edit: Edit) -> Judged | None:
        lowering = self.lowered(edit)
        if lowering is None:
            return None
        (launch,) = lowering.plan.launches
        try:
            uses, _ = launch_uses(lowering, launch)
        except StepRefused:
            return None
        return self.judged(lowering.plan.kernels, uses)

    def verify(self, edit: Edit, now: Judged) -> Remedy | None:
        """Compile the edited rule and look at its machine code."""
        lowering = self.lowered(edit)
        try:
            (after,) = staged_code(lowering)
        except (StepRefused, CompilerFailed):
            return None
        judged = evolve(self, one=after).judged(after.plans, after.shared)
        use, before = after.code.use, self.one.code.use
        if judged.worst >= now.worst or judged.others > max(now.others, 1) or (use.spills or 0) > (before.spills or 0):
            return None
        shared = evolve(judged, shared=use.shared)
        return Remedy(
            after.plan.name, self.tensors, edit, evolve(now, shared=before.shared), shared,
            (before.registers, use.registers), (before.spills or 0, use.spills or 0),
        )  # fmt: skip


def settings_of(lowering: Lowering) -> dict[str, object]:
    """Options, dtypes, sizes and choices by name, as `Subject.lowering` takes them."""
    special = lowering.plan.specialization
    options = {name: value for name, value in special.options.items() if value is not None}
    return {**options, **special.dtypes, **special.sizes, **lowering.plan.point.choices}
