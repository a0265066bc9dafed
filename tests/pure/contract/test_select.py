"""Who claims a call, and in which words the others refuse."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from kdsl.check.driver import check_loaded
from kdsl.check.files import load_text
from kdsl.check.rules import points
from kdsl.cli.select import select as command
from kdsl.contract.call import WrongCall, complete_call
from kdsl.contract.calls import call_text
from kdsl.contract.select import Refusal, select
from kdsl.contract.verdict import Status
from kdsl.data import data_root
from kdsl.source.diagnostic import Evidence
from kdsl.source.span import SourceFile

RULES = data_root() / "rules"
TOY = """operator toy {
  sizes {
    B, T
    D in 16..256
  }
  inputs {
    x : [B, T, D] of bf16, f32
    w : [D] of f32 optional
  }
  outputs { y : [B, T, D] of like x }
  options {
    mode in [plain, scaled]
    factor in f32 when mode is scaled
  }
  laws { mode is plain or given(w) else "scaling needs w" }
  indices {
    n in B parallel
    t in T parallel
    d in D
  }
  views {
    xx[d] = x[n, t, d]
    ww[d] = w[d]       where given(w) else 1.0
    yy[d] = y[n, t, d]
  }
  part all {
    scale : z[d] = xx[d] * ww[d]
    write : yy[d] = z[d]
  }
}

"""
RULE = """rule tiled schedules toy on cpu {
  require {
    x : bf16              else "cast x"
    T % 128 == 0
    mode is scaled and factor >= -5.0
  }
  choose { width in [8, 16] default 16 }
  kernel k computes all {
    grid { task : n, t }
    place { z : f32 in stack }
    compute { scale : fma.f32 vector d by width }
  }
  ensure {
    stack_bytes <= 1024 bytes
    spills == 0
  }
  measure { p95_latency <= 900 us }
}
"""
SIZES = {"B": 1, "T": 256, "D": 64}
SCALED = {"mode": "scaled", "factor": -5.0}


def library(text: str = TOY + RULE):
    return check_loaded(load_text(SourceFile("rule.kds", text)), None).library


def ask(text: str = TOY + RULE, sizes=SIZES, dtypes=None, options=SCALED, given=None):
    return select(library(text), "cpu", "toy", sizes, dtypes, options, given)


def test_a_claim_and_its_verdicts():
    answer = ask()
    assert answer.chosen.rule.name == "tiled" and answer.chosen.point.choices == {"width": 16}
    bytes_, spills, latency = answer.verdicts
    assert (bytes_.status, bytes_.evidence, bytes_.found) == (Status.HOLDS, Evidence.PROVED, "256 bytes")
    assert spills.status is Status.UNKNOWN and "kdsl lower" in spills.note and not spills.holds
    assert latency.status is Status.PENDING and "GPU" in latency.note
    assert answer.diagnostics == ()


def test_a_target_may_have_its_own_default():
    text = TOY + RULE.replace("default 16", "default 16, 8 on cpu")
    assert ask(text).chosen.point.choices == {"width": 8}
    rule = library(text).rules["tiled"]
    assert rule.defaults_on("sm_80") == rule.defaults_on(None) == {"width": 16}
    assert [next(points(rule, target)) for target in ("cpu", "sm_80")] == [{"width": 8}, {"width": 16}]
    assert sorted(p["width"] for p in points(rule, "cpu")) == [8, 16]


def test_a_value_is_assumed_only_where_a_law_says_how():
    assert ask().call.assumed == ("w given (scaling needs w)",)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"sizes": {**SIZES, "T": 127}}, "T = 127 is not a multiple of 128; pad to 128"),
        ({"sizes": {**SIZES, "T": 129}}, "T = 129 is not a multiple of 128; pad to 256"),
        ({"dtypes": {"x": "f32"}}, "x is f32; cast x to bf16"),
        ({"options": {"mode": "plain"}}, "mode is plain"),
        ({"options": {"mode": "scaled", "factor": -7.5}},
         "factor = -7.5 is less than -5; the rule takes factor >= -5"),
        ({"options": {"mode": "scaled"}}, "factor is not known; say it with --set factor=..."),
    ],
)  # fmt: skip
def test_refusals(change, found):
    answer = ask(**change)
    assert answer.chosen is None and found in [
        f"{r.found}; {r.remedy}" if r.remedy else r.found for r in answer.refusals
    ]
    assert {d.code for d in answer.diagnostics} == {"R001"}
    assert all(isinstance(r, Refusal) and r.span.source.path == "rule.kds" for r in answer.refusals)


def test_k04_the_gate_and_the_bound_are_named():
    rule = RULE.replace(
        "mode is scaled and factor >= -5.0", 'mode is scaled and factor >= -5.0 else "use another"'
    )
    (refusal,) = ask(TOY + rule, options={"mode": "plain"}).refusals
    assert refusal.found == "mode is plain" and refusal.clause == "mode is scaled and factor >= -5.0"
    assert refusal.message == "use another"


def test_another_point_is_taken_if_the_default_does_not_fit():
    answer = ask(sizes={**SIZES, "D": 24})
    assert answer.chosen.point.choices == {"width": 8}
    (passed,) = answer.chosen.passed_over
    assert str(passed) == "D = 24 is not a multiple of 16; pad to 32" and passed.choices == {"width": 16}


def test_a_budget_that_this_call_breaks():
    """The check refuses such a rule; a library that was made without it is still safe to ask."""
    wide = TOY.replace("16..256", "16..4194304")
    known = library(
        wide + RULE.replace("    stack_bytes <= 1024 bytes\n", "").replace("T % 128 == 0", "D < 256")
    )
    rule = load_text(SourceFile("rule.kds", RULE.replace("    stack_bytes <= 1024 bytes\n", ""))).trees[0]
    known.add(rule.declarations)
    (refusal,) = select(known, "cpu", "toy", {**SIZES, "D": 2097152}, None, SCALED).refusals
    assert refusal.found.startswith("8388608 bytes of stack memory (z 8388608)")
    assert refusal.needed == "at most stack_bytes_per_task = 4194304"


def test_two_rules_claim_it():
    other = (
        RULE.replace("rule tiled", "rule wide")
        .replace("1024 bytes", "2048 bytes")
        .replace("T % 128 == 0", "T % 128 == 0 and D % 16 == 0")
    )
    text = TOY + RULE + "\n" + other
    answer = ask(text)
    assert len(answer.claims) == 2 and answer.chosen is None
    (found,) = answer.diagnostics
    assert found.code == "R002" and "tiled, wide" in found.message and len(found.labels) == 1


def test_no_rule_for_the_target():
    answer = select(library(), "sm_80", "toy", SIZES, None, SCALED)
    assert answer.claims == answer.refusals == ()
    assert [d.code for d in answer.diagnostics] == ["R003"]


def test_a_law_that_the_call_breaks():
    answer = ask(given={"w": False})
    assert answer.chosen is None and "w is not given" in answer.refusals[0].found


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ({"B": 1, "T": 1}, SCALED, "size D is missing"),
        ({**SIZES, "Q": 1}, SCALED, "no size `Q`"),
        ({**SIZES, "D": 8}, SCALED, "outside 16..256"),
        (SIZES, {}, "`mode` has no default"),
        (SIZES, {"mode": "fast"}, "never fast"),
    ],
)
def test_wrong_calls(sizes, options, message):
    with pytest.raises(WrongCall, match=message):
        ask(sizes=sizes, options=options)


def test_sizes_follow_from_laws():
    operator = check_loaded(load_text(SourceFile("x.kds", "")), None).library.operators["kda.chunk_forward"]
    call = complete_call(operator, {"B": 2, "T": 64, "H": 4, "K": 128, "V": 128}, options={"gate": "bounded"})
    assert call.sizes["HV"] == 4 and call.sizes["N"] == 2 and call.given["A_log"]
    assert call.options["scale"] == 128**-0.5 and call.dtypes["o"] == "bf16"
    packed = complete_call(operator, {"B": 1, "T": 64, "H": 4, "K": 128, "V": 128, "N": 3},
                           options={"gate": "precomputed"}, given={"cu_seqlens": True})  # fmt: skip
    assert packed.sizes["N"] == 3


def run(*arguments: str):
    return CliRunner().invoke(command, [str(RULES), *arguments])


SHAPE = "B=1,T=8192,H=96,K=128,V=128"


def test_command():
    result = run("--target", "cpu", "--shape", SHAPE, "--set", "gate=bounded")
    assert result.exit_code == 0 and "rule cpu_split claims it" in result.output
    document = json.loads(
        run("--target", "cpu", "--shape", SHAPE, "--set", "gate=bounded", "--format", "json").output
    )
    assert (
        document["schema"] == 1 and document["selected"] == "cpu_split" and document["claims"][0]["verdicts"]
    )


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (
            ("--target", "cpu", "--shape", "B=1,T=64,H=2,K=120,V=128", "--set", "gate=bounded"),
            1,
            "pad to 128",
        ),
        (("--target", "cpu", "--shape", "B", "--set", "gate=bounded"), 2, "NAME=NUMBER"),
        (("--target", "cpu", "--shape", "B=1,Q=2"), 2, "no operator has the sizes"),
        (("--target", "cpv", "--shape", SHAPE), 2, "no target `cpv`"),
        (("--target", "cpu", "--shape", SHAPE), 2, "--set gate=precomputed"),
        (("--target", "cpu", "--shape", SHAPE, "--set", "gate"), 2, "NAME=VALUE"),
        (("--target", "cpu", "--shape", SHAPE, "--operator", "kda.none"), 2, "no operator `kda.none`"),
    ],
)
def test_exit_status(arguments, status, said):
    result = run(*arguments)
    assert result.exit_code == status and said in result.output


def test_slot_zero_is_null_only_with_a_table_of_slots():
    """Without one, operator and oracle would differ in the row of slot 0."""
    scope = library((RULES / "kda.decode" / "cpu_stream.kds").read_text("utf-8"))
    operator = scope.operators["kda.decode"]
    sizes = {"N": 3, "T": 1, "H": 2, "HV": 2, "K": 128, "V": 128, "SLOTS": 3, "W": 1}
    options = {"gate": "precomputed", "slot_zero_is_real": False}
    call = complete_call(operator, sizes, options=options)
    assert call.given["ssm_state_indices"] and "slot_zero_is_real=false" in call_text(operator, call.env)
    asked = {"target": "cpu", "operator": "kda.decode", "sizes": sizes, "dtypes": {}, "options": options}
    assert select(scope, **asked, given={"ssm_state_indices": True}).chosen is not None
    refused = select(scope, **asked, given={"ssm_state_indices": False})
    assert refused.chosen is None and "every slot is real" in str(refused.refusals[0])
