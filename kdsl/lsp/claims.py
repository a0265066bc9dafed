"""Clauses of a contract in the editor: their verdicts on hover, a lens on every rule to decide the rest."""

from __future__ import annotations

from lsprotocol import types

from kdsl.check.model import walk
from kdsl.contract.decide import clause_text as text_of
from kdsl.lsp.analysis import Analysis
from kdsl.lsp.positions import range_of
from kdsl.lsp.scope import Scope
from kdsl.lsp.verdicts import clause_text
from kdsl.syntax import nodes as n


def claim_hover(scope: Scope, analysis: Analysis, offset: int) -> str | None:
    """The verdicts of the clause of `ensure` or `measure` at a character, at every choose point."""
    for rule in scope.loaded.trees[0].declarations:
        if isinstance(rule, n.Rule) and rule.span.first <= offset <= rule.span.last:
            for block in (x for x in walk(rule) if isinstance(x, n.Block) and x.kind in ("ensure", "measure")):
                for claim in block.items:
                    if claim.span.first <= offset <= claim.span.last:
                        return clause_text(analysis, rule.name.text, text_of(claim))
    return None


def lenses(declarations, uri: str, command: str, encoding: str) -> list[types.CodeLens]:
    """`lower for T` above every rule, once for each of its targets."""
    return [
        types.CodeLens(
            range_of(rule.name.span, encoding),
            types.Command(f"lower for {target.text}", command, arguments=[uri, target.text, rule.name.text]),
        )
        for rule in declarations if isinstance(rule, n.Rule) for target in rule.targets
    ]  # fmt: skip
