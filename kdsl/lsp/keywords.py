"""The words of the language, read from the grammar: the one table that every highlighter is made from.

python -m kdsl.lsp.keywords editor/        writes keywords.json and the grammars of the editors
python -m kdsl.lsp.keywords --check editor/ says whether they are up to date
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kdsl.check.model import DTYPE_BYTES
from kdsl.syntax.tables import tables


def _texts(terminal: str) -> tuple[str, ...]:
    """The words that one terminal of the grammar stands for, in order."""
    return tuple(sorted(text for text, kinds in tables().literals.items() if terminal in kinds))


MEMORIES = _texts("MEMORY")
MODES = _texts("INDEX_MODE")
UNITS = _texts("UNIT")
SIGNS = tuple(sorted({t for kind in ("COMPARE", "SIGN", "TIMES") for t in _texts(kind)} | {"=", "**", ".."}))
DTYPES = tuple(DTYPE_BYTES)
REDUCERS = ("maximum", "sum")
DECLARATIONS = tuple(sorted(t for t in tables().keywords if any(k in tables().actions[tables().start]
                                                                for k in tables().literals[t])))  # fmt: skip
LOGIC = ("and", "else", "if", "in", "is", "not", "or", "then")
CLAUSES = tuple(
    word for word in tables().keywords
    if word not in (*MEMORIES, *MODES, *UNITS, *DECLARATIONS, *LOGIC, *REDUCERS) and word.isidentifier()
)  # fmt: skip


def table() -> dict[str, list[str]]:
    """Every word by its class."""
    return {
        "declarations": list(DECLARATIONS), "clauses": list(CLAUSES), "logic": list(LOGIC),
        "reducers": list(REDUCERS),
        "memories": list(MEMORIES), "modes": list(MODES), "units": list(UNITS), "dtypes": list(DTYPES),
        "signs": list(SIGNS),
    }  # fmt: skip


def files() -> dict[str, str]:
    """What is made from the table: paths below `editor/` to texts."""
    from kdsl.lsp.grammars import textmate, vim

    return {
        "keywords.json": json.dumps(table(), indent=2) + "\n",
        "vscode/syntaxes/kds.tmLanguage.json": json.dumps(textmate(table()), indent=2) + "\n",
        "neovim/syntax/kds.vim": vim(table()),
    }


def main(arguments: list[str]) -> int:
    """Write the files below a folder, or with `--check` name those that are not up to date."""
    check = "--check" in arguments
    folders = [Path(argument) for argument in arguments if argument != "--check"]
    if len(folders) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    stale = []
    for name, text in files().items():
        path = folders[0] / name
        if path.is_file() and path.read_text("utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
    for name in stale:
        print(f"{name}: {'not up to date' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
