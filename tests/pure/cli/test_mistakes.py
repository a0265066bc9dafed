"""Common mistakes, each in a file of its own, with the message that each gets.

Read a message as someone who knows the language for an hour: the file can be mended from it alone, or the
message is wrong. What the messages show of the standard library is left out of the goldens: it changes.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from kdsl.cli.main import cli
from kdsl.data import data_root

from .mends import MENDS, NEW_NAME

FOLDER = Path(__file__).with_name("mistakes")
NAMES = sorted(path.stem for path in FOLDER.glob("*.kds"))


def checked(name: str, *options: str) -> str:
    done = CliRunner().invoke(cli, ["check", f"{name}.kds", *options])
    assert done.exit_code in (0, 1), done.output
    return done.output


def own(text: str) -> str:
    """A message without the lines of the standard library, its gutter as wide as the file itself needs."""
    kept, foreign = [], False
    for line in text.splitlines():
        if re.match(r" *(-->|:::) ", line):
            place = line.replace(f"{data_root()}{os.sep}", "").replace("\\", "/")
            foreign = "stdlib/" in place
            kept.append(" " + re.sub(r":\d+:\d+$", "", place.strip()) if foreign else " " + place.strip())
        elif re.match(r" *= ", line) or not line:
            foreign = False
            kept.append(re.sub(r"^ +", " ", line))
        elif not foreign:
            kept.append(re.sub(r"^ *(\d*) \|", lambda m: f"{m[1]:>3} |", line))
    return "\n".join(kept) + "\n"


@pytest.fixture(autouse=True)
def there(monkeypatch):
    monkeypatch.chdir(FOLDER)


@pytest.mark.parametrize("name", NAMES)
def test_the_message(name, golden):
    golden(FOLDER / f"{name}.txt", own(checked(name)))


@pytest.mark.parametrize("name", NAMES)
def test_it_is_found_and_says_what_to_do(name):
    found = json.loads(checked(name, "--format", "json"))["diagnostics"]
    assert found
    first = found[0]
    explained = first["help"] or first["required"] or first["notes"] or first["labels"]
    assert explained or ":" in first["message"]


@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_mended_from_the_message_alone(name, tmp_path, monkeypatch):
    """Every step writes words that the messages or the file show; after the last one nothing is found."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / f"{name}.kds"
    text = (FOLDER / f"{name}.kds").read_text("utf-8")
    known = words(text) | {NEW_NAME}
    for old, new in MENDS[name]:
        file.write_text(text, encoding="utf-8")
        known |= words(checked(name))
        known |= {str(int(word) - 1) for word in known if word.isdigit()}  # the last one that is right
        assert old in text and words(new) <= known, (old, words(new) - known)
        text = text.replace(old, new, 1)
    file.write_text(text, encoding="utf-8")
    assert json.loads(checked(name, "--format", "json"))["diagnostics"] == []


def words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z0-9_]+|[^\sA-Za-z0-9_`]", text))


def test_there_are_fifty():
    assert len(NAMES) >= 50
