"""The words of the language, read from the grammar: the one table that every highlighter is made from.

python -m kdsl.lsp.keywords editor/        writes keywords.json and the grammars of the editors
python -m kdsl.lsp.keywords --check editor/ says whether they are up to date
"""

from __future__ import annotations

import json

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


if __name__ == "__main__":
    print(json.dumps(table(), indent=2))
