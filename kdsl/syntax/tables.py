"""The LALR(1) tables of `grammar/kds.lark` as plain data.

Lark reads the grammar and computes the automaton (a quarter of a second); the result is kept as JSON in the
user's cache folder under the digest of the grammar, so that most processes never import Lark.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache

from attrs import frozen

from kdsl import __version__
from kdsl.data import data_root
from kdsl.source import cache

FORMAT = "4"
END = "$END"


@frozen
class Reduction:
    """One production: how many symbols it takes, what builds its value, and which symbols the value keeps.

    `keep` holds (index, spliced, absent before it); `method` is None for a rule whose children go to its
    parent.
    """

    left: str
    size: int
    method: str | None
    unwrap: bool
    keep: tuple[tuple[int, bool, int], ...]
    absent: int


@frozen(eq=False)
class Tables:
    """`actions[state][terminal]` is a state to shift to or `-1 - production`; `gotos[state][rule]` one."""

    actions: tuple[dict[str, int], ...]
    gotos: tuple[dict[str, int], ...]
    productions: tuple[Reduction, ...]
    start: int
    end: int
    patterns: tuple[tuple[str, str], ...]
    literals: dict[str, tuple[str, ...]]

    @property
    def keywords(self) -> tuple[str, ...]:
        return tuple(sorted(text for text in self.literals if text[0].isalpha()))


def grammar_text() -> str:
    return (data_root() / "grammar" / "kds.lark").read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def tables() -> Tables:
    """The tables of the shipped grammar, from the cache or from Lark."""
    grammar = grammar_text()
    key = cache.digest(FORMAT, __version__, grammar)
    stored = cache.load("tables", key)
    if stored is not None:
        try:
            return _decode(json.loads(stored))
        except (ValueError, TypeError, KeyError, AttributeError):
            pass
    data = _encode(grammar)
    cache.save("tables", key, json.dumps(data, separators=(",", ":")))
    return _decode(data)


def _decode(data: dict) -> Tables:
    productions = tuple(
        Reduction(left, size, method, unwrap, tuple(map(tuple, keep)), absent)
        for left, size, method, unwrap, keep, absent in data["productions"]
    )
    literals = {text: tuple(names) for text, names in data["literals"].items()}
    patterns = tuple((name, pattern) for name, pattern in data["patterns"])
    return Tables(
        tuple(data["actions"]),
        tuple(data["gotos"]),
        productions,
        data["start"],
        data["end"],
        patterns,
        literals,
    )


def lark():
    """Lark's own parser of the grammar: the reference that the driver here is tested against."""
    from lark import Lark

    from kdsl.syntax.layout import Layout

    return Lark(
        grammar_text(), parser="lalr", lexer="contextual", postlex=Layout(), propagate_positions=True,
        maybe_placeholders=True,
    )  # fmt: skip


def _encode(grammar: str) -> dict:
    from lark import Lark
    from lark.parsers.lalr_analysis import LALR_Analyzer, Shift

    # Lark hides its table behind the parser object; its class computes it again from the same rules.
    parser = Lark(grammar, parser="lalr", lexer="contextual", maybe_placeholders=True)
    analysis = LALR_Analyzer(parser.parser.parser_conf)
    analysis.compute_lalr()
    table = analysis.parse_table
    rules = list(parser.rules)
    number = {rule: index for index, rule in enumerate(rules)}
    actions, gotos = [], []
    terminals = {terminal.name for terminal in parser.terminals} | {END}
    order = {state: index for index, state in enumerate(table.states)}
    for row in table.states.values():
        act, go = {}, {}
        for symbol, (action, target) in row.items():
            if symbol not in terminals:
                go[symbol] = order[target]
            elif action is Shift:
                act[symbol] = order[target]
            else:
                act[symbol] = -1 - number[target]
        actions.append(act)
        gotos.append(go)
    patterns, literals = _lexical(parser)
    return {
        "actions": actions, "gotos": gotos, "productions": [_production(rule) for rule in rules],
        "start": order[table.start_states["start"]], "end": order[table.end_states["start"]],
        "patterns": patterns, "literals": literals,
    }  # fmt: skip


def _production(rule) -> list:
    """What Lark's tree builder does for this rule, as data."""
    symbols, options = rule.expansion, rule.options
    absent = [0] * (len(symbols) + 1)
    if options.empty_indices:
        runs = "".join("1" if empty else "0" for empty in options.empty_indices).split("0")
        absent = [len(run) for run in runs]
    keep, pending = [], 0
    for index, symbol in enumerate(symbols):
        pending += absent[index]
        if options.keep_all_tokens or not (symbol.is_term and symbol.filter_out):
            keep.append([index, not symbol.is_term and symbol.name.startswith("_"), pending])
            pending = 0
    name = rule.alias or options.template_source or rule.origin.name
    method = None if rule.origin.name.startswith("_") and not rule.alias else name
    unwrap = bool(options.expand1 and not rule.alias)
    return [rule.origin.name, len(symbols), method, unwrap, keep, pending + absent[len(symbols)]]


def _lexical(parser) -> tuple[list, dict]:
    """Terminals in two kinds: patterns, tried in order, and literal texts with what they may be."""
    patterns, literals = [], {}
    terminals = sorted(parser.terminals, key=lambda t: (-t.priority, t.pattern.type != "str"))
    for terminal in terminals:
        texts = _texts(terminal)
        if texts is None:
            patterns.append([terminal.name, terminal.pattern.value.replace("(.|\n)", r"[\s\S]")])
        else:
            for text in texts:
                literals.setdefault(text, []).append(terminal.name)
    return patterns, literals


def _texts(terminal) -> list[str] | None:
    """The finite texts of a terminal, or None for a real pattern."""
    if terminal.pattern.type == "str":
        return [terminal.pattern.value]
    match = re.fullmatch(r"\(\?:([^()\[\]]*)\)", terminal.pattern.value)
    if match is None:
        return None
    return [re.sub(r"\\(.)", r"\1", text) for text in match.group(1).split("|")]
