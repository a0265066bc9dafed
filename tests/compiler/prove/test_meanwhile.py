"""Kernels compiled while the next ones are scheduled: the same texts, no sooner than they are certain."""

from __future__ import annotations

import numpy as np
import pytest

from kdsl.check.library import load
from kdsl.data import data_root
from kdsl.lower.lowering import Lowering
from kdsl.lower.tir.function import Argument
from kdsl.lower.toolchain.cc import CompilerFailed
from kdsl.lower.tvm import T
from kdsl.prove import lowered, objects
from kdsl.prove.engine import Situation, run_field
from kdsl.prove.fields import TAINT, Tower
from kdsl.prove.jobs import rule_jobs
from kdsl.prove.layout import Layout
from kdsl.prove.lowered import pins_of, prove, scheduled_functions
from kdsl.prove.program import SHARED, Function, Program, compiled_text, symbol_of
from kdsl.prove.recurrence import Call

LIBRARY = load(sorted((data_root() / "rules").rglob("*.kds")))
LANES = 8


def lowering_of(rule: str, target: str) -> Lowering:
    job = next(iter(rule_jobs(LIBRARY, LIBRARY.rules[rule], target, every_point=False)))
    return Lowering(job.plan())


def one_by_one(functions, pins):
    """(program, the texts that were certain before the last function was there)."""
    early, names = [], {a.name for f in functions for a in f.arguments if a.kind in SHARED}
    seen = []

    def each():
        for f in functions:
            seen.append(len(early))
            yield f

    return Program.of(each(), pins, names=names, made=early.append), early, seen


POINTS = [("mma_few_heads", "sm_90a"), ("cpu_split", "cpu"), ("lane_columns", "sm_80")]


@pytest.mark.parametrize(("rule", "target"), POINTS)
def test_the_texts_are_those_of_the_whole_program(rule, target):
    lowering = lowering_of(rule, target)
    functions, pins = scheduled_functions(lowering), pins_of(lowering.plan)
    whole = Program.of(functions, pins)
    program, early, seen = one_by_one(functions, pins)
    assert (program.texts, program.literals, program.digest) == (whole.texts, whole.literals, whole.digest)
    assert (program.levels, program.depth, program.messages) == (whole.levels, whole.depth, whole.messages)
    assert early == [compiled_text(text) for text in whole.texts] and seen == list(range(len(functions)))


def copied(source: str, target: str, value):
    """A function that writes value(element) of one tensor of LANES elements into another."""

    @T.prim_func(s_tir=True)
    def func(a: T.handle, o: T.handle):
        A = T.match_buffer(a, (LANES,), "float32")
        OUT = T.match_buffer(o, (LANES,), "float32")
        for i in range(LANES):
            with T.sblock("copied"):
                vi = T.axis.remap("S", [i])
                found = T.meta_var(value(A[vi]))
                OUT[vi] = found

    kinds = {"W": "workspace"}
    return Function("copied", func, tuple(Argument(kinds.get(n, "tensor"), n) for n in (source, target)))


def outputs(program: Program, source: str):
    rng = np.random.default_rng(1)
    tower = Tower.draw(rng, max(program.depth, 2))
    names = frozenset(("A", "O"))
    situation = Situation(Call("copied", {}, {}, names), {n: Layout.of((LANES,)) for n in names}, ("O",))
    values = {"A": tower.elements(rng, (LANES,), program.levels[source])}
    (result,) = run_field(program, [(tower, values)], situation)
    return tower, values["A"], result.outputs["O"]


def test_a_level_that_a_later_kernel_decides_is_waited_for():
    """Nothing says of the first kernel's tensors how many exponentials they are from the output."""
    functions = [copied("A", "W", lambda a: a + a), copied("W", "O", lambda w: T.exp(w))]
    program, early, _ = one_by_one(functions, {"O": 0})
    assert program.levels["W"] == 1 and early == [] and "add(1," in program.texts[0]
    tower, a, found = outputs(program, "A")
    assert (found == tower.exp(a * 2 % tower.primes[1], 0)).all()


def test_kernels_of_one_text_are_one_function():
    """Each with its own literals, messages and traces: the second reads what the first has written."""
    functions = [copied("A", "W", lambda a: a * 3.0), copied("W", "O", lambda w: w * 3.0)]
    program = Program.of(functions, {"O": 0, "A": 0})
    assert len({symbol_of(text) for text in program.texts}) == 1 and len(program.parts) == 2
    tower, a, found = outputs(program, "A")
    assert (found == a * 9 % tower.primes[0]).all() and not (found & TAINT).any()


def test_what_goes_wrong_meanwhile_is_told_where_it_is_asked_for():
    objects.begin("int good(void) { return 1; }")
    objects.begin("this is no C")
    assert objects.object_of("int good(void) { return 1; }").startswith(b"\x7fELF")
    with pytest.raises(CompilerFailed):
        objects.object_of("this is no C")
    with pytest.raises(CompilerFailed):  # and again, where nothing was begun
        objects.object_of("this is no C")


def test_what_nobody_waits_for_is_not_begun(monkeypatch):
    compiled = []
    monkeypatch.setattr(objects, "_run", lambda compiler, arguments, folder: (folder / "out").write_bytes(b"x"))
    monkeypatch.setattr(objects, "_meanwhile", held := Held())
    monkeypatch.setattr(objects, "_compiled", lambda *text: compiled.append(text))
    objects.begin("int a;")
    objects.begin("int a;")
    objects.begin("int b;")
    assert len(held.futures) == 2
    objects.forget()
    assert all(f.cancelled() for f in held.futures) and not compiled


class Held:
    """An executor that never starts anything."""

    def __init__(self):
        self.futures = []

    def submit(self, *_):
        from concurrent.futures import Future

        self.futures.append(Future())
        return self.futures[-1]


def test_a_point_that_was_proved_before_is_not_compiled_meanwhile(monkeypatch):
    begun = []
    real = objects.begin
    monkeypatch.setattr(lowered.objects, "begin", lambda *what: (begun.append(what), real(*what)))
    how = {"shape": {"T": 1}, "trials": 1}
    assert prove(lowering_of("cpu_stream", "cpu"), **how).proved and begun
    begun.clear()
    again = prove(lowering_of("cpu_stream", "cpu"), **how)
    assert again.recalled and not begun
    assert prove(lowering_of("cpu_stream", "cpu"), **how, fresh=True).proved and begun
