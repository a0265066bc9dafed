"""A drawing as SVG: one panel a kernel, stages as rows, buffers as vertical bars from the first write to the last read.

Fonts are the viewer's own; colours say the memory: violet registers, amber shared memory, green what a thread or task
keeps for itself, blue memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from xml.sax.saxutils import escape

from attrs import frozen

from kdsl.review.drawing import MEMORY, REGISTERS, SHARED, THREAD, Column, Drawing, Panel
from kdsl.source.render.svg import BAND, FAINT, INK, LINE, MONO, PAPER, box, document, ring, text

COLOURS = {REGISTERS: "#7048c8", SHARED: "#d97706", THREAD: "#2f8f4e", MEMORY: "#2563eb"}
NAMES = {REGISTERS: "registers", SHARED: "shared memory", THREAD: "a thread's own", MEMORY: "memory"}
ROW, COLUMN, MARGIN = 24, 26, 24
STAGE, MAKES, LOOPS = 205, 205, 510
LETTER = 6.7  # of the monospaced font at 11 pixels
TABLE = STAGE + MAKES + LOOPS
HEAD = 58  # of a panel above its column labels


def svg(drawing: Drawing) -> str:
    """The whole picture."""
    widths = [TABLE + COLUMN * len(panel.columns) for panel in drawing.panels]
    width = max(widths, default=TABLE) + 2 * MARGIN + 20
    parts, y = [], 70
    for panel in drawing.panels:
        picture = _Panel(panel, y, width - 2 * MARGIN)
        parts += list(picture.draw())
        y = picture.bottom + 26
    legend = list(_legend(y))
    height = y + 26
    titles = text(MARGIN, 32, drawing.title, 19, weight=600), text(MARGIN, 54, drawing.subtitle, 12, FAINT)
    return document(width, height, [*titles, *parts, *legend])


@frozen
class _Panel:
    panel: Panel
    top: int
    width: int

    @property
    def rows_top(self) -> int:
        longest = max((len(label(c)) for c in self.panel.columns), default=0)
        return self.top + HEAD + max(int(longest * LETTER) + 14, 30)

    @property
    def bottom(self) -> int:
        return self.row_y(len(self.panel.rows)) + 20 + 20 * len(self.passed()) + 12

    def row_y(self, at: int) -> int:
        """The top of a row; a frame has its title above its first."""
        return self.rows_top + ROW * (at + sum(frame.first <= at for frame in self.panel.frames))

    def column_x(self, at: int) -> float:
        return MARGIN + TABLE + COLUMN * (at + 0.5)

    def draw(self) -> Iterator[str]:
        panel = self.panel
        yield box(MARGIN, self.top, self.width, self.bottom - self.top, PAPER, LINE)
        yield text(MARGIN + 14, self.top + 26, f"kernel {panel.name}", 16, weight=600)
        yield text(MARGIN + 14, self.top + 46, f"{panel.title}   grid: {'   '.join(panel.grid)}", 12, FAINT)
        for x, title in ((14, "stage"), (STAGE, "makes"), (STAGE + MAKES, "loops, from the outside in")):
            yield text(MARGIN + x, self.rows_top - 8, title, 11, FAINT)
        yield from self.draw_frames()
        yield from self.draw_rows()
        for at, column in enumerate(panel.columns):
            yield from self.draw_column(self.column_x(at), column)
        foot = self.row_y(len(panel.rows)) + 20
        yield text(MARGIN + 14, foot, f"{panel.keeper} keeps: " + ", ".join(panel.totals), 12, FAINT)
        for at, line in enumerate(self.passed()):
            yield text(MARGIN + 14, foot + 20 * (at + 1), line, 12, COLOURS[MEMORY])

    def passed(self) -> list[str]:
        """What goes to the next kernel, in lines that fit."""
        if not self.panel.passes_on:
            return []
        words = f"in {self.panel.passes_in} for the next kernel, a step: " + ", ".join(self.panel.passes_on)
        return wrap(words, int((self.width - 28) / LETTER))

    def draw_frames(self) -> Iterator[str]:
        for frame in self.panel.frames:
            top, bottom = self.row_y(frame.first) - ROW, self.row_y(frame.last + 1)
            yield box(MARGIN + 6, top, self.width - 12, bottom - top, BAND, LINE)
            yield text(MARGIN + 14, top + 16, frame.title, 11, FAINT, 600, font=MONO)

    def draw_rows(self) -> Iterator[str]:
        for at, row in enumerate(self.panel.rows):
            y = self.row_y(at)
            if at:
                yield f'<path d="M{MARGIN + 14} {y}H{MARGIN + self.width - 14}" stroke="{LINE}" stroke-width="0.5"/>'
            base = y + 16
            yield text(MARGIN + 14 + 8 * row.depth, base, fitted(row.stage, STAGE - 22), 11, INK, 600, font=MONO)
            yield text(MARGIN + STAGE, base, fitted(row.makes, MAKES - 8), 11, COLOURS[row.memory], font=MONO)
            told = (
                f"{row.loops}   [{row.instruction}]" if row.instruction and row.loops else row.loops or row.instruction
            )
            yield text(MARGIN + STAGE + MAKES, base, fitted(told, LOOPS - 12), 11, INK, font=MONO)

    def draw_column(self, x: float, column: Column) -> Iterator[str]:
        colour = COLOURS[column.memory]
        top, bottom = self.row_y(column.first) + ROW / 2, self.row_y(column.last) + ROW / 2
        yield (f'<rect x="{x - 4}" y="{top - 4}" width="8" height="{bottom - top + 8}" rx="4" fill="{colour}" '
               f'fill-opacity="0.22"><title>{escape(label(column))}</title></rect>')  # fmt: skip
        for at in column.reads:
            yield ring(x, self.row_y(at) + ROW / 2, colour)
        for at in column.writes:
            yield f'<circle cx="{x}" cy="{self.row_y(at) + ROW / 2}" r="4.2" fill="{colour}"/>'
        y = self.rows_top - 8
        yield (f'<text x="{x + 4}" y="{y}" transform="rotate(-90 {x + 4} {y})" font-family="{MONO}" font-size="11" '
               f'fill="{colour}">{escape(label(column))}</text>')  # fmt: skip


def label(column: Column) -> str:
    """`qx, qn, q_decayed  f32 16x128 pad 4  8256 B`."""
    names = ", ".join(column.tensors)
    return f"{names}  {column.label}  {column.bytes} B"


def fitted(words: str, width: float) -> str:
    most = int(width / LETTER)
    return words if len(words) <= most else words[: most - 1] + "…"


def _legend(y: int) -> Iterator[str]:
    x = MARGIN
    for memory, colour in COLOURS.items():
        yield f'<rect x="{x}" y="{y - 9}" width="10" height="10" rx="2" fill="{colour}"/>'
        yield text(x + 16, y, NAMES[memory], 12, FAINT)
        x += 36 + 7.2 * len(NAMES[memory])
    yield f'<circle cx="{x + 12}" cy="{y - 4}" r="4.2" fill="{FAINT}"/>'
    yield text(x + 22, y, "written", 12, FAINT)
    yield ring(x + 92, y - 4, FAINT)
    yield text(x + 102, y, "read", 12, FAINT)
