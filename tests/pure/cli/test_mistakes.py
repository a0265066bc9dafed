"""Common mistakes, each in a file of its own, with the message that each gets.

Read a message as someone who knows the language for an hour: the file can be mended from it alone, or it is wrong.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from kdsl.cli.main import cli
from kdsl.data import data_root

FOLDER = Path(__file__).with_name("mistakes")
NAMES = sorted(path.stem for path in FOLDER.glob("*.kds"))


def checked(name: str, *options: str) -> str:
    done = CliRunner().invoke(cli, ["check", f"{name}.kds", *options])
    assert done.exit_code in (0, 1), done.output
    return done.output


@pytest.fixture(autouse=True)
def there(monkeypatch):
    monkeypatch.chdir(FOLDER)


@pytest.mark.parametrize("name", NAMES)
def test_the_message(name, golden):
    root = f"{data_root()}{os.sep}"
    golden(FOLDER / f"{name}.txt", checked(name).replace(root, ""))


@pytest.mark.parametrize("name", NAMES)
def test_it_is_found_and_says_what_to_do(name):
    found = json.loads(checked(name, "--format", "json"))["diagnostics"]
    assert found
    first = found[0]
    explained = first["help"] or first["required"] or first["notes"] or first["labels"]
    assert explained or ":" in first["message"]


def test_there_are_fifty():
    assert len(NAMES) >= 50
