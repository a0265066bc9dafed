"""Recorded inputs: they load, honest kernels pass on them, and a damaged file is refused with its fault."""

from pathlib import Path

import numpy as np
import pytest

from kdsl.validate import emulation
from kdsl.validate.acceptance import acceptance
from kdsl.validate.call import gate_of, reference
from kdsl.validate.errors import TraceError
from kdsl.validate.traces import TRACE_NAMES, first_sequences, load_trace

FOLDER = Path(__file__).parents[3] / "data" / "traces"


@pytest.fixture(scope="module")
def recorded():
    """Each trace's call and the oracle's answer, computed once."""
    answers = {}

    def answer(name):
        if name not in answers:
            call = load_trace(FOLDER / f"{name}.npz")
            answers[name] = call, reference(call)
        return answers[name]

    return answer


@pytest.mark.parametrize("name", TRACE_NAMES)
def test_honest_kernels_pass(name, recorded):
    call, needed = recorded(name)
    assert gate_of(call) == name.split("_")[0]
    assert np.diff(call["cu_seqlens"]).tolist() == [700, 1, 64, 515, 768]
    for kernel in emulation.HONEST.values():
        if kernel.chunk == 16 or kernel.needs_bounded_gate and gate_of(call) != "bounded":
            continue
        verdict = acceptance(*kernel(call), *needed)
        assert verdict.accepted, verdict.explain()


CONTROLS = [(cheat, name) for cheat in emulation.CHEATS for name in cheat.caught_by if name in TRACE_NAMES]


@pytest.mark.parametrize(("cheat", "name"), CONTROLS, ids=lambda x: getattr(x, "name", x))
def test_cheats_are_rejected(cheat, name, recorded):
    call, needed = recorded(name)
    assert not acceptance(*cheat.make()(call), *needed).accepted


def test_the_first_sequences_alone_give_the_same(recorded):
    call, needed = recorded("bounded_layer3")
    o, state = reference(first_sequences(call, 2))
    assert np.array_equal(o, needed[0][:, :701]) and np.array_equal(state, needed[1][:2])


def small_trace() -> dict[str, np.ndarray]:
    wide = np.zeros((1, 3, 2, 4), np.uint16)
    return {
        "q": wide, "k": wide, "v": wide, "g": wide, "beta": np.zeros((1, 3, 2), np.uint16),
        "A_log": np.zeros(2, np.float32), "dt_bias": np.zeros((2, 4), np.float32),
        "cu_seqlens": np.array([0, 1, 3]), "initial_state_kv": np.zeros((2, 2, 4, 4), np.float32),
        "lower_bound": np.array(np.nan, np.float32),
    }  # fmt: skip


def test_a_softplus_trace_has_no_bound(tmp_path):
    np.savez(tmp_path / "t.npz", **small_trace())
    call = load_trace(tmp_path / "t.npz")
    assert call["lower_bound"] is None and not call["safe_gate"]
    assert reference(call)[0].shape == (1, 3, 2, 4)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"g": None}, "no array named g"),
        ({"q": np.zeros((1, 3, 2, 4), np.float32)}, "q has dtype float32"),
        ({"q": np.zeros((3, 2, 4), np.uint16)}, "four axes"),
        ({"dt_bias": np.zeros((2, 3), np.float32)}, "dt_bias has shape"),
        ({"cu_seqlens": np.array([0, 2, 4])}, "cu_seqlens"),
        ({"cu_seqlens": np.array([0, 3])}, "initial_state_kv has shape"),
        ({"A_log": np.array([0, np.inf], np.float32)}, "A_log has values"),
        ({"v": np.full((1, 3, 2, 4), 0x7FC0, np.uint16)}, "v has values that are not finite"),
        ({"beta": np.array([None] * 6, object).reshape(1, 3, 2)}, "damaged"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path, change, problem):
    path = tmp_path / "t.npz"
    np.savez(path, **{name: x for name, x in (small_trace() | change).items() if x is not None})
    with pytest.raises(TraceError, match=problem) as caught:
        load_trace(path)
    assert caught.value.path == str(path) and problem in caught.value.problem


def test_a_missing_file_and_a_file_of_another_kind(tmp_path):
    with pytest.raises(TraceError, match="no such file"):
        load_trace(tmp_path / "none.npz")
    for content in (b"", b"PK\x03\x04", b"not an archive"):
        (tmp_path / "t.npz").write_bytes(content)
        with pytest.raises(TraceError, match="not an .npz archive"):
            load_trace(tmp_path / "t.npz")
    np.save(tmp_path / "t.npy", np.zeros(3))
    with pytest.raises(TraceError, match="not an .npz archive"):
        load_trace(tmp_path / "t.npy")


@pytest.mark.parametrize("compressed", [True, False])
def test_every_flipped_byte_is_refused_or_harmless(tmp_path, compressed):
    path, good = tmp_path / "t.npz", small_trace()
    (np.savez_compressed if compressed else np.savez)(path, **good)
    whole = path.read_bytes()
    refused = 0
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        try:
            call = load_trace(path)
        except TraceError:
            refused += 1
            continue
        kept = ("q", "v", "beta", "A_log", "cu_seqlens")
        assert all(np.array_equal(call[name], good[name]) for name in kept)
    assert refused > len(whole) // 7 // 3
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TraceError):
        load_trace(path)
