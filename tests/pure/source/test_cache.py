"""The cache is never trusted and never in the way."""

from __future__ import annotations

import os

import pytest

from kdsl.source import cache
from kdsl.syntax import tables


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_is_saved_is_loaded(place):
    assert cache.load("kind", "k" * 64) is None
    assert cache.save("kind", "k" * 64, "text é\n") and cache.load("kind", "k" * 64) == "text é\n"
    assert [path.name for path in place.iterdir()] == ["kind-" + "k" * 32]


@pytest.mark.parametrize("damage", [b"", b"x", b"\x80\x04.", b"0" * 64 + b"\n{}", b"\n\n\n"])
def test_damaged_entries_are_ignored(place, damage):
    cache.save("kind", "key", "text")
    (place / "kind-key").write_bytes(damage)
    assert cache.load("kind", "key") is None


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no user ids")
def test_entries_of_others_are_ignored(monkeypatch):
    cache.save("kind", "key", "text")
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert cache.load("kind", "key") is None


def test_a_folder_that_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file" / "below"))
    assert not cache.save("kind", "key", "text") and cache.load("kind", "key") is None


def test_tables_are_made_again_when_the_cache_is_wrong(place):
    fresh = tables._decode(tables._encode(tables.grammar_text()))
    key = cache.digest(tables.FORMAT, tables.__version__, tables.grammar_text())
    for text in ("", "[]", "{}", '{"actions": 3}'):
        cache.save("tables", key, text)
        tables.tables.cache_clear()
        assert len(tables.tables().actions) == len(fresh.actions)
    tables.tables.cache_clear()


def test_digest_separates_its_parts():
    assert cache.digest("a", "bc") != cache.digest("ab", "c") and len(cache.digest("\ud800")) == 64
