"""A short run of the texts; the long one is `python -m tests.pure.check.fuzz`."""

from __future__ import annotations

import pytest

from .fuzz import fuzz


@pytest.mark.parametrize("seed", range(4))
def test_no_text_fails_the_check(seed):
    right, found = fuzz(400, seed)
    assert right > 1 and sum(found.values()) > 800 and len(found) > 20
