"""Rules broken in one place: what is found is that place, in these words, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from texts import BROKEN, CPU, MMA

from kdsl.check import check_source
from kdsl.source.render.text import render_text

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("text", [MMA, CPU], ids=["mma", "cpu"])
def test_the_texts_are_right_before_they_are_broken(text):
    assert check_source(text, "rule.kds") == ()


@pytest.mark.parametrize("broken", BROKEN, ids=[b.name for b in BROKEN])
def test_broken(broken, golden):
    found = check_source(broken.text, "rule.kds")
    assert tuple(sorted({d.code for d in found})) == broken.codes
    if broken.worded:
        golden(GOLDEN / f"{broken.name}.txt", render_text(map(in_the_rule, found)))


def in_the_rule(diagnostic):
    """Without excerpts of the standard library, whose lines move when it grows; its texts become notes."""
    inside = tuple(label for label in diagnostic.labels if label.span.path == "rule.kds")
    outside = tuple(f"there: {label.text}" for label in diagnostic.labels if label.span.path != "rule.kds")
    return diagnostic.with_(labels=inside, notes=(*diagnostic.notes, *outside))
