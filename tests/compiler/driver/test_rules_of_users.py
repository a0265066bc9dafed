"""Calls that no bundle fits: the shipped rules and those of KDSL_RULES answer, and every refusal is told."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from kdsl import kda
from kdsl.driver import NoRule, RulesWrong
from kdsl.driver.compile import shipped_library
from kdsl.validate import oracle
from kdsl.validate.acceptance import acceptance

from ..workshop import as_numpy

EIGHTS = """
rule cpu_eights schedules kda.chunk_forward on cpu {
  \"\"\"Head dimensions that cpu_split does not take.\"\"\"
  require {
    q, k, v : bf16, f16, f32
    K % 8 == 0 and V % 16 == 0   else "pad the key dimension to a multiple of 8"
    K % 16 == 8                  else "cpu_split takes the others"
  }
  form {
    C = 16
    decay = pairwise
    chain = split
  }
  kernel all computes prepare, recur {
    grid { task : n, h }
  }
  ensure { error within kda.acceptance }
}
"""


@pytest.fixture(autouse=True)
def fresh():
    """Rules are read once a process; these tests read their own."""
    shipped_library.cache_clear()
    kda.forget_bundles()
    yield
    shipped_library.cache_clear()
    kda.forget_bundles()


def call(keys):
    generator = torch.Generator().manual_seed(keys)

    def draw(*shape):
        return torch.randn(shape, generator=generator)

    return {"q": draw(1, 20, 1, keys) / keys, "k": draw(1, 20, 1, keys) / keys, "v": draw(1, 20, 1, 16),
            "g": -draw(1, 20, 1, keys).abs(), "beta": draw(1, 20, 1).sigmoid()}  # fmt: skip


def test_a_rule_of_the_user_takes_what_no_shipped_rule_does(monkeypatch, tmp_path, caplog):
    with pytest.raises(NoRule, match="`cpu_split`: K = 24 is not a multiple of 16; pad to 32"):
        kda.chunk_kda(**call(24))
    (tmp_path / "eights.kds").write_text(EIGHTS, encoding="utf-8")
    monkeypatch.setenv("KDSL_RULES", str(tmp_path))
    shipped_library.cache_clear()
    with caplog.at_level(logging.INFO, logger="kdsl"):
        o, state = kda.chunk_kda(**call(24), output_final_state=True)
    said = [record.getMessage() for record in caplog.records]
    assert "rule `cpu_eights` takes the call" in said
    assert any(line.startswith("rule `cpu_split` refuses: K = 24") for line in said)
    arrays = {name: x.double().numpy() for name, x in call(24).items()}
    assert acceptance(as_numpy(o), as_numpy(state), *oracle.chunk_forward(**arrays)).accepted
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="kdsl"):
        again, _ = kda.chunk_kda(**call(24), output_final_state=True)
    assert torch.equal(again, o) and not caplog.records  # the bundle is at hand now


def test_every_rule_says_why_it_refuses(monkeypatch, tmp_path):
    (tmp_path / "eights.kds").write_text(EIGHTS, encoding="utf-8")
    monkeypatch.setenv("KDSL_RULES", str(tmp_path / "eights.kds"))
    with pytest.raises(NoRule) as caught:
        kda.chunk_kda(**call(20))
    text = str(caught.value)
    assert len(caught.value.refusals) == 3 and text.startswith("no rule claims kda.chunk_forward on cpu (")
    assert "`cpu_split`: K = 20 is not a multiple of 16; pad to 32" in text and "`cpu_eights`: K = 20" in text


def test_two_rules_that_claim_one_call_are_a_finding(monkeypatch, tmp_path):
    greedy = EIGHTS.replace('    K % 16 == 8                  else "cpu_split takes the others"\n', "")
    (tmp_path / "greedy.kds").write_text(greedy, encoding="utf-8")
    monkeypatch.setenv("KDSL_RULES", str(tmp_path))
    with pytest.raises(RulesWrong, match="E502") as caught:
        kda.chunk_kda(**call(32))
    assert "cpu_split" in str(caught.value) and "cpu_eights" in str(caught.value)


def test_rules_with_errors_are_told_and_not_left_out(monkeypatch, tmp_path):
    (tmp_path / "wrong.kds").write_text(EIGHTS.replace("decay = pairwise", "decay = fast"), encoding="utf-8")
    monkeypatch.setenv("KDSL_RULES", str(tmp_path))
    with pytest.raises(RulesWrong, match=r"E142|E113") as caught:
        kda.chunk_kda(**call(24))
    assert "wrong.kds:" in str(caught.value)


def test_bundles_come_from_the_cache_the_second_time(monkeypatch):
    first, _ = kda.chunk_kda(**call(16))
    kda.forget_bundles()
    monkeypatch.setattr("kdsl.driver.compile.build", lambda *_: pytest.fail("built again"))
    second, _ = kda.chunk_kda(**call(16))
    assert torch.equal(first, second) and np.isfinite(as_numpy(first)).all()
