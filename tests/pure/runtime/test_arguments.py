"""Every wrong argument of the two functions is refused by name, with what it is and what it has to be."""

import pickle
import sys

import pytest
import torch

from kdsl.kda import chunk_kda, fused_recurrent_kda
from kdsl.runtime import ArgumentTypeError, ArgumentValueError, CallRequest, MissingTorch

pytestmark = pytest.mark.usefixtures("gcc", "compiler")
B, T, H, HV, K, V = 2, 6, 2, 4, 32, 48


def good():
    """A call that is right, with everything given that a packed call does not need."""
    return {
        "q": torch.randn(B, T, H, K),
        "k": torch.randn(B, T, H, K),
        "v": torch.randn(B, T, HV, V),
        "g": torch.randn(B, T, HV, K),
        "beta": torch.rand(B, T, HV),
        "A_log": torch.zeros(HV),
        "dt_bias": torch.zeros(HV * K),
        "initial_state": torch.randn(B, HV, K, V),
        "use_gate_in_kernel": True,
        "use_qk_l2norm_in_kernel": True,
        "lower_bound": -5.0,
    }


FUNCTIONS = pytest.mark.parametrize("function", [chunk_kda, fused_recurrent_kda])


@FUNCTIONS
def test_the_call_that_the_others_are_changes_of_is_right(function):
    assert torch.isfinite(function(**good())[0]).all()


first = {chunk_kda: "B", fused_recurrent_kda: "N"}
SHAPES = [
    ("q", (B, T, H * K), r"q: found shape \[2, 6, 64\]; needed four axes \[{}, T, H, K\]"),
    ("k", (B, T, H, K - 1), r"k: found shape \[2, 6, 2, 31\]; needed \[{}, T, H, K\] = \[2, 6, 2, 32\]"),
    ("k", (B, T, HV, K), r"k: found shape \[2, 6, 4, 32\]; needed \[{}, T, H, K\]"),
    ("v", (B, T, HV), r"v: found shape \[2, 6, 4\]; needed four axes \[{}, T, HV, V\]"),
    ("v", (B, T + 1, HV, V), r"v: found shape \[2, 7, 4, 48\]; needed \[{}, T, HV, V\] = \[2, 6, 4, 48\]"),
    ("v", (B, T, 3, V), r"g: found shape \[2, 6, 4, 32\]; needed \[{}, T, HV, K\] = \[2, 6, 3, 32\]"),
    ("g", (B, T, HV, 1), r"g: found shape \[2, 6, 4, 1\]; needed \[{}, T, HV, K\] = \[2, 6, 4, 32\]"),
    ("g", (B, T, HV, V), r"g: found shape .*HV from v"),
    ("beta", (B, T, H), r"beta: found shape \[2, 6, 2\]; needed \[{}, T, HV\] = \[2, 6, 4\]"),
    ("A_log", (H,), r"A_log: found shape \[2\]; needed \[HV\] = \[4\]"),
    (
        "dt_bias",
        (K, HV),
        r"dt_bias: found shape \[32, 4\]; needed \[HV \* K\] = \[128\] or \[HV, K\] = \[4, 32\]",
    ),
    (
        "initial_state",
        (B, HV, V, K),
        r"initial_state: found shape .*; needed \[N, HV, K, V\] = \[2, 4, 32, 48\]",
    ),
    ("initial_state", (1, HV, K, V), r"initial_state: found shape \[1, 4, 32, 48\]"),
]


@FUNCTIONS
@pytest.mark.parametrize(("name", "shape", "message"), SHAPES)
def test_shapes(function, name, shape, message):
    with pytest.raises(ArgumentValueError, match=message.format(first[function])):
        function(**{**good(), name: torch.zeros(shape)})


@FUNCTIONS
def test_k12_a_gate_without_its_last_axis(function):
    with pytest.raises(ValueError) as caught:
        function(**{**good(), "g": torch.zeros(B, T, H)})
    assert caught.value.argument == "g"
    assert caught.value.found == "shape [2, 6, 2]"
    assert caught.value.needed == f"[{first[function]}, T, HV, K] = [2, 6, 4, 32]"


@FUNCTIONS
def test_k14_a_bias_one_element_short(function):
    with pytest.raises(ValueError, match=r"dt_bias: found shape \[127\]; needed \[HV \* K\] = \[128\]"):
        function(**{**good(), "dt_bias": torch.zeros(HV * K - 1)})


def test_k20_states_of_two_dtypes():
    def request(initial, final):
        return CallRequest(
            "kda.chunk_forward", "cpu", {"initial_state": initial, "final_state": final}, {}, {}, {}
        )

    with pytest.raises(
        TypeError, match="found final_state as bf16 with initial_state as f32; needed one dtype"
    ):
        request("f32", "bf16")
    assert request("bf16", "bf16") == request("bf16", "bf16") != request("f32", "f32")
    CallRequest("kda.chunk_forward", "cpu", {"final_state": "bf16"}, {}, {}, {})


@FUNCTIONS
@pytest.mark.parametrize("name", ["q", "k", "v", "g", "beta"])
def test_none_and_what_is_no_tensor(function, name):
    with pytest.raises(ArgumentTypeError, match=f"{name}: found (None|NoneType); needed a torch tensor"):
        function(**{**good(), name: None})
    with pytest.raises(ArgumentTypeError, match=f"{name}: found ndarray; needed a torch tensor; convert"):
        function(**{**good(), name: good()[name].numpy()})


@FUNCTIONS
@pytest.mark.parametrize(
    ("name", "dtype", "message"),
    [
        (
            "q",
            torch.float64,
            "q: found dtype torch.float64; needed torch.bfloat16 or torch.float16 or torch.float32",
        ),
        ("q", torch.int32, "q: found dtype torch.int32"),
        ("k", torch.bfloat16, "k: found dtype torch.bfloat16; needed torch.float32; q is torch.float32"),
        ("v", torch.float16, "v: found dtype torch.float16; needed torch.float32; q is torch.float32"),
        (
            "g",
            torch.bfloat16,
            "g: found dtype torch.bfloat16; needed torch.float32; convert g",
        ),
        ("beta", torch.float64, "beta: found dtype torch.float64"),
        ("A_log", torch.bfloat16, "A_log: found dtype torch.bfloat16; needed torch.float32"),
        ("dt_bias", torch.bfloat16, "dt_bias: found dtype torch.bfloat16; needed torch.float32"),
        ("initial_state", torch.float16, "initial_state: found dtype torch.float16; needed torch.float32 or"),
    ],
)
def test_dtypes(function, name, dtype, message):
    with pytest.raises(ArgumentTypeError, match=message):
        function(**{**good(), name: good()[name].to(dtype)})


@FUNCTIONS
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"use_gate_in_kernel": False}, "lower_bound: found lower_bound=-5.0 with use_gate_in_kernel=False"),
        (
            {"use_gate_in_kernel": False, "lower_bound": None},
            "A_log: found A_log with use_gate_in_kernel=False",
        ),
        (
            {"use_gate_in_kernel": False, "lower_bound": None, "A_log": None},
            "dt_bias: found dt_bias with use_gate_in_kernel=False",
        ),
        ({"A_log": None}, "A_log: found None with use_gate_in_kernel=True"),
        ({"lower_bound": 0.0}, "lower_bound: found 0.0; needed a finite number below 0"),
        ({"lower_bound": float("nan")}, "lower_bound: found nan"),
        ({"lower_bound": float("-inf")}, "lower_bound: found -inf"),
        (
            {"lower_bound": None, "safe_gate": True},
            r"lower_bound=None with safe_gate=True; needed .* in \[-5, 0\)",
        ),
        ({"lower_bound": -5.5, "safe_gate": True}, "lower_bound=-5.5 with safe_gate=True"),
        ({"lower_bound": 0.0, "safe_gate": True}, "lower_bound=0.0 with safe_gate=True"),
        ({"allow_neg_eigval": True}, "allow_neg_eigval=True without use_beta_sigmoid_in_kernel"),
        (
            {"state_v_first": True, "transpose_state_layout": True},
            "transpose_state_layout: found state_v_first and",
        ),
        (
            {"state_v_first": True, "transpose_state_layout": False},
            "transpose_state_layout: found state_v_first and",
        ),
        ({"scale": float("inf")}, "scale: found inf; needed a finite number or None"),
    ],
)
def test_combinations(function, change, message):
    with pytest.raises(ArgumentValueError, match=message):
        function(**{**good(), **change})


@FUNCTIONS
def test_combinations_that_are_right(function):
    base, plain = good(), good()
    for name in ("A_log", "dt_bias", "lower_bound"):
        plain[name] = None
    for change in (
        {"safe_gate": True},
        {"lower_bound": -0.5, "safe_gate": True},
        {"lower_bound": -7.5},
        {"lower_bound": None},
        {"use_beta_sigmoid_in_kernel": True, "allow_neg_eigval": True},
        {"dt_bias": None},
    ):
        assert torch.isfinite(function(**{**base, **change})[0]).all()
    plain["g"] = -plain["g"].abs()
    assert torch.isfinite(function(**{**plain, "use_gate_in_kernel": False})[0]).all()


@FUNCTIONS
@pytest.mark.parametrize(
    ("heads", "value_heads", "found"),
    [(4, 2, "HV = 2 .* H = 4"), (2, 3, "HV = 3 .* H = 2"), (0, 0, "HV = 0 .* H = 0")],
)
def test_value_heads_are_a_multiple_of_heads(function, heads, value_heads, found):
    x = {
        "q": torch.randn(B, T, heads, K),
        "k": torch.randn(B, T, heads, K),
        "v": torch.randn(B, T, value_heads, V),
        "g": torch.zeros(B, T, value_heads, K),
        "beta": torch.rand(B, T, value_heads),
    }
    with pytest.raises(ArgumentValueError, match=f"v: found {found}.*; needed HV a multiple of H"):
        function(**x)


@pytest.mark.parametrize(
    ("key", "value", "found"), [(8, 32, "q: found K = 8"), (32, 264, "v: found V = 264")]
)
def test_head_dimensions_have_a_range(key, value, found):
    x = {"q": torch.randn(1, 2, 1, key), "k": torch.randn(1, 2, 1, key), "v": torch.randn(1, 2, 1, value)}
    x |= {"g": torch.zeros(1, 2, 1, key), "beta": torch.rand(1, 2, 1)}
    with pytest.raises(ArgumentValueError, match=f"{found}; needed . from 16 to 256"):
        chunk_kda(**x)


@pytest.mark.parametrize(
    ("rows", "cuts", "message"),
    [
        (2, torch.tensor([0, 6, 12]), "cu_seqlens: found cu_seqlens with B = 2; needed B = 1"),
        (1, torch.tensor([[0, 6]]), r"cu_seqlens: found shape \[1, 2\]; needed \[N \+ 1\]"),
        (1, torch.zeros(0, dtype=torch.int64), r"cu_seqlens: found shape \[0\]"),
        (1, torch.tensor([0]), "cu_seqlens: found no sequence for T = 6 tokens"),
        (
            1,
            torch.tensor([0.0, 6.0]),
            "cu_seqlens: found dtype torch.float32; needed torch.int32 or torch.int64",
        ),
        (1, [0, 6], "cu_seqlens: found list; needed a torch tensor"),
        (1, torch.tensor([0, 3, 6]), r"initial_state: found shape .*; needed .* = \[2, 4, 32, 48\]"),
    ],
)
def test_boundaries(rows, cuts, message):
    x = good()
    for name in ("q", "k", "v", "g", "beta", "initial_state"):
        x[name] = x[name][:rows]
    with pytest.raises((ValueError, TypeError), match=message):
        chunk_kda(**x, cu_seqlens=cuts)


@pytest.mark.parametrize(
    ("cuts", "message"),
    [
        ([1, 6], r"found cu_seqlens\[0\] = 1; needed 0"),
        ([0, 4, 3, 6], r"found cu_seqlens\[2\] = 3 after 4; needed values that do not decrease"),
        ([0, 5], r"found cu_seqlens\[1\] = 5; needed T = 6 at the end"),
    ],
)
def test_values_of_boundaries_on_request(cuts, message):
    x = {name: tensor[:1] for name, tensor in good().items() if name in ("q", "k", "v", "g", "beta")}
    with pytest.raises(ArgumentValueError, match=message):
        chunk_kda(**x, cu_seqlens=torch.tensor(cuts), check_values=True)


@FUNCTIONS
@pytest.mark.parametrize("name", ["q", "k", "v", "g", "beta", "A_log", "dt_bias", "initial_state"])
def test_there_is_no_backward(function, name):
    x = good()
    x[name].requires_grad_()
    with pytest.raises(
        ArgumentValueError, match=f"{name}: found a tensor that requires grad; .*no backward; .*no_grad"
    ):
        function(**x)
    with torch.no_grad():
        function(**x)
    with torch.inference_mode():
        function(**x)


@FUNCTIONS
@pytest.mark.parametrize("name", ["k", "beta", "A_log", "initial_state"])
def test_devices_are_equal(function, name):
    x = good()
    x[name] = x[name].to("meta")
    with pytest.raises(ArgumentValueError, match=f"{name}: found device meta; needed cpu, where q is"):
        function(**x)


@FUNCTIONS
def test_a_device_without_a_launcher(function):
    x = {
        name: value.to("meta") if isinstance(value, torch.Tensor) else value for name, value in good().items()
    }
    with pytest.raises(ArgumentValueError, match="q: found device meta; needed a device of type cpu"):
        function(**x)


@FUNCTIONS
def test_tensors_whose_memory_is_not_their_value(function):
    x = good()
    with pytest.raises(
        ArgumentTypeError, match="beta: found layout torch.sparse_coo; needed a strided tensor"
    ):
        function(**{**x, "beta": x["beta"].to_sparse()})
    negated = torch.complex(torch.zeros_like(x["beta"]), -x["beta"]).conj().imag
    assert torch.equal(negated, x["beta"])
    with pytest.raises(ArgumentTypeError, match="beta: found a lazily negated tensor; .*resolve_neg"):
        function(**{**x, "beta": negated})
    assert torch.equal(function(**{**x, "beta": negated.resolve_neg()})[0], function(**x)[0])


def test_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingTorch, match=r"needed torch .*pip install kdsl\[run\]"):
        chunk_kda(None, None, None, None, None)


def test_errors_can_be_pickled_and_annotated():
    first = ArgumentValueError("q", "this", "that", "do so")
    first.add_note("more") if hasattr(first, "add_note") else None
    again = pickle.loads(pickle.dumps(first))
    assert str(again) == str(first) == "q: found this; needed that; do so"
    assert again.argument == "q" and isinstance(again, ValueError)
