"""Kernels of one launch: what they pass, what they need of each other, and every refusal."""

from __future__ import annotations

import re

import pytest
from attrs import evolve

from kdsl.check import check_paths
from kdsl.data import data_root
from kdsl.plan.cuda.beside import apart, beside_of, with_passes
from kdsl.plan.derive import derive
from kdsl.plan.refusal import PlanRefused

from ..workshop import library_of, library_with, plan, shipped, tactic_text

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}
TEXT = library_with("mma_beside").rules["mma_beside"].declaration.span.text
SM = 65536  # registers of a multiprocessor
ROLE = "all : 8 warps over e by 16 registers 144"
BIG = re.search(r"k_decayed, q_decayed, k_restored : bf16 in shared .* via prepare", TEXT)[0]
SMALL = re.search(r"inv, m +: bf16 in shared .* via prepare", TEXT)[0]
VALUES = re.search(r"vx +: in shared .* of 16 bytes", TEXT)[0]


def edited(*changes: tuple[str, str]) -> str:
    text = TEXT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def planned(folder, *changes: tuple[str, str]):
    return plan(library_of(folder, edited(*changes)), "mma_beside", target="sm_90a", **ON)


def refused(folder, *changes: tuple[str, str]) -> PlanRefused:
    with pytest.raises(PlanRefused) as caught:
        planned(folder, *changes)
    return caught.value


def findings(folder, *changes: tuple[str, str]) -> list:
    file = folder / "rule.kds"
    file.write_text(edited(*changes), encoding="utf-8")
    return list(check_paths([file]).diagnostics)


def pair():
    """The two kernels of mma_beside as they are before they are joined."""
    prepare, recurrence = plan(library_with("mma_beside"), "mma_beside", target="sm_90a", **ON).kernels
    return evolve(prepare, passes={}, registers=None), recurrence


def joined(*kernels) -> PlanRefused:
    with pytest.raises(PlanRefused) as caught:
        with_passes(list(kernels), SM)
    return caught.value


def test_the_rule_as_it_is():
    made = plan(library_with("mma_beside"), "mma_beside", target="sm_90a", **ON)
    prepare, recurrence = made.kernels
    assert made.launches == (recurrence,) and made.launched_with(recurrence) == (prepare, recurrence)
    assert recurrence.beside == "prepare" and prepare.beside is None
    assert recurrence.passed["inv"] == "inv_for_recurrence" and recurrence.passed["m"] == "m"
    assert set(prepare.passes) == set(recurrence.passed.values())
    assert all(prepare.tensors[name].scope == "passed" for name in prepare.passes)
    assert prepare.passes["m"] == recurrence.tensors["m"] and prepare.passes["m"].ring == 4
    threads = 32 * (recurrence.threads[1] + 4 * prepare.threads[1])
    assert 32 * (recurrence.threads[1] * recurrence.registers + 4 * prepare.threads[1] * prepare.registers) <= SM
    assert recurrence.registers > SM // threads > prepare.registers


def test_the_document_is_of_the_rule():
    document = (data_root() / "docs/one-launch.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```kds\n(.*?)^```", document, re.MULTILINE | re.DOTALL)
    lines = {" ".join(line.split()) for line in TEXT.splitlines()}
    quoted = [" ".join(line.split()) for block in blocks for line in block.splitlines()]
    assert len(quoted) >= 10 and not [line for line in quoted if line not in lines]
    prepare, recurrence = plan(library_with("mma_beside"), "mma_beside", target="sm_90a", **ON).kernels
    assert f"here {prepare.registers} each" in document and f"registers {recurrence.registers}" in document
    assert f"{recurrence.threads[1]} + 4 x {prepare.threads[1]} warps" in document


def test_nobody_deals_registers_that_no_role_asks_for(tmp_path):
    assert [kernel.registers for kernel in planned(tmp_path, (" registers 144", "")).kernels] == [None, None]


def test_the_same_rule_apart():
    made = plan(library_with("mma_beside"), "mma_beside", target="sm_90a", **ON)
    other = derive(apart(made.point), made.operator, made.specialization)
    assert len(other.launches) == 2 and not any(k.beside or k.passes or k.registers for k in other.kernels)
    fetched = {stage.tensor for stage in other.kernels[1].copies}
    assert fetched == {*made.kernels[1].passed, "vx"}


# ---- what `check` says


@pytest.mark.parametrize("old, new, code, said, help_", [
    ("via prepare", "via prepar", "E101", "unknown copy engine or kernel above `prepar`", "did you mean `prepare`?"),
    ("via prepare", "via recurrence", "E107", "it is this kernel", "`via` takes what a kernel above computes"),
    (BIG, BIG.replace("shared swizzle 128", "workspace"), "E310", "passes tensors in shared memory, not in a workspace",
     "drop it"),
    ("r                                : bf16 in registers as", "r : bf16 in registers via prepare as", "E310",
     "passes tensors in shared memory, not in registers", "drop it"),
    (BIG, f"{BIG} of 16 bytes", "E310", "passes whole tensors, not pieces", "drop it"),
    ("on sm_90a, sm_100a", "on sm_80, sm_90a, sm_100a", "E210",
     "sm_80 has no `mbarrier`: kernels of one launch wait for each other with it",
     "mbarrier is there on sm_90a, sm_100a, sm_103a, sm_120a"),
    ("kernel prepare computes prepare {", "kernel prepare computes prepare when groups == 4 {", "E310",
     "kernel `prepare` is left out here", "drop it"),
])  # fmt: skip
def test_check(tmp_path, old, new, code, said, help_):
    found = [d for d in findings(tmp_path, (old, new)) if d.code == code and said in d.message]
    assert found and all(help_ in d.help for d in found)


def test_an_instruction_copies_nothing(tmp_path):
    """The target has ldmatrix, but no tensor comes by it."""
    found = {d.notes for d in findings(tmp_path, ("via prepare", "via ldmatrix")) if d.code == "E101"}
    assert found == {("known here: prepare, shuffle, shared, cp.async, cp.async.bulk, tma, ld.global",)}


def test_a_kernel_that_stands_below(tmp_path):
    whole = edited()
    start, cut = whole.index("  kernel prepare"), whole.index("  kernel recurrence")
    end = whole.index("  ensure {\n    spills")
    file = tmp_path / "rule.kds"
    file.write_text(whole[:start] + whole[cut:end] + whole[start:cut] + whole[end:], encoding="utf-8")
    found = {(d.code, d.message) for d in check_paths([file]).diagnostics}
    said = "`prepare` cannot be used as a copy engine here: it stands below this kernel"
    assert ("E107", said) in found


# ---- what a plan refuses


@pytest.mark.parametrize("change, code, said, observed, required", [
    ((VALUES, "vx : in shared pad 8 ring depth via prepare"), "D362", "`vx` does not come from another kernel",
     "via prepare", "a tensor that `prepare` computes"),
    (("prepare {\n    grid { x : h; y : n }", "prepare {\n    grid { x : n; y : h }"), "D363", "have different grids",
     "x : n; y : h and x : h; y : n", "one grid"),
    (("prepare {\n    grid { x : h; y : n }", "prepare {\n    grid { x : n, c packed; y : h }"), "D363",
     "have different grids", "x : c.slot; y : h and x : h; y : n", "one grid"),
    ((SMALL, SMALL.replace("ring groups", "ring 3")), "D363", "share rings of different depths", "3, 4", "one depth"),
    (("registers 144", "registers 150"), "D363", "registers cannot be dealt to 256 threads of `recurrence` by 150",
     "150, which leaves 104 to each thread of `prepare`", "a multiple of 8 from 24 to 232"),
    (("registers 144", "registers 240"), "D363", "registers cannot be dealt to 256 threads of `recurrence` by 240",
     "240, which leaves 16 to each thread of `prepare`", "a multiple of 8 from 24 to 232"),
    (("groups in [2, 4] default 4", "groups in [1, 4] default 1"), "D363",
     "do not fill groups of four warps, which registers are dealt to", "8 warps and 1 times 2", "multiples of 4"),
])  # fmt: skip
def test_refused(tmp_path, change, code, said, observed, required):
    found = refused(tmp_path, change, ("    shared_bytes <= 95% of target.shared_bytes_per_block\n", ""))
    assert (found.code, found.observed, found.required) == (code, observed, required) and said in found.message


def test_tensors_that_stay_in_the_workspace(tmp_path):
    own = SMALL.replace("inv, m  ", "m").replace("m   ", "m", 1)
    fetched = own.replace("m ", "inv ", 1).replace("ring groups via prepare", "ring depth via cp.async of 16 bytes")
    line = re.search(r"inv for recurrence +: bf16 in shared pad 8", TEXT)[0]
    found = refused(tmp_path, (SMALL, f"{own}; {fetched}"), (line, "inv for recurrence : bf16 in workspace"))
    assert found.code == "D363" and "do not share all that `prepare` leaves" in found.message
    assert (found.observed, found.required) == ("inv_for_recurrence", "`via prepare` for every tensor")


def test_what_lies_in_a_slot_lies_alike(tmp_path):
    """The giving kernel's line is the first of the two."""
    line = "k_decayed, q_decayed, k_restored : bf16 in shared"
    found = TEXT.replace(f"{line} swizzle 128\n", f"{line} pad 8\n")
    assert found != TEXT
    with pytest.raises(PlanRefused, match="lay out what they share differently") as caught:
        plan(library_of(tmp_path, found), "mma_beside", target="sm_90a", **ON)
    assert (caught.value.code, caught.value.observed) == ("D363", "k_decayed, k_restored, q_decayed")


def test_what_is_not_in_shared_memory_cannot_be_taken(tmp_path):
    line = re.search(r" m +: bf16 in shared pad 8\n", TEXT)[0]
    (found,) = findings(tmp_path, (line, " m : bf16 in workspace\n"))
    assert found.code == "E402" and "never puts it in shared memory, where `via prepare` takes it from" in found.message
    assert found.help == ("add `m : ... in shared` to `prepare`",)


def test_tensors_from_two_kernels():
    prepare, recurrence = pair()
    kernel = plan(library_with("mma_beside"), "mma_beside", target="sm_90a", **ON).point.kernels[1]
    home = kernel.homes["m"]
    other = evolve(kernel, homes={**kernel.homes, "m": evolve(home, attributes={**home.attributes, "via": "third"})})
    arrivals = tuple(evolve(recurrence.body[0], tensor=name) for name in ("inv", "m"))
    assert beside_of(kernel, arrivals, ()) == "prepare"
    with pytest.raises(PlanRefused, match="takes tensors from 2 kernels") as caught:
        beside_of(other, arrivals, ())
    assert (caught.value.code, caught.value.observed, caught.value.required) == ("D362", "prepare, third", "one")


def test_a_kernel_that_is_not_there():
    _, recurrence = pair()
    found = joined(recurrence)
    assert found.code == "D362" and found.message == "no kernel `prepare` comes before `recurrence`"


def test_a_kernel_that_does_not_compute_what_it_passes():
    prepare, recurrence = pair()
    found = joined(evolve(prepare, tensors={n: t for n, t in prepare.tensors.items() if n != "m"}), recurrence)
    assert found.code == "D362" and found.message == "kernel `prepare` does not compute `m`"


def test_three_kernels_are_no_pair():
    prepare, recurrence = pair()
    again = evolve(recurrence, name="again")
    said = "kernel `prepare` passes tensors to another kernel as well as to `again`"
    assert joined(prepare, recurrence, again).message == said
    chain = evolve(recurrence, name="chain", beside="recurrence")
    chain = evolve(chain, passed={"state": "state"}, tensors={**chain.tensors})
    tensors = {**recurrence.tensors, "state": evolve(recurrence.tensors["state"], scope="passed")}
    found = joined(prepare, evolve(recurrence, tensors=tensors), chain)
    assert found.code == "D362" and found.message == "kernel `recurrence` takes tensors from `prepare` itself"


@pytest.mark.parametrize("changes, said", [
    (({}, {"sequential": "b"}), "step through different indices"),
    (({"sequential": None}, {"sequential": None}), "step through different indices"),
])  # fmt: skip
def test_other_steps(changes, said):
    prepare, recurrence = pair()
    found = joined(evolve(prepare, **changes[0]), evolve(recurrence, **changes[1]))
    assert found.code == "D363" and said in found.message


def test_a_kernel_that_carries_cannot_take_steps_in_turn():
    prepare, recurrence = pair()
    found = joined(evolve(prepare, carries=recurrence.carries), recurrence)
    assert found.code == "D363" and "`prepare` carries a tensor from step to step" in found.message
    assert found.observed == "state"


def deep(recurrence, slots: int):
    """With rings of so many slots."""
    tensors = {n: evolve(t, ring=slots) if n in recurrence.passed else t for n, t in recurrence.tensors.items()}
    return evolve(recurrence, tensors=tensors)


def test_more_warps_than_a_block():
    prepare, recurrence = pair()
    found = joined(prepare, deep(recurrence, 14))
    assert found.code == "D363" and "have more warps than a block" in found.message
    assert (found.observed, found.required) == ("8 warps and 14 times 2", "at most 32 warps")


def test_more_groups_than_named_barriers():
    prepare, recurrence = pair()
    found = joined(evolve(prepare, threads=(32, 1)), deep(recurrence, 16))
    assert found.code == "D363" and "more groups than there are named barriers" in found.message


def test_registers_without_a_kernel_to_take_them_from(tmp_path):
    prepare, recurrence = pair()
    found = joined(evolve(prepare, registers=64), recurrence)
    help_ = "say it at the role of `recurrence`: the others have what it leaves"
    assert (found.code, found.help) == ("D363", (help_,))
    alone = shipped().rules["mma_bounded"].declaration.span.text
    tactic = tactic_text("mma_recurrence").replace("warps over e by 16 }", "warps over e by 16 registers 96 }")
    assert "registers 96" in tactic
    text = alone.replace("apply mma_recurrence(", "apply own(") + "\n" + tactic.replace("mma_recurrence(", "own(")
    with pytest.raises(PlanRefused, match="`recurrence` has nobody to take registers from") as caught:
        plan(library_of(tmp_path, text), "mma_bounded", target="sm_90a", **ON)
    assert "blocks_per_sm" in caught.value.help[0]
