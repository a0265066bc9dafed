"""The highlighting grammars of editors, made from the keyword table: TextMate's for VS Code, and Vim's.

Both see one line at a time and no tree. A clause word before `:`, `,`, `)` or a single `=` is a name there,
as in `within : o_sum[...]`, and so is one before `warps`; a dotted name is one name.
"""

from __future__ import annotations

from collections.abc import Iterable

NOT_IN_NAME = r"(?<![A-Za-z0-9_.])"
END = r"(?![A-Za-z0-9_]|\.[A-Za-z_0-9]*[A-Za-z_])"
NOT_NAMED = r"(?!\s*(?:[:,)]|=(?!=))|[ \t]+warps?\b)"
DOTTED = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_0-9]*[A-Za-z_][A-Za-z0-9_]*)*"
NUMBER = r"\d+\.\d+(?:e[+-]?\d+)?|\d+(?:e[+-]?\d+)?"
PERCENT = r"\d+(?:\.\d+)?%(?=[ \t]+of\b)"


def words(texts: Iterable[str]) -> str:
    """Any of these words, whole."""
    return f"{NOT_IN_NAME}(?:{'|'.join(sorted(texts, key=lambda t: (-len(t), t)))}){END}"


def signs(texts: Iterable[str]) -> str:
    import re

    return "|".join(re.escape(text) for text in sorted(texts, key=lambda t: (-len(t), t)))


# ---- TextMate ----


def textmate(table: dict[str, list[str]]) -> dict:
    """The grammar as VS Code, Shiki and GitHub read it."""
    named = words(("operator", "rule", "target", "tactic", "instruction", "kernel", "part"))

    def match(pattern: str, scope: str) -> dict:
        return {"match": pattern, "name": f"{scope}.kds"}

    declaration = f'{words(table["declarations"])}(?=[ \t]+[A-Za-z_0-9"])'
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "kds",
        "scopeName": "source.kds",
        "fileTypes": ["kds"],
        "patterns": [
            {"begin": '"""', "end": '"""', "name": "string.quoted.docstring.kds"},
            match("#.*$", "comment.line.number-sign"),
            match('"[^"\n]*"', "string.quoted.double"),
            {
                "match": f"({named})[ \t]+({DOTTED})",
                "captures": {"1": {"name": "keyword.declaration.kds"}, "2": {"name": "entity.name.type.kds"}},
            },
            match(declaration, "keyword.declaration"),
            match(words(table["reducers"]) + r"(?=[ \t]+over\b)", "keyword.operator.expression.reduction"),
            {
                "match": rf"((?<![\w.])(?:{NUMBER}))([ \t]+)({'|'.join(table['units'])})\b",
                "captures": {
                    "1": {"name": "constant.numeric.kds"},
                    "3": {"name": "keyword.other.unit.kds"},
                },
            },
            match(rf"(?<![\w.])(?:{PERCENT})", "constant.numeric"),
            match(rf"(?<![\w])(?:{NUMBER})", "constant.numeric"),
            match(words(table["logic"]), "keyword.operator.expression.logical"),
            match(words(table["memories"]), "constant.language.memory"),
            match(words(table["modes"]), "storage.modifier"),
            match(words(table["dtypes"]), "storage.type"),
            match(words(table["clauses"]) + NOT_NAMED, "keyword.control"),
            match(rf"{NOT_IN_NAME}{DOTTED}(?=\()", "entity.name.function"),
            match(rf"{NOT_IN_NAME}target\.[A-Za-z_0-9]*", "variable.language"),
            match(f"{NOT_IN_NAME}{DOTTED}", "variable.other"),
            match(signs(table["signs"]), "keyword.operator"),
            match(r"[{}()\[\],:;]", "punctuation"),
        ],
    }


# ---- Vim ----

VIM_START = r"\%([A-Za-z0-9_.]\)\@1<!"
VIM_END = r"\%(\w\|\.\w*\a\)\@!"
VIM_NOT_NAMED = r"\%(\s*\%([:,)]\|==\@!\)\|\s\+warps\?\>\)\@!"
VIM_GROUPS = (
    ("declarations", "kdsDeclaration", r"\%(\s\+[[:alnum:]_\"]\)\@="),
    ("clauses", "kdsClause", VIM_NOT_NAMED),
    ("logic", "kdsLogic", ""), ("memories", "kdsMemory", ""), ("modes", "kdsMode", ""),
    ("dtypes", "kdsType", ""),
    ("reducers", "kdsReduction", r"\%(\s\+over\>\)\@="),
)  # fmt: skip
VIM_LINKS = (
    ("kdsComment", "Comment"), ("kdsString", "String"), ("kdsDoc", "SpecialComment"), ("kdsNumber", "Number"),
    ("kdsUnit", "Special"), ("kdsDeclaration", "Statement"), ("kdsClause", "Keyword"),
    ("kdsLogic", "Operator"),
    ("kdsMemory", "StorageClass"), ("kdsMode", "StorageClass"), ("kdsType", "Type"),
    ("kdsReduction", "Function"),
    ("kdsSign", "Operator"),
)  # fmt: skip


def vim(table: dict[str, list[str]]) -> str:
    """A syntax file for Vim and Neovim. Later items win where several match at one place."""
    lines = [
        '" Made from grammar/kds.lark by `python -m kdsl.lsp.keywords`: edit that, not this.',
        "if exists('b:current_syntax')",
        "  finish",
        "endif",
        "syn case match",
        "syn sync fromstart",
        f"syn match kdsSign /{_vim_signs(table['signs'])}/",
    ]
    for kind, group, after in VIM_GROUPS:
        texts = r"\|".join(sorted(table[kind], key=lambda t: (-len(t), t)))
        lines.append(rf"syn match {group} /{VIM_START}\%({texts}\){VIM_END}{after}/")
    units = r"\|".join(table["units"])
    number = r"\d\+\.\d\+\%(e[+-]\?\d\+\)\?\|\d\+\%(e[+-]\?\d\+\)\?"
    lines += [
        rf"syn match kdsNumber /\%(\w\)\@1<!\%({number}\)/",
        r"syn match kdsNumber /\%([A-Za-z0-9_.]\)\@1<!\d\+\%(\.\d\+\)\?%\%(\s\+of\>\)\@=/",
        rf"syn match kdsUnit /\%(\d\s\+\)\@20<=\%({units}\)\>/",
        'syn match kdsString /"[^"]*"/',
        'syn region kdsDoc start=/"""/ end=/"""/',
        "syn match kdsComment /#.*$/",
    ]
    lines += [f"hi def link {group} {link}" for group, link in VIM_LINKS]
    return "\n".join([*lines, "let b:current_syntax = 'kds'", ""])


def _vim_signs(texts: Iterable[str]) -> str:
    ordered = sorted(texts, key=lambda t: (-len(t), t))
    return r"\|".join(text.replace("*", r"\*").replace("/", r"\/").replace(".", r"\.") for text in ordered)
