"""Which code runs on which GPU, which is preferred, and which layouts of tensors a variant takes."""

import logging

import pytest
import torch

from kdsl import kda
from kdsl.kda import chunk_kda, use_bundle
from kdsl.runtime import ArgumentValueError, NoVariant
from kdsl.runtime.targets import acceptable_targets, capability_target

from .fake_cuda import DeviceTensors

pytestmark = pytest.mark.usefixtures("gcc")
H, HV, D = 2, 4, 32
PLAIN = {
    "gate": "precomputed",
    "use_qk_l2norm_in_kernel": False,
    "use_beta_sigmoid_in_kernel": False,
    "allow_neg_eigval": False,
}


@pytest.mark.parametrize(
    ("capability", "targets"),
    [
        ((8, 0), ["sm_80"]),
        ((8, 6), ["sm_86", "sm_80"]),
        ((8, 9), ["sm_89", "sm_86", "sm_80"]),
        ((8, 7), ["sm_87"]),
        ((9, 0), ["sm_90a", "sm_90"]),
        ((10, 0), ["sm_100a", "sm_100f", "sm_100"]),
        ((10, 3), ["sm_103a", "sm_103f", "sm_100f", "sm_103", "sm_100"]),
        ((12, 0), ["sm_120a", "sm_120f", "sm_120"]),
        ((12, 1), ["sm_121a", "sm_121f", "sm_120f", "sm_121", "sm_120"]),
        ((7, 5), ["sm_75", "sm_70"]),
    ],
)
def test_what_runs_on_a_gpu_best_first(capability, targets):
    found = acceptable_targets(capability_target(*capability))
    assert [target for target in found if target in targets] == targets
    others = {"sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_103a", "sm_120a", "cpu"}
    assert not (others - set(targets)) & set(found)


def test_the_host_runs_its_own_code():
    assert acceptable_targets("cpu") == ("cpu",)


def draw(length=12):
    rng = torch.Generator().manual_seed(1)
    return {
        "q": torch.randn((1, length, H, D), generator=rng) * 0.1,
        "k": torch.randn((1, length, H, D), generator=rng) * 0.1,
        "v": torch.randn((1, length, HV, D), generator=rng),
        "g": -torch.rand((1, length, HV, D), generator=rng),
        "beta": torch.rand((1, length, HV), generator=rng),
    }


@pytest.fixture
def register(tmp_path, build_cuda, gpu, monkeypatch):
    monkeypatch.setattr(kda, "_compiler_installed", lambda: False)

    def build(name, fixed=None, **changes):
        options = {**PLAIN, **(fixed or {})}
        path = build_cuda(tmp_path / f"{name}.kdsb", "kda.chunk_forward", {}, options, **changes)
        use_bundle(path)
        return path

    return build


def chosen(gpu, capability):
    """The target of the variant that a call runs on, told by the threads of its block."""
    gpu.capability, gpu.launches[:] = capability, []
    with DeviceTensors():
        chunk_kda(**draw())
    return gpu.launches[0].block[0]


def test_the_best_code_is_chosen_whatever_the_order(gpu, register):
    for number in (80, 86, 89):
        register(f"plain{number}", targets=[f"sm_{number}"], block=(number, 1, 1))
    assert chosen(gpu, (8, 0)) == 80
    assert chosen(gpu, (8, 6)) == 86
    assert chosen(gpu, (8, 9)) == 89
    with pytest.raises(NoVariant, match="the call runs on sm_90a, the variant on sm_80"):
        chosen(gpu, (9, 0))
    with pytest.raises(NoVariant, match="the call runs on sm_87, the variant on sm_86"):
        chosen(gpu, (8, 7))


def test_several_architectures_in_one_bundle(gpu, register, caplog):
    register("all", targets=["sm_80", "sm_90a", "sm_100a"], block=(64, 1, 1))
    with caplog.at_level(logging.INFO, "kdsl.kda"):
        chosen(gpu, (9, 0))
    assert caplog.text.count("refused: the call runs on sm_90a, the variant on sm_") == 2
    with pytest.raises(NoVariant, match="the call runs on sm_120a"):
        chosen(gpu, (12, 0))


def test_a_call_on_the_host_takes_no_code_of_a_gpu(register):
    register("all")
    with pytest.raises(NoVariant, match="the call runs on cpu, the variant on sm_90a"):
        chunk_kda(**draw())


def test_the_compiler_is_asked_for_exactly_the_device(gpu, compiler):
    gpu.capability = (8, 9)
    with DeviceTensors(), pytest.raises(NoVariant, match="does not take its own call; report this"):
        chunk_kda(**draw())
    assert compiler.requests[0].target == "sm_89"


def test_a_pytorch_for_other_gpus(monkeypatch, register):
    register("all")
    monkeypatch.setattr(torch.version, "cuda", None)
    with DeviceTensors(), pytest.raises(ArgumentValueError, match="cuda:0 of a PyTorch without CUDA"):
        chunk_kda(**draw())


def strided(name, x):
    wide = torch.zeros((*x[name].shape[:-1], 2 * x[name].shape[-1]))
    wide[..., ::2] = x[name]
    return {**x, name: wide[..., ::2]}


@pytest.mark.parametrize("name", ["q", "beta"])
def test_a_last_axis_that_is_not_dense_is_refused_by_name(gpu, register, name):
    register("dense", unit_stride=["q", "beta"])
    x = draw()
    with DeviceTensors():
        expected = chunk_kda(**x)[0]
        message = rf"{name} has strides \[.*2\], the variant needs stride 1 on .* axis: call {name}.contig"
        with pytest.raises(NoVariant, match=message):
            chunk_kda(**strided(name, x))
        contiguous = {**x, name: strided(name, x)[name].contiguous()}
        assert torch.equal(chunk_kda(**contiguous)[0], expected)
        assert torch.equal(chunk_kda(**strided("v", x))[0], expected)


def test_states_in_the_other_layout_are_refused_with_the_remedy(gpu, register):
    register("dense", unit_stride=["initial_state", "final_state"])
    state = torch.randn(1, HV, D, D)
    with DeviceTensors():
        chunk_kda(**draw(), initial_state=state, output_final_state=True)
        with pytest.raises(NoVariant, match=r"initial_state has strides .*states as \[.., K, V\]"):
            chunk_kda(**draw(), initial_state=state, state_v_first=True)
        with pytest.raises(NoVariant, match="final_state has strides"):
            chunk_kda(**draw(), output_final_state=True, state_v_first=True)


def test_states_without_gaps_in_the_layout_of_the_variant(gpu, register):
    states = ["initial_state", "final_state"]
    for first in (False, True):
        layout = {"dense": states, "alignment": {"initial_state": 16}, "block": (32 + 32 * first, 1, 1)}
        register(f"dense{first}", fixed={"state_v_first": first}, id=f"abc{int(first)}", **layout)
    state = torch.randn(1, HV, D, D)
    wide = torch.zeros(1, HV, D, 2 * D)
    wide[..., :D] = state
    with DeviceTensors():
        for first in (False, True):
            chunk_kda(**draw(), initial_state=state, output_final_state=True, state_v_first=first)
            assert gpu.launches[-1].block[0] == 32 + 32 * first
            with pytest.raises(NoVariant, match=r"initial_state has strides .* without gaps: call ini"):
                chunk_kda(**draw(), initial_state=wide[..., :D], state_v_first=first)


def test_alignment(gpu, register):
    register("vectors", alignment={"q": 16, "v": 16})
    x = draw()
    flat = torch.zeros(x["q"].numel() + 1)
    flat[1:] = x["q"].flatten()
    with DeviceTensors():
        with pytest.raises(NoVariant, match=r"q starts 4 bytes past a multiple of 16, .*: call q.clone\(\)"):
            chunk_kda(**{**x, "q": flat[1:].view(x["q"].shape)})
        padded = torch.zeros(1, 12, HV, D + 1)
        padded[..., :D] = x["v"]
        message = r"v has strides \[.*33, 1\] in elements of 4 bytes, .*multiples of 16 bytes: call v.contig"
        with pytest.raises(NoVariant, match=message):
            chunk_kda(**{**x, "v": padded[..., :D]})
        wider = torch.zeros(1, 12, HV, D + 4)
        wider[..., :D] = x["v"]
        assert torch.equal(chunk_kda(**{**x, "v": wider[..., :D]})[0], chunk_kda(**x)[0])


def test_axes_of_one_element_and_empty_tensors_have_no_layout(gpu, register):
    register("dense", unit_stride=["q", "beta"], alignment={"q": 16})
    x = draw(1)
    odd = torch.as_strided(x["q"], x["q"].shape, (7, 5, D, 1))
    with DeviceTensors():
        assert torch.equal(chunk_kda(**{**x, "q": odd})[0], chunk_kda(**x)[0])
        chunk_kda(**strided("q", draw(0)))


def test_a_layout_that_no_rule_reads(gpu, compiler, tmp_path, build_cuda, monkeypatch):
    path = build_cuda(tmp_path / "a.kdsb", "kda.chunk_forward", {}, PLAIN, unit_stride=["q"])
    monkeypatch.setattr(compiler, "bundle_for", lambda request: path)
    with DeviceTensors():
        chunk_kda(**draw())
        with pytest.raises(NoVariant, match="no rule reads tensors laid out like these"):
            chunk_kda(**strided("q", draw()))
