"""S01 to S09 of the cases that broke other implementations, as far as the checker decides them."""

from __future__ import annotations

import pytest
from texts import CPU, MMA

from kdsl.check import check_source


def only(text: str):
    found = check_source(text, "rule.kds")
    assert len(found) == 1, [(d.code, d.message) for d in found]
    return found[0]


WIDE = """operator wide {
  sizes {
    B
    D in 16..65536
  }
  inputs { x : [B, D] of f32 }
  outputs { y : [B, D] of f32 }
  indices {
    n in B parallel
    d in D
  }
  views {
    xx[d] = x[n, d]
    yy[d] = y[n, d]
  }
  part all {
    once  : w[d] = xx[d] + 1.0
    twice : z[d] = w[d] * 2.0
    write : yy[d] = z[d]
  }
}

rule r schedules wide on sm_89 {
  require { D == 20480 }
  choose { depth in 1..2 default 1 }
  kernel k computes all {
    grid { x : n }
    place {
      w : f32 in shared
      z : f32 in shared ring depth
    }
  }
}
"""


def test_s01_shared_memory_over_budget():
    found = only(WIDE)
    assert found.code == "E302" and found.span.text == "k"
    assert found.observed == "163840 bytes" and found.required == "at most 101376 bytes"
    assert found.notes == ("w 81920, z 81920",)
    assert [label.span.text for label in found.labels] == ["w", "z"]
    assert check_source(WIDE.replace("D == 20480", "D == 8192"), "rule.kds") == ()


def test_s01_the_points_that_fail_are_named():
    found = only(WIDE.replace("D == 20480", "D == 10240"))
    assert found.notes == ("z 81920 (2 slots), w 40960", "at choose depth = 2; 1 of 2 points hold")
    assert found.help[0] == "21504 bytes are over: `depth`, the ring of z, must be at most 1 there"


def test_s01_one_help_mends_what_fails_at_some_points_on_two_lines():
    """Too much memory at depth 4, a broken promise at depth 3: `choose` as the help writes it is right."""
    text = WIDE.replace("D == 20480", "D == 5120").replace("in 1..2 default 1", "in 1..4 default 4")
    text = text.rstrip().removesuffix("}") + "  ensure { shared_bytes <= 80000 bytes }\n}\n"
    over, broken = check_source(text, "rule.kds")
    assert (over.code, broken.code) == ("E302", "E501")
    help_ = "write `depth in [1, 2] default 1`: all 2 points that are left hold"
    assert help_ in over.help and help_ in broken.help
    assert broken.notes == ("at choose depth = 3; 2 of 3 points that fit in memory hold",)
    assert check_source(text.replace("in 1..4 default 4", "in [1, 2] default 1"), "rule.kds") == ()


def test_s02_tile_of_48():
    found = only(MMA.replace("[32, 64]  default 64", "[32, 48, 64]  default 64"))
    assert found.code == "E120" and "V = 128 is not a multiple of 48" in found.message
    assert found.help == (
        "v_tile in [32, 48, 64]: 48 can never be used; remove it",
        "nearest that divide 128: 32, 64",
    )
    assert found.notes == ("at choose v_tile = 48; 8 of 12 points hold",)


def test_s03_bound_twice_and_bound_and_vectorised():
    found = only(MMA.replace("y : n, h }", "y : n, h, n }"))
    assert found.code == "E122" and len(found.labels) == 1 and found.labels[0].span != found.span
    codes = {d.code: d for d in check_source(CPU.replace("task : n, h", "task : n, h, j"), "rule.kds")}
    assert "cannot be vectorised" in codes["E122"].message and codes["E122"].labels[0].span.text == "j"


def test_s04_overlapping_rules():
    other = CPU.replace("rule cpu_split", "rule cpu_wide").replace("vector j by 8", "vector j by 16")
    found = only(CPU + "\n" + other)
    assert found.code == "E502" and "cpu_split" in found.message and "cpu_wide" in found.message
    assert "--shape B=" in found.notes[0] and "--set gate=" in found.notes[0]
    apart = (CPU + "\n" + other).replace("K % 16 == 0 and V % 16 == 0", "K == 64 and V == 64", 1).replace(
        "K % 16 == 0 and V % 16 == 0", "K % 16 == 0 and V == 128", 1
    )  # fmt: skip
    assert check_source(apart, "rule.kds") == ()


def test_s04_the_example_is_a_call_that_both_claim():
    from kdsl.check.driver import check_loaded
    from kdsl.check.files import load_text
    from kdsl.cli.select import read_settings, read_shape
    from kdsl.contract.select import select
    from kdsl.source.span import SourceFile

    other = CPU.replace("rule cpu_split", "rule cpu_wide").replace("vector j by 8", "vector j by 16")
    result = check_loaded(load_text(SourceFile("rule.kds", CPU + "\n" + other)), None)
    note = result.diagnostics[0].notes[0].removeprefix("for example ")
    shape, *settings = note.removeprefix("--shape ").split(" --set ")
    operator = result.library.operators["kda.chunk_forward"]
    selection = select(
        result.library, "cpu", operator.name, read_shape(shape), *read_settings(operator, settings)
    )  # fmt: skip
    assert {claimed.rule.name for claimed in selection.claims} == {"cpu_split", "cpu_wide"}


def test_s04_equal_schedules_are_no_conflict():
    assert check_source(CPU + "\n" + CPU.replace("rule cpu_split", "rule cpu_again"), "rule.kds") == ()


@pytest.mark.parametrize(
    ("target", "instruction"), [("sm_80", "wgmma.m64k16"), ("sm_90a", "tcgen05.m128k16")]
)
def test_s05_instruction_of_another_gpu(target, instruction):
    text = MMA.replace("on sm_80, sm_90a", f"on {target}").replace(
        "gram_kk, gram_qk : mma.m16n8k16", f"gram_kk, gram_qk : {instruction}"
    )
    found = [d for d in check_source(text, "rule.kds") if d.code == "E210"]
    assert len(found) == 1 and found[0].message == f"{target} has no `{instruction}`"
    assert "mma.m16n8k16" in found[0].notes[0]


def test_s07_part_of_a_warp_or_warpgroup():
    found = only(MMA.replace("4 warps over i", "chunk / 6 warps over i"))
    assert found.code == "E120" and found.required == "a whole number of warps"
    text = MMA.replace("on sm_80, sm_90a", "on sm_90a").replace(
        "compute { state_key, solve_apply, state_query, within, state_update : mma",
        "compute { state_key : wgmma.m64k16; solve_apply, state_query, within, state_update : mma",
    )
    assert any(
        d.code == "E405" and "128 threads together" in d.message for d in check_source(text, "rule.kds")
    )


@pytest.mark.parametrize("text", ["", "# only a comment", "rule", "\0", "{" * 1000, CPU.replace("\n", "\r\n"),
                                  "\ufeff" + CPU, CPU.rstrip(), CPU.replace("  ", "\t")])  # fmt: skip
def test_s09_any_text(text):
    assert isinstance(check_source(text, "rule.kds"), tuple)
