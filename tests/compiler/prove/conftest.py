"""Operators edited as text, and the programs of their forms."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("tvm_ffi", reason="the proof needs TVM")

from kdsl.check.library import load
from kdsl.check.operators import resolve_operator
from kdsl.lower.lowering import Lowering
from kdsl.prove.forms import Form, form_settings, option_settings, plan_of_form
from kdsl.prove.lowered import prove
from kdsl.source.span import SourceFile
from kdsl.syntax.parse import parse


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory):
    """Proofs and objects of a test run are its own."""
    patch = pytest.MonkeyPatch()
    patch.setenv("KDSL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


def edited(operator: str, edits):
    """The standard library with one operator's text changed; blanks in `old` stand for any blanks. None
    where the operator has no such text."""
    library = load()
    span = library.operators[operator].declaration.span
    text = span.text
    for old, new in edits:
        pattern = r"\s+".join(re.escape(word) for word in old.split())
        text, count = re.subn(pattern, lambda _, new=new: new, text)
        if not count:
            return None
    (declaration,) = parse(SourceFile("edited.kds", text + "\n")).declarations
    library.operators[operator] = resolve_operator(declaration)
    return library


def form_of(library, operator: str, form=None, options=None) -> Form:
    """The first form and options that have these values."""
    found = library.operators[operator]
    wanted, asked = form or {}, options or {}
    settings = next(f for f in form_settings(found) if wanted.items() <= f.items())
    chosen = next(o for o in option_settings(found) if asked.items() <= o.items())
    return Form(operator, settings, chosen)


@pytest.fixture
def edit_operator():
    return edited


@pytest.fixture
def prove_edited():
    """prove_edited(operator, edits, form, options) -> Proof of the graph."""

    def run(operator, edits=(), form=None, options=None, **how):
        library = edited(operator, edits)
        assert library is not None, "the operator has no such text"
        plan = plan_of_form(library, form_of(library, operator, form, options))
        return prove(Lowering(plan), scheduled=False, **how)

    return run
