"""Pieces of an SVG picture, as text. Lengths are in pixels; fonts are the viewer's own."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

SANS, MONO = "system-ui, -apple-system, Helvetica, Arial, sans-serif", "ui-monospace, Menlo, Consolas, monospace"
INK, FAINT, LINE, PAPER, BAND = "#1f2328", "#59636e", "#d0d7de", "#ffffff", "#f6f8fa"


def document(width: float, height: float, parts: Iterable[str]) -> str:
    """A whole picture on paper."""
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>', *parts, "</svg>", "",
    ])  # fmt: skip


def text(
    x, y, words: str, size: int, colour: str = INK, weight: int = 400, anchor: str = "start", font: str = SANS
) -> str:
    """Words at their baseline."""
    return (
        f'<text x="{x}" y="{y}" font-family="{font}" font-size="{size}" font-weight="{weight}" fill="{colour}" '
        f'text-anchor="{anchor}" xml:space="preserve">{escape(words)}</text>'
    )


def ring(x, y, colour: str) -> str:
    """An open dot."""
    return f'<circle cx="{x}" cy="{y}" r="3.6" fill="{PAPER}" stroke="{colour}" stroke-width="1.6"/>'


def box(x, y, width, height, fill: str, stroke: str) -> str:
    """A rectangle with round corners."""
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{stroke}"/>'
