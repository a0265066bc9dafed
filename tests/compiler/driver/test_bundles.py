"""Bundles that the compiler makes: they run without it, damage and other machines are told, builds repeat."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from kdsl.bundle.errors import TamperedBundle, WrongMachine
from kdsl.bundle.load import load_bundle, read_bundle
from kdsl.bundle.machine import Machine
from kdsl.driver import ContractFailed, build
from kdsl.driver.compile import content_key
from kdsl.validate.probes import random_call

from ..workshop import bundle, library_of, plan, run_call, shipped

ON = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}
ALONE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tvm", "tvm_ffi", "lark", "click") or name.startswith("kdsl.driver"):
            raise ImportError(f"{name} is not for the runtime")

sys.meta_path.insert(0, Refuse())
import numpy as np
import torch
from kdsl.kda import chunk_kda, use_bundle

use_bundle(sys.argv[1])
arrays = dict(np.load(sys.argv[2]))
def tensor(x):
    return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) if x.dtype == np.uint16 else torch.from_numpy(x)
o, state = chunk_kda(**{n: tensor(x) for n, x in arrays.items()}, use_qk_l2norm_in_kernel=True, lower_bound=-5.0,
                     use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, output_final_state=True)
np.savez(sys.argv[3], o=o.float().numpy(), state=state.numpy())
loaded = {name.split(".")[0] for name in sys.modules} | {n for n in sys.modules if n.startswith("kdsl.")}
bad = loaded & {"tvm", "lark", "click", "kdsl.driver", "kdsl.check", "kdsl.lower", "kdsl.syntax", "kdsl.plan"}
assert not bad, bad
"""


@pytest.fixture(scope="module")
def made():
    return plan(shipped(), "cpu_split", **ON)


def test_a_bundle_runs_where_neither_tvm_nor_lark_can_be_imported(made, tmp_path):
    call = random_call(np.random.default_rng(1), 40, lengths=(17, 23))
    arrays = {name: x for name, x in call.items() if isinstance(x, np.ndarray)}
    np.savez(tmp_path / "call.npz", **arrays)
    command = [sys.executable, "-c", ALONE, str(bundle(made)), "call.npz", "found.npz"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "found.npz")
    o, state = run_call(call)
    assert np.array_equal(found["o"], o) and np.array_equal(found["state"], state)


def test_a_changed_file_is_named(made, tmp_path):
    copy = tmp_path / "copy.kdsb"
    shutil.copytree(bundle(made), copy)
    library = next(copy.rglob("*.so"))
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 1
    library.write_bytes(content)
    with pytest.raises(TamperedBundle, match=r"all\.so"):
        load_bundle(copy)


def test_another_machine_is_told(made):
    path = bundle(made)
    with pytest.raises(WrongMachine, match="found architecture riscv64, needed"):
        load_bundle(path, Machine("Linux", "riscv64"))
    needed = read_bundle(path).manifest.variants[0].machine
    if needed.features:
        lesser = Machine(needed.system, needed.arch, needed.features[1:])
        with pytest.raises(WrongMachine, match=f"a CPU without {needed.features[0]}"):
            load_bundle(path, lesser)


def test_the_manifest_says_what_made_it(made):
    manifest = json.loads((bundle(made) / "manifest.json").read_text(encoding="utf-8"))
    text = json.dumps(manifest)
    assert manifest["operator"] == "kda.chunk_forward" and manifest["rule"]["name"] == "cpu_split"
    assert manifest["made_with"]["tvm"] == "0.27.0.post1" and "-O3" in text
    variant = manifest["variants"][0]
    assert variant["form"] == {"C": 16, "decay": "pairwise", "chain": "split"}
    verdicts = {v["clause"]: (v["verdict"], v["evidence"]) for v in variant["verdicts"]}
    assert verdicts["stack_bytes <= target.stack_bytes_per_task"] == ("holds", "proved")
    assert verdicts["error within kda.acceptance"] == ("holds", "measured")
    assert str(bundle(made).parent) not in text and "/home/" not in text and "/root/" not in text


def test_builds_repeat(made, tmp_path):
    again = read_bundle(build([made], tmp_path / "again.kdsb"))
    assert again.manifest.files == read_bundle(bundle(made)).manifest.files


def test_one_bundle_with_a_variant_for_each_gate(made, tmp_path):
    other = plan(shipped(), "cpu_split", **ON | {"gate": "softplus"})
    both = read_bundle(build([made, other], tmp_path / "both.kdsb"))
    assert [v.options["gate"] for v in both.manifest.variants] == ["bounded", "softplus"]
    assert [v.id for v in both.manifest.variants] == [content_key(x)[:16] for x in (made, other)]


def test_everything_that_makes_a_bundle_is_in_its_key(made):
    keys = {content_key(made)}
    keys.add(content_key(plan(shipped(), "cpu_split", {"chunk": 32}, **ON)))
    keys.add(content_key(plan(shipped(), "cpu_split", {"width": 16}, **ON)))
    keys.add(content_key(plan(shipped(), "cpu_split", {}, {"g": "f32"}, **ON)))
    keys.add(content_key(plan(shipped(), "cpu_split", {}, {}, {"K": 64}, **ON)))
    keys.add(content_key(plan(shipped(), "cpu_split", **ON | {"gate": "softplus"})))
    assert len(keys) == 6
    assert content_key(plan(shipped(), "cpu_split", **ON)) == content_key(made)


SMALL = """
rule cramped schedules test.copy on cpu {
  kernel all computes whole {
    grid { task : n }
    place { twice : f32 in stack }
  }
  ensure { stack_bytes <= 1 KiB }
}
operator test.copy {
  sizes { N; W in 1..4096 }
  inputs { x : [N, W] of f32 }
  outputs { y : [N, W] of f32 }
  indices { n in N parallel; w in W }
  views { xx[w] = x[n, w]; yy[w] = y[n, w] }
  part whole {
    double : twice[w] = 2.0 * xx[w]
    write  : yy[w] = twice[w]
  }
}
"""


def test_no_bundle_where_a_promise_does_not_hold(tmp_path):
    """The checker says so first, for the largest call; a rule that nobody checked fails when it is built."""
    with pytest.raises(AssertionError, match="E501"):
        library_of(tmp_path, SMALL)
    from kdsl.check.library import load

    library = load([tmp_path / "rule.kds"])
    assert build([plan(library, "cramped", sizes={"W": 256})], tmp_path / "fits.kdsb").is_dir()
    with pytest.raises(ContractFailed, match=r"found 1028 bytes, needed .*1024") as caught:
        build([plan(library, "cramped", sizes={"W": 257})], tmp_path / "over.kdsb")
    assert "rule.kds:7" in str(caught.value) and "proved" in str(caught.value)
    assert "made for cpu, W = 257, x f32, y f32" in str(caught.value)
    assert not (tmp_path / "over.kdsb").exists()
