"""Forms on record: of this text of the operator, and only if every program of the form is proved."""

from __future__ import annotations

from kdsl.check.library import load
from kdsl.prove.ledger import form_settings, missing, record
from kdsl.prove.proof import FIELD, REJECTED, CaseProof, Difference, Proof

CHUNK = "kda.chunk_forward"
PROVED = Proof(FIELD, "", (CaseProof("", {}, 4, 10, 1e-20),))
REFUTED = Proof(REJECTED, "", difference=Difference("", ""))


def test_missing_until_recorded(tmp_path):
    path, operator = tmp_path / "ledger.json", load().operators[CHUNK]
    forms = form_settings(operator)
    assert missing(operator, path).code == "P103"
    record(operator, [(form, PROVED) for form in forms], path)
    assert missing(operator, path) is None


def test_one_rejected_program_spoils_its_form(tmp_path):
    path, operator = tmp_path / "ledger.json", load().operators[CHUNK]
    forms = form_settings(operator)
    record(operator, [*((form, PROVED) for form in forms), (forms[0], REFUTED)], path)
    found = missing(operator, path)
    assert found.message.startswith("no proof on record for 1 form of")


def test_another_text_needs_another_proof(tmp_path, edit_operator):
    path, operator = tmp_path / "ledger.json", load().operators[CHUNK]
    forms = form_settings(operator)
    record(operator, [(form, PROVED) for form in forms], path)
    commented = edit_operator(CHUNK, [("part prepare {", "part prepare {  # in parallel\n")]).operators[CHUNK]
    changed = edit_operator(CHUNK, [("qx[i, d] * scale", "scale * qx[i, d]")]).operators[CHUNK]
    assert missing(commented, path) is None and missing(changed, path) is not None
