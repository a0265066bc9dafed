"""A Pygments lexer for `.kds`: `pygmentize -l kds`, Sphinx, MkDocs. Registered as an entry point."""

from __future__ import annotations

from pygments.lexer import RegexLexer, bygroups
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text

from kdsl.lsp.grammars import DOTTED, END, NOT_IN_NAME, NOT_NAMED, NUMBER, PERCENT, signs, words
from kdsl.lsp.keywords import table

_T = table()


class KdsLexer(RegexLexer):
    """Rules, operators, targets and instructions of the schedule language."""

    name = "kds"
    aliases = ["kds", "kdsl"]
    filenames = ["*.kds"]
    url = "https://pypi.org/project/kdsl/"
    version_added = ""

    tokens = {
        "root": [
            (r'"""[\s\S]*?"""', String.Doc),
            (r"#[^\n]*", Comment.Single),
            (r'"[^"\n]*"', String.Double),
            (r"[ \t\r\f\n\ufeff]+", Text.Whitespace),
            (
                rf"({words(('operator', 'rule', 'target', 'tactic', 'instruction'))})([ \t]+)({DOTTED})",
                bygroups(Keyword.Declaration, Text.Whitespace, Name.Class),
            ),
            (words(_T["declarations"]) + r"(?=[ \t]+[A-Za-z_0-9\"])", Keyword.Declaration),
            (words(_T["reducers"]) + r"(?=[ \t]+over\b)", Operator.Word),
            (
                rf"({NUMBER})([ \t]+)((?:{'|'.join(_T['units'])})\b)",
                bygroups(Number, Text.Whitespace, Keyword.Pseudo),
            ),
            (PERCENT, Number),
            (NUMBER, Number),
            (words(_T["logic"]), Operator.Word),
            (words(_T["memories"]), Name.Builtin),
            (words(_T["modes"]), Keyword.Reserved),
            (words(_T["dtypes"]), Keyword.Type),
            (words(_T["clauses"]) + NOT_NAMED, Keyword),
            (rf"{NOT_IN_NAME}{DOTTED}{END}(?=\()", Name.Function),
            (DOTTED, Name),
            (signs(_T["signs"]), Operator),
            (r"[{}()\[\],:;]", Punctuation),
            (r".", Text),
        ]
    }
