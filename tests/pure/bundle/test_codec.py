"""Manifest to JSON and back; every damage to the document is an error that names its place."""

import copy
import json

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdsl.bundle import manifest as m
from kdsl.bundle.codec import decode, encode
from kdsl.bundle.errors import ManifestError
from kdsl.bundle.machine import Machine


def test_the_round_trip_keeps_everything(manifest):
    first = manifest()
    assert decode(encode(first)) == first
    assert encode(decode(encode(first))) == encode(first)
    assert decode(encode(first)) != attrs.evolve(first, kdsl="0.2.0")


def test_the_document_has_the_keys_of_the_schema(manifest):
    document = json.loads(encode(manifest()))
    assert list(document) == ["schema", "kdsl", "operator", "rule", "made_with", "variants", "files"]
    variant = document["variants"][0]
    assert variant["requires"] == [{"text": "T % 16 == 0", "else": "pad T to a multiple of 16"}]
    kernel = variant["kernels"][0]
    assert kernel["arguments"][0] == {"kind": "tensor", "name": "q", "dtype": "bf16"}
    assert kernel["arguments"][1] == {"kind": "stride", "tensor": "q", "axis": 1}
    assert kernel["arguments"][-1] == {"kind": "grid_end"}
    assert kernel["grid"] == {"tasks": "N * HV"} and kernel["launch"] == "host_range"


KERNEL = ("variants", 0, "kernels", 0)
K = "$.variants[0].kernels[0]"
VERDICT = ("variants", 0, "verdicts", 0)
GRID_BEGIN = {"kind": "grid_begin"}


@pytest.mark.parametrize(
    ("path", "value", "place", "found"),
    [
        (("schema",), 2, "$.schema", "2"),
        (("schema",), True, "$.schema", "true"),
        (("kdsl",), 1, "$.kdsl", "an integer 1"),
        (("kdsl",), "", "$.kdsl", 'a string ""'),
        (("operator",), "kda chunk", "$.operator", "a string"),
        (("rule", "sha256"), "00", "$.rule.sha256", "a string"),
        (("rule", "extra"), 1, "$.rule", "the unknown key `extra`"),
        (("made_with", "flags"), "-O2", "$.made_with.flags", "a string"),
        (("variants",), {}, "$.variants", "an object"),
        (("variants", 0, "id"), "xyz", "$.variants[0].id", "a string"),
        (("variants", 0, "machine", "features", 0), None, "$.variants[0].machine.features[0]", "null"),
        (("variants", 0, "dtypes", "q"), "f64", "$.variants[0].dtypes.q", "a string"),
        (("variants", 0, "options", "gate"), 1.5, "$.variants[0].options.gate", "1.5"),
        (("variants", 0, "sizes", "K"), True, "$.variants[0].sizes.K", "a boolean true"),
        (("variants", 0, "sizes", "K"), -1, "$.variants[0].sizes.K", "-1"),
        (("variants", 0, "requires", 0, "text"), "T % 16", "$.variants[0].requires[0].text", "expression"),
        (("variants", 0, "workspace", 0, "bytes"), "N *", "$.variants[0].workspace[0].bytes", "expression"),
        (("variants", 0, "kernels"), [], "$.variants[0].kernels", "no kernel"),
        ((*KERNEL, "symbol"), "a b", K + ".symbol", "a string"),
        ((*KERNEL, "launch"), "rocket", K + ".launch", "a string"),
        ((*KERNEL, "file"), "lib/b.so", K + ".file", "`lib/b.so`"),
        ((*KERNEL, "grid", "tasks"), "T == 1", K + ".grid.tasks", "expr"),
        ((*KERNEL, "arguments", 0, "kind"), "ptr", K + ".arguments[0].kind", "a"),
        ((*KERNEL, "arguments", 0, "dtype"), "f32", K + ".arguments[0]", "q as"),
        ((*KERNEL, "arguments", 1, "axis"), -1, K + ".arguments[1].axis", "-1"),
        ((*KERNEL, "arguments", 1, "tensor"), "k", K + ".arguments[1]", "a "),
        ((*KERNEL, "arguments", 4, "name"), "x", K + ".arguments[4]", "`x`"),
        ((*KERNEL, "arguments", 8), GRID_BEGIN, K + ".arguments", "2"),
        ((*VERDICT, "verdict"), "passes", "$.variants[0].verdicts[0].verdict", "a string"),
        ((*VERDICT, "evidence"), "unknown", "$.variants[0].verdicts[0]", "the verdict holds"),
        ((*VERDICT, "found"), [], "$.variants[0].verdicts[0].found", "an array"),
        (("files", "lib/scale.so"), "zz", "$.files.lib/scale.so", "a string"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named(manifest, path, value, place, found):
    document = json.loads(encode(manifest()))
    target = document
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    with pytest.raises(ManifestError) as caught:
        decode(json.dumps(document))
    assert caught.value.path == place
    assert caught.value.found.startswith(found), caught.value.found
    assert caught.value.needed and caught.value.remedy


def test_a_missing_key_is_named_wherever_it_is(manifest):
    document = json.loads(encode(manifest()))
    free = {"dtypes", "options", "sizes", "form", "choices", "files"}
    seen = 0

    def visit(value, path):
        nonlocal seen
        if isinstance(value, dict):
            for key in list(value):
                if path.rpartition(".")[2] not in free:
                    kept = copy.deepcopy(value)
                    del value[key]
                    with pytest.raises(ManifestError) as caught:
                        decode(json.dumps(document))
                    assert caught.value.path.startswith(path)
                    value.clear()
                    value.update(kept)
                    seen += 1
                visit(value[key], f"{path}.{key}")
        elif isinstance(value, list):
            for index, element in enumerate(value):
                visit(element, f"{path}[{index}]")

    visit(document, "$")
    assert seen > 60
    decode(json.dumps(document))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "\ufeff{}", '{"schema": NaN}', "[" * 100000, '{"a":1,"a":2}']
)
def test_text_that_is_no_manifest(text):
    with pytest.raises(ManifestError):
        decode(text)


def test_ids_and_names_are_distinct(manifest, variant):
    with pytest.raises(ManifestError, match="2 times the variant id `abcd1234`"):
        encode(manifest(variant(), variant()))
    encode(manifest(variant(), variant(id="abcd1235")))
    kernel = variant().kernels[0]
    with pytest.raises(ManifestError, match="2 times the kernel name `all`"):
        encode(manifest(variant(kernels=[kernel, kernel])))


words = st.text(alphabet="abcxyz_", min_size=1, max_size=8)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=5), st.floats(-1, 1))


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(words, st.one_of(st.booleans(), st.integers(-9, 9), st.text(max_size=4)), max_size=3),
    st.dictionaries(words, st.integers(0, 512), max_size=3),
    st.dictionaries(words, scalars, max_size=3),
    st.lists(
        st.builds(m.Verdict, words, st.sampled_from(m.VERDICTS), st.just("proved"), scalars, scalars),
        max_size=3,
    ),
    st.lists(words, max_size=4),
)
def test_any_manifest_comes_back(options, sizes, choices, verdicts, features):
    kernel = m.Kernel("k", "a.so", "f", [m.GridBegin(), m.GridEnd()], {"tasks": "1"})
    variant = m.Variant(
        id="abcd", target="cpu", machine=Machine("Linux", "x", features), dtypes={}, options=options,
        sizes=sizes, form={}, choices=choices, kernels=[kernel], verdicts=verdicts,
    )  # fmt: skip
    first = m.Manifest(
        "0",
        "a.b",
        m.Rule("r", "f", "0" * 64),
        m.MadeWith("1", "2", "3", "4", []),
        [variant],
        {"a.so": "0" * 64},
    )
    assert decode(encode(first)) == first
