"""Launching on a GPU, with a driver that records its calls and kernels that run on the host."""

import ctypes
import struct
import sys
import threading
import types

import attrs
import numpy as np
import pytest
import torch

from kdsl import kda
from kdsl.bundle import load_bundle
from kdsl.bundle import manifest as m
from kdsl.kda import chunk_kda, fused_recurrent_kda, use_bundle
from kdsl.runtime import (
    CudaError,
    LaunchError,
    MissingCuda,
    TensorView,
    cuda,
    cuda_driver,
    launch,
    open_variant,
)
from kdsl.runtime.workspace import POISON_BYTE

from .fake_cuda import DeviceTensors, FakeDriver, Waited

pytestmark = pytest.mark.usefixtures("gcc")
H, HV, D = 2, 4, 32
PLAIN = {
    "gate": "precomputed",
    "use_qk_l2norm_in_kernel": False,
    "use_beta_sigmoid_in_kernel": False,
    "allow_neg_eigval": False,
}
DECODE = {**PLAIN, "slot_zero_is_real": True}


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    monkeypatch.setattr(kda, "_compiler_installed", lambda: False)


def draw(rows=1, length=12, states=1):
    rng = torch.Generator().manual_seed(1)
    unit = torch.nn.functional.normalize
    return {
        "q": unit(torch.randn((rows, length, H, D), generator=rng), dim=-1),
        "k": unit(torch.randn((rows, length, H, D), generator=rng), dim=-1),
        "v": torch.randn((rows, length, HV, D), generator=rng),
        "g": -torch.rand((rows, length, HV, D), generator=rng),
        "beta": torch.rand((rows, length, HV), generator=rng),
        "initial_state": torch.randn((states, HV, D, D), generator=rng),
    }


@pytest.fixture
def chunk(tmp_path, build_cuda, gpu):
    """Register a bundle for chunk_kda; returns its path."""

    def register(name="chunk", **changes):
        path = build_cuda(tmp_path / f"{name}.kdsb", "kda.chunk_forward", {}, PLAIN, **changes)
        use_bundle(path)
        return path

    return register


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_a_call_runs_on_the_current_stream_without_waiting(gpu, chunk, reference, dtype):
    chunk(block=(128, 1, 1), shared_bytes=1024)
    x, cuts = draw(states=3), [0, 5, 5, 12]
    cu_seqlens = torch.tensor(cuts, dtype=dtype)
    with DeviceTensors():
        o, final = chunk_kda(**x, cu_seqlens=cu_seqlens, output_final_state=True)
    for n, (begin, end) in enumerate(zip(cuts, cuts[1:], strict=False)):
        part = [x[name][0, begin:end].numpy() for name in ("q", "k", "v", "g", "beta")]
        expected = reference(*part, x["initial_state"][n].numpy())
        np.testing.assert_allclose(o[0, begin:end].numpy(), expected[0], atol=1e-5)
        np.testing.assert_allclose(final[n].numpy(), expected[1], atol=1e-5)
    (launched,) = gpu.launches
    assert launched.grid == (3 * HV, 1, 1) and launched.block == (128, 1, 1) and launched.shared == 1024
    assert launched.stream == 0x5000 and launched.context == 0xC0
    assert gpu.current == []


def test_looking_at_the_device_is_seen(gpu, chunk):
    chunk()
    with DeviceTensors(), pytest.raises(Waited, match="tolist"):
        chunk_kda(**draw(), cu_seqlens=torch.tensor([0, 12]), check_values=True)


@pytest.mark.parametrize("bad", [[5, 3, 7, -2], [0, 40, 2, 12], [0, -9, 99, 13]])
def test_bad_boundaries_are_brought_into_range_on_the_device(gpu, chunk, bad):
    chunk()
    with DeviceTensors():
        o, final = chunk_kda(**draw(states=3), cu_seqlens=torch.tensor(bad), output_final_state=True)
    assert torch.isfinite(o).all() and torch.isfinite(final).all()


def test_decoding_leaves_the_tables_to_the_kernel(tmp_path, gpu, build_cuda, reference):
    use_bundle(build_cuda(tmp_path / "decode.kdsb", "kda.decode", {}, DECODE))
    x = draw(2, 2, states=5)
    indices, accepted = torch.tensor([[4, 1], [-1, 2]]), torch.tensor([2, 1])
    before = x["initial_state"].clone()
    seen = []
    with DeviceTensors():
        call = {**x, "ssm_state_indices": indices, "num_accepted_tokens": accepted}
        o, pool = fused_recurrent_kda(**call, output_final_state=True)
        seen = [name for name, _ in gpu.calls if name == "cuLaunchKernel"]
    expected = reference(*[x[n][0].numpy() for n in ("q", "k", "v", "g", "beta")], before[1].numpy())
    np.testing.assert_allclose(o[0].numpy(), expected[0], atol=1e-5)
    np.testing.assert_allclose(pool[1].numpy(), expected[1], atol=1e-5)
    assert (o[1] == 0).all() and torch.equal(pool[2], before[2]) and len(seen) == 1


def test_code_is_loaded_once_for_each_device(gpu, chunk):
    chunk()
    x = draw()
    for index in (0, 0, 1, 0, 1):
        with DeviceTensors(index):
            chunk_kda(**x)
    assert gpu.count("cuModuleLoadData") == 2 and gpu.count("cuDevicePrimaryCtxRetain") == 2
    assert [launched.context for launched in gpu.launches] == [0xC0, 0xC0, 0xC1, 0xC0, 0xC1]
    assert [launched.stream for launched in gpu.launches] == [0x5000, 0x5000, 0x5001, 0x5000, 0x5001]
    assert gpu.current == []


def test_a_current_context_is_left_alone(gpu, chunk):
    chunk()
    gpu.current.append(0xC0)
    with DeviceTensors():
        chunk_kda(**draw())
    assert gpu.count("cuCtxPushCurrent") == 0 and gpu.current == [0xC0]
    with DeviceTensors(1):
        chunk_kda(**draw())
    assert gpu.count("cuCtxPushCurrent") == 2 and gpu.current == [0xC0]


def test_loading_is_allowed_while_a_graph_is_captured(gpu, chunk):
    chunk()
    modes = []
    exchange = type(gpu)._cuThreadExchangeStreamCaptureMode

    def record(mode):
        modes.append(int(mode))
        return exchange(gpu, mode)

    gpu._cuThreadExchangeStreamCaptureMode = record
    gpu.fail["cuModuleGetFunction"] = 500
    with DeviceTensors(), pytest.raises(CudaError, match="CUDA_ERROR_NOT_FOUND"):
        chunk_kda(**draw())
    assert modes == [2, 0] and gpu.current == []
    gpu.fail.clear()
    with DeviceTensors():
        chunk_kda(**draw())
        chunk_kda(**draw())
    assert modes == [2, 0, 2, 0] and len(gpu.launches) == 2


def test_an_empty_grid_launches_and_loads_nothing(gpu, chunk):
    chunk()
    with DeviceTensors():
        o, final = chunk_kda(
            **{**draw(length=0), "initial_state": None}, cu_seqlens=torch.tensor([0]), output_final_state=True
        )
    assert o.shape == (1, 0, HV, D) and final.shape == (0, HV, D, D) and gpu.calls == []


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"y": "T * 6000"}, r"grid dimension y: found 72000 blocks from `T \* 6000` with T = 12; needed"),
        ({"z": "65536"}, r"grid dimension z: found 65536 blocks from `65536`; needed 0 to 65535 along z"),
        ({"x": "2 ** 31"}, r"grid dimension x: found 2147483648 blocks .*; needed 0 to 2147483647 along x"),
        ({"x": "T - 13"}, r"grid dimension x: found -1 blocks from `T - 13` with T = 12"),
    ],
)  # fmt: skip
def test_grids_that_no_gpu_takes(gpu, chunk, grid, message):
    chunk(grid=grid)
    with DeviceTensors(), pytest.raises(LaunchError, match=message):
        chunk_kda(**draw())
    assert gpu.launches == []


def test_a_size_beyond_32_bits(gpu, chunk, monkeypatch):
    """Kernels count in 32 bits."""
    chunk()
    monkeypatch.setattr("kdsl.runtime.cuda.LARGEST_SIZE", 11)
    with DeviceTensors(), pytest.raises(LaunchError, match=r"size T: found T = 12; needed T <= 11; split the call"):
        chunk_kda(**draw())
    assert gpu.launches == []


@pytest.mark.parametrize(
    ("call", "status", "message"),
    [
        ("cuCtxGetCurrent", 1, "loading kernel all .*: cuCtxGetCurrent returned CUDA_ERROR_INVALID_VALUE"),
        ("cuDevicePrimaryCtxRetain", 2, "opening cuda:0: cuDevicePrimaryCtxRetain returned CUDA_ERROR_OTHER"),
        ("cuModuleLoadData", 209, r"all.cubin\) on cuda:0: cuModuleLoadData .*what the driver.*--target"),
        ("cuFuncGetAttribute", 1, "cuFuncGetAttribute returned"),
        ("cuDeviceGetAttribute", 1, "asking cuda:0 for its shared memory: cuDeviceGetAttribute"),
        ("cuFuncSetAttribute", 1, "with 65536 bytes of shared memory: cuFuncSetAttribute"),
        ("cuLaunchKernel", 701, r"launching kernel all .* with grid \(4, 1, 1\), block \(32, 1, 1\), "
                                "65536 bytes of dynamic shared memory, 40 registers: cuLaunchKernel returned "
                                "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES .*smaller block"),
        ("cuLaunchKernel", 700, r"CUDA_ERROR_ILLEGAL_ADDRESS \(700: .*compute-sanitizer"),
    ],
)  # fmt: skip
def test_what_the_driver_refuses(gpu, chunk, call, status, message):
    chunk(shared_bytes=65536)
    gpu.fail[call] = status
    with DeviceTensors(), pytest.raises(CudaError, match=message) as caught:
        chunk_kda(**draw())
    assert caught.value.call == call and caught.value.sticky == (status == 700)
    assert gpu.current == []
    gpu.fail.clear()
    with DeviceTensors():
        chunk_kda(**draw())


def test_more_shared_memory_than_48_kib_is_asked_for(gpu, chunk):
    def asked(name, **changes):
        gpu.calls.clear()
        kda.forget_bundles()
        chunk(name, **changes)
        with DeviceTensors():
            chunk_kda(**draw())
        return [arguments[1:] for name, arguments in gpu.calls if name == "cuFuncSetAttribute"]

    assert asked("a", shared_bytes=48 << 10) == []
    assert asked("b", shared_bytes=(48 << 10) + 16) == [(8, (48 << 10) + 16), (9, 100)]
    gpu.attributes[1] = 1024
    assert asked("c", shared_bytes=48 << 10) == [(8, 48 << 10), (9, 100)]
    assert asked("d", shared_bytes=0) == []


def test_a_block_that_the_device_has_no_room_for(gpu, chunk):
    chunk(shared_bytes=200 << 10, block=(256, 2, 1))
    gpu.shared_limit = 99 << 10
    with DeviceTensors(), pytest.raises(LaunchError, match="found 204800 bytes dynamic and 0 static; need"):
        chunk_kda(**draw())
    gpu.attributes[0] = 256
    with DeviceTensors(), pytest.raises(LaunchError, match="block: found 512 threads; needed at most 256"):
        chunk_kda(**draw())
    assert gpu.launches == []


def test_code_with_other_parameters_is_not_launched(gpu, chunk):
    path = chunk()
    bundle = load_bundle(path)
    (variant,) = bundle.manifest.variants
    (kernel,) = variant.kernels
    x = draw()
    program = open_variant(bundle, attrs.evolve(
        variant, kernels=[attrs.evolve(kernel, arguments=[*kernel.arguments[:-1], m.SizeArgument("T")])]
    ))  # fmt: skip
    views = {name: attrs.evolve(TensorView.from_torch(t), device="cuda:0") for name, t in x.items()}
    views["o"] = attrs.evolve(TensorView.from_torch(torch.empty_like(x["v"])), device="cuda:0")
    sizes = {"B": 1, "T": 12, "H": H, "HV": HV, "K": D, "V": D, "N": 1}
    with DeviceTensors():
        with pytest.raises(LaunchError, match=r"arguments: found q 8, .*T 8 bytes; needed \[8, .*4\] bytes"):
            launch(program, views, sizes, {"scale": 1.0})
        fewer = attrs.evolve(variant, kernels=[attrs.evolve(kernel, arguments=kernel.arguments[:-1])])
        with pytest.raises(LaunchError, match=r"arguments: found q 8, .* bytes; needed \[8, .*4\] bytes"):
            launch(open_variant(bundle, fewer), views, sizes, {"scale": 1.0})
        more = attrs.evolve(kernel, arguments=[*kernel.arguments, m.SizeArgument("T")])
        with pytest.raises(LaunchError, match=r"T 8 bytes; needed \[8, .*4\] bytes"):
            scalars = {"scale": 1.0, "lower_bound": 0.0}
            launch(open_variant(bundle, attrs.evolve(variant, kernels=[more])), views, sizes, scalars)
        assert gpu.launches == []
        views["o"] = attrs.evolve(views["o"], device="cuda:1")
        with pytest.raises(LaunchError, match="o: found device cuda:1; needed cuda:0, where the others are"):
            launch(program, views, sizes, {"scale": 1.0})
        views["q"] = attrs.evolve(views["q"], device="cpu")
        with pytest.raises(LaunchError, match="q: found device cpu; needed cuda"):
            launch(program, views, sizes, {"scale": 1.0})


def test_numbers_that_do_not_fit(gpu, chunk):
    bundle = load_bundle(chunk())
    program = open_variant(bundle, bundle.manifest.variants[0])
    x = draw()
    views = {name: attrs.evolve(TensorView.from_torch(t), device="cuda:0") for name, t in x.items()}
    views["o"] = attrs.evolve(TensorView.from_torch(torch.empty_like(x["v"])), device="cuda:0")
    sizes = {"B": 1, "T": 12, "H": H, "HV": HV, "K": D, "V": D, "N": 1}
    with DeviceTensors(), pytest.raises(LaunchError, match="scalar scale = 'x'.*check the scalars"):
        launch(program, views, sizes, {"scale": "x", "lower_bound": 0.0})
    with DeviceTensors():
        launch(program, views, sizes, {"scale": 1, "lower_bound": 0.0})


def test_an_older_driver(tmp_path, gpu, chunk, monkeypatch):
    chunk()
    driver = FakeDriver(tmp_path, missing=("cuFuncLoad", "cuFuncGetParamInfo"))
    monkeypatch.setattr(cuda_driver, "_opened", cuda_driver.Driver(driver))
    with DeviceTensors():
        chunk_kda(**draw())
    assert len(driver.launches) == 1


def test_no_driver_and_no_bindings(gpu, chunk, monkeypatch):
    chunk()
    monkeypatch.setattr(cuda_driver, "_opened", None)
    bindings = types.ModuleType("cuda.bindings")
    bindings.driver = FakeDriver(".", missing=("cuInit",))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    with DeviceTensors(), pytest.raises(MissingCuda, match=r"no CUDA driver \(Function .*\.cpu\(\)"):
        chunk_kda(**draw())
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with DeviceTensors(), pytest.raises(MissingCuda, match=r"no cuda-bindings .*pip install kdsl\[run\]"):
        chunk_kda(**draw())


def test_a_cubin_that_is_gone(gpu, chunk):
    path = chunk()
    (path / "lib" / "all.cubin").unlink()
    with DeviceTensors(), pytest.raises(LaunchError, match="file all.cubin: found .*No such file"):
        chunk_kda(**draw())


def test_the_workspace_is_a_tensor_and_poisoned_on_request(gpu, monkeypatch):
    taken = []
    with DeviceTensors():
        for poison in ("1", "0"):
            monkeypatch.setenv("KDSL_POISON", poison)
            memory = cuda.allocate(4096, "cuda:0")
            taken.append((ctypes.string_at(memory.address, 4096), memory))
            memory.free()
        assert cuda.allocate(0, "cuda:0").address == 0
    assert taken[0][0] == bytes([POISON_BYTE]) * 4096
    assert struct.unpack("f", taken[0][0][:4])[0] != struct.unpack("f", taken[0][0][:4])[0]


def test_many_threads_load_once(gpu, chunk):
    chunk()
    x, failures = draw(), []
    start = threading.Barrier(6, timeout=10)

    def call():
        start.wait()
        try:
            with DeviceTensors():
                chunk_kda(**x)
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == [] and gpu.count("cuModuleLoadData") == 1 and len(gpu.launches) == 6
