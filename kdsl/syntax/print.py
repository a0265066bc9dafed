"""The one canonical form of a text (`kdsl fmt`), and the text of nodes that a program made.

- Two spaces a level, one item a line, one empty line between declarations; an empty line between items stays.
- A block that its author wrote on one line stays on one, if it fits and holds no comment.
- In neighbouring lines of one kind the `:` of inputs, places, stages and their like, the `=` of definitions
and
  views, and what follows (`default`, `when`, `where`, `else`) stand below each other, a very long line aside.
- Comments and doc strings stay; comments at the ends of neighbouring lines stand below each other.
- A line longer than WIDTH goes on after a comma outside of brackets.
"""

from __future__ import annotations

import re
from itertools import islice, takewhile

from attrs import define, field

from kdsl.source.span import SourceFile
from kdsl.syntax import nodes as n
from kdsl.syntax.lines import body, cells, header
from kdsl.syntax.parse import Parsed, parse_source

WIDTH = 120
MARGIN = 10  # kept free by blocks on one line, for their indentation
LONG = 64  # a cell longer than this is not aligned, nor are others aligned with it
STEP = "  "
SHORT = (n.Use, n.Edition)  # declarations of one line, which stand together

_LIST_COMMA = re.compile(r'"[^"\n]*"|[(\[]|[)\]]|, ')


@define
class _Line:
    """One line to be: `kind` and `cells` decide what it aligns with."""

    depth: int
    cells: list[str]
    kind: object = None
    comment: str = ""
    verbatim: bool = False


def format_text(text: str, path: str = "") -> str | Parsed:
    """The canonical form of a text; what is wrong with it, if it cannot be read."""
    parsed = parse_source(SourceFile(path, text))
    return print_tree(parsed.tree) if parsed.ok else parsed


def print_tree(tree: n.Tree) -> str:
    """The canonical form of a tree that was parsed without errors."""
    printer = _Printer(tree.source, list(tree.comments))
    printer.file(tree.declarations)
    return render(printer.lines)


def print_node(node: n.Node) -> str:
    """The text of one declaration or item that a program made; its spans are not looked at."""
    printer = _Printer(None, [])
    printer.item(node, 0)
    return render(printer.lines)


@define
class _Printer:
    """Walks the tree and the comments together; `seen` is the offset up to which the text is printed."""

    source: SourceFile | None
    comments: list[n.Comment]
    lines: list[_Line] = field(factory=list)
    seen: int = 0
    next_comment: int = 0

    @property
    def text(self) -> str:
        return self.source.text if self.source is not None else ""

    def file(self, declarations: tuple[n.Node, ...]) -> None:
        previous = None
        for node in declarations:
            together = isinstance(previous, SHORT) and isinstance(node, SHORT)
            self.leading(node.span.first, 0, apart=previous is not None and not together)
            self.item(node, 0)
            previous = node
        self.leading(len(self.text), 0, apart=previous is not None, last=True)

    # ---- comments and empty lines ----
    def leading(self, offset: int, depth: int, *, apart: bool = False, last: bool = False) -> None:
        """Print the comments before `offset`; `apart`: an empty line comes before what is printed next."""
        first = True
        while self.next_comment < len(self.comments):
            comment = self.comments[self.next_comment]
            start = comment.span.first
            if start >= offset:
                break
            text = comment.text.rstrip()
            same_line = self.lines and "\n" not in self.text[self.seen : start] and self.seen
            if same_line and not self.lines[-1].comment and self.lines[-1].kind != "#":
                self.lines[-1].comment = text
            else:
                self.blank(start, force=apart and first)
                first = False
                self.lines.append(_Line(depth, [text], "#"))
            self.seen = comment.span.last
            self.next_comment += 1
        if not last:
            self.blank(offset, force=apart and first)

    def blank(self, offset: int, *, force: bool = False) -> None:
        """An empty line, if one stands in the text between what is printed and `offset`."""
        if not self.lines or not self.lines[-1].cells:
            return
        if self.lines[-1].cells[-1].endswith("{") and not self.lines[-1].verbatim:
            return
        if force or self.text.count("\n", self.seen, offset) > 1:
            self.lines.append(_Line(0, []))

    def inside(self, stop: int, depth: int) -> None:
        """Comments in the midst of an item go before it."""
        while self.next_comment < len(self.comments):
            comment = self.comments[self.next_comment]
            if comment.span.first >= stop:
                return
            self.lines.append(_Line(depth, [comment.text.rstrip()], "#"))
            self.next_comment += 1

    # ---- items ----
    def item(self, node: n.Node, depth: int, short: bool | None = None) -> None:
        items = body(node)
        if items is None:
            self.simple(node, depth)
            return
        brace = self.brace(node)
        if brace is not None:
            self.inside(brace, depth)
        if short if short is not None else self.fits_one_line(node):
            text = self.one_line(node)
            head = header(node)
            parts = [head, text[len(head) + 1 :]] if isinstance(node, n.FormCase) else [text]
            self.lines.append(_Line(depth, parts, "when"))
        else:
            if brace is not None:
                self.seen = brace + 1
            self.lines.append(_Line(depth, [header(node) + " {"], "{"))
            alike = self.alike(node, items)
            for item in items:
                if self.source is not None:
                    self.leading(item.span.first, depth + 1)
                self.item(item, depth + 1, False if alike is False and body(item) else None)
            if self.source is not None:
                self.closing(node.span.last - 1, depth + 1)
            self.lines.append(_Line(depth, ["}"], "}"))
        if self.source is not None:
            self.seen = node.span.last

    def closing(self, offset: int, depth: int) -> None:
        self.leading(offset, depth, last=True)
        while self.lines and not self.lines[-1].cells:
            self.lines.pop()

    def simple(self, node: n.Node, depth: int) -> None:
        if self.source is not None:
            self.inside(node.span.last, depth)
            self.seen = node.span.last
        self.lines.append(_Line(depth, cells(node), type(node), verbatim=isinstance(node, n.Doc)))

    def brace(self, node: n.Node) -> int | None:
        """Where the `{` of a node is: after its header, in which no string holds one."""
        if self.source is None:
            return None
        stop, position = node.span.last, node.span.first
        for match in re.finditer(r'"[^"\n]*"|#[^\n]*|\{', self.text[position:stop]):
            if match.group() == "{":
                return position + match.start()
        return position

    # ---- blocks on one line ----
    def alike(self, node: n.Node, items: tuple[n.Node, ...]) -> bool | None:
        """The cases of one `either` stand on one line each, or none does; None for other blocks."""
        if not isinstance(node, n.Either):
            return None
        rest = islice(self.comments, self.next_comment, None)
        comments = [c.span for c in takewhile(lambda c: c.span.first < node.span.last, rest)]
        return all(not body(case) or self.short(case, comments) for case in items)

    def short(self, node: n.Node, comments: list) -> bool:
        """Whether a block was written on one line, holds no comment, and fits."""
        first, last = node.span.first, node.span.last
        if "\n" in self.text[first:last] and body(node):
            return False
        if any(first < span.first < last for span in comments):
            return False
        return len(self.one_line(node)) <= WIDTH - MARGIN

    def fits_one_line(self, node: n.Node) -> bool:
        if self.source is None:
            return not body(node)
        following = self.comments[self.next_comment : self.next_comment + 1]
        return self.short(node, [comment.span for comment in following])

    def one_line(self, node: n.Node) -> str:
        items = body(node)
        if items is None:
            return " ".join(cells(node))
        inner = "; ".join(self.one_line(item) for item in items)
        return f"{header(node)} {{ {inner} }}" if inner else f"{header(node)} {{ }}"


# ---- lines to text -----------------------------------------------------------------------------------------


def render(lines: list[_Line]) -> str:
    """Align, wrap and join."""
    texts = _aligned(lines)
    out = []
    for (line, text), margin in zip(texts, _margins(texts), strict=True):
        rows = [text] if line.verbatim or line.kind == "#" else _wrapped(text, line.depth)
        if line.comment:
            rows[-1] = rows[-1].ljust(margin if len(rows) == 1 else 0) + "  " + line.comment
        out += rows
    while out and not out[-1]:
        out.pop()
    return "\n".join(out) + "\n" if out else ""


def _aligned(lines: list[_Line]) -> list[tuple[_Line, str]]:
    texts: list[tuple[_Line, str]] = []
    start = 0
    while start < len(lines):
        stop = start + 1
        while stop < len(lines) and _together(lines[stop - 1], lines[stop]):
            stop += 1
        group = lines[start:stop]
        for line, text in zip(group, _columns([line.cells for line in group]), strict=True):
            texts.append((line, STEP * line.depth + text if text else ""))
        start = stop
    return texts


def _together(one: _Line, two: _Line) -> bool:
    return (
        bool(one.cells)
        and one.kind is two.kind
        and one.depth == two.depth
        and one.kind not in ("#", "{", "}")
    )


def _columns(rows: list[list[str]]) -> list[str]:
    """Rows with their cells below each other."""
    texts = [row[0] if row else "" for row in rows]
    for column in range(1, max(map(len, rows), default=0)):
        taking = [
            len(text)
            for text, row in zip(texts, rows, strict=True)
            if len(row) > column and len(text) <= LONG
        ]
        width = max(taking, default=0)
        for number, row in enumerate(rows):
            if len(row) > column:
                texts[number] = texts[number].ljust(width) + " " + row[column]
    return texts


def _margins(texts: list[tuple[_Line, str]]) -> list[int]:
    """The column after which the comment of each line stands."""
    margins, start = [0] * len(texts), 0
    while start < len(texts):
        stop = start
        while (
            stop < len(texts) and texts[stop][0].comment and _level(texts[start][0]) == _level(texts[stop][0])
        ):
            stop += 1
        width = max((len(text) for _, text in texts[start:stop]), default=0)
        margins[start:stop] = [width] * (stop - start)
        start = max(stop, start + 1)
    return margins


def _level(line: _Line) -> tuple[int, bool]:
    """Lines of one level have their comments below each other; a line with a lone brace has none near it."""
    return line.depth, line.kind in ("{", "}")


def _wrapped(text: str, depth: int) -> list[str]:
    """A line that is too long goes on after the last comma that fits."""
    rows, indent = [], STEP * depth + STEP * 2
    while len(text) > WIDTH:
        cut = _last_comma(text, len(rows) and len(indent))
        if cut is None:
            break
        rows.append(text[:cut])
        text = indent + text[cut:].lstrip()
    return [*rows, text]


def _last_comma(text: str, begin: int) -> int | None:
    """Where to break: after the last comma outside of brackets within WIDTH, or the first beyond it."""
    depth, best = 0, None
    for match in _LIST_COMMA.finditer(text, begin):
        sign = match.group()
        if sign in "([":
            depth += 1
        elif sign in ")]":
            depth -= 1
        elif sign == ", " and depth == 0:
            if match.start() + 1 > WIDTH and best is not None:
                break
            best = match.start() + 1
    return best
