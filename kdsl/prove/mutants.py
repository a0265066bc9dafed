"""Single-node edits of a scheduled program: what the prover itself is tested with.

A mutant is the program's TIR, through TVM's JSON, with one node changed: a loop one short, a constant one
more, + for -, // for %, < for <=, a load from another buffer, another index of a load, a store or a
statement dropped, a constant of the values changed. A mutant that is proved must be equal to the program;
`same_numbers` asks that without any field: both run in double precision on random inputs of ordinary size.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping

import numpy as np
from attrs import frozen

from kdsl.lower.tvm import load_json, save_json
from kdsl.prove.cases import Case, situation
from kdsl.prove.engine import run_float
from kdsl.prove.program import Program
from kdsl.prove.prover import SCALARS, Subject
from kdsl.prove.recurrence import port_levels

SWAPS = {
    "prim.Add": "prim.Sub",
    "prim.Sub": "prim.Add",
    "prim.Mul": "prim.Add",
    "prim.Div": "prim.Mul",
    "prim.FloorDiv": "prim.FloorMod",
    "prim.FloorMod": "prim.FloorDiv",
    "prim.LT": "prim.LE",
    "prim.LE": "prim.LT",
    "prim.GT": "prim.GE",
    "prim.GE": "prim.GT",
    "prim.EQ": "prim.NE",
    "prim.NE": "prim.EQ",
    "prim.Min": "prim.Max",
    "prim.Max": "prim.Min",
    "prim.And": "prim.Or",
}
BINARY = (*SWAPS, "prim.Or")
SKIPPED = {  # what is never run: annotations, types, what is declared about a block
    "s_tir.SBlock": {"reads", "writes", "annotations", "match_buffers", "alloc_buffers"},
    "ir.Var": {"ty"},
    "tirx.For": {"annotations", "thread_binding", "kind"},
    "tirx.IterVar": {"dom", "iter_type"},
}
TOLERANCE = (
    1e-9  # of the largest output: far above rounding in double precision, far below any other difference
)


@frozen
class Mutant:
    """One edit: `kind` in words, the node it is made at, and what is put there."""

    kind: str
    node: int
    change: tuple

    @property
    def label(self) -> str:
        return f"{self.kind} at node {self.node}"


class Mutations:
    """The mutants of one function. `func` makes each anew from the text."""

    def __init__(self, func):
        self.text = save_json(func)
        self.nodes = json.loads(self.text)["nodes"]
        self.root = json.loads(self.text)["root_index"]
        self.live = self._live()

    def _type(self, i: int) -> str:
        return self.nodes[i].get("type", "")

    def _data(self, i: int):
        return self.nodes[i].get("data")

    def _live(self) -> list[int]:
        """Nodes reachable through what runs."""
        seen: set[int] = set()
        stack = [self.root]
        while stack:
            i = stack.pop()
            if i in seen or i == 0:
                continue
            seen.add(i)
            data, skipped = self._data(i), SKIPPED.get(self._type(i), set())
            if self._type(i) in ("ir.IntImm", "ir.FloatImm", "int", "float", "ffi.String", "bool"):
                continue
            if isinstance(data, dict):
                stack += [
                    v
                    for k, v in data.items()
                    if isinstance(v, int) and k not in skipped and k not in ("span", "ty")
                ]
            elif isinstance(data, list):
                stack += [v for v in data if isinstance(v, int)]
        return sorted(seen)

    def integer(self, i: int) -> int | None:
        if self._type(i) != "ir.IntImm":
            return None
        return _number(self.nodes, i)

    # ---- the edits there are ----
    def every(self) -> Iterator[Mutant]:
        loads = [i for i in self.live if self._type(i) in ("ir.TensorLoad", "tirx.BufferLoad")]
        for i in self.live:
            kind, data = self._type(i), self._data(i)
            if kind == "tirx.For" and (self.integer(data["extent"]) or 0) > 1:
                yield Mutant("loop one short", i, ("constant", "extent", -1))
            if kind in BINARY:
                if self.integer(data["b"]) is not None:
                    yield Mutant("constant one more", i, ("constant", "b", 1))
                if kind in SWAPS:
                    yield Mutant(f"{kind[5:]} becomes {SWAPS[kind][5:]}", i, ("type", SWAPS[kind]))
            if kind == "tirx.BufferStore":
                yield Mutant("store dropped", i, ("drop",))
            if kind == "tirx.SeqStmt":
                for place in range(len(self._data(data["seq"]))):
                    yield Mutant("statement dropped", i, ("sequence", place))
            if kind == "ir.FloatImm":
                yield Mutant("literal changed", i, ("literal",))
        yield from self._loads(loads)

    def _loads(self, loads: list[int]) -> Iterator[Mutant]:
        """A load from another buffer of the same rank, and two indices swapped."""
        for i in loads:
            rank, source = self._rank(i), self._data(i)["source"]
            other = next(
                (
                    j
                    for j in loads
                    if self._rank(j) == rank
                    and self._data(j)["source"] != source
                    and self._data(j)["ty"] == self._data(i)["ty"]
                ),
                None,
            )
            if other is not None:
                yield Mutant("load from another buffer", i, ("source", self._data(other)["source"]))
            if rank >= 2:
                yield Mutant("last two indices swapped", i, ("swap",))

    def _rank(self, load: int) -> int:
        return len(self._data(self._data(load)["indices"]))

    def sample(self, count: int, rng: random.Random) -> list[Mutant]:
        """Evenly over the kinds of edits."""
        by_kind: dict[str, list[Mutant]] = {}
        for mutant in self.every():
            by_kind.setdefault(mutant.kind, []).append(mutant)
        for mutants in by_kind.values():
            rng.shuffle(mutants)
        found: list[Mutant] = []
        while len(found) < count and any(by_kind.values()):
            for mutants in by_kind.values():
                if mutants and len(found) < count:
                    found.append(mutants.pop())
        return found

    # ---- making one ----
    def make(self, mutant: Mutant):
        """The edited function."""
        document = json.loads(self.text)
        nodes = document["nodes"]
        data = nodes[mutant.node]["data"]
        action, *rest = mutant.change
        _APPLY[action](nodes, mutant.node, data, *rest)
        return load_json(json.dumps(document))


def _number(nodes: list[Mapping], i: int) -> int:
    value = nodes[i]["data"]["value"]
    return (
        nodes[value]["data"]
        if isinstance(nodes[value], dict) and nodes[value].get("type") == "int"
        else value
    )


def _append(nodes, node) -> int:
    nodes.append(node)
    return len(nodes) - 1


def _constant(nodes, i, data, field, delta) -> None:
    old = nodes[data[field]]
    number = _append(nodes, {"type": "int", "data": _number(nodes, data[field]) + delta})
    data[field] = _append(nodes, {"type": "ir.IntImm", "data": {**old["data"], "value": number}})


def _literal(nodes, i, data) -> None:
    value = data["value"]
    number = nodes[value]["data"] if isinstance(value, int) and nodes[value].get("type") == "float" else value
    changed = number + 1.0 if number == 0 else number * 2
    data["value"] = _append(nodes, {"type": "float", "data": changed}) if isinstance(value, int) else changed


def _drop(nodes, i, data) -> None:
    zero = next(k for k, n in enumerate(nodes) if n.get("type") == "ir.IntImm")
    nodes[i] = {"type": "tirx.Evaluate", "data": {"span": 0, "value": zero}}


def _sequence(nodes, i, data, place) -> None:
    items = list(nodes[data["seq"]]["data"])
    zero = next(k for k, n in enumerate(nodes) if n.get("type") == "ir.IntImm")
    items[place] = _append(nodes, {"type": "tirx.Evaluate", "data": {"span": 0, "value": zero}})
    data["seq"] = _append(nodes, {"type": "ffi.Array", "data": items})


def _swap(nodes, i, data) -> None:
    items = list(nodes[data["indices"]]["data"])
    items[-2:] = reversed(items[-2:])
    data["indices"] = _append(nodes, {"type": "ffi.Array", "data": items})


_APPLY = {
    "constant": _constant,
    "literal": _literal,
    "type": lambda nodes, i, data, new: nodes[i].update(type=new),
    "drop": _drop,
    "sequence": _sequence,
    "source": lambda nodes, i, data, new: data.update(source=new),
    "swap": _swap,
}


def same_numbers(subject: Subject, mutant: Program, draws: int = 20, seed: int = 0) -> bool:
    """Whether both programs give the same numbers on every case, in both thread orders, for many random
    inputs."""
    rng = np.random.default_rng(seed)
    for case in subject.cases:
        for _ in range(draws if case.sizes["T"] else 1):
            place, values = ordinary(subject, case, rng)
            for backwards in (False, True):
                ours, theirs = (run_float(p, place, values, backwards) for p in (subject.program, mutant))
                if ours is None or theirs is None or not all(map(_close, ours.values(), theirs.values())):
                    return False
    return True


def ordinary(subject: Subject, case: Case, rng: np.random.Generator):
    """A case with numbers that a model has: normal inputs, log decays below zero, strengths in (0, 1)."""
    place = situation(subject.operator, case, subject.settings, subject.options, subject.program.strides)
    call = place.call
    levels = port_levels(call)
    values = {
        name: rng.normal(size=layout.shape)
        for name, layout in place.layouts.items()
        if name in levels and name in call.given and (name not in place.written or name == "pool")
    }
    if call.options["gate"] == "precomputed":
        values["g"] = -np.abs(values["g"])
    if not call.on("use_beta_sigmoid_in_kernel"):
        values["beta"] = rng.random(values["beta"].shape)
    if not call.on("use_qk_l2norm_in_kernel"):
        values["q"], values["k"] = (values[n] / call.sizes["K"] ** 0.5 for n in ("q", "k"))
    scalars = dict(zip(SCALARS, (np.array(0.25), np.array(-5.0)), strict=False))
    return place, values | {name: value for name, value in scalars.items() if name in levels}


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    size = float(np.nanmax(np.abs(a), initial=0.0)) or 1.0
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=0, atol=TOLERANCE * size, equal_nan=True))
