"""Options of the whole test suite."""

from __future__ import annotations

import os
import tempfile

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


def pytest_configure(config):
    """Bundles that tests build go into a folder of this run, shared by its workers; never the user's cache.

    KDSL_TEST_CACHE names a folder that stays, for quick reruns: its keys hold everything that makes a bundle.
    """
    if hasattr(config, "workerinput"):
        return
    kept = os.environ.get("KDSL_TEST_CACHE")
    if kept is None:
        folder = tempfile.TemporaryDirectory(prefix="kdsl-test-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
    os.environ["KDSL_CACHE_DIR"] = kept if kept is not None else folder.name
