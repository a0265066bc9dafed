"""Each highlighter's view of a text: a class for every character, to be compared with the parser's."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

EDITOR = Path(__file__).resolve().parents[3] / "editor"
GRAMMAR = EDITOR / "vscode" / "syntaxes" / "kds.tmLanguage.json"
VIM = EDITOR / "neovim"
MODULES = EDITOR / "vscode" / "node_modules"

SCOPES = (
    ("string.quoted.docstring", "doc"), ("string", "string"), ("comment", "comment"),
    ("constant.numeric", "number"), ("keyword.other.unit", "unit"), ("keyword.declaration", "keyword"),
    ("keyword.control", "keyword"), ("keyword.operator.expression", "keyword"),
    ("keyword.operator", "operator"),
    ("constant.language.memory", "memory"), ("storage.modifier", "mode"), ("storage.type", "dtype"),
    ("entity.name", "name"), ("variable", "name"), ("punctuation", "punctuation"),
)  # fmt: skip
PYGMENTS = {
    "Literal.String.Doc": "doc", "Literal.String.Double": "string", "Comment.Single": "comment",
    "Literal.Number": "number", "Keyword.Pseudo": "unit", "Keyword.Declaration": "keyword",
    "Keyword": "keyword", "Operator.Word": "keyword", "Operator": "operator", "Name.Builtin": "memory",
    "Keyword.Reserved": "mode", "Keyword.Type": "dtype", "Name": "name", "Name.Function": "name",
    "Name.Class": "name", "Punctuation": "punctuation",
}  # fmt: skip
GROUPS = {
    "kdsComment": "comment", "kdsString": "string", "kdsDoc": "doc", "kdsNumber": "number", "kdsUnit": "unit",
    "kdsDeclaration": "keyword", "kdsClause": "keyword", "kdsLogic": "keyword", "kdsMemory": "memory",
    "kdsMode": "mode", "kdsType": "dtype", "kdsReduction": "keyword", "kdsSign": "operator",
}  # fmt: skip


def scope_class(scope: str) -> str | None:
    return next((name for prefix, name in SCOPES if scope.startswith(prefix)), None)


def by_pygments(text: str) -> list[str | None]:
    from kdsl.lsp.highlight import KdsLexer

    found: list[str | None] = [None] * len(text)
    for start, kind, piece in KdsLexer(stripnl=False, ensurenl=False).get_tokens_unprocessed(text):
        found[start : start + len(piece)] = [PYGMENTS.get(str(kind).removeprefix("Token."))] * len(piece)
    return found


def by_grammar(text: str) -> list[str | None]:
    """The TextMate grammar read here: its rules are flat, the first that matches earliest wins."""
    rules = json.loads(GRAMMAR.read_text("utf-8"))["patterns"]
    compiled = [(re.compile(rule.get("match") or rule["begin"]), rule) for rule in rules]
    found: list[str | None] = [None] * len(text)
    position, inside = 0, None
    for line in text.splitlines(keepends=True):
        at = 0
        while at < len(line):
            if inside is not None:
                end = re.compile(inside["end"]).search(line, at)
                stop = end.end() if end else len(line)
                _mark(found, position + at, position + stop, inside["name"])
                at, inside = stop, None if end else inside
                continue
            hits = [
                (m.start(), order, m, rule)
                for order, (pattern, rule) in enumerate(compiled)
                if (m := pattern.search(line, at)) and m.group()
            ]
            if not hits:
                break
            _, _, match, rule = min(hits, key=lambda hit: hit[:2])
            if "name" in rule:
                _mark(found, position + match.start(), position + match.end(), rule["name"])
            for group, capture in rule.get("captures", {}).items():
                first, last = match.span(int(group))
                _mark(found, position + first, position + last, capture["name"])
            at, inside = match.end(), rule if "begin" in rule else None
        position += len(line)
    return found


def _mark(found: list, start: int, stop: int, scope: str) -> None:
    found[start:stop] = [scope_class(scope)] * (min(stop, len(found)) - start)


def by_textmate(texts: dict[str, str]) -> dict[str, list[str | None]]:
    """VS Code's own tokenizer, from npm: `editor/vscode/node_modules` has to be installed."""
    script = Path(__file__).with_name("textmate.mjs")
    command = ["node", str(script), str(MODULES), str(GRAMMAR)]
    answer = subprocess.run(
        command, input=json.dumps(texts), text=True, capture_output=True, check=True, timeout=120
    )
    found = {}
    for name, spans in json.loads(answer.stdout).items():
        marks: list[str | None] = [None] * len(texts[name])
        for start, stop, scope in spans:
            _mark(marks, start, stop, scope)
        found[name] = marks
    return found


def has_textmate() -> bool:
    packages = (MODULES / "vscode-textmate", MODULES / "vscode-oniguruma")
    return shutil.which("node") is not None and all(package.is_dir() for package in packages)


def by_vim(path: Path, text: str, folder: Path) -> list[str | None]:
    """What Vim shows of a file that it recognises by its name, asked byte by byte."""
    out = folder / "groups.txt"
    script = folder / "groups.vim"
    script.write_text(
        f"set nocompatible encoding=utf-8 nomodeline runtimepath^={VIM}\nfiletype on\nsyntax on\n"
        f"execute 'edit' fnameescape('{path}')\nlet found = []\n"
        "for l in range(1, line('$'))\n  let names = []\n"
        "  for c in range(1, max([1, strlen(getline(l))]))\n"
        "    call add(names, synIDattr(synID(l, c, 1), 'name'))\n  endfor\n"
        "  call add(found, join(names, ','))\nendfor\n"
        f"call writefile(found, '{out}')\nqall!\n",
        encoding="utf-8",
    )
    command = ["vim", "-Es", "-u", "NONE", "-i", "NONE", "-S", str(script)]
    subprocess.run(command, check=True, timeout=300, stdin=subprocess.DEVNULL, capture_output=True)
    found: list[str | None] = []
    for line, groups in zip(text.split("\n"), out.read_text("utf-8").split("\n"), strict=False):
        names = groups.split(",")
        before = 0
        for character in line:
            found.append(GROUPS.get(names[before]) if before < len(names) else None)
            before += len(character.encode("utf-8"))
        found.append(None)
    return found[: len(text)]
