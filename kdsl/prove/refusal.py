"""Why a program has no meaning in a field: a value with the expression, the stage and the remedy."""

from __future__ import annotations

from attrs import frozen


@frozen
class NoMeaning(Exception):
    """An expression or statement that the fields cannot express. The verdict is `unknown`, never a pass."""

    what: str
    where: str  # the expression, as TIR text
    stage: str | None
    remedy: str

    def __str__(self) -> str:
        place = f" in stage `{self.stage}`" if self.stage else ""
        return f"{self.what}{place}: {self.where}"


def shortened(node, limit: int = 160) -> str:
    """TIR text of a node on one line."""
    lines = [line.strip() for line in str(node).splitlines() if not line.startswith(("#", "metadata"))]
    text = " ".join(filter(None, lines))
    return text if len(text) <= limit else text[: limit - 3] + "..."
