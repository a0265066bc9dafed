"""Options of the whole test suite."""

from __future__ import annotations

import os

import pytest


def pytest_addoption(parser):
    parser.addoption(
        "--update-goldens", action="store_true", help="write goldens instead of comparing with them"
    )


@pytest.fixture
def golden(request):
    """`golden(path, text)`: compare a text with a file, or write it under --update-goldens."""
    update = request.config.getoption("--update-goldens")

    def compare(path, text: str) -> None:
        if update:
            assert not os.environ.get("CI"), "goldens are not updated in CI"
            path.write_text(text, encoding="utf-8", newline="\n")
        assert path.exists(), f"{path.name} is missing: run pytest --update-goldens"
        assert text == path.read_text(encoding="utf-8")

    return compare
