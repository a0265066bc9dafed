"""`kdsl check` asks for proofs: of the forms that are shipped, and of a text that was changed after its proof."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from kdsl.check import check_paths
from kdsl.cli.main import cli
from kdsl.data import data_root
from kdsl.prove.ledger import LEDGER, form_name, form_settings, missing, place

STANDARD = data_root() / "stdlib" / "operators"
OPERATORS = check_paths([STANDARD]).library.operators


def check(*paths):
    return CliRunner().invoke(cli, ["check", *map(str, paths)])


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))
def test_every_shipped_form_has_its_proof_on_record(operator):
    assert missing(operator) is None
    entry = json.loads(place(operator).read_text(encoding="utf-8"))[operator.name]
    assert set(entry["forms"]) == {form_name(form) for form in form_settings(operator)}
    assert all(0 < form["bound"] <= 1e-18 and form["programs"] for form in entry["forms"].values())


@pytest.fixture
def copied(tmp_path):
    """copied(old, new): the decode operator under another name with a text changed, its proofs beside it."""

    def write(old="", new=""):
        text = (STANDARD / "kda.decode.kds").read_text(encoding="utf-8")
        assert old in text
        file = tmp_path / "mine.kds"
        file.write_text(text.replace("operator kda.decode", "operator my.decode").replace(old, new, 1) if old else
                        text.replace("operator kda.decode", "operator my.decode"), encoding="utf-8")  # fmt: skip
        return file

    return write


def on_record(file, operator):
    from kdsl.prove.ledger import record
    from kdsl.prove.proof import FIELD, CaseProof, Proof

    proof = Proof(FIELD, "", (CaseProof("", {}, 4, 10, 1e-20),))
    record(operator, [(form, proof) for form in form_settings(operator)], file.parent / LEDGER)


def test_an_operator_without_a_proof_does_not_check(copied):
    file = copied()
    found = check(file)
    assert found.exit_code == 1 and "error[P103]" in found.output and "no proof on record" in found.output
    assert f"kdsl prove {file} --record" in found.output
    on_record(file, check_paths([file]).library.operators["my.decode"])
    assert check(file).exit_code == 0


ONE_FORM = """operator my.scale {
  sizes { B; D in 16..256 }
  inputs { x : [B, D] of f32 }
  outputs { y : [B, D] of f32 }
  indices { n in B parallel; d in D }
  views { xx[d] = x[n, d]; yy[d] = y[n, d] }
  part all {
    write : yy[d] = xx[d] * 2.0
  }
}
"""
TWO_FORMS = """    either way {
      when product { write : yy[d] = xx[d] * 2.0 }
      when total { write : yy[d] = xx[d] + xx[d] }
    }
"""


def test_one_form_without_a_recurrence_is_its_own_definition(tmp_path):
    """Two forms are not: nothing says that they compute the same, and the finding says what can be done."""
    file = tmp_path / "scale.kds"
    file.write_text(ONE_FORM, encoding="utf-8")
    assert check(file).exit_code == 0, check(file).output
    file.write_text(ONE_FORM.replace("    write : yy[d] = xx[d] * 2.0\n", TWO_FORMS), encoding="utf-8")
    found = check(file)
    assert found.exit_code == 1 and "error[P103]" in found.output
    assert "way = product; way = total" in found.output and "keep one form, or give" in found.output


def test_an_edit_after_the_proof_asks_for_another(copied):
    file = copied()
    on_record(file, check_paths([file]).library.operators["my.decode"])
    assert check(copied("a[d] * state[d, e]", "state[d, e] * a[d]")).exit_code == 1
    assert check(copied("part step {", "part step {  # a remark\n")).exit_code == 0


def test_a_new_form_asks_for_its_proof(copied):
    file = copied()
    operator = check_paths([file]).library.operators["my.decode"]
    on_record(file, operator)
    ledger = json.loads((file.parent / LEDGER).read_text(encoding="utf-8"))
    name = form_name(form_settings(operator)[0])
    del ledger["my.decode"]["forms"][name]
    (file.parent / LEDGER).write_text(json.dumps(ledger), encoding="utf-8")
    found = check(file)
    assert found.exit_code == 1 and name in found.output


def test_a_ledger_that_is_no_ledger_proves_nothing(copied):
    file = copied()
    for text in ("", "[1]", '{"my.decode": {"text": 3}}'):
        (file.parent / LEDGER).write_text(text, encoding="utf-8")
        assert check(file).exit_code == 1
