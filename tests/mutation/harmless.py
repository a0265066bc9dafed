"""Edits that keep the meaning. Whatever rejects one of them is a false reject."""

from __future__ import annotations

import re
from collections.abc import Iterator

from attrs import evolve

from kdsl.syntax import nodes as n

from . import contracts, mathematics, programs, rules
from .cuda_text import body_start
from .cuda_values import arithmetic
from .math_operators import expressions, whole
from .mutant import Edit, Edits, Mutant, Operator, each, mutants_of
from .rule_operators import block_places, items, outside_strings
from .verdict import Outcome

SPLITTABLE = ("place", "compute")


# ---- rules
def neighbours(text: str) -> Iterator[Edits]:
    """Two lines of a block exchanged."""
    lines = list(items(text))
    for (kind, s1, e1), (other, s2, e2) in zip(lines, lines[1:], strict=False):
        goes_on = text[:s1].rstrip().endswith(",")  # from the line before
        if kind == other and kind != "grid" and not goes_on and text[e1:s2].strip(" \n;") == "":
            yield (Edit(s1, e1, text[s2:e2].strip()), Edit(s2, e2, text[s1:e1].strip()))


def split_line(text: str) -> Iterator[Edits]:
    """`a, b : X` as two lines."""
    for kind, start, end in items(text):
        head, colon, tail = text[start:end].partition(":")
        if kind in SPLITTABLE and colon and " for " not in head and "," in head:
            first, rest = head.split(",", 1)
            yield (Edit(start, end, f"{first} :{tail}\n{rest} :{tail}"),)


def commuted_claim(text: str) -> Iterator[Edits]:
    for found in re.finditer(r"(\w+ == \d+) and (\w+ == \d+)", text):
        yield (Edit(found.start(), found.end(), f"{found[2]} and {found[1]}"),)
    for found in re.finditer(r"(\w+) >= (-[\d.]+)", text):
        yield (Edit(found.start(), found.end(), f"{found[2]} <= {found[1]}"),)
    for found in re.finditer(r"(?<!at )\b(\w+(?: % \d+)?) == (\d+)", text):
        yield (Edit(found.start(), found.end(), f"{found[2]} == {found[1]}"),)


def in_brackets(text: str) -> Iterator[Edits]:
    for kind, start, end in items(text):
        claim = re.match(r"[\w .%=<>()-]+?(?= +else|$)", text[start:end])
        if kind == "require" and claim and ":" not in claim[0]:
            yield (Edit(start, start + len(claim[0]), f"({claim[0].strip()})"),)


def other_choice(text: str) -> Iterator[Edits]:
    for found in re.finditer(r"in \[([\d, ]+)\] +default (\d+)", text):
        for value in found[1].split(", "):
            yield (Edit(found.start(2), found.end(2), value),)
    for found in re.finditer(r"in (\d+)\.\.(\d+) +default (\d+)", text):
        for value in range(int(found[1]), int(found[2]) + 1):
            yield (Edit(found.start(3), found.end(3), str(value)),)


def renamed(pattern: str) -> Operator:
    """Every name that the pattern declares, everywhere, as `other_NAME`."""

    def operator(text: str) -> Iterator[Edits]:
        for found in re.finditer(pattern, text, re.MULTILINE):
            name = found[1]
            yield tuple(
                Edit(m.start(), m.end(), f"other_{name}")
                for m in re.finditer(rf"\b{name}\b(?! computes \w+,)", text)
                if not text[: m.start()].endswith("computes ")
            )

    return operator


def layout(text: str) -> Iterator[Edits]:
    """Blanks, blank lines, comments, `;` for an end of line."""
    yield (Edit(0, len(text), re.sub(r"  +", " ", text)),)
    yield (Edit(0, len(text), text.replace("\n", "\n\n")),)
    yield (Edit(0, len(text), text.replace("{\n", "{  # opens\n")),)
    for kind, start, stop in block_places(text, ("grid", "place", "compute")):
        inner = text[start:stop].strip()
        if "#" not in inner and "\n" in inner and kind != "grid":
            yield (Edit(start, stop, " " + "; ".join(re.split(r"\n\s*", inner)) + " "),)


RULE_EDITS: dict[str, Operator] = {
    "lines_exchanged": outside_strings(neighbours),
    "line_split": outside_strings(split_line),
    "claim_commuted": outside_strings(commuted_claim),
    "claim_in_brackets": outside_strings(in_brackets),
    "other_choice": outside_strings(other_choice),
    "rule_renamed": renamed(r"^rule (\w+)"),
    "layout": layout,
    "message": each(r'else "([^"]*)"', "something else", 1),
    "documentation": each(r'"""([^"]*)"""', "Other words.", 1),
    "one_target": each(r" on (sm_\w+(?:, sm_\w+)+) \{", "sm_90a", 1),
}


# ---- operators
def commuted(text: str) -> Iterator[Edits]:
    for node in expressions(n.Binary)(text):
        if node.operator in "+*":
            yield whole(node, f"({node.right.span.text}) {node.operator} ({node.left.span.text})")


def bracketed(text: str) -> Iterator[Edits]:
    for node in expressions(n.Binary)(text):
        yield whole(node, f"({node.span.text})")


TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}


def turned(text: str) -> Iterator[Edits]:
    for node in expressions(n.Comparison)(text):
        if node.operator in TURNED:
            yield whole(node, f"{node.right.span.text} {TURNED[node.operator]} {node.left.span.text}")


def negated(text: str) -> Iterator[Edits]:
    for node in expressions(n.Conditional)(text):
        parts = (node.condition.span.text, node.otherwise.span.text, node.then.span.text)
        yield whole(node, "if not ({}) then {} else {}".format(*parts))


MATH_EDITS: dict[str, Operator] = {
    "operands_commuted": commuted,
    "brackets": bracketed,
    "comparison_turned": turned,
    "condition_negated": negated,
}


# ---- generated code
def commuted_product(text: str) -> Iterator[Edits]:
    for place, sign, start, end in arithmetic(text):
        if sign in "*+":
            left, right = text[start + 1 : place].strip(), text[place + 1 : end].strip()
            yield (Edit(start, end + 1, f"({right} {sign} {left})"),)


def barrier_more(text: str) -> Iterator[Edits]:
    """A second barrier where one stands, and one before each that all threads reach."""
    for found in re.finditer(r"__syncthreads\(\);", text[body_start(text) :]):
        at = body_start(text) + found.end()
        yield (Edit(at, at, " __syncthreads();"),)


PROGRAM_EDITS: dict[str, Operator] = {
    "operands_commuted": commuted_product,
    "barrier_more": barrier_more,
    "wait_for_all": each(r"cp\.async\.wait_group [1-9]", "cp.async.wait_group 0"),
}


def subjects() -> dict[str, str]:
    return {
        **{f"rule:{name}": text for name, text in rules.subjects().items()},
        **{f"mathematics:{name}": text for name, text in mathematics.subjects().items()},
        **{f"program:{name}": text for name, text in programs.subjects().items()},
        contracts.PROMISES: contracts.subjects()[contracts.PROMISES],
    }


EDITS = {"rule": RULE_EDITS, "mathematics": MATH_EDITS, "program": PROGRAM_EDITS}


def mutants() -> Iterator[Mutant]:
    for name, text in subjects().items():
        yield from mutants_of("harmless", name, text, EDITS.get(name.split(":")[0], {}))
    for place, key in enumerate(contracts.CLAUSES, 1):
        for delta in (0, 1):
            yield Mutant(
                "harmless",
                "promise_kept",
                contracts.PROMISES,
                2 * place + delta - 1,
                0,
                launch={key: "found" if not delta else "looser than found"},
            )


def judge(mutant: Mutant) -> Outcome:
    if mutant.subject == contracts.PROMISES:
        ((key, wanted),) = mutant.launch.items()
        clause, number = contracts.CLAUSES[key], contracts.found()[key]
        sign = 0 if wanted == "found" or "==" in clause.text else -1
        return contracts.kept(contracts.with_clauses([clause.at(number + sign * clause.step)]))
    level, _, subject = mutant.subject.partition(":")
    inner = evolve(mutant, level=level, subject=subject)
    return {"rule": rules.judge, "mathematics": mathematics.judge, "program": programs.judge}[level](inner)
