"""The failing example of a page has that mistake and no other; the fixed one has none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kdsl.check
import kdsl.contract
from kdsl.check import check_source
from kdsl.source import codes

MINE = [
    code.code
    for code in codes.all_codes()
    if re.match(r"E1[0-2]\d|E14\d|E2\d\d|E30\d|E310|E40\d|E50\d|W50[1-6]", code.code)
]
LITERAL = re.compile(r'"([EWR]\d{3})"')


@pytest.mark.parametrize("code", MINE)
def test_only_this_code(code):
    page = codes.page(code)
    for text in page.failing:
        assert {d.code for d in check_source(text, "page.kds")} == {code}
    for text in page.fixed:
        assert check_source(text, "page.kds") == ()


@pytest.mark.parametrize("code", MINE)
def test_severity_is_that_of_the_page(code):
    for text in codes.page(code).failing:
        assert all(d.severity is codes.lookup(code).severity for d in check_source(text, "page.kds"))


def test_every_code_that_is_reported_has_a_page():
    folders = [Path(module.__file__).parent for module in (kdsl.check, kdsl.contract)]
    used = {
        code
        for folder in folders
        for file in folder.glob("*.py")
        for code in LITERAL.findall(file.read_text("utf-8"))
    }
    assert not {code for code in used if codes.page(code) is None}
