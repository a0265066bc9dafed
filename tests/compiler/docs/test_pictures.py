"""Pictures in docs/ are what `kdsl viz` draws now; `pytest --update-goldens` draws them anew."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from kdsl.cli.viz import viz
from kdsl.data import data_root

PICTURES = {"docs/wgmma_fused.svg": ("rules/kda.chunk_forward/wgmma_fused.kds", "sm_90a")}


def drawn(rule: str, target: str) -> str:
    run = CliRunner().invoke(viz, [str(data_root() / rule), "--target", target])
    assert run.exit_code == 0, run.output
    return run.output


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_is_of_the_rule_as_it_is(name, golden):
    golden(data_root() / name, drawn(*PICTURES[name]))


def test_every_picture_is_drawn_here():
    assert {f"docs/{path.name}" for path in (data_root() / "docs").glob("*.svg")} == set(PICTURES)
