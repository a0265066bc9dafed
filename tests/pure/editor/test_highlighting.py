"""Every highlighter sees the shipped rules and the standard library as the parser does."""

from __future__ import annotations

import shutil

import pytest

from kdsl.data import data_root
from kdsl.lsp.classes import Classed, classes
from kdsl.lsp.keywords import files, table
from kdsl.source.span import SourceFile
from kdsl.syntax.parse import parse_source
from kdsl.syntax.tables import tables

from .highlighters import EDITOR, by_grammar, by_pygments, by_textmate, by_vim, has_textmate

FILES = sorted(path for folder in ("rules", "stdlib") for path in (data_root() / folder).rglob("*.kds"))
MADE = '''edition 2026
use "a.kds"
rule r schedules kda.chunk_forward on sm_90a, sm_80 {
  """A doc string
  of two lines with "quotes" and # no comment."""
  require { gate is bounded and not given(cu_seqlens); q : bf16 } # a comment with "quotes"
  choose { wide in [16, 32] default 16; slots in 1..4 }
  form { C = if wide == 16 then 16 else 32; decay = factored; chain = folded }
  kernel recurrence computes recur when wide >= 16 {
    grid { x : n, h order longest_first; y : e by wide }
    roles { load : 1 warp registers 40; math : 8 warps over e by 16 }
    place {
      state for state_key : f32 in registers as mma.m16n8k16.C on math
      k_decayed, m : bf16 in shared pad 8 ring slots via cp.async of 16 bytes
      sw : f32 in tensor_memory alias r swizzle 128 order d, e lanes d by 4
    }
    compute { state_key, within : mma.m16n8k16 over e by 8; decay_k : vector d by 4 unroll i by 2 blocks 2 rows i }
    pin { ring = 2, 3; decay_sum before decay_total }
    ensure { count(shfl.sync) at ptx == 0; uses mma.m16n8k16 in state_key; spills == 0 bytes }
  }
  measure { p95_latency <= 1.05 of baseline fla; error within kda.acceptance; l1_hit_rate >= 95% of 1.0e-3 }
}
expect refuse E302, W501 {
  target tiny extends cpu { stack_bytes_per_task = 1 KiB }
}
expect pass { use "b.kds" }
'''
LOOSE = {"name", "punctuation"}  # what Vim leaves in the color of plain text


def texts() -> dict[str, str]:
    found = {f"{path.parent.name}-{path.name}": path.read_text("utf-8") for path in FILES}
    assert found
    return {**found, "made.kds": MADE}


def expected(text: str) -> list[Classed]:
    parsed = parse_source(SourceFile("a.kds", text))
    assert parsed.ok, parsed.diagnostics
    return classes(parsed)


def differences(text: str, seen: list[str | None], plain: set[str] = frozenset()) -> list[str]:
    found = []
    for token in expected(text):
        shown = set(seen[token.start : token.stop])
        if token.name in plain and shown == {None}:
            continue
        if shown != {token.name} and not (token.name in ("doc", "comment") and shown <= {token.name, None}):
            line = text.count("\n", 0, token.start) + 1
            found.append(f"{line}: {text[token.start : token.stop]!r} is {token.name}, shown as {shown}")
    return found


def test_the_made_files_are_up_to_date():
    for name, text in files().items():
        assert (EDITOR / name).read_text("utf-8") == text, f"run python -m kdsl.lsp.keywords editor ({name})"


def test_the_table_holds_every_word_of_the_grammar():
    known = {word for kind in table().values() for word in kind}
    assert set(tables().keywords) <= known
    assert {"sum", "maximum"} <= known


@pytest.mark.parametrize("name", texts())
def test_pygments(name):
    text = texts()[name]
    assert differences(text, by_pygments(text)) == []


def test_pygments_knows_the_language_by_name():
    from pygments.lexers import get_lexer_for_filename

    from kdsl.lsp.highlight import KdsLexer

    assert isinstance(get_lexer_for_filename("x.kds"), KdsLexer)


@pytest.mark.parametrize("name", texts())
def test_textmate_rules(name):
    text = texts()[name]
    assert differences(text, by_grammar(text)) == []


@pytest.mark.skipif(not has_textmate(), reason="npm install in editor/vscode brings vscode-textmate")
def test_textmate_as_vs_code_reads_it():
    every = texts()
    seen = by_textmate(every)
    assert {name: differences(text, seen[name]) for name, text in every.items()} == {
        name: [] for name in every
    }


@pytest.mark.skipif(shutil.which("vim") is None, reason="vim is not installed")
@pytest.mark.parametrize("name", texts())
def test_vim(name, tmp_path):
    text = texts()[name]
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert differences(text, by_vim(path, text, tmp_path), LOOSE) == []
