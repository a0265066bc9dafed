"""TIRx programs on a fiber for each thread: right ones proved, each mistake found with its place and values."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kdsl.emulate.launches import Buffer, Launch
from kdsl.emulate.run import emulate
from kdsl.lower.tirx import tirx_source
from kdsl.prove.proof import FIELD, REJECTED, UNKNOWN
from kdsl.prove.tirx import prove_tirx
from kdsl.validate import bfloat16
from tests.compiler.prove.programs import ring as r
from tests.compiler.prove.programs import staged as g
from tests.compiler.prove.programs import state as s


def unswizzled(rows: int, width: int) -> np.ndarray:
    """Where the elements [rows, width] of an image lie that is swizzled by 128 bytes."""
    row, k = np.meshgrid(range(rows), range(width), indexing="ij")
    return r.place(row, k)


def products(a, call):
    left = a["A"][:, unswizzled(r.ROWS, r.DEPTH)]
    right = a["B"][:, unswizzled(r.COLUMNS, r.DEPTH)]
    return {"C": (left[:, :, None, :] * right[:, None, :, :]).sum(-1).sum(0)}


def states(a, call):
    found = a["G"].exp().zeros((s.ROWS, s.KEYS))
    for t in range(s.STEPS):
        w, k = (a[name][t, unswizzled(s.CHUNK, s.KEYS)] for name in "WK")
        found = found * a["G"][t].exp()[None, :]
        change = a["U"][t] - (found[:, None, :] * w[None, :, :]).sum(-1)
        found = found + (change[:, :, None] * k[None, :, :]).sum(1)
    return {"S": found}


def prove_ring(**how):
    return prove_tirx(r.ring(**how), products, written=("C",), seed=7)


def prove_state(mistake: str = ""):
    return prove_tirx(s.state(mistake), states, written=("S",), levels={"G": 1}, seed=7)


def prove_staged(mistake: str = "", mode: int = 3):
    def products_of_steps(a, call):
        return {"C": (a["A"][:, :, None, :] * a["B"][:, None, :, :]).sum(-1)}

    return prove_tirx(g.staged(mistake, mode), products_of_steps, written=("C",), seed=7)


@pytest.mark.parametrize("steps, stages", [(6, 2), (5, 3), (1, 2)])
def test_a_ring_with_two_roles_is_proved(steps, stages):
    proof = prove_ring(steps=steps, stages=stages)
    assert (proof.verdict, proof.seed) == (FIELD, 7)
    assert proof.bound < 1e-18


def test_a_state_in_registers_is_proved():
    proof = prove_state()
    assert proof.verdict == FIELD
    assert proof.bound < 1e-18
    (case,) = proof.cases
    assert case.degree == 9  # of three steps: a decay, an element of W and one of K each


@pytest.mark.parametrize("mode", range(4))
def test_staged_operands_and_a_result_that_leaves_in_bulk_are_proved(mode):
    """Under every swizzle of the operands."""
    proof = prove_staged(mode=mode)
    assert proof.verdict == FIELD, proof.found
    assert proof.bound < 1e-18


STAGED = {
    "fence of the operands": "unfenced",
    "fence of the result": "unfenced",
    "barrier": "race",
    "half of the barrier": "race",
    "wait for the store": "overwritten",
}


@pytest.mark.parametrize("mistake", STAGED)
def test_a_missing_fence_barrier_or_wait_for_a_store_is_a_finding(mistake):
    proof = prove_staged(mistake)
    assert (proof.verdict, proof.difference.what.partition(":")[0]) == (REJECTED, STAGED[mistake])


RING = {
    "barrier after init": ("uninitialised", "shared memory"),
    "producer's parity": ("stuck", "mbarrier at byte"),
    "consumer's parity": ("unawaited", "asynchronous copy"),
    "count of arrivals": ("race", "write-after-read"),
    "slot": ("unawaited", "write of byte"),
    "stale slot": ("un", "read of byte"),
    "wait for room": ("arrivals", "more arrivals"),
    "expect_tx": ("unawaited", "read of byte"),
    "copies less": ("stuck", "0 arrivals and 1024 bytes are missing"),
    "wait for data": ("unawaited", "read of byte"),
    "release before the product": ("race", "write-after-read"),
    "wait for the product": ("overwritten", "tensor cores may still read"),
}


@pytest.mark.parametrize("mistake", RING)
def test_a_mistake_of_the_ring_is_found_at_its_thread(mistake):
    proof = prove_ring(mistake=mistake)
    kind, said = RING[mistake]
    assert proof.verdict == REJECTED
    assert re.match(rf"{kind}\w*: ring_kernel, line ", proof.difference.what)
    assert "block (0, 0, 0), thread (" in proof.difference.what
    assert said in proof.difference.what


@pytest.mark.parametrize("mistake", ["consumer's parity", "expect_tx", "wait for data", "swizzle", "stale slot"])
def test_both_values_of_a_wrong_element_are_told(mistake):
    found = prove_ring(mistake=mistake).difference
    assert found.tensor == "C"
    assert set(found.at) == {"axis 0", "axis 1"}
    assert found.expected.isdigit() and found.expected != found.found


@pytest.mark.parametrize("mistake", ["not transposed", "stride", "halves"])
def test_a_wrong_operand_differs(mistake):
    proof = prove_state(mistake)
    assert proof.verdict == REJECTED
    found = proof.difference
    assert (found.tensor, set(found.at)) == ("S", {"axis 0", "axis 1"}) or "shared memory" in found.what


@pytest.mark.parametrize("mistake, kind", [("wait", "unsettled"), ("barrier", "race")])
def test_a_missing_wait_or_barrier_is_a_finding(mistake, kind):
    proof = prove_state(mistake)
    assert (proof.verdict, proof.difference.what.partition(":")[0]) == (REJECTED, kind)


def test_an_instruction_without_description_is_unknown_by_name():
    from tvm.script import tirx as T

    @T.prim_func
    def counts(A: T.Buffer((32,), "float32"), C: T.Buffer((32,), "float32")):
        T.device_entry()
        T.cta_id([1])
        T.warp_id([1])
        lane = T.lane_id([32])
        T.ptx["fence.acq_rel.cluster"]()
        C[lane] = A[lane]

    proof = prove_tirx(counts, lambda a, call: {"C": a["A"] * 1}, written=("C",))
    assert proof.verdict == UNKNOWN
    assert "fence.acq_rel.cluster" in proof.obstacle


def test_a_tensor_map_is_unknown_by_name():
    from tvm.backend.cuda.lang import TMABar
    from tvm.backend.cuda.tile_primitive.tma_utils import SwizzleMode, mma_shared_layout
    from tvm.script import tirx as T
    from tvm.script.tirx import tile as Tx

    layout = mma_shared_layout("bfloat16", SwizzleMode.SWIZZLE_128B_ATOM, (64, 64))

    @T.prim_func
    def fetched(A: T.Buffer((64, 64), "bfloat16"), C: T.Buffer((64, 64), "bfloat16")):
        T.device_entry()
        T.cta_id([1])
        warp = T.warp_id([1])
        lane = T.lane_id([32])
        pool = T.SMEMPool()
        As = pool.alloc((64, 64), "bfloat16", layout=layout, align=1024)
        full = TMABar(pool, 1)
        full.init(1)
        pool.commit()
        T.cuda.cta_sync()
        if warp * 32 + lane == 0:
            Tx.copy_async(As, A, dispatch="tma_auto", mbar=full.ptr_to([0]))
            full.arrive(0, 64 * 64 * 2)
        full.wait(0, 0)
        C[lane, 0] = As[lane, 0]

    proof = prove_tirx(fetched, lambda a, call: {"C": a["A"] * 1}, written=("C",))
    assert proof.verdict == UNKNOWN
    assert "`A_tensormap`" in proof.obstacle


def test_a_comparison_of_values_is_unknown():
    from tvm.script import tirx as T

    @T.prim_func
    def clamp(A: T.Buffer((32,), "float32"), C: T.Buffer((32,), "float32")):
        T.device_entry()
        T.cta_id([1])
        T.warp_id([1])
        lane = T.lane_id([32])
        C[lane] = T.min(A[lane], T.float32(1))

    proof = prove_tirx(clamp, lambda a, call: {"C": a["A"] * 1}, written=("C",))
    assert proof.verdict == UNKNOWN
    assert "clamp" in proof.obstacle


def test_the_same_text_runs_over_numbers():
    """The emulator gives the product that NumPy gives, to the rounding of float32 sums."""
    rng = np.random.default_rng(3)
    source = tirx_source(r.ring(), "sm_90a")
    a, b = (bfloat16.encode(rng.standard_normal((6, rows * r.DEPTH))) for rows in (r.ROWS, r.COLUMNS))
    c = np.zeros((r.ROWS, r.COLUMNS), np.float32)
    arrays = {"A": Buffer(a, "input"), "B": Buffer(b, "input"), "C": Buffer(c, "output")}
    arguments = [arrays[name] for name, _ in source.parameters]
    result = emulate([Launch(source.source, source.symbol, (1, 1, 1), (256, 1, 1), source.shared_bytes, arguments)])
    assert result.verdict == "pass", result.explain()
    left = bfloat16.decode(a)[:, unswizzled(r.ROWS, r.DEPTH)]
    right = bfloat16.decode(b)[:, unswizzled(r.COLUMNS, r.DEPTH)]
    np.testing.assert_allclose(c, np.einsum("trk,tck->rc", left, right), rtol=1e-4, atol=1e-3)
