"""Costly instructions are found where they are, and an edit is named only if it was seen to help."""

from __future__ import annotations

import json
import re

import pytest
from attrs import evolve
from click.testing import CliRunner

from kdsl.cli.main import cli
from kdsl.data import data_root
from kdsl.driver.compile import build
from kdsl.inspect.stages import staged_code
from kdsl.lower.lowering import Lowering
from kdsl.review import remedy as searching
from kdsl.review.costs import CONFLICT, NARROW, costs
from kdsl.review.remedy import NoRemedy, Remedy, edited, placement_of, remedies
from kdsl.review.subject import checked, subject

from ..inspect.rules import file_of, padded

pytestmark = pytest.mark.usefixtures("compiler")


def recurrence_of(file):
    """The rule of a file, and its recurrence alone, lowered for sm_90a."""
    rule = subject(str(file))
    plan = rule.lowering("sm_90a").plan
    lowering = Lowering(evolve(plan, kernels=tuple(k for k in plan.kernels if k.name == "recurrence")))
    return rule, lowering, staged_code(lowering)


def found_for(rule, lowering, kernels, tensor: str):
    mine = [c for one in kernels for c in costs(one) if c.tensor == tensor]
    return list(remedies(rule, lowering, kernels, mine))


def test_a_conflict_is_found_with_its_lines_and_its_edit_removes_it(tmp_path):
    rule, lowering, kernels = recurrence_of(padded(tmp_path, 0))
    (cost,) = [c for one in kernels for c in costs(one) if c.tensor == "k_decayed" and c.kind == CONFLICT]
    assert (cost.stage, cost.weight) == ("state_key", 8.0)
    assert 8 <= cost.count <= 12, "eight loads, and what nvcc puts on their lines"
    assert all(name.startswith("LDSM") for name, _ in cost.instructions)
    named = {what: (span.path.rsplit("/", 1)[-1], span.source.line(span.line)) for what, span in cost.spans}
    assert named["placed"][0] == "padded.kds" and "k_decayed" in named["placed"][1]
    assert named["computed"][0] == "padded.kds" and "mma.m16n8k16" in named["computed"][1]
    assert named["stage"][0] == "kda.chunk_forward.kds" and "state_key" in named["stage"][1]
    (found,) = found_for(rule, lowering, kernels, "k_decayed")
    assert isinstance(found, Remedy) and found.whole and found.edit.title == "swizzle 128"
    assert (found.before.worst, found.after.worst) == (8.0, 1.0)
    text = edited(rule.texts, found.edit)[str(tmp_path / "padded.kds")]
    (tmp_path / "padded.kds").write_text(text, encoding="utf-8")
    _, _, after = recurrence_of(tmp_path / "padded.kds")
    assert not [c for one in after for c in costs(one) if c.tensor == "k_decayed" and c.kind == CONFLICT]


def test_without_a_conflict_nothing_is_found(tmp_path):
    rule, lowering, kernels = recurrence_of(padded(tmp_path, 8))
    assert not [c for one in kernels for c in costs(one) if c.tensor == "k_decayed"]
    assert found_for(rule, lowering, kernels, "k_decayed") == []


def test_that_no_edit_helps_is_said(tmp_path, monkeypatch):
    """Neither narrower copies nor another order of the indices moves the rows that a matrix load reads."""
    rule, lowering, kernels = recurrence_of(padded(tmp_path, 0))
    monkeypatch.setattr(searching, "PAD_BYTES", (0,))
    monkeypatch.setattr(searching, "SWIZZLES", ())
    (found,) = found_for(rule, lowering, kernels, "k_decayed")
    assert isinstance(found, NoRemedy) and found.tried == 3 and "3 variants of the placement tried" in str(found)


def test_an_edit_that_only_looks_good_is_not_named(tmp_path, monkeypatch):
    """Estimates that lie: the compiled kernel decides."""
    rule, lowering, kernels = recurrence_of(padded(tmp_path, 0))
    lie = searching.Judged(1.0, 1.0, 0)
    liar = lambda self, edit: lie if edit.title == "copies of 8 bytes" else None  # noqa: E731
    monkeypatch.setattr(searching._Search, "estimate", liar)
    (found,) = found_for(rule, lowering, kernels, "k_decayed")
    assert isinstance(found, NoRemedy) and "looked better and none held" in found.reason


def test_an_edit_of_a_tactic_of_the_library_is_made_in_memory():
    rule = subject(str(file_of("mma_bounded")))
    plan = next(k for k in rule.lowering("sm_90a").plan.kernels if k.name == "recurrence")
    line = placement_of(rule, plan, "inv")
    assert line.span.path.endswith("tactics/mma.kds")
    (wider,) = [edit for edit in searching.edits(line, "bf16") if edit.title == "pad 32"]
    result = checked(edited(rule.texts, wider))
    assert result.ok and "pad 32" in result.library.tactics["mma_recurrence"].span.text


def test_narrow_accesses_are_those_below_the_bound(tmp_path):
    _, _, (one,) = recurrence_of(padded(tmp_path, 8))
    assert not [c for c in costs(one, narrow=1) if c.kind == NARROW]
    assert [c for c in costs(one, narrow=16) if c.kind == NARROW]


def test_the_command_on_a_bundle_and_on_one_that_is_of_other_code(tmp_path):
    rule = subject(str(file_of("lane_columns")))
    path = build([rule.lowering("sm_90a").plan], tmp_path / "lane_columns.kdsb")
    runner = CliRunner()
    done = runner.invoke(cli, ["inspect", str(path), "--format", "json"])
    assert done.exit_code in (0, 1), done.output
    document = json.loads(done.output)
    assert document["rule"] == "lane_columns" and document["kernels"][0]["name"] == "step"
    assert all(cost["places"] for cost in document["costs"] if cost["stage"])
    other = tmp_path / "other.kds"
    other.write_text(
        file_of("lane_columns").read_text(encoding="utf-8").replace("f32 in shared", "f32 in shared pad 4")
    )
    done = runner.invoke(cli, ["inspect", str(path), "--rules", str(other)])
    assert done.exit_code == 2 and "another text" in done.output


@pytest.mark.parametrize("arguments, said", [
    (["no/such/file.kds"], "no such file"),
    ([str(file_of("mma_bounded"))], "name a target"),
    ([str(file_of("mma_bounded")), "--target", "cpu"], "is for sm_80"),
    ([str(file_of("mma_bounded")), "--target", "sm_90a", "--rule", "other"], "no rule `other`"),
])  # fmt: skip
def test_wrong_usage(arguments, said):
    done = CliRunner().invoke(cli, ["inspect", *arguments])
    assert done.exit_code == 2 and said in done.output


def test_the_example_of_the_documentation_is_refused_and_cured():
    """docs/bank-conflict.md: the clause fails with 8, and the edit that it shows is the one that is found."""
    docs = data_root() / "docs"
    rule, lowering, kernels = recurrence_of(docs / "examples/bank_conflict.kds")
    assert kernels[0].conflicts("k_decayed").value == 8
    (found,) = found_for(rule, lowering, kernels, "k_decayed")
    page = (docs / "bank-conflict.md").read_text(encoding="utf-8")
    assert f"+ {' '.join(found.edit.replacement.split())}" in page
    assert "`bank_conflicts(k_decayed) == 1` does not hold: found 8" in page


def with_tactic(folder, name: str, old: str, new: str):
    """mma_bounded with a tactic of its own, in which a placement is another one; nothing is promised of conflicts."""
    text = (data_root() / "stdlib/tactics/mma.kds").read_text(encoding="utf-8")
    tactics = dict(re.findall(r"^tactic (\w+)(\(.*?^}\n)", text, re.M | re.S))
    assert old in tactics[name]
    tactics[name] = tactics[name].replace(old, new)
    rule = re.sub(r" +bank_conflicts .*\n", "", file_of("mma_bounded").read_text(encoding="utf-8"))
    own = "\n".join([rule, *(f"tactic {known}{body}" for known, body in tactics.items())])
    for known in tactics:
        own = re.sub(rf"\b(tactic|apply) {known}\(", rf"\1 own_{known}(", own)
    (folder / "own.kds").write_text(own, encoding="utf-8")
    return folder / "own.kds"


OPERANDS = "k_decayed, q_decayed, k_restored : bf16 in shared"
COPIES = "inv, m                           : bf16 in shared pad 8 ring depth via cp.async of"
REMEDIES = {
    "pad 8": ("mma_recurrence", "recurrence", "k_decayed", f"{OPERANDS} swizzle 128", OPERANDS),
    "swizzle 128": ("mma_recurrence", "recurrence", "k_decayed", f"{OPERANDS} swizzle 128", OPERANDS),
    "order j, i": ("chunk_columns", "prepare", "l", "in shared order j, i pad 4", "in shared pad 4"),
    "copies of 16 bytes": ("mma_recurrence", "recurrence", "inv", f"{COPIES} 16 bytes", f"{COPIES} 8 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("title", REMEDIES)
def test_every_kind_of_remedy_is_found_where_it_helps(title, tmp_path, monkeypatch):
    """A placement that conflicts, and the edit that was compiled and has no conflict left."""
    tactic, kernel, tensor, old, new = REMEDIES[title]
    if not title.startswith("swizzle"):
        monkeypatch.setattr(searching, "SWIZZLES", ())  # where one does as well, it takes the least memory
    rule = subject(str(with_tactic(tmp_path, tactic, old, new)))
    plan = rule.lowering("sm_90a", {"gate": "bounded"}).plan
    lowering = Lowering(evolve(plan, kernels=tuple(k for k in plan.kernels if k.name == kernel)))
    (found,) = found_for(rule, lowering, staged_code(lowering), tensor)
    assert isinstance(found, Remedy) and found.edit.title == title, str(found)
    assert found.before.worst > 1 and found.whole and found.spills == (0, 0)


def test_every_kind_of_remedy_is_tried():
    rule = subject(str(file_of("mma_bounded")))
    plan = next(k for k in rule.lowering("sm_90a").plan.kernels if k.name == "recurrence")
    line = placement_of(rule, plan, "inv")
    titles = [
        e.title for e in searching.edits(line, "bf16", searching.other_orders([plan.tensors["inv"], plan.tensors["m"]]))
    ]
    assert {"no pad", "pad 16", "swizzle 128", "copies of 8 bytes", "order j, i"} <= set(titles)
    assert searching.other_orders([plan.tensors["inv"], plan.tensors["k_decayed"]]) == []
