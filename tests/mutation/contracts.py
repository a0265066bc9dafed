"""Contracts against machine code: promises as tight as the code is, then other code or other promises.

`promise` moves the bound of one clause beyond what was found; `registers` caps what ptxas may use; `code`
operators change the CUDA text; `pad` changes a layout, and with it the degree of its bank conflicts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from attrs import evolve, frozen

from kdsl.driver.contract import broken, verdicts
from kdsl.lower.lowering import CUDA_OPTIONS, Lowering
from kdsl.lower.toolchain import nvcc

from . import programs, rules
from .cuda_structure import STRUCTURE
from .cuda_text import body_start, in_body, statements
from .mutant import Edit, Edits, Mutant, Operator, applied, each, mutants_of
from .verdict import Outcome

RULE, KERNEL = "mma_bounded", "recurrence"
CODE, PROMISES = f"{RULE}.{KERNEL}", f"{RULE}.promises"
CHOICE = re.compile(rf"in (?:\[[\d, ]+\]|\d+\.\.\d+) +default (\d+)(?:, (\d+) on {programs.TARGET})?")
ANCHOR = re.compile(r"^ *count\(mma\.sync\) at ptx >= \d+\n", re.MULTILINE)


@frozen
class Clause:
    """A clause with its number left open. `step` moves the number to where the clause no longer holds."""

    text: str
    step: float

    def at(self, number: float) -> str:
        return self.text.format(f"{number:g}")


CLAUSES = {
    "registers_per_thread": Clause("registers_per_thread <= {}", -1),
    "occupancy": Clause("occupancy >= {}", 1),
    "count(mma.sync) at ptx": Clause("count(mma.sync) at ptx >= {}", 1),
    "count(mma.sync) at sass": Clause("count(mma.sync) at sass == {}", -1),
    "count(shfl.sync) at ptx": Clause("count(shfl.sync) at ptx == {}", 1),
    "count(bar.sync) at ptx": Clause("count(bar.sync) at ptx <= {}", -1),
    "count(ldmatrix) at ptx": Clause("count(ldmatrix) at ptx >= {}", 1),
    "count(cp.async) at ptx": Clause("count(cp.async) at ptx == {}", -1),
    "bank_conflicts(k_decayed)": Clause("bank_conflicts(k_decayed) <= {}", -0.5),
    "bank_conflicts(m)": Clause("bank_conflicts(m) <= {}", -0.5),
    "vector_width(k_decayed)": Clause("vector_width(k_decayed) >= {} bytes", 1),
    "shared_bytes": Clause("shared_bytes <= {} bytes", -1),
    "spills": Clause("spills <= {} bytes", -1),
}
CAPS = (168, 144, 128, 120, 112, 96, 80, 64, 48, 40)
PADS = (0, 8, 16, 24, 32, 40, 48, 56, 64)
TENSORS = {"k_decayed": 128, "q_decayed": 128, "k_restored": 128}


def shuffle(text: str) -> Iterator[Edits]:
    """One shuffle more before each store to a fragment: of a value that it stores."""
    for statement in statements(text):
        found = re.match(r"(\w+_warp_ptr)\[", statement.target)
        if found and "nv_bfloat16" not in statement.value and "condval" not in statement.value:
            extra = f"__shfl_xor_sync(0xffffffffu, {statement.value}, 1)"
            yield (Edit(statement.value_start, statement.value_start + len(statement.value), extra),)


def barrier(text: str) -> Iterator[Edits]:
    """One barrier more at the head of each loop."""
    for found in re.finditer(r"^ *for \([^\n]*\{$", text[body_start(text) :], re.MULTILINE):
        at = body_start(text) + found.end()
        yield (Edit(at, at, " __syncthreads();"),)


def product_twice(text: str) -> Iterator[Edits]:
    yield from in_body(each(r"kdsl_mma_\w+\([^\n]*\);", r"\g<0> \g<0>"))(text)


CODE_OPERATORS: dict[str, Operator] = {
    "fewer_products": STRUCTURE["drop_product"],
    "product_twice": product_twice,
    "one_more_shuffle": shuffle,
    "one_more_barrier": barrier,
    "fewer_copies": STRUCTURE["drop_fetch"],
}


@lru_cache(maxsize=1)
def subjects() -> dict[str, str]:
    """The rule at its default choices alone: promises as tight as the code of one point hold only there."""
    one_point = CHOICE.sub(lambda m: "in [{0}] default {0}".format(m[2] or m[1]), rules.subjects()[RULE])
    return {CODE: programs.subjects()[CODE], PROMISES: one_point}


def mutants() -> Iterator[Mutant]:
    for place, (key, clause) in enumerate(CLAUSES.items(), 1):
        yield Mutant("contract", "promise", PROMISES, place, 0, launch={key: f"found {clause.step:+g}"})
    for place, cap in enumerate(CAPS, 1):
        yield Mutant("contract", "registers", PROMISES, place, 0, launch={"max_registers": cap - 0.0})
    for place, (tensor, pad) in enumerate(((t, p) for t in TENSORS for p in PADS), 1):
        yield Mutant("contract", "pad", PROMISES, place, 0, launch={tensor: f"pad {pad}"})
    yield from mutants_of("contract", CODE, subjects()[CODE], CODE_OPERATORS)


# ---- the code and its promises
@lru_cache(maxsize=8)
def compiled(text: str, arch: str, cap: int | None = None) -> nvcc.CudaObjects:
    return nvcc.compile(text, arch, evolve(CUDA_OPTIONS, max_registers=cap))


def lowering_of(text: str, changed: str = "", cap: int | None = None) -> Lowering | str:
    """The rule of the text with one kernel's source or registers changed, or the error of `kdsl check`."""
    library, refusal = rules.checked(text)
    if library is None:
        return refusal
    lowering = rules.lowered(library, RULE)
    sources = tuple(
        evolve(s, source=changed) if changed and s.kernel == KERNEL else s for s in lowering.sources
    )
    arch = str(lowering.plan.target.fields["tool"])
    objects = tuple(compiled(s.source, arch, cap if s.kernel == KERNEL else None) for s in sources)
    lowering.__dict__.update(sources=sources, objects=objects)
    return lowering


def with_clauses(clauses: list[str]) -> str:
    text = subjects()[PROMISES]
    end = ANCHOR.search(text).end()
    return text[:end] + "".join(f"      {clause}\n" for clause in clauses) + text[end:]


@lru_cache(maxsize=1)
def found() -> dict[str, float]:
    """What the unchanged code has, by clause."""
    loose = [clause.at(0 if ">=" in clause.text else 1 << 20) for clause in CLAUSES.values()]
    lowering = lowering_of(with_clauses(loose))
    assert isinstance(lowering, Lowering), lowering
    values = {}
    for verdict in verdicts(lowering):
        if verdict.kernel == KERNEL:
            for key in CLAUSES:
                if verdict.clause.startswith(f"{key} ") and re.match(r"[\d.]+", verdict.found):
                    values[key] = float(re.match(r"[\d.]+", verdict.found)[0])
    return values


def judge(mutant: Mutant) -> Outcome:
    if mutant.operator == "promise":
        ((key, _),) = mutant.launch.items()
        return kept(with_clauses([CLAUSES[key].at(found()[key] + CLAUSES[key].step)]))
    if mutant.operator == "registers":
        return kept(with_clauses(tight()), cap=int(mutant.launch["max_registers"]))
    if mutant.operator == "pad":
        return padded(*next(iter(mutant.launch.items())))
    return kept(with_clauses(tight()), applied(subjects()[CODE], mutant.edits))


def tight() -> list[str]:
    return [CLAUSES[key].at(number) for key, number in found().items()]


def kept(text: str, changed: str = "", cap: int | None = None) -> Outcome:
    """Whether every promise still holds."""
    lowering = lowering_of(text, changed, cap)
    if isinstance(lowering, str):
        return Outcome("check", lowering)
    failed = [v for v in broken(verdicts(lowering)) if not v.clause.startswith("error within")]
    if failed:
        first = failed[0]
        return Outcome("contract", f"{first.clause}: {first.status.value}, found {first.found}"[:160])
    if cap is not None:
        return Outcome(reason="every promise holds with that many registers too", detail=f"cap {cap}")
    same = changed and compiled(changed, "sm_90a").cubin == lowering_of(text).objects[-1].cubin
    return Outcome(same_code=bool(same), reason="same machine code" if same else "")


def padded(tensor: str, pad: str) -> Outcome:
    """A layout without conflicts is promised: a pad that brings some has to be refused, another one not."""
    text = re.sub(
        r"(k_decayed, q_decayed, k_restored *: bf16 in shared) (?:pad \d+|swizzle \d+)",
        rf"\1 {pad}",
        with_clauses([f"bank_conflicts({tensor}) <= 1"]),
    )
    outcome = kept(text)
    degree = wavefronts_of_rows(2 * (TENSORS[tensor] + int(pad.split()[1])))
    if outcome.accepted:
        return evolve(outcome, detail=f"degree {degree}", reason="free of conflicts" if degree == 1 else "")
    return evolve(outcome, detail=f"degree {degree}; {outcome.detail}")


def wavefronts_of_rows(stride: int) -> int:
    """Wavefronts of eight rows of 16 bytes, `stride` bytes apart, in 32 banks of 4 bytes: counted."""
    words = [{(row * stride + byte) // 4 for byte in range(0, 16, 4)} for row in range(8)]
    banks = [[word % 32 for word in row] for row in words]
    return max(sum(bank in row for row in banks) for bank in range(32))
