"""Which bundle a call runs on, and what a call says that finds none."""

import logging
import os
import subprocess
import sys
import threading

import attrs
import pytest
import torch

import kdsl
from kdsl import kda
from kdsl.bundle import Machine, TamperedBundle, WrongMachine, read_bundle, this_machine
from kdsl.bundle import manifest as m
from kdsl.kda import chunk_kda, use_bundle
from kdsl.runtime import CallRequest, LaunchError, NoVariant
from kdsl.runtime.request import static_refusal

from ..pace import Paced

pytestmark = pytest.mark.usefixtures("gcc")
H, HV, D = 2, 2, 32
PLAIN = {
    "gate": "precomputed",
    "use_qk_l2norm_in_kernel": False,
    "use_beta_sigmoid_in_kernel": False,
    "allow_neg_eigval": False,
}


def draw(length=16, dtype=torch.float32, key=D):
    return {
        "q": torch.randn(1, length, H, key, dtype=dtype),
        "k": torch.randn(1, length, H, key, dtype=dtype) * 0.1,
        "v": torch.randn(1, length, HV, D, dtype=dtype),
        "g": -torch.rand(1, length, HV, key).to(dtype),
        "beta": torch.rand(1, length, HV).to(dtype),
    }


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setattr(kda, "_compiler_installed", lambda: False)


@pytest.fixture
def plain(tmp_path, build_kda):
    """Write a bundle for the plain options: plain(name, **changes of the variant)."""

    def build(name, options=None, dtypes=None, sizes=None, **changes):
        return build_kda(
            tmp_path / f"{name}.kdsb",
            "kda.chunk_forward",
            dtypes or {},
            {**PLAIN, **(options or {})},
            sizes,
            **changes,
        )

    return build


def test_a_registered_bundle_is_used_without_a_compiler(no_compiler, plain):
    x = draw()
    with pytest.raises(NoVariant):
        chunk_kda(**x)
    assert use_bundle(plain("a")).manifest.operator == "kda.chunk_forward"
    assert torch.isfinite(chunk_kda(**x)[0]).all()
    kda.forget_bundles()
    with pytest.raises(NoVariant):
        chunk_kda(**x)


def test_bundles_from_the_environment(no_compiler, plain, monkeypatch):
    one = plain("one", {"gate": "bounded"}, requires=[m.Requirement("T == 1", "use one token")])
    monkeypatch.setenv("KDSL_BUNDLES", os.pathsep.join([str(one), "", str(plain("two"))]))
    assert torch.isfinite(chunk_kda(**draw())[0]).all()
    monkeypatch.setenv("KDSL_BUNDLES", str(one.parent / "absent.kdsb"))
    kda.forget_bundles()
    with pytest.raises(kdsl.bundle.NotABundle, match="absent.kdsb: found nothing"):
        chunk_kda(**draw())


def test_the_compiler_is_asked_once_for_a_kind_of_call(compiler):
    for length in (16, 17, 0):
        chunk_kda(**draw(length))
    assert len(compiler.requests) == 1
    request = compiler.requests[0]
    assert request.operator == "kda.chunk_forward" and request.target == "cpu"
    assert request.dtypes == {"q": "f32", "k": "f32", "v": "f32", "g": "f32", "beta": "f32", "o": "f32"}
    assert request.options == {**PLAIN, "state_v_first": False}
    assert request.sizes == {"B": 1, "T": 16, "H": H, "HV": HV, "K": D, "V": D, "N": 1}
    assert request.given == {
        "dt_bias": False,
        "initial_state": False,
        "cu_seqlens": False,
        "final_state": False,
    }
    chunk_kda(**draw(), output_final_state=True)
    assert len(compiler.requests) == 1
    chunk_kda(**draw(dtype=torch.bfloat16))
    assert len(compiler.requests) == 2 and compiler.requests[1].dtypes["g"] == "bf16"


def test_a_bundle_comes_before_the_compiler(compiler, plain):
    use_bundle(plain("a"))
    chunk_kda(**draw())
    assert compiler.requests == []
    chunk_kda(**draw(), use_qk_l2norm_in_kernel=True)
    assert len(compiler.requests) == 1


def test_the_order_of_bundles_is_the_order_of_choice(no_compiler, plain, caplog):
    use_bundle(plain("even", requires=[m.Requirement("T % 2 == 0", "pad T to an even number")], id="aaaa"))
    use_bundle(plain("any", id="bbbb"))
    with caplog.at_level(logging.INFO, "kdsl.kda"):
        chunk_kda(**draw(16))
        assert caplog.text == ""
        chunk_kda(**draw(17))
    assert (
        "even.kdsb variant aaaa refused: T = 17, the variant needs T % 2 == 0: pad T to an even number"
        in caplog.text
    )


REFUSALS = [
    ({"gate": "bounded"}, {}, {}, "gate is 'precomputed', the variant was built for 'bounded'"),
    ({"unroll": 2}, {}, {}, "the variant was built for unroll = 2, which kda.chunk_forward does not have"),
    ({}, {"q": "bf16", "k": "bf16", "v": "bf16"}, {}, "q is f32, the variant was built for bf16"),
    ({}, {"g": "bf16"}, {}, "g is f32, the variant was built for bf16"),
    ({}, {}, {"sizes": {"K": 128}}, "K = 32, the variant was built for K = 128"),
    ({}, {}, {"sizes": {"C": 64}}, "C = nothing, the variant was built for C = 64"),
    ({}, {}, {"target": "sm_90a"}, "the call runs on cpu, the variant on sm_90a"),
    (
        {},
        {},
        {"requires": [m.Requirement("T >= 64", "use chunk")]},
        "T = 16, the variant needs T >= 64: use chunk",
    ),
    (
        {},
        {},
        {"requires": [m.Requirement("C >= 64", "use")]},
        "requirement that cannot be decided: .*the name C",
    ),
    (
        {},
        {},
        {"verdicts": [m.Verdict("spills == 0", "fails", "binary", 4, 0)]},
        "its contract fails: spills == 0",
    ),
]


@pytest.mark.parametrize(("options", "dtypes", "changes", "reason"), REFUSALS)
def test_why_a_variant_is_refused(no_compiler, plain, caplog, options, dtypes, changes, reason):
    use_bundle(plain("a", options, dtypes, **changes))
    with caplog.at_level(logging.INFO, "kdsl.kda"), pytest.raises(NoVariant, match=reason) as caught:
        chunk_kda(**draw())
    assert len(caught.value.refusals) == 1
    assert "a.kdsb variant" in caplog.text
    text = str(caught.value)
    assert "kdsl lower" in text and "pip install kdsl[compile]" in text and "use_bundle" in text


def test_tensors_that_only_one_side_has(no_compiler, tmp_path, build_kda):
    dtypes = {"q": "f32"}
    options = {**PLAIN, "gate": "bounded"}
    use_bundle(build_kda(tmp_path / "a.kdsb", "kda.decode", dtypes, {**PLAIN, "slot_zero_is_real": True}))
    with pytest.raises(NoVariant, match="the call is kda.chunk_forward, the bundle has kda.decode"):
        chunk_kda(**draw())
    gated = build_kda(tmp_path / "b.kdsb", "kda.chunk_forward", dtypes, options)
    kda.forget_bundles()
    use_bundle(gated)
    chunk_kda(**draw(), use_gate_in_kernel=True, lower_bound=-5.0, A_log=torch.zeros(HV))
    with pytest.raises(NoVariant, match="initial_state is bf16, the variant was built for f32"):
        chunk_kda(
            **draw(), use_gate_in_kernel=True, lower_bound=-5.0, A_log=torch.zeros(HV),
            initial_state=torch.zeros(1, HV, D, D, dtype=torch.bfloat16),
        )  # fmt: skip


def test_a_tensor_that_the_variant_always_reads(plain):
    bundle = read_bundle(plain("a"))
    (variant,) = bundle.manifest.variants
    (kernel,) = variant.kernels
    arguments = [argument for argument in kernel.arguments if argument != m.GivenArgument("initial_state")]
    strict = attrs.evolve(variant, kernels=[attrs.evolve(kernel, arguments=arguments)])
    dtypes = dict.fromkeys(("q", "k", "v", "g", "beta", "o"), "f32")

    def refusal(variant, dtypes):
        request = CallRequest("kda.chunk_forward", "cpu", dtypes, PLAIN, {}, {})
        return static_refusal("kda.chunk_forward", variant, request, this_machine())

    assert refusal(strict, dtypes) == "initial_state is not given, the variant needs it"
    assert refusal(strict, {**dtypes, "initial_state": "f32"}) == ""
    assert refusal(variant, dtypes) == ""
    assert refusal(variant, {**dtypes, "A_log": "f32"}) == "A_log is given, the variant takes none"


def test_k04_a_precomputed_gate_under_a_rule_for_bounded_gates(no_compiler, plain):
    use_bundle(plain("bounded", {"gate": "bounded"}))
    x = draw()
    x["g"] = torch.full_like(x["g"], -50.0)
    with pytest.raises(NoVariant, match="gate is 'precomputed', the variant was built for 'bounded'"):
        chunk_kda(**x)
    use_bundle(plain("any"))
    assert torch.isfinite(chunk_kda(**x)[0]).all()


def test_without_any_bundle_the_error_says_how_to_get_one(no_compiler):
    with pytest.raises(
        NoVariant, match=r"kda.chunk_forward on cpu \(q f32.*T = 16.*found no bundle; build a bundle"
    ):
        chunk_kda(**draw())


def test_a_bundle_that_was_changed_or_is_for_another_machine(plain, monkeypatch):
    path = plain("a")
    library = path / "lib" / "all.so"
    library.write_bytes(library.read_bytes() + b"\0")
    with pytest.raises(TamperedBundle, match="lib/all.so with sha256"):
        use_bundle(path)
    other = plain("other", machine=Machine(this_machine().system, "pdp11"))
    with pytest.raises(WrongMachine, match="needed pdp11"):
        use_bundle(other)
    monkeypatch.setattr(kda, "_compiler_installed", lambda: False)
    monkeypatch.setenv("KDSL_BUNDLES", str(other))
    with pytest.raises(NoVariant, match="found architecture .*, needed pdp11"):
        chunk_kda(**draw())


def test_a_compiler_that_returns_the_wrong_bundle(compiler, plain, monkeypatch):
    wrong = plain("wrong", {"gate": "bounded"})
    monkeypatch.setattr(compiler, "bundle_for", lambda request: wrong)
    with pytest.raises(
        NoVariant, match="the compiler returned .*wrong.kdsb, which does not take its own call"
    ):
        chunk_kda(**draw())


def test_an_error_of_the_compiler_comes_through(compiler, monkeypatch):
    def refuse(request):
        raise LookupError("rule kda.cpu refuses T = 16")

    monkeypatch.setattr(compiler, "bundle_for", refuse)
    with pytest.raises(LookupError, match="rule kda.cpu refuses"):
        chunk_kda(**draw())


def test_a_library_that_is_gone_is_an_error(no_compiler, plain):
    path = plain("a")
    use_bundle(path)
    (path / "lib" / "all.so").unlink()
    with pytest.raises(LaunchError, match="library all.so"):
        chunk_kda(**draw())


def test_many_threads_call_at_once(compiler):
    x = draw(64)
    expected = chunk_kda(**x)[0]
    kda.forget_bundles()
    results, start = [], threading.Barrier(8, timeout=10)

    def call():
        start.wait()
        results.extend(torch.equal(chunk_kda(**x)[0], expected) for _ in range(20))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(results) == 160 and all(results)


def test_the_import_takes_neither_torch_nor_the_compiler():
    code = "import sys, kdsl.kda; print([n for n in ('torch', 'tvm', 'lark', 'numpy') if n in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_call_costs_little_python(no_compiler, plain, monkeypatch):
    """Checks, choice and launch of a call with next to no work."""
    monkeypatch.delenv("KDSL_POISON")
    monkeypatch.setenv("KDSL_THREADS", "1")
    use_bundle(plain("a"))
    x = draw(0)
    chunk_kda(**x)
    with Paced() as took:
        for _ in range(300):
            chunk_kda(**x)
    assert took.seconds / 300 < 100e-6
