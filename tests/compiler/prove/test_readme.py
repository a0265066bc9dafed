"""The worked example of the README: an operator that forgets its initial state passes a loose test and no proof."""

from __future__ import annotations

import re
import subprocess

import numpy as np
import pytest
from click.testing import CliRunner

from kdsl.cli.main import cli
from kdsl.data import data_root
from kdsl.driver import build
from kdsl.driver.trial import chunk_runner, open_first, stored
from kdsl.validate.acceptance import acceptance
from kdsl.validate.call import reference

ROOT = data_root()
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN = README.partition("## Proved, not only tested")[2].partition("\n## ")[0]
MADE = re.search(r"^\$ (sed .*?) > quick.kds$", SHOWN, re.MULTILINE | re.DOTALL)[1]
ASKED = re.search(r"^\$ kdsl (prove .*)$", SHOWN, re.MULTILINE)[1]


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """The file that the README's command makes, in the folder that the test runs in."""
    (tmp_path / "stdlib").symlink_to(ROOT / "stdlib")
    text = subprocess.run(MADE, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "T < 256" in text and "operator quick.chunk_forward" in text
    file = tmp_path / "quick.kds"
    file.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return file


def missing_lines(shown: str, printed: str) -> list[str]:
    """Lines of `shown` that are not in `printed` in their order; dots stand for anything, a field element for any."""
    left, missing = iter(printed.splitlines()), []
    for line in filter(None, map(str.strip, shown.splitlines())):
        text = re.sub(r"\d{7,}", r"\\d+", re.escape(line).replace(re.escape("..."), ".*"))
        if not any(re.search(text, found) for found in left):
            missing.append(line)
    return missing


def test_the_proof_names_the_stage_and_the_channel(quick):
    done = CliRunner().invoke(cli, ASKED.split())
    shown = SHOWN.partition(f"$ kdsl {ASKED}\n")[2].partition("```")[0]
    assert done.exit_code == 1
    assert "state_load" in shown and "channel = " in shown
    assert len(shown.splitlines()) > 6 and not missing_lines(shown, done.stdout), done.stdout
    assert missing_lines(shown.replace("state_load", "state_save"), done.stdout)


def test_a_loose_test_passes_what_the_acceptance_and_the_proof_reject(quick, tmp_path):
    from kdsl.check import check_paths
    from kdsl.prove.forms import Form, form_settings, option_settings, plan_of_form

    library = check_paths([quick]).library
    operator = library.operators["quick.chunk_forward"]
    options = next(o for o in option_settings(operator) if o["gate"] == "precomputed" and not o["state_v_first"])
    plan = plan_of_form(library, Form(operator.name, form_settings(operator)[0], options), {"K": 32, "V": 32})
    program = open_first(build([plan], tmp_path / "quick.kdsb"))
    dtypes = plan.specialization.dtypes
    call = {name: stored(x, dtypes[name]) for name, x in long_call(np.random.default_rng(1)).items()}
    found, right = chunk_runner(program)(call), reference(call)
    for ours, theirs in zip(found, right, strict=True):
        assert np.mean(np.abs(ours - theirs)) < 0.01 * np.mean(np.abs(theirs))  # a loose test
        assert np.allclose(ours, theirs, rtol=0.05, atol=0.25)  # another
    assert not acceptance(*found, *right).accepted


def long_call(rng: np.random.Generator) -> dict:
    """Two thousand tokens, decays around exp(-0.5) a token, an initial state like those that calls leave behind."""
    draw, tokens = rng.standard_normal, 2048
    return {
        "q": draw((1, tokens, 1, 32)) * 32**-0.5,
        "k": draw((1, tokens, 1, 32)) * 32**-0.5,
        "v": draw((1, tokens, 1, 32)),
        "g": -np.exp(draw((1, tokens, 1, 32)) - 1.0),
        "beta": rng.random((1, tokens, 1)),
        "initial_state": draw((1, 1, 32, 32)) * 0.3,
    }
