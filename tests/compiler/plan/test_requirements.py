"""A rule is not lowered for a call that it does not take."""

from __future__ import annotations

import pytest

from kdsl.bundle.expression import parse_claim
from kdsl.bundle.load import load_bundle
from kdsl.bundle.write import write_bundle
from kdsl.check.library import load
from kdsl.contract.select import select
from kdsl.data import data_root
from kdsl.driver.compile import NoRule, bundle_for, plan_for
from kdsl.driver.package import manifest_of, variant_files
from kdsl.driver.requirements import requirements
from kdsl.lower.lowering import Lowering
from kdsl.plan.refusal import PlanRefused
from kdsl.runtime.request import CallRequest

from ..workshop import plan, shipped


@pytest.mark.parametrize(("rule", "gate", "remedy"), [
    ("mma_any_gate", "bounded", "bounded gates have mma_bounded"),
    ("mma_bounded", "softplus", "unbounded gates have mma_any_gate"),
    ("mma_bounded", "precomputed", "unbounded gates have mma_any_gate"),
])  # fmt: skip
def test_a_gate_that_the_rule_refuses(rule, gate, remedy):
    with pytest.raises(PlanRefused) as caught:
        plan(shipped(), rule, target="sm_90a", gate=gate)
    assert caught.value.code == "R001" and caught.value.help == (remedy,)
    assert f"gate = {gate}" in caught.value.observed


def test_a_size_that_the_rule_refuses():
    with pytest.raises(PlanRefused, match="does not take this call"):
        plan(shipped(), "mma_bounded", sizes={"K": 64}, target="sm_90a", gate="bounded")


@pytest.mark.parametrize(("rule", "gate"), [("mma_bounded", "bounded"), ("mma_any_gate", "precomputed")])
def test_what_it_takes(rule, gate):
    assert plan(shipped(), rule, target="sm_90a", gate=gate).settings["gate"] == gate


def test_what_only_a_call_decides_is_kept_for_the_launcher():
    made = plan(shipped(), "mma_bounded", target="sm_90a", gate="bounded")
    bounded = {r.text: r.otherwise for r in requirements(made)}
    many = "HV * N > 26 or B * T < 1024 * N"
    most = "3 * HV * N <= 264"
    assert list(bounded) == ["HV % H == 0", "lower_bound >= -5.0", many, most, "16 * lower_bound >= -80.0"]
    assert bounded["HV % H == 0"] == "HV must be a multiple of H" and "mma_few_heads" in bounded[many]
    call = {"H": 2, "HV": 4, "B": 1, "T": 2000, "N": 1, "lower_bound": -8.0}
    assert [parse_claim(text).evaluate(call) for text in bounded] == [True, False, False, True, False]
    assert not parse_claim(most).evaluate({**call, "HV": 89}) and "mma_fused" in bounded[most]
    elsewhere = [r.text for r in requirements(plan(shipped(), "mma_bounded", target="sm_120a", gate="bounded"))]
    assert most not in elsewhere and len(elsewhere) == 4
    others = ({"HV": 27}, {"N": 2}, {"T": 1024})
    assert [parse_claim(many).evaluate({**call, **other}) for other in others] == [True, True, False]
    assert [r.text for r in requirements(plan(shipped(), "mma_any_gate", target="sm_90a"))] == ["HV % H == 0"]


def bounded_request(lower_bound: float) -> CallRequest:
    ports = dict.fromkeys(("q", "k", "v", "g", "beta", "o"), "bf16") | dict.fromkeys(("A_log", "final_state"), "f32")
    options = {"gate": "bounded", "use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True,
               "allow_neg_eigval": False, "state_v_first": False}  # fmt: skip
    sizes = {"B": 1, "T": 64, "H": 2, "HV": 2, "N": 1, "K": 128, "V": 128}
    given = {"A_log": True, "dt_bias": False, "initial_state": False, "cu_seqlens": False, "final_state": True}
    scalars = {"lower_bound": lower_bound, "scale": 1.0}
    return CallRequest("kda.chunk_forward", "sm_90a", ports, options, sizes, given, scalars)


def test_a_rule_is_chosen_by_the_numbers_of_a_call():
    assert plan_for(shipped(), bounded_request(-5.0)).rule.name == "mma_bounded"
    with pytest.raises(NoRule, match="lower_bound"):
        bundle_for(bounded_request(-8.0))


GPUS = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a")


@pytest.mark.parametrize("target", GPUS)
def test_one_rule_takes_each_call_with_bounded_gates(target):
    """Around every size at which the rules part."""
    library, taken = shipped(), set()
    sms = library.targets[target].fields["sms"]
    own = (name for name in ("wgmma_fused", "mma_fused") if target in shipped().rules[name].targets)
    fused = next(own, "mma_bounded")
    for heads in (1, 64, 96, 512, sms // 5, sms // 5 + 1, 2 * sms // 3, 2 * sms // 3 + 1):
        for rows, tokens in ((1, 1023), (1, 1024), (3, 1023), (3, 1024)):
            sizes = {"B": rows, "N": rows, "T": tokens, "H": heads, "HV": heads, "K": 128, "V": 128}
            options = {"gate": "bounded", "lower_bound": -5.0}
            found = select(library, target, "kda.chunk_forward", sizes, options=options).claims
            assert len(found) == 1, (sizes, [claimed.rule.name for claimed in found])
            name = found[0].rule.name
            taken.add(name)
            if 3 * heads * rows > 2 * sms:
                assert name == fused
            if target == "sm_90a":
                assert (name == "wgmma_fused") is (heads * rows > 88)
    assert taken == {"mma_bounded", "mma_few_heads", fused}


COPY = """
rule copy schedules test.copy on cpu {{
  require {{ {claim} else "as it is" }}
  kernel all computes whole {{ grid {{ task : n }} }}
}}
operator test.copy {{
  sizes {{ N; W in 1..64 }}
  inputs {{ x : [N, W] of f32; z : [N] of f32 optional }}
  outputs {{ y : [N, W] of f32 }}
  options {{ factor in f32 default 1.0 }}
  indices {{ n in N parallel; w in W }}
  views {{ xx[w] = x[n, w]; yy[w] = y[n, w] }}
  part whole {{ write : yy[w] = factor * xx[w] }}
}}
"""


@pytest.mark.parametrize(("claim", "text"), [
    ("N % 2 == 0 and W == 8", "N % 2 == 0"),
    ("N in [1, 2] or W == 9", "(N == 1 or N == 2)"),
    ("(N > W or not N < 2)", "(N > 8 or not N < 2)"),
    ("given(z)", "given_z == 1"),
    ("min(N, W) * factor <= -0.5", "min(N, 8) * factor <= -0.5"),
])  # fmt: skip
def test_claims_as_text_with_the_known_filled_in(tmp_path, claim, text):
    (tmp_path / "copy.kds").write_text(COPY.format(claim=claim), encoding="utf-8")
    made = plan(load([tmp_path / "copy.kds"]), "copy", sizes={"W": 8})
    assert [r.text for r in requirements(made)] == [text]
    parse_claim(text)


def test_a_claim_that_no_launch_decides_is_refused(tmp_path):
    (tmp_path / "copy.kds").write_text(COPY.format(claim="abs(N) > 2"), encoding="utf-8")
    with pytest.raises(PlanRefused, match="requires what no launch can decide") as caught:
        list(requirements(plan(load([tmp_path / "copy.kds"]), "copy", sizes={"W": 8})))
    assert caught.value.observed == "abs(N)"


def test_a_claim_without_else_says_so_to_a_caller(tmp_path):
    rule = (data_root() / "rules" / "kda.decode" / "cpu_stream.kds").read_text("utf-8")
    rule = rule.replace("  require {\n", "  require {\n    N % 2 == 0\n", 1)
    file = tmp_path / "rule.kds"
    file.write_text(rule, encoding="utf-8")
    made = plan(load([file]), "cpu_stream", sizes={"K": 16, "V": 16})
    said = {r.text: r.otherwise for r in requirements(made)}
    assert said["N % 2 == 0"] == "the rule takes no other call"
    variant, files = variant_files(Lowering(made), "0" * 64)
    bundle = load_bundle(write_bundle(tmp_path / "stream.kdsb", manifest_of((made,), (variant,)), files))
    assert any(r.text == "N % 2 == 0" for v in bundle.manifest.variants for r in v.requires)
