"""Every code has a page, and the page's examples do what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kdsl
from kdsl.source import codes
from kdsl.source.span import SourceFile
from kdsl.syntax.parse import parse_source

PACKAGE = Path(kdsl.__file__).parent
UNREADABLE = ("E030", "E031", "E032", "E033", "E034", "W507")  # of files and of the derivation, not of texts
LITERAL = re.compile(r"\"([DEPRTW]\d{3})\"")


def codes_of(code: str, text: str) -> set[str]:
    """The codes a text yields, from the stage that owns `code`."""
    source = SourceFile("page.kds", text)
    if code.startswith("E0"):
        return {diagnostic.code for diagnostic in parse_source(source).diagnostics}
    if _has_check_source():
        from kdsl.check import check_source

        return {diagnostic.code for diagnostic in check_source(source)}
    pytest.skip("kdsl.check.check_source is not there yet")


def _has_check_source() -> bool:
    import kdsl.check

    return hasattr(kdsl.check, "check_source")


def test_every_page_is_read():
    found = {code.code for code in codes.all_codes()}
    assert found == {path.stem for path in codes.PAGES.glob("*.md")}
    slugs = [code.slug for code in codes.all_codes()]
    assert len(set(slugs)) == len(slugs), sorted(s for s in slugs if slugs.count(s) > 1)


def test_every_code_in_use_has_a_page():
    used = {}
    for path in PACKAGE.rglob("*.py"):
        for code in LITERAL.findall(path.read_text(encoding="utf-8")):
            used.setdefault(code, path)
    missing = {
        code: str(path.relative_to(PACKAGE)) for code, path in used.items() if codes.page(code) is None
    }
    assert not missing


@pytest.mark.parametrize("code", [code.code for code in codes.all_codes()])
def test_page(code):
    page = codes.page(code)
    titles = re.findall(r"^## (.+)$", page.text, re.M)
    assert titles == list(codes.SECTIONS)
    if code in UNREADABLE or code[0] in "DPRT":
        return
    assert page.failing and page.fixed
    for text in page.failing:
        assert code in codes_of(code, text)
    for text in page.fixed:
        assert code not in codes_of(code, text)
        assert not parse_source(SourceFile("page.kds", text)).diagnostics


def test_only_the_code_of_the_page():
    """A failing example of a syntax page has that mistake and no other."""
    for code in codes.all_codes():
        if code.code.startswith("E0"):
            for text in codes.page(code.code).failing:
                assert codes_of(code.code, text) == {code.code}, text


def test_unknown():
    assert codes.page("E999") is None and codes.page("../x") is None and codes.slug("Z1") == ""
