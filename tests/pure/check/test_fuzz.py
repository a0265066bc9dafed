from __future__ import annotations

from .fuzz import fuzz


def test_no_text_fails_the_check():
    right, found = fuzz(5000, seed=0)
    assert right > 50 and sum(found.values()) > 4000 and len(found) > 35
