"""`kdsl precompile`: bundles before the calls, for several GPUs in one, and a cache that calls then find."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from kdsl.bundle.cache import Cache
from kdsl.bundle.load import load_bundle
from kdsl.cli.main import cli
from kdsl.data import data_root
from kdsl.driver import compile as driver
from kdsl.runtime import NoVariant
from kdsl.runtime.request import Call
from kdsl.runtime.shelf import Shelf
from kdsl.runtime.tensor import TensorView

from ..workshop import run_call

SHAPE = "B=1,T=64,H=2,K=32,V=32"
ON = ("--set", "use_qk_l2norm_in_kernel=true", "--set", "use_beta_sigmoid_in_kernel=true")
DECODE = ("--operator", "kda.decode", "--shape", "N=2,T=1,H=2,W=1,K=128,V=128", "--set", "gate=precomputed")


def precompile(*arguments: str):
    return CliRunner().invoke(cli, ["precompile", *map(str, arguments)], prog_name="kdsl")


def decode_call(target: str, manifest) -> Call:
    """A call without tokens on a device, which the variants of the manifest fit if they are for it."""
    options = dict(manifest.variants[0].options) | {"state_v_first": False}
    dtypes = {"bf16": np.uint16, "f32": np.float32, "i64": np.int64}
    views = {
        name: TensorView.from_numpy(np.zeros((0, 128), dtypes[dtype]), "bf16" if dtype == "bf16" else None)
        for name, dtype in manifest.variants[0].dtypes.items()
    }
    sizes = {"N": 0, "T": 1, "H": 2, "HV": 2, "SLOTS": 0, "W": 1, "K": 128, "V": 128}
    return Call("kda.decode", target, views, options, sizes, {"scale": 1.0}, dict.fromkeys(views, True))


def test_several_gpus_in_one_bundle(tmp_path):
    done = precompile("--target", "sm_90a,sm_100a", *DECODE, "--output", tmp_path)
    assert done.exit_code == 0, done.output
    path = tmp_path / "lane_columns.kdsb"
    assert f"{path}: rule lane_columns, 2 variants for sm_90a, sm_100a" in done.output
    manifest = load_bundle(path).manifest
    assert [v.target for v in manifest.variants] == ["sm_90a", "sm_100a"]
    flags = " ".join(manifest.made_with.flags)
    assert "code=sm_90a" in flags and "code=sm_100a" in flags
    shelf = Shelf(lambda request: None)
    shelf.add(path)
    for target in ("sm_90a", "sm_100a"):
        assert shelf.pick(decode_call(target, manifest)).variant.target == target
    with pytest.raises(NoVariant, match="the call runs on sm_120a, the variant on sm_90a") as caught:
        shelf.pick(decode_call("sm_120a", manifest))
    assert len(caught.value.refusals) == 2 and "the variant on sm_100a" in str(caught.value)


def test_calls_find_what_was_put_into_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KDSL_CACHE_DIR", str(tmp_path))
    done = precompile("--target", "cpu", "--shape", SHAPE, "--set", "gate=softplus", *ON)
    assert done.exit_code == 0 and "1 variant in" in done.output, done.output
    assert len(list(tmp_path.glob("*.kdsb"))) == 1 and Cache().root == tmp_path

    def no_compiler(*arguments, **options):
        raise AssertionError("built again")

    monkeypatch.setattr(driver, "build", no_compiler)
    o, state = run_call(small_call())
    assert np.isfinite(o).all() and np.isfinite(state).all()
    with pytest.raises(AssertionError, match="built again"):
        run_call(small_call() | {"use_qk_l2norm_in_kernel": False})


def test_proved_on_request(tmp_path):
    call = ("--operator", "kda.decode", "--shape", "N=1,T=1,H=1,W=1,K=16,V=16", "--set", "gate=precomputed")
    for name, flags in (("plain", ()), ("proved", ("--proved",))):
        done = precompile("--target", "cpu", *call, *flags, "--output", tmp_path / name)
        assert done.exit_code == 0, done.output
        (variant,) = load_bundle(tmp_path / name / "cpu_stream.kdsb").manifest.variants
        assert any(verdict.proves for verdict in variant.verdicts) == (name == "proved")


def small_call():
    from kdsl.emulate.calls import chunk_call

    drawn = chunk_call(np.random.default_rng(3), {"H": 2, "K": 32, "V": 32}, (5, 3), {"gate": "softplus"})
    return drawn | {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True}


def test_a_file_of_calls(tmp_path):
    file = tmp_path / "calls.txt"
    shape = "--shape N=2,T=1,H=2,W=1,K=16,V=16"
    file.write_text(f"# what the model does\n\nkda.decode {shape} --set 'gate=softplus'  # decoding\n"
                    f"kda.decode {shape} --set gate=precomputed --set q=f16\n", encoding="utf-8")  # fmt: skip
    done = precompile("--target", "cpu", "--calls", file, "--output", tmp_path / "out")
    assert done.exit_code == 0, done.output
    variants = load_bundle(tmp_path / "out" / "cpu_stream.kdsb").manifest.variants
    assert [(v.options["gate"], v.dtypes["v"]) for v in variants] == [("softplus", "bf16"), ("precomputed", "f16")]


def test_calls_that_no_rule_claims_do_not_stop_the_others(tmp_path):
    call = ("--shape", SHAPE, "--set", "gate=bounded", "--set", "lower_bound=-8.0")
    done = precompile(data_root() / "rules", "--target", "cpu,sm_90a", *call, "--output", tmp_path)
    assert done.exit_code == 1 and "no rule claims kda.chunk_forward on sm_90a" in done.output
    assert "K = 32 is not 128; pad to 128" in done.output and "cpu_split.kdsb" in done.output


@pytest.mark.parametrize(("arguments", "said"), [
    (("--target", "cpu"), "say the call with --shape"),
    (("--target", "sm_1", "--shape", SHAPE), "there is no target `sm_1`"),
    (("--target", "cpu", "--shape", SHAPE, "--set", "gat=bounded"), "no tensor or option `gat`"),
    (("--target", "cpu", "--shape", SHAPE, "--set", "gate=bounded|open"), "gate is never open"),
    (("--target", "cpu", "--shape", SHAPE), "`gate` has no default"),
    (("--target", "cpu", "--shape", "T"), "`T` is no size"),
])  # fmt: skip
def test_wrong_usage_is_exit_2(arguments, said):
    done = precompile(*arguments)
    assert done.exit_code == 2 and said in done.output, done.output


@pytest.mark.parametrize(("line", "said"), [
    ("--shape B=1", "a call is written kda"), ("kda.decode --shape N=2 --shape N=2", "a call is written"),
    ("kda.decode --shape", "a call is written"), ("kda.nothing --shape N=2", "no operator `kda.nothing`"),
    ('kda.decode --set "gate=bounded', "No closing quotation"),
    ("kda.decode --shape N=2,T=1 --set gate=softplus", "missing"),
])  # fmt: skip
def test_a_wrong_line_is_named(tmp_path, line, said):
    file = tmp_path / "calls.txt"
    file.write_text(f"# first\n{line}\n", encoding="utf-8")
    done = precompile("--target", "cpu", "--calls", file)
    assert done.exit_code == 2 and f"{file}:2: " in done.output.replace("\n", "") and said in done.output, done.output
