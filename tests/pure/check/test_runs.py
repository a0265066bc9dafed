"""An index that cuts the steps of another into runs: what is right, and every way to get it wrong."""

from __future__ import annotations

import pytest

from kdsl.check import check_source
from kdsl.check.driver import check_loaded
from kdsl.check.files import load_text
from kdsl.check.graph import build_graph, tensor_steps
from kdsl.plan.derivable import derivations
from kdsl.source.span import SourceFile
from kdsl.syntax.print import format_text

OPERATOR = """operator toy {
  sizes { N, T }
  parameters { S in 2..8 when span is cut }
  inputs { x : [N, T] of f32 }
  outputs { y : [N] of f32 }
  define { run(n) = (T + S - 1) / S }
  indices {
    n in N parallel
    t in T sequential stored at n * T + t of N * T
    s in t by run(n) up to S sequential stored at n * S + s of N * S
  }
  views {
    xx[] = x[n, t]
    yy[] = y[n]
  }
  part runs {
    either span default whole {
      when whole { carry sum[] over t from 0.0 to yy[] next sum_next }
      when cut   { carry sum[] over t in s from 0.0 to left[] next sum_next }
    }
    add : sum_next[] = sum[] + xx[]
  }
  part join {
    either span {
      when whole { }
      when cut {
        carry total[] over s from 0.0 to yy[] next total_next
        add_run : total_next[] = total[] + left[]
      }
    }
  }
}
"""
WHOLE = """rule r schedules toy on cpu {
  kernel k computes runs { grid { task : n } }
}
"""
CUT = """rule r schedules toy on cpu {
  form {
    S = 4
    span = cut
  }
  kernel k computes runs {
    grid { task : n, s }
    place { left : f32 in workspace }
  }
  kernel j computes join { grid { task : n } }
}
"""


def found(text: str) -> dict[str, str]:
    """Codes with their messages: of the check, and of the derivation where the check has nothing to say."""
    result = check_loaded(load_text(SourceFile("toy.kds", text)), None)
    diagnostics = result.diagnostics or derivations(result.library, result.library.rules.values())
    return {d.code: d.message for d in diagnostics}


@pytest.mark.parametrize("rule", [WHOLE, CUT])
def test_right(rule):
    assert found(OPERATOR + rule) == {}


def test_the_text_is_printed_as_it_is_read():
    assert format_text(OPERATOR) == format_text(format_text(OPERATOR))
    lines = ("S in 2..8 when span is cut", "s in t by run(n) up to S sequential stored at n * S + s of N * S",
             "either span default whole {", "carry sum[] over t in s from 0.0 to left[] next sum_next")  # fmt: skip
    assert all(line in format_text(OPERATOR) for line in lines)


def test_what_belongs_to_which_steps():
    operator = check_loaded(load_text(SourceFile("toy.kds", OPERATOR)), None).library.operators["toy"]
    graph = build_graph(operator, {"span": "cut"})
    steps = tensor_steps(operator, graph.stages, graph.carries)
    assert steps == {"sum": "t", "left": "s", "sum_next": "t", "total": "s", "yy": None, "total_next": "s"}
    assert [c.end.tensor for c in build_graph(operator, {}).carries] == ["yy"]  # the default


OPERATORS = [
    ("s in t by run(n) up to S", "s in n by run(n) up to S", "E101"),
    ("s in t by run(n) up to S", "s in s by run(n) up to S", "E101"),
    ("by run(n) up to S sequential", "by run(n) up to S parallel", "E107"),
    ("by run(n) up to S sequential", "by run(n) sequential", "E103"),
    (" stored at n * S + s of N * S", "", "E103"),
    ("by run(n)", "by 0.5", "E110"),
    ("by run(n)", "by run(s)", "E107"),
    ("over t in s from", "over t in n from", "E101"),
    ("over t in s from", "over t in t from", "E101"),
    ("over t in s from 0.0", "over t in s from xx[]", "E215"),
    ("over t in s from 0.0 to left[]", "over t in s from total[] to left[]", None),
    ("over t in s from 0.0", "over t in s from 1 < 2", "E110"),
    ("from 0.0 to left[]", "from 0.0 to yy[]", "E101"),
    ("total_next[] = total[] + left[]", "total_next[] = total[] + left[] + xx[]", "E215"),
    ("total_next[] = total[] + left[]", "total_next[] = total[] + left[] + sum_next[]", "E215"),
    ("add : sum_next[] = sum[] + xx[]", "add : sum_next[] = sum[] + xx[] + s", "E107"),
    ("either span default whole {", "either span default hole {", "E101"),
    ("either span {\n", "either span default cut {\n", "E207"),
    ("when span is cut", "when span is cutt", "E101"),
    ("when span is cut", "when spam is cut", "E101"),
    ("when span is cut", "when N == 1", "E107"),
    ("sizes { N, T }", "sizes { N, T when span is cut }", "E107"),
    ("carry total[] over s from", "carry total[] over t from", "E215"),
]


@pytest.mark.parametrize(("old", "new", "code"), OPERATORS)
def test_operators_that_are_wrong(old, new, code):
    assert old in OPERATOR
    codes = {d.code for d in check_source(OPERATOR.replace(old, new, 1), "toy.kds")}
    assert (code in codes) if code is not None else codes == set(), codes


RULES = [
    (WHOLE, "grid { task : n }", "grid { task : n, s }", "E125", "carried from run to run"),
    (CUT, "grid { task : n, s }", "grid { task : n }", "D138", "does not deal `s`"),
    (CUT, "    S = 4\n", "", "E141", "leaves `S` open"),
    (CUT, "S = 4", "S = 9", "E142", "never 9"),
    (CUT, "    place { left : f32 in workspace }\n", "", "E402", "never puts it in the workspace"),
    (CUT, "grid { task : n, s }", "grid { task : n, s by 2 }", "D138", "does not deal `s`"),
    (CUT, "  kernel j computes join { grid { task : n } }\n", "", "E401", "no kernel computes part `join`"),
]


@pytest.mark.parametrize(("rule", "old", "new", "code", "words"), RULES)
def test_rules_that_are_wrong(rule, old, new, code, words):
    assert old in rule
    codes = found(OPERATOR + rule.replace(old, new, 1))
    assert words in codes.get(code, ""), codes
