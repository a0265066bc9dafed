from __future__ import annotations

from .fuzz import fuzz


def test_no_text_fails():
    right, wrong = fuzz(5000, seed=0)
    assert right > 500 and wrong > 2500
