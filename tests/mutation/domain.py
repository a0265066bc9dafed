"""Calls that a rule claims: other head dimensions, gates and dtypes than the ones it is tried on first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from kdsl.check.library import Library
from kdsl.contract.call import WrongCall
from kdsl.contract.select import select
from kdsl.plan.specialize import allowed

SIZES = ({"K": 64, "V": 64}, {"K": 128, "V": 96}, {"K": 40, "V": 72})
DTYPES = ({"q": "f32", "k": "f32", "v": "f32"}, {"q": "f16", "k": "f16", "v": "f16"})


def claimed_calls(
    library: Library, name: str, requires_as_before: bool, choices_before: Mapping[str, tuple]
) -> Iterator[tuple[str, Mapping[str, Mapping[str, object]]]]:
    """(label, changes of sizes, options, dtypes or choices) that no requirement of the rule rules out.

    Only what the rule did not claim before: new values of choices, and calls if it requires other things.
    """
    yield "default", {}
    rule = library.rules[name]
    for choice, values in rule.choices.items():
        for value in values:
            if value not in choices_before.get(choice, ()):
                yield f"{choice} = {value}", {"choices": {choice: value}}
    if requires_as_before:
        return
    for sizes in SIZES:
        if allowed(rule, sizes):
            yield f"K = {sizes['K']}, V = {sizes['V']}", {"sizes": sizes}
    for gate in ("precomputed", "softplus", "bounded"):
        if allowed(rule, {"gate": gate}):
            yield f"gate = {gate}", {"options": {"gate": gate}}
    typed = [claim.predicate.span.text for claim in rule.require]
    for dtypes in DTYPES:
        if dtype_allowed(typed, dtypes["q"]):
            yield f"q : {dtypes['q']}", {"dtypes": dtypes}


def dtype_allowed(claims: list[str], dtype: str) -> bool:
    """Whether the rule's line on the dtypes of q lets this one in."""
    lines = [text for text in claims if ":" in text and text.split(":")[0].replace(" ", "").startswith("q,")]
    return all(dtype in text.split(":")[1] for text in lines)


SHAPES = (
    {"B": 1, "T": 50, "H": 1, "HV": 2},
    {"B": 2, "T": 128, "H": 4, "HV": 4},
    {"B": 3, "T": 256, "H": 16, "HV": 64},
    {"B": 1, "T": 2048, "H": 2, "HV": 2},
)
GATES = (
    {"gate": "bounded", "lower_bound": -5.0}, {"gate": "bounded", "lower_bound": -2.5}, {"gate": "softplus"},
    {"gate": "precomputed"},
)  # fmt: skip
TYPES = ("bf16", "f16", "f32")
HEADS = tuple({"K": k, "V": v} for k, v in product((128, 64, 40, 17, 256), (128, 64, 72, 96, 256)))


def claims_some_call(library: Library, name: str) -> bool:
    """Whether there is a call, of a few hundred of all kinds, that the rule takes."""
    rule = library.rules[name]
    target = next(iter(rule.targets), "cpu")
    alone = Library(library.operators, library.targets, library.instructions, library.tactics, {name: rule})
    for shape, heads, gate, (dtype, gates_in) in product(SHAPES, HEADS, GATES, product(TYPES, TYPES)):
        tokens = (
            {"T": min(shape["T"], 8), "N": 4, "W": 1, "SLOTS": 9} if rule.operator == "kda.decode" else {}
        )
        rows = {"N": shape["B"]} if not tokens else {}
        sizes = {**shape, **rows, **heads, **tokens}
        sizes = {n: v for n, v in sizes.items() if n in library.operators[rule.operator].sizes}
        dtypes = {**dict.fromkeys("qkv", dtype), "g": gates_in}
        try:
            if select(alone, target, rule.operator, sizes, dtypes, gate, {}).claims:
                return True
        except WrongCall:
            continue
    return False
