"""Any text, edited in any way: what is known after an edit is what a fresh check finds, and nothing fails."""

from __future__ import annotations

import random

import pytest

from kdsl.check import check_source
from kdsl.data import data_root
from kdsl.lsp import navigate, outline, semantic
from kdsl.lsp.claims import claim_hover
from kdsl.lsp.completion import complete
from kdsl.lsp.hover import Hover
from kdsl.lsp.workspace import Workspace
from kdsl.source.span import SourceFile

SEEDS = range(4)
EDITS = 25
PIECES = ("{", "}", "\n", ",", ":", " x ", "rule ", '"""', "# kds: allow[W502] x\n", "expect pass {", "state", "[", "8")


def start() -> str:
    files = sorted((data_root() / "rules").rglob("*.kds"))[:2]
    operator = (data_root() / "stdlib" / "operators" / "kda.decode.kds").read_text("utf-8")
    own = operator.replace("operator kda.", "operator my.").replace("acceptance kda.", "acceptance my.")
    return "\n".join([own, *(path.read_text("utf-8") for path in files)])


def edited(text: str, chance: random.Random) -> str:
    """The text with a piece removed, put in, or moved."""
    first = chance.randrange(len(text) + 1)
    last = min(len(text), first + chance.choice((0, 1, 1, 2, 8, 60)))
    piece = chance.choice((*PIECES, "", "", text[first : last + 20]))
    return text[:first] + piece + text[last:]


def ask_everything(workspace: Workspace, path: str, offset: int) -> None:
    scope, analysis = workspace.scope(path), workspace.analysis(path)
    source = workspace.source(path)
    found = workspace.at(path, offset)
    if found is not None:
        Hover(scope, analysis).say(found.symbol)
    claim_hover(scope, analysis, offset)
    complete(scope, source, offset)
    navigate.definitions(workspace, path, offset)
    navigate.actions(workspace, path, offset, offset + 40, [])
    navigate.published(workspace, path, analysis.diagnostics)
    semantic.tokens(scope, "utf-16")
    parsed = workspace.session.parsed(path)
    outline.outline(parsed.tree.declarations, "utf-8")
    outline.folding(parsed.tree.declarations, parsed.tree.comments)


@pytest.mark.parametrize("seed", SEEDS)
def test_edits(seed):
    chance = random.Random(seed)
    workspace = Workspace()
    original = text = start()
    path = workspace.open("untitled:fuzz", text)
    for _ in range(EDITS):
        text = edited(text, chance) if chance.random() < 0.8 else original
        workspace.change(path, text)
        found = workspace.settled(path).diagnostics
        fresh = check_source(SourceFile(path, text))
        assert [(d.code, d.span.first) for d in found if d.span.path == path] == [
            (d.code, d.span.first) for d in fresh if d.span.path == path
        ], text
        ask_everything(workspace, path, chance.randrange(len(text) + 1))
