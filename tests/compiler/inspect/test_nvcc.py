"""The CUDA compiler: every target, equal bytes in any folder, errors that say what to do."""

from __future__ import annotations

import os
import time

import pytest

from kdsl.lower.lowering import Lowering
from kdsl.lower.toolchain import cuda, nvcc
from kdsl.lower.toolchain.cc import CompilerFailed, ToolMissing

from ..workshop import library_with, plan

ARCHES = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a")


@pytest.mark.parametrize("arch", ARCHES)
def test_every_target(compiled, arch):
    start = time.monotonic()
    made = compiled("pipeline", arch)
    assert time.monotonic() - start < 10
    assert f".target {arch}" in made.ptx and made.cubin[:4] == b"\x7fELF"
    use = made.log.of("pipeline")
    assert 16 < use.registers < 128 and (use.spill_stores, use.spill_loads) == (0, 0)
    assert f"-gencode=arch=compute_{arch[3:]},code={arch}" in made.flags
    assert made.version.startswith("nvcc 13.") and "ptxas 13." in made.version


@pytest.mark.parametrize("name, arch", [("pipeline", "sm_90a"), ("spill", "sm_80"), ("wgmma", "sm_90a")])
def test_equal_sources_give_equal_bytes_without_paths(compiler, text_of, tmp_path, monkeypatch, name, arch):
    first = compiler.compile(text_of(name), arch)
    other = tmp_path / "another" / "deeper folder"
    other.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(other))
    second = compiler.compile(text_of(name), arch)
    assert (first.ptx, first.cubin) == (second.ptx, second.cubin)
    for place in (compiler.toolkit.root, str(tmp_path), "/tmp", os.getcwd()):
        assert place not in first.ptx and place.encode() not in first.cubin
        assert place.encode() not in second.cubin


def test_different_sources_differ(compiler, text_of):
    changed = text_of("spill").replace("4096", "8192")
    assert compiler.compile(changed, "sm_80").cubin != compiler.compile(text_of("spill"), "sm_80").cubin


def test_flags_of_the_environment_are_not_taken(compiler, text_of, monkeypatch):
    plain = compiler.compile(text_of("spill"), "sm_80")
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-maxrregcount=16")
    assert compiler.compile(text_of("spill"), "sm_80").cubin == plain.cubin


def test_line_directives_reach_the_ptx(compiler):
    text = '#line 12 "rules/a.kds"\nextern "C" __global__ void k(float* x) { x[threadIdx.x] *= 2; }\n'
    made = compiler.compile(text, "sm_90a")
    assert '"rules/a.kds"' in made.ptx and b"a.kds" in made.cubin


def test_faults_of_generated_code(compiler):
    with pytest.raises(CompilerFailed) as caught:
        compiler.compile('extern "C" __global__ void k() { undeclared(); }', "sm_80")
    assert "undeclared" in caught.value.output and "kernel.cu(1)" in caught.value.output
    assert compiler.toolkit.root not in str(caught.value) and "/tmp" not in str(caught.value)
    with pytest.raises(CompilerFailed, match="ptxas"):
        compiler.compile('extern "C" __global__ void k() { asm volatile("no.such;"); }', "sm_80")


def test_unknown_architectures(compiler):
    with pytest.raises(ToolMissing, match="sm_150a") as caught:
        compiler.compile("", "sm_150a")
    assert "pip install 'kdsl[cuda]'" in str(caught.value)
    with pytest.raises(ValueError, match="compute_90"):
        compiler.compile("", "compute_90")


@pytest.fixture
def forgotten():
    yield cuda.forget
    cuda.forget()


def test_a_toolkit_on_the_path_gives_what_the_wheels_of_its_version_give(
    compiler, text_of, monkeypatch, forgotten
):
    monkeypatch.setattr(cuda, "WHEEL_ROOT", "nvidia/none")
    forgotten()
    try:
        other = nvcc.Nvcc(cuda.toolkit(), cuda.host_compiler())
    except ToolMissing as missing:
        pytest.skip(f"no second toolkit: {missing}")
    if other.version != compiler.version:
        pytest.skip(f"the other toolkit is {other.version}")
    mine, theirs = (each.compile(text_of("pipeline"), "sm_90a") for each in (compiler, other))
    assert (mine.ptx, mine.cubin) == (theirs.ptx, theirs.cubin)


def test_a_missing_compiler_names_the_extra(monkeypatch, forgotten, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for variable in ("CUDA_HOME", "CUDA_PATH", "NVCC_CCBIN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(cuda, "WHEEL_ROOT", "nvidia/none")
    forgotten()
    for look, name in ((cuda.toolkit, "nvcc"), (cuda.nvdisasm, "nvdisasm"), (cuda.cuobjdump, "cuobjdump")):
        with pytest.raises(ToolMissing, match=name) as caught:
            look()
        assert "pip install 'kdsl[cuda]'" in str(caught.value)
    with pytest.raises(ToolMissing, match="g\\+\\+"):
        cuda.host_compiler()


def test_a_half_installed_toolkit_names_the_wheel(monkeypatch, forgotten, tmp_path):
    for part in ("bin/nvcc", "bin/ptxas"):
        (tmp_path / part).parent.mkdir(exist_ok=True)
        (tmp_path / part).write_text("")
    monkeypatch.setattr(cuda, "_roots", lambda wheel, name: iter([(tmp_path, "wheel")]))
    forgotten()
    with pytest.raises(ToolMissing, match="nvidia-nvvm"):
        cuda.toolkit()


def test_the_compiler_is_found_once(compiler):
    assert nvcc.find() is nvcc.find()
    assert compiler.toolkit.nvcc.origin in ("wheel", "CUDA_HOME", "PATH")


def test_a_launch_of_two_kernels_of_mixed_dtypes(compiler):
    """The preludes of both, which define macros anew on their way."""
    library = library_with("mma_beside")
    made = plan(library, "mma_beside", dtypes={"v": "f16"}, target="sm_90a", gate="bounded")
    (launch,) = Lowering(made).sources
    assert compiler.compile(launch.source, "sm_90a", nvcc.Options(fast_math=True)).cubin
