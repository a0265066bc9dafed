"""Views that lanes load a step ahead: what a plan makes of the line, on which warps, and every refusal."""

from __future__ import annotations

import re

import pytest
from attrs import evolve

from kdsl.check import check_paths
from kdsl.check.model import Home
from kdsl.data import data_root
from kdsl.driver.package import alignment
from kdsl.lower.lowering import Lowering
from kdsl.plan.cuda.beside import alone
from kdsl.plan.listing import plan_text
from kdsl.plan.refusal import PlanRefused

from ..workshop import chunk_operands, library_of, library_with, plan, role_text, shipped

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}
TEXT = library_with("mma_beside").rules["mma_beside"].declaration.span.text
PLACE = "      rate                             : f32 in registers\n"
COPIED = "qx, kx, gx                       : in shared pad 8"
AHEAD = "gx : in registers lanes d by 2 ring 2 via ld.global\n      qx, kx                           : in shared pad 8"
LINE = "bx : in registers lanes i by 1 ring 2 via ld.global"


def text_with(*lines: str) -> str:
    assert TEXT.count(PLACE) == TEXT.count(COPIED) == 1
    return TEXT.replace(PLACE, PLACE + "".join(f"      {line}\n" for line in lines))


def planned(folder, *lines: str, **more):
    return plan(library_of(folder, text_with(*lines)), "mma_beside", target="sm_90a", **{**ON, **more})


def refused(folder, text: str) -> PlanRefused:
    with pytest.raises(PlanRefused) as caught:
        plan(library_of(folder, text), "mma_beside", target="sm_90a", **ON)
    return caught.value


def prepare_text(made) -> str:
    (launch,) = Lowering(made).sources
    return role_text(launch.source, "prepare")


# ---- what the line becomes


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_the_load_stands_a_step_ahead(tmp_path, dtype):
    made = planned(tmp_path, LINE, dtypes={"beta": dtype})
    prepare, _ = made.kernels
    assert [s.name for s in prepare.first_loads] == ["bx_tile_first"] and [s.name for s in prepare.loads] == ["bx_tile"]
    assert "bx_tile" not in [s.name for s in prepare.body] and [s.name for s in prepare.commits] == ["bx_commit"]
    now, later = prepare.tensors["bx"], prepare.tensors["bx_next"]
    assert (now.memory, now.dtype, now.scope) == ("lane", dtype, "carried")
    assert (later.memory, later.dtype, later.scope) == ("lane", dtype, "step")
    listing = plan_text(made)
    assert f"bx_next        {dtype} [i: 16] in lane (step)" in listing and "split bx_tile loop='i'" in listing


def test_loads_are_on_the_warp_that_reads_them(tmp_path):
    """The write gates are made on the last warp; without the flag too, where the stage is another."""
    for flag in (True, False):
        prepare, _ = planned(tmp_path, LINE, use_beta_sigmoid_in_kernel=flag).kernels
        warp = prepare.turns["write_gate"]
        assert warp and {prepare.turns[name] for name in ("bx_tile_first", "bx_tile", "bx_commit")} == {warp}


def test_the_text(tmp_path):
    """One load before the loop and one in it, from an address that grows; the stage reads a register."""
    before, loop = prepare_text(planned(tmp_path, LINE)).split("for (int c = ")
    assert len(re.findall(r"= beta_ptr\[", before)) == 1
    (address,) = re.findall(r"= beta_ptr\[(.*)\];", loop)
    assert re.fullmatch(r"at_\d+_ptr\[0\]", address)
    assert f"{address} = ({address} + ((int64_t)64 * beta_stride1))" in loop
    loads, copies = loop.split("if ((c + 1) < ")[1:]
    assert "= beta_ptr[" in loads.split("\n    }\n")[0], "nothing is loaded beyond the last step"
    assert "ptx_cp_async" in copies and "wait_group" not in loads, "under way before anything else is"
    load, barrier = loop.index("= beta_ptr["), loop.index("kdsl_warps_barrier")
    assert load < barrier < loop.index("(float)bx_local_ptr[0]") < loop.index("bx_local_ptr[0] = bx_next_local_ptr[0];")


def test_without_the_line_the_stage_loads_for_itself(tmp_path):
    before, loop = prepare_text(planned(tmp_path)).split("for (int c = ")
    assert "beta_ptr[" not in before and "(float)beta_ptr[" in loop and "bx" not in before + loop


def test_one_slot_is_a_load_in_the_step_that_uses_it(tmp_path):
    made = planned(tmp_path, LINE.replace(" ring 2", ""))
    assert not made.kernels[0].loads and "bx_tile" in [s.name for s in made.kernels[0].body]
    before, loop = prepare_text(made).split("for (int c = ")
    assert "beta_ptr[" not in before and loop.count("beta_ptr[") == 1


def test_a_tile_of_rows(tmp_path):
    """Two neighbours to a lane, so the port has to start at multiples of both; nothing of it is copied."""
    made = plan(library_of(tmp_path, text_with(LINE).replace(COPIED, AHEAD)), "mma_beside", target="sm_90a", **ON)
    assert alignment(made)["g"] == 4
    before, loop = prepare_text(made).split("for (int c = ")
    assert "nv_bfloat16 gx_local_ptr[32]" in before and "nv_bfloat16 gx_next_local_ptr[32]" in before
    assert loop.count("(gx_next_local_ptr + ") == 2 and "ptx_cp_async" in loop
    assert not [line for line in loop.splitlines() if "ptx_cp_async" in line and "g_ptr" in line]


def test_its_ring_says_nothing_about_copies():
    """Where kernels of a launch are taken apart, what warps passed is copied, in rings as deep as those of copies."""
    _, recurrence = plan(library_with("mma_beside"), "mma_beside", target="sm_90a", **ON).point.kernels
    load = Home("bx", (), None, "registers", {"ring": 2, "via": "ld.global", "lanes": (("i", 1),)}, recurrence.span)
    homes = alone(evolve(recurrence, homes={"bx": load, **recurrence.homes})).homes
    assert homes["m"].attributes["ring"] == homes["vx"].attributes["ring"] == 3


# ---- refusals


@pytest.mark.parametrize("line, said, observed, help_", [
    (LINE.replace("ring 2", "ring 3"), "`bx` has 3 slots in registers", "`ring 3`", "write `ring 2`"),
    (LINE.replace("lanes i by 1 ", ""), "`bx` is loaded by lanes, and none owns its elements", "no `lanes`",
     "say which: `lanes i by 1`"),
])  # fmt: skip
def test_what_registers_cannot_hold(tmp_path, line, said, observed, help_):
    found = refused(tmp_path, text_with(line))
    assert found.code == "D367" and said in found.message and help_ in found.help[0]
    assert found.diagnostic.observed == observed


def test_what_a_stage_makes_is_not_loaded(tmp_path):
    places = "nq, nk, least, b         : f32 in shared\n"
    own = "nq, nk, least : f32 in shared\n      b : f32 in registers lanes i by 1 ring 2 via ld.global\n"
    assert places in TEXT
    found = refused(tmp_path, TEXT.replace(places, own))
    assert (found.code, found.message) == ("D367", "`b` is computed here, not loaded")


@pytest.mark.parametrize("read, code", [("qq", "D367"), ("kk", None)])
def test_readers_on_two_warps(tmp_path, read, code):
    """Squares of q are summed by the first warp, where a stage that reads them stays; the write gates are the last
    one's, as the squares of k are."""
    text = (data_root() / "stdlib/operators/kda.chunk_forward.kds").read_text(encoding="utf-8")
    made, used = f"      other : x_b[i] = {read}[i] * bx[i]\n", "        norm_q   : nq[i] = rsqrt(qq[i] + 1e-6)"
    stage = "        square_k : kk"
    assert text.count(stage) == text.count(used) == 1
    text = text.replace(used, f"  {made}{used} * (x_b[i] + 1.0)")
    both = re.sub(r"\bkda\.(chunk_forward|acceptance)", r"own.\1", text)
    rule = text_with(LINE, "x_b : f32 in shared").replace("kda.", "own.")
    library = library_of(tmp_path, f"{both}\n{rule}")
    if code is None:
        assert plan(library, "mma_beside", target="sm_90a", **ON).kernels[0].turns["bx_tile"] == 1
        return
    with pytest.raises(PlanRefused, match="`bx` is read on 2 warps") as caught:
        plan(library, "mma_beside", target="sm_90a", **ON)
    assert caught.value.code == code and "other" in caught.value.diagnostic.observed


def test_a_load_does_not_cast(tmp_path):
    found = refused(tmp_path, text_with(LINE.replace("in registers", "f32 in registers")))
    assert found.code == "D347" and "is bf16 in this call" in found.message
    plan(library_of(tmp_path, text_with(LINE.replace("in registers", "f32 in registers"))), "mma_beside",
         dtypes={"beta": "f32"}, target="sm_90a", **ON)  # fmt: skip


def test_a_kernel_without_steps_has_no_next_one(tmp_path):
    """`prepare` of mma_bounded has one chunk a block. A load for its own step it may have."""
    text = shipped().rules["mma_bounded"].declaration.span.text
    body = chunk_operands()
    for ring in (" ring 2", ""):
        line = f"\n    place {{ {LINE.replace(' ring 2', ring)} }}\n"
        library = library_of(tmp_path, text.replace("apply chunk_operands(prepare)", body + line))
        if not ring:
            assert plan(library, "mma_bounded", target="sm_90a", **ON)
            continue
        with pytest.raises(PlanRefused, match="`bx` has a ring of 2 slots") as caught:
            plan(library, "mma_bounded", target="sm_90a", **ON)
        assert (caught.value.code, caught.value.diagnostic.observed) == ("D366", "no steps in kernel `prepare`")


def test_a_ring_in_registers_that_nothing_fills(tmp_path):
    found = refused(tmp_path, text_with(LINE.replace(" via ld.global", "")))
    assert found.code == "D366" and "in registers `via ld.global`" in found.diagnostic.required


@pytest.mark.parametrize("line, code, said", [
    ("bx : in shared ring 2 via ld.global", "E310", "`ld.global` loads into registers, not into shared memory"),
    (f"{LINE} of 4 bytes", "E310", "`ld.global` loads the elements that a lane owns, not pieces"),
    (LINE.replace("ld.global", "cp.async"), "E310", "`cp.async` copies into shared memory, not into registers"),
    (LINE.replace("ld.global", "ld.shared"), "E101", "unknown copy engine or kernel above `ld.shared`"),
    (LINE, None, ""),
])  # fmt: skip
def test_check(tmp_path, line, code, said):
    file = tmp_path / "rule.kds"
    file.write_text(text_with(line), encoding="utf-8")
    found = [(d.code, d.message) for d in check_paths([file]).diagnostics]
    assert (found == []) if code is None else any(one == code and said in message for one, message in found), found
