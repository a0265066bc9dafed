"""Negative controls of `error within kda.acceptance`: wrong mathematics never becomes a bundle."""

from __future__ import annotations

import re

import pytest

from kdsl.check.library import load
from kdsl.data import data_root
from kdsl.driver import ContractFailed, build

from ..workshop import plan

ROOT = data_root()
SWITCHES = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "gate": "bounded"}
CHUNK = {
    "beta dropped from the residual": (r"(: r\[j, e\] = )b\[j\] \* ", r"\1"),
    "the solve skipped": (r"(: u\[j, e\] = )sum over i of inv\[j, i\] \* r\[i, e\]", r"\1r[j, e]"),
    "the mask of the keys off by a row": (r"if j < i then b\[i\] \* l_raw", "if j + 1 < i then b[i] * l_raw"),
    "no diagonal in the mask of the queries": (r"if j <= i then m_raw", "if j < i then m_raw"),
    "the initial state dropped": (r"(s0\[d, e\] = initial_state\[n, h, d, e\]) +where given\(initial_state\)",
                                  r"\1 where N < 0"),
    "the decay of the state dropped": (r"(gamma\[d\] = )exp2\(gl\[d\]\)", r"\g<1>1.0"),
    "the last token left out": (r"valid\(n, c, i\) = c \* C \+ i < length\(n\)",
                                "valid(n, c, i) = c * C + i < length(n) - 1"),
    "the scale dropped": (r"(rsqrt\(qq\[i\] \+ 1e-6\)) \* scale", r"\1"),
    "the heads of another group": (r"(head\(h\) += )if HV == H then h else h / \(HV / H\)", r"\1h % H"),
}  # fmt: skip
DECODE = {
    "the heads of another group": (r"(head\(h\) += )h / \(HV / H\)", r"\1h % H"),
    "beta dropped": (r"b\[\] \* \(vx\[e\] - sk\[e\]\)", "(vx[e] - sk[e])"),
    "the update dropped from the output": (r"sum over d of state_next\[d, e\] \* qn",
                                           "sum over d of sd[d, e] * qn"),
    "a skipped row computed": (r"if slot\(source\(n\)\) then oq\[e\] else 0.0", "oq[e]"),
}  # fmt: skip


def edited(folder, operator: str, pattern: str, replacement: str):
    """The standard library with one line of an operator changed, and the shipped CPU rules."""
    text = (ROOT / "stdlib" / "operators" / f"{operator}.kds").read_text(encoding="utf-8")
    text, count = re.subn(pattern, replacement, text)
    assert count == 1, f"{count} lines match {pattern}"
    file = folder / "operator.kds"
    file.write_text(text, encoding="utf-8")
    return load([file, *sorted((ROOT / "rules" / operator).glob("cpu_*.kds"))])


def refused(library, rule: str, folder):
    with pytest.raises(ContractFailed) as caught:
        build([plan(library, rule, sizes={"K": 32, "V": 32}, **SWITCHES)], folder / "wrong.kdsb")
    assert [v.clause for v in caught.value.verdicts] == ["error within kda.acceptance"]
    assert "fails (measured)" in str(caught.value) and not (folder / "wrong.kdsb").exists()


@pytest.mark.parametrize("what", CHUNK)
def test_a_wrong_chunk_operator_is_no_bundle(what, tmp_path):
    refused(edited(tmp_path, "kda.chunk_forward", *CHUNK[what]), "cpu_split", tmp_path)


@pytest.mark.parametrize("what", DECODE)
def test_a_wrong_decode_operator_is_no_bundle(what, tmp_path):
    refused(edited(tmp_path, "kda.decode", *DECODE[what]), "cpu_stream", tmp_path)


def test_the_same_without_an_edit_is_one(tmp_path):
    """Control of the controls."""
    library = edited(tmp_path, "kda.chunk_forward", r"(: u\[j, e\] = )sum over", r"\1sum over")
    made = plan(library, "cpu_split", sizes={"K": 32, "V": 32}, **SWITCHES)
    assert build([made], tmp_path / "right.kdsb").is_dir()
