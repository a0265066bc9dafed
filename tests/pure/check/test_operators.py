"""Laws of an operator's graph under every form and option, each with its negative control."""

from __future__ import annotations

import pytest
from texts import HERE

from kdsl.check import check_source
from kdsl.check.blueprint import blueprint, uncovered
from kdsl.check.graph import build_graph
from kdsl.check.library import load

PATH = HERE / "operator.kds"
TEXT = PATH.read_text("utf-8")

BREAKS = [
    ("gl[d] = gc[C - 1, d]", "gl[d] = gcc[C - 1, d]", "E101", "did you mean `gc`?"),
    ("gl[d] = gc[C - 1, d]", "gl[d] = gc[C - 1]", "E112", None),
    ("gc[i - 1, d] scan i", "gc[i + 1, d] scan i", "E206", None),
    ("gc[i - 1, d] scan i", "gc[i - 0, d] scan i", "E206", None),
    ("gc[i - 1, d] scan i", "gc[i - 1, d]", "E204", None),
    ("sum over p < i of", "sum over p of", "E206", None),
    ("write_o      : ox[j, e] = o_sum[j, e]\n", "", "E203", None),
    ("next state_next", "next state_nxt", "E101", "did you mean `state_next`?"),
    ("HV % H == 0 ", "HV % H ", "E110", None),
    ("start(n)       = if given", "start(n)       = if length(n) > 0 and given", "E104", None),
    ("k_undone[j, d] = kn[j, d] * exp(gc[C / 2", "k_undune[j, d] = kn[j, d] * exp(gc[C / 2", "E201", None),
    ("inv, state ", "invv, state ", "E101", "did you mean `inv`?"),
    ("d in K\n", "d in K\n    d in V\n", "E102", None),
    ("of like q strided\n    g ", "of like z strided\n    g ", "E101", None),
    ("      when folded {\n        weight_k", "      when foldde {\n        weight_k", "E207", None),
    ("= beta[row(n), token(n, c, i), h]", "= beta[row(n), token(n, c, i)]", "E112", None),
    ("default K ** -0.5", "default K ** -q", "E101", None),
    ("up to (T + C - 1) / C", "up to (T + C - 1) * 0.5", "E110", None),
    ("up to (T + C - 1) / C", "up to length(n)", "E101", None),
    ("of B * T / C + N", "of B * T / C + M", "E101", None),
    ("stored at slot(n, c)", "stored at slot(n)", "E103", None),
    ("n in N parallel", "n in N / H * 0.5 parallel", "E110", None),
]  # fmt: skip


def test_right():
    assert check_source(TEXT, str(PATH)) == ()


@pytest.mark.parametrize(("old", "new", "code", "help_"), BREAKS)
def test_broken(old, new, code, help_):
    assert old in TEXT
    found = check_source(TEXT.replace(old, new, 1), str(PATH))
    assert code in {d.code for d in found}, [(d.code, d.message) for d in found]
    assert help_ is None or any(help_ in d.help for d in found)
    assert len(found) <= 2, [(d.code, d.message) for d in found]


def test_the_blueprint_holds_every_graph():
    operator = load().operators["kda.chunk_forward"]
    whole = blueprint(operator)
    for decay in operator.forms["decay"]:
        for chain in operator.forms["chain"]:
            settings = {"decay": decay, "chain": chain, "gate": "softplus", "use_qk_l2norm_in_kernel": True,
                        "use_beta_sigmoid_in_kernel": False}  # fmt: skip
            names = [stage.name for stage in build_graph(operator, settings).stages]
            assert names == [s.stage.name for s in whole.under(settings).stages]


def test_uncovered_is_exact():
    cases = {"a": ("x", "y"), "b": ("1", "2")}
    assert uncovered((), [(("a", "x"),), (("a", "y"),)], cases) is None
    assert uncovered((), [(("a", "x"),)], cases) == {"a": "y"}
    assert uncovered((("a", "x"),), [(("a", "x"), ("b", "1"))], cases) == {"a": "x", "b": "2"}
    assert uncovered((), [(("a", "x"), ("b", "1")), (("a", "y"),), (("b", "2"),)], cases) is None


def test_a_grid_over_an_index_needs_a_bound():
    text = (HERE / "portable_mma.kds").read_text("utf-8").replace("kda.chunk_forward", "my.chunk")
    assert check_source(TEXT + text, str(PATH)) == ()
    (found,) = check_source(TEXT.replace("up to (T + C - 1) / C ", "") + text, str(PATH))
    assert found.code == "E125" and "no launch knows" in found.message
