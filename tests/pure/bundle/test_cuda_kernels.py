"""Kernels for a GPU in a manifest: what they say beyond a kernel for the host, and what is refused."""

import json

import attrs
import pytest

from kdsl.bundle import load_bundle, write_bundle
from kdsl.bundle.codec import decode, encode
from kdsl.bundle.errors import ManifestError

V = "$.variants[0]"
K = V + ".kernels[0]"


def test_the_document(manifest, cuda_variant):
    variant = json.loads(encode(manifest(cuda_variant())))["variants"][0]
    assert variant["target"] == "sm_90a" and variant["machine"] is None
    assert variant["unit_stride"] == variant["dense"] == ["q"] and variant["alignment"] == {"q": 16}
    kernel = variant["kernels"][0]
    assert kernel["launch"] == "cuda" and kernel["block"] == [128, 2, 1] and kernel["shared_bytes"] == 98304
    assert kernel["grid"] == {"x": "N * HV", "y": "ceildiv(T, 64)", "z": "1"}
    assert kernel["arguments"][-1]["kind"] == "scalar"


def test_the_round_trip_keeps_everything(manifest, variant, cuda_variant):
    several = [cuda_variant(id=f"cd{number}", target=f"sm_{number}") for number in (80, 86, 89)]
    first = manifest(variant(), cuda_variant(), cuda_variant(id="abcd", target="sm_100f"), *several)
    assert decode(encode(first)) == first


def test_layout_demands_may_be_left_out(manifest, variant, cuda_variant):
    free = cuda_variant(unit_stride=[], dense=[], alignment={})
    for one in (variant(), free):
        document = json.loads(encode(manifest(one)))
        assert not {"unit_stride", "dense", "alignment"} & document["variants"][0].keys()
        assert decode(json.dumps(document)) == manifest(one)


def test_a_bundle_for_gpus_alone_loads_on_any_host(tmp_path, manifest, cuda_variant):
    path = write_bundle(tmp_path / "a.kdsb", manifest(cuda_variant()), {"lib/scale.so": b"cubin"})
    assert load_bundle(path).manifest.variants[0].machine is None


@pytest.mark.parametrize(
    ("path", "value", "place", "found"),
    [
        (("target",), "sm90", V + ".target", "`sm90`"),
        (("target",), "cpu", V + ".target", "`cpu`"),
        (("machine",), [], V + ".machine", "an array"),
        (("unit_stride",), ["k"], V + ".unit_stride", "`k`"),
        (("unit_stride",), ["q", "q"], V + ".unit_stride", "2 times the tensor `q`"),
        (("unit_stride",), "q", V + ".unit_stride", 'a string "q"'),
        (("dense",), ["k"], V + ".dense", "`k`"),
        (("dense",), ["q", "q"], V + ".dense", "2 times the tensor `q`"),
        (("alignment",), {"k": 16}, V + ".alignment", "`k`"),
        (("alignment",), {"q": 12}, V + ".alignment.q", "12"),
        (("alignment",), {"q": 0}, V + ".alignment.q", "0"),
        (("alignment",), {"q": 256}, V + ".alignment.q", "256"),
        (("alignment",), {"q": True}, V + ".alignment.q", "a boolean true"),
        (("aligned",), {}, V, "the unknown key `aligned`"),
        (("kernels", 0, "block"), [128, 1], K + ".block", "2 numbers"),
        (("kernels", 0, "block"), [128, 0, 1], K + ".block", "[128, 0, 1]"),
        (("kernels", 0, "block"), [512, 4, 1], K + ".block", "[512, 4, 1]"),
        (("kernels", 0, "block"), [1, 1, 128], K + ".block", "[1, 1, 128]"),
        (("kernels", 0, "block"), [1.5, 1, 1], K + ".block[0]", "a number 1.5"),
        (("kernels", 0, "block"), None, K + ".block", "null"),
        (("kernels", 0, "shared_bytes"), -1, K + ".shared_bytes", "-1"),
        (("kernels", 0, "grid"), {"x": "1", "y": "1"}, K + ".grid", "no `z`"),
        (("kernels", 0, "grid", "x"), "N ==", K + ".grid.x", "expr"),
        (("kernels", 0, "grid", "tasks"), "1", K + ".grid", "the unknown key `tasks`"),
        (("kernels", 0, "launch"), "host_range", K, "the unknown key `block`"),
        (("kernels", 0, "arguments", 0), {"kind": "grid_end"}, K + ".arguments", "1 arguments of kind grid"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named(manifest, cuda_variant, path, value, place, found):
    document = json.loads(encode(manifest(cuda_variant())))
    if path[-1] == "arguments" or path[-2:] == ("arguments", 0):
        document["variants"][0]["kernels"][0]["arguments"].insert(0, value)
    else:
        target = document["variants"][0]
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value
    with pytest.raises(ManifestError) as caught:
        decode(json.dumps(document))
    assert caught.value.path == place
    assert caught.value.found.startswith(found), caught.value.found


def test_one_variant_launches_in_one_way(manifest, variant, cuda_variant):
    host, device = variant().kernels[0], attrs.evolve(cuda_variant().kernels[0], name="second")
    with pytest.raises(ManifestError, match="launches cuda and host_range; needed one way"):
        encode(manifest(variant(kernels=[host, device])))


def test_code_for_a_host_needs_its_machine_and_has_no_block(manifest, variant):
    with pytest.raises(ManifestError, match=r"machine: found null; needed the machine"):
        encode(manifest(variant(machine=None)))
    for changes in ({"block": (1, 1, 1)}, {"shared_bytes": 16}):
        kernel = attrs.evolve(variant().kernels[0], **changes)
        with pytest.raises(ManifestError, match="found a block or shared memory; needed neither"):
            encode(manifest(variant(kernels=[kernel])))
