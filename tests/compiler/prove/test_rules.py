"""Scheduled rules are proved, each default point; two kernels with a workspace between them; a tensorized
rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdsl.check.library import load
from kdsl.data import data_root
from kdsl.prove import verdict
from kdsl.prove.jobs import proof_of_job, rule_jobs
from kdsl.prove.proof import BOUND

RULES = sorted((data_root() / "rules").rglob("*.kds"))
LIBRARY = load(RULES)
SMALL = {"K": 32, "V": 32}
TWO_KERNELS = """
rule two schedules kda.chunk_forward on cpu {
  form { C = 16; decay = factored; chain = folded }
  kernel prepare computes prepare {
    grid { task : n, h }
    place { w, q_fold, k_restored, gamma, u0, o_intra : f32 in workspace }
  }
  kernel recurrence computes recur {
    grid { task : n, h }
    compute { state_key, state_query : vector e by 8 }
  }
}
"""


def jobs(family: str, sizes):
    """Every rule on every target of the family, at its default point."""
    for rule in LIBRARY.rules.values():
        for target in (t for t in rule.targets if LIBRARY.targets[t].family == family):
            yield from rule_jobs(LIBRARY, rule, target, every_point=False, sizes=sizes)


CPU = list(jobs("cpu", SMALL))


@pytest.mark.parametrize("job", CPU, ids=[job.label for job in CPU])
def test_cpu_rule(job):
    proof = proof_of_job(job, None, None)
    assert proof.proved and proof.bound <= BOUND, proof.found


def two_kernels(tmp_path: Path):
    file = tmp_path / "two.kds"
    file.write_text(TWO_KERNELS)
    library = load([file])
    return next(
        rule_jobs(
            library,
            library.rules["two"],
            "cpu",
            every_point=False,
            sizes={"K": 16, "V": 16},
            settings={"gate": "bounded"},
        )
    )


def test_two_kernels(tmp_path):
    proof = proof_of_job(two_kernels(tmp_path), None, None)
    assert proof.proved, proof.found


def test_proved_once(tmp_path):
    job = two_kernels(tmp_path)
    first = proof_of_job(job, {"T": 5}, 1, fresh=True)
    again = proof_of_job(job, {"T": 5}, 1)
    assert again.recalled and not first.recalled and again.cases == first.cases and again.seed == first.seed
    assert not proof_of_job(job, {"T": 5}, 1, seed=3).recalled


def test_shape_and_trials_are_those_asked_for(tmp_path):
    proof = proof_of_job(two_kernels(tmp_path), {"T": 21, "H": 2, "HV": 6}, 2)
    assert proof.proved and {case.trials for case in proof.cases} == {2}
    assert {case.sizes["HV"] for case in proof.cases} == {6} and 21 in {
        case.sizes["T"] for case in proof.cases
    }


def test_the_contract(tmp_path):
    from kdsl.lower.lowering import Lowering

    holds, evidence, found, needed = verdict(Lowering(two_kernels(tmp_path).plan()), trials=1)
    assert holds is True and evidence == "field" and "equal in" in found and "recurrence" in needed


CUDA = {}
for each in jobs("cuda", {}):
    CUDA.setdefault((each.subject, each.said), []).append(each)


@pytest.mark.parametrize("same", CUDA.values(), ids=[f"{name}: {said}" for name, said in CUDA])
def test_cuda_rule(same):
    """On its first target; on others the program is the same, and proved by that, or one that the rule asks for."""
    first, *others = [proof_of_job(job, None, None) for job in same]
    assert first.proved and first.bound <= BOUND, first.found
    seen = {first.digest}
    for proof in others:
        assert proof.proved and (proof.recalled or proof.digest not in seen), proof.found
        seen.add(proof.digest)
    asks = "if target." in LIBRARY.rules[same[0].subject].declaration.span.text
    assert len(seen) <= (2 if asks else 1)


def test_most_targets_share_their_programs():
    targets: dict[str, set[str]] = {}
    for (name, _), same in CUDA.items():
        targets.setdefault(name, set()).update(each.target for each in same)
    several = [name for name, found in targets.items() if len(found) > 1]
    assert len(several) >= 3
    assert all(any(len(same) > 1 for (rule, _), same in CUDA.items() if rule == name) for name in several)
