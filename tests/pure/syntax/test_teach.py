"""Mistakes that people make, each with the one finding it must give."""

from __future__ import annotations

import pytest

from kdsl.source.span import SourceFile
from kdsl.syntax.parse import parse_source

MISTAKES = [
    # a rule's line, code, part of the message, part of the help
    ("require { K = 128 }", "E011", "`==` compares", "replace `=` by `==`"),
    ("form { decay == pairwise }", "E011", "`=` gives", "by `=`"),
    ("form { decay := pairwise }", "E011", ":=", "by `=`"),
    ("form { decay : pairwise }", "E011", "cannot stand here", "by `=`"),
    ("require { K == 128 && V == 128 }", "E013", "`&&`", "`and`"),
    ("require { K == 128 || V == 128 }", "E013", "`||`", "`or`"),
    ("require { !given(x) }", "E013", "`!`", "`not`"),
    ("require { K => 128 }", "E013", "`=>`", "`>=`"),
    ("require { K <> 128 }", "E013", "`<>`", "`!=`"),
    ("require { K === 128 }", "E013", "`===`", "`==`"),
    ("require { K not in [64, 128] }", "E013", "`not in`", "not x in"),
    ("require { gate is not bounded }", "E013", "`is not`", "not x is y"),
    ("require { x ^ 2 == 4 }", "E013", "`^`", "`**`"),
    ("require { T // 2 == 4 }", "E013", "`//`", "floor division"),
    ("form { C = 16 if wide else 32 }", "E013", "a choice begins with `if`", "if condition then"),
    ("choose { w in 8:16 default 8 }", "E013", "a range", "16..256"),
    ("choose { w in [8, 16] defualt 8 }", "E008", "did you mean `default`", "`default`"),
    ("choose { w in [8, 16 default 8 }", "E005", "`]` is missing", "add `]`"),
    ("chose { w in [8, 16] }", "E008", "did you mean `choose`", "`choose`"),
    ("requires { K == 128 }", "E008", "did you mean `require`", "`require`"),
    ("ENSURE { spills == 0 }", "E008", "did you mean `ensure`", "`ensure`"),
    ("kernel k compute step { }", "E008", "did you mean `computes`", "`computes`"),
    ("kernel k computes step { place { s : f32 in smem } }", "E008", "is called `shared`", "`stack`"),
    ("kernel k computes step { place { s : f32 in register } }", "E008", "which cpu does not have", "`stack`"),
    ("kernel k computes step { place { s : f32 inn stack } }", "E008", "did you mean `in`", "`in`"),
    ("kernel k computes step { place { s : f32 in stack, } }", "E016", "nothing after it", "remove it"),
    (
        "kernel k computes step { place { s f32 in stack } }",
        "E022",
        "`:` is missing",
        "between `s` and `f32`",
    ),
    ("kernel k computes step { place { s, t u : f32 in stack } }", "E021", "before `u`", "with `,`"),
    (
        "kernel k computes step { place { s : f32 in stack pad } }",
        "E020",
        "must follow `pad`",
        "`pad 8`",
    ),
    (
        "kernel k computes step { roles { m : 4 warp over e by } }",
        "E020",
        "must follow `by`",
        "`by 8`",
    ),
    ("place { s : f32 in stack }", "E009", "`place` cannot stand in rule `r`", "belongs in"),
    ("sizes { K }", "E009", "`sizes` cannot stand", "an `operator`"),
    ("ensure { shared_bytes <= 164 KB }", "E010", "`KB`", "164 KiB"),
    ("ensure { shared_bytes <= 164 kib }", "E010", "`kib`", "164 KiB"),
    ("ensure { shared_bytes <= 2 GB }", "E010", "`GB`", "MiB"),
    ("ensure { p95 <= 3 s }", "E010", "`s`", "`ms`"),
    ("ensure { registers <= 65_536 }", "E023", "`65_536`", "decimal digits"),
    ("require { 16 <= K <= 128 }", "E013", "comparisons do not chain", "write `16 <= K and K <= 128`"),
    ("choose { w in (8, 16) }", "E001", "`,` cannot stand here", "reads `width in [8, 16] default 8`"),
    ("ensure { occupancy >= 50% }", "E020", "does not say of what", "`50% of target.shared_bytes_per_block`"),
    ("ensure { spills == 0, }", "E016", "nothing after it", "remove it"),
    ("ensure { f(a, b == 0 }", "E005", "never closed", "add `)`"),
    ("ensure { f(a, b] == 0 }", "E005", "closed by `]`", "write `)`"),
    ("ensure { a == b) }", "E005", "closes nothing", "remove it"),
    ("ensure { spills == 0 } // none", "E015", "begins with `#`", "`#`"),
    ("require { K == 128 else 'pad K' }", "E014", "double quotes", '"pad K"'),
    ('require { K == 128 else "pad K }', "E006", "not closed", "one line"),
    ("require { K \u2264 128 }", "E007", "is not `<=`", "`<=`"),
    ("require { K\u00a0== 128 }", "E007", "no-break space", "remove it"),
    ("form { C = 16 decay = pairwise }", "E018", "another item", "`;`"),
    ("form { C = 16 }}", "E003", "`}`", "remove"),
    ("form C = 16 }", "E004", "`{` is missing", "{"),
    ("def helper(x) { }", "E017", "`def`", "tactic"),
    ("let C = 16", "E017", "`let`", "name = value"),
    ('"""not here""" form { }', "E018", "another item", "line of its own"),
    ('form { """not here""" }', "E009", "doc string", "`#`"),
    ("form { C = = 16 }", "E001", "cannot stand here", "remove"),
]


@pytest.mark.parametrize(("line", "code", "message", "help"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_mistake(line, code, message, help):
    text = f"rule r schedules kda.decode on cpu {{\n  {line}\n  form {{ D = 1 }}\n}}\n"
    found = parse_source(SourceFile("t.kds", text)).diagnostics
    assert [d.code for d in found] == [code], [d.message for d in found]
    (diagnostic,) = found
    assert message in diagnostic.message
    assert any(help in line for line in diagnostic.help), diagnostic.help
    assert diagnostic.span.line == 2


@pytest.mark.parametrize(("targets", "right"), [
    ("cpu", "stack"), ("sm_80", "shared"), ("cpu, sm_80", "shared"),
])  # fmt: skip
def test_a_memory_is_named_as_the_target_has_it(targets, right):
    kernel = "kernel k computes step { place { s : f32 in smem } }"
    text = f"rule r schedules kda.decode on {targets} {{\n  {kernel}\n}}\n"
    (diagnostic,) = parse_source(SourceFile("t.kds", text)).diagnostics
    assert (diagnostic.code, diagnostic.help) == ("E008", (f"write `{right}`",))
    assert diagnostic.edits[0].replacement == right


@pytest.mark.parametrize(("line", "advice"), [
    ("place { s : f32 in stack }", "kernel `k` has `s` in its own `place`: remove this one"),
    ("place { s, t : f32 in stack }", "kernel `k` has `s` in its own `place`: move in what it has not"),
    ("place { t : f32 in stack }", "move it into kernel `k`"),
    ("compute { s : fma.f32 }", "move it into kernel `k`"),
])  # fmt: skip
def test_a_section_of_a_kernel_is_sent_to_the_kernel(line, advice):
    kernel = "kernel k computes step { place { r, s : f32 in stack } }"
    text = f"rule r schedules kda.decode on cpu {{\n  {line}\n  {kernel}\n}}\n"
    (diagnostic,) = parse_source(SourceFile("t.kds", text)).diagnostics
    assert diagnostic.code == "E009" and advice in diagnostic.help
    assert [label.span.line for label in diagnostic.labels] == ([3] if "own" in advice else [])
    two = text.replace(kernel, f"{kernel}\n  {kernel}")
    (diagnostic,) = parse_source(SourceFile("t.kds", two)).diagnostics
    assert not any("kernel `k`" in line for line in diagnostic.help)


@pytest.mark.parametrize(("line", "code", "message", "help"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_safe_edits_mend(line, code, message, help):
    """Whoever takes a safe edit is rid of the finding."""
    text = f"rule r schedules kda.decode on cpu {{\n  {line}\n  form {{ D = 1 }}\n}}\n"
    (diagnostic,) = parse_source(SourceFile("t.kds", text)).diagnostics
    for edit in diagnostic.edits:
        if edit.safe:
            mended = text[: edit.span.first] + edit.replacement + text[edit.span.last :]
            assert parse_source(SourceFile("t.kds", mended)).ok, mended


HEADERS = [
    ("rule r schedules kda.decode on cpu:\n  form { C = 16 }\n", "E012"),
    ("rule r schedules kda.decode on cpu\n{\n  form { C = 16 }\n}\n", "E004"),
    ("rule r schedule kda.decode on cpu {\n}\n", "E008"),
    ("rules r schedules kda.decode on cpu {\n}\n", "E008"),
    ("rule r on cpu schedules kda.decode {\n}\n", None),
    ("target a extend b {\n}\n", "E008"),
    ("target a inherits b {\n}\n", "E008"),
    ("target {\n}\n", None),
    ('import "x.kds"\n', "E017"),
    ("ensure { a == b }\n", "E009"),
    ("hello\n", "E008"),
    ("42\n", "E008"),
    ("use common\n", None),
    ("tactic t {\n}\n", None),
]


@pytest.mark.parametrize(("text", "code"), HEADERS)
def test_header(text, code):
    found = parse_source(SourceFile("t.kds", text + "target z {\n  sms = 1\n}\n"))
    assert len(found.diagnostics) == 1, [d.message for d in found.diagnostics]
    assert code is None or found.diagnostics[0].code == code
    assert found.tree.declarations[-1].name.text == "z"
