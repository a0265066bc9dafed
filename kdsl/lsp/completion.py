"""Completion: the words that the grammar accepts at the cursor, and the names in scope that fit there.

The automaton reads the declaration up to the cursor. What it would accept next gives the keywords; where a
name may stand, the block and the tokens of the item so far say which kinds of names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import frozen
from lsprotocol import types

from kdsl.check.kernel_lines import ORDERS
from kdsl.check.model import DTYPE_BYTES, ENGINES
from kdsl.contract.predicates import BASELINES, TABLE
from kdsl.lsp.names import OperatorTable
from kdsl.lsp.scope import Scope
from kdsl.source.span import Origin, SourceFile
from kdsl.syntax.machine import Machine
from kdsl.syntax.split import split
from kdsl.syntax.tables import tables
from kdsl.syntax.tokens import LINE, Token, tokenize

K = types.CompletionItemKind
ICONS = {
    "keyword": K.Keyword, "operator": K.Class, "target": K.Struct, "instruction": K.Struct,
    "feature": K.Constant,
    "tactic": K.Function, "rule": K.Class, "stage": K.Function, "tensor": K.Variable, "view": K.Variable,
    "index": K.Variable, "size": K.TypeParameter, "option": K.Property, "parameter": K.Property,
    "form": K.Enum,
    "value": K.EnumMember, "input": K.Field, "output": K.Field, "definition": K.Function,
    "dtype": K.TypeParameter,
    "choice": K.Constant, "role": K.Module, "part": K.Module, "kernel": K.Method, "above": K.Method, "field": K.Field,
    "predicate": K.Function, "acceptance": K.Interface, "word": K.Value,
}  # fmt: skip
CALL = ("size", "option", "parameter", "choice", "field")
GRAPH = ("tensor", "view", "index", "size", "parameter", "option", "definition")
# What may stand where a name may: by the word before, then by the block and the part of its line.
AFTER = {
    "schedules": ("operator",), "extends": ("target",), "computes": ("part",), "apply": ("tactic",),
    "as": ("instruction",), "via": ("above", *(f"word:{engine}" for engine in ENGINES)),
    "uses": ("instruction",),
    "has": ("instruction", "feature"), "lacks": ("instruction", "feature"), "like": ("input",),
    "of": ("dtype",),
    "over": ("index",), "scan": ("index",), "vector": ("index",), "unroll": ("index",), "rows": ("index",),
    "lanes": ("index",), "next": ("tensor",), "alias": ("tensor",), "baseline": ("baseline",),
    "within": ("acceptance",),
    "by": ("choice", "parameter", "field"), "pad": ("choice",), "ring": ("choice",), "swizzle": ("choice",),
    "for": ("stage", "kernel", "role"), "before": ("stage",),
}  # fmt: skip
START = {
    "grid": ("word:task", "word:x", "word:y", "word:z"), "place": ("tensor", "view"), "compute": ("stage",),
    "form": ("form", "parameter"), "require": ("input", *CALL), "laws": ("option", "size"), "pin": ("stage",),
    "ensure": ("predicate", "field", "choice", "size"), "measure": ("predicate", "size"),
    "rounding": ("tensor",),
}  # fmt: skip
REST = {
    "grid": ("index",), "place": ("dtype",), "compute": ("instruction",), "form": ("value", "choice"),
    "require": (*CALL, "dtype"), "laws": CALL,
    "ensure": ("predicate", "field", "choice", "size", "option", "tensor"),
    "measure": ("predicate", "size", "acceptance"), "rounding": ("dtype",),
    "views": ("input", "output", *GRAPH),
    "define": GRAPH, "part": GRAPH, "when": GRAPH, "either": ("form",), "roles": ("choice", "field"),
    "choose": ("choice",), "indices": ("size", "parameter", "definition", "index"),
    "inputs": ("size", "option"),
    "outputs": ("size", "option"), "options": ("size", "option"),
}  # fmt: skip
FORMS = {  # what a keyword that begins an item usually goes on with
    "kernel": "kernel ${1:name} computes ${2:part} {\n\t$0\n}",
    "rule": "rule ${1:name} schedules ${2:operator} on ${3:target} {\n\t$0\n}",
    "operator": "operator ${1:name} {\n\t$0\n}", "target": "target ${1:name} {\n\t$0\n}",
    "tactic": "tactic ${1:name}(${2:width}) {\n\t$0\n}",
    "instruction": "instruction ${1:name} {\n\t$0\n}", "part": "part ${1:name} {\n\t$0\n}",
    "either": "either ${1:form} {\n\twhen ${2:one} { $0 }\n}",
}  # fmt: skip
BLOCKS = ("require", "ensure", "measure", "choose", "form", "grid", "roles", "place", "compute", "pin",
          "sizes", "parameters", "inputs", "outputs", "options", "laws", "indices", "define", "views",
          "rounding")  # fmt: skip


@frozen
class Cursor:
    """What stands before the cursor: the automaton after it, the block, and the item so far."""

    accepted: frozenset[str]
    block: str
    item: tuple[Token, ...]
    header: tuple[Token, ...]  # of the declaration
    kernel: tuple[Token, ...]  # of the kernel, if the cursor is in one
    prefix: str

    @property
    def last(self) -> str:
        return self.item[-1].text if self.item else ""


def word_start(text: str, offset: int) -> int:
    """Where the word begins that ends at the cursor."""
    while offset > 0 and (text[offset - 1].isalnum() or text[offset - 1] in "_."):
        offset -= 1
    return offset


def read_to(source: SourceFile, offset: int) -> Cursor:
    """The state of the automaton at the start of the word that ends at `offset`."""
    text = source.text
    start = word_start(text, offset)
    before = text[:start]
    pieces = split(before).pieces
    begin = pieces[-1].start if pieces and not _finished(before, pieces[-1]) else len(before)
    machine = Machine(tokenize(before[begin:])[0], Origin(source, begin))
    position: int | None = machine.run(0)
    while position is not None and position < len(machine.tokens):
        position = _pass(machine, position)
    return _cursor(machine, text[start:offset])


def _finished(text: str, piece) -> bool:
    """Whether a declaration is closed before the cursor."""
    body = text[piece.start : piece.stop]
    tokens = tokenize(body)[0]
    depth = sum((t.text == "{") - (t.text == "}") for t in tokens if t.kinds[0] in ("LBRACE", "RBRACE"))
    return depth <= 0 and (body.rstrip().endswith("}") or "\n" in text[piece.stop :])


def _pass(machine: Machine, stopped: int) -> int | None:
    """Give up the item with a mistake, and go on at the next."""
    if not machine.frames:
        return None
    machine.restart()
    depth = 0
    for position in range(stopped, len(machine.tokens)):
        kind = machine.tokens[position].kinds[0]
        depth += (kind == "LBRACE") - (kind == "RBRACE")
        if depth < 0 or (kind == LINE and depth == 0):
            machine.item = position + (kind == LINE)
            return machine.run(machine.item)
    return None


def _cursor(machine: Machine, prefix: str) -> Cursor:
    tokens = machine.tokens
    frames = machine.frames
    item = tuple(t for t in tokens[machine.item :] if t.kinds[0] != LINE)
    block = tokens[frames[-1].item].text if frames else ""
    header = tuple(tokens[: frames[0].token]) if frames else ()
    kernel = next((tuple(tokens[f.item : f.token]) for f in frames if tokens[f.item].text == "kernel"), ())
    return Cursor(machine.accepted(), block, item, header, kernel, prefix)


def complete(scope: Scope, source: SourceFile, offset: int, snippets: bool = False) -> list[types.CompletionItem]:
    """Everything that may stand at `offset` in place of the word before it, names before keywords."""
    cursor = read_to(source, offset)
    found: dict[str, types.CompletionItem] = {}
    if "NAME" in cursor.accepted:
        names = Names(scope, cursor)
        for kind in kinds_at(cursor):
            for name, detail in names.of(kind):
                icon = ICONS.get(kind.partition(":")[0], K.Text)
                found.setdefault(name, types.CompletionItem(name, kind=icon, detail=detail, sort_text=f"0{name}"))
    for text, kinds in sorted(tables().literals.items()):
        if text[0].isalpha() and any(kind in cursor.accepted and kind != "NAME" for kind in kinds):
            found.setdefault(text, _keyword(text, cursor, snippets))
    for text in (
        ("sum", "maximum") if "REDUCER" in cursor.accepted and cursor.block in ("part", "when", "either") else ()
    ):
        found.setdefault(text, _keyword(text, cursor, False))
    return list(found.values())


def _keyword(text: str, cursor: Cursor, snippets: bool) -> types.CompletionItem:
    item = types.CompletionItem(text, kind=K.Keyword, sort_text=f"1{text}")
    form = FORMS.get(text) or (f"{text} {{\n\t$0\n}}" if text in BLOCKS else None)
    if snippets and form is not None and not cursor.item:
        item.insert_text, item.insert_text_format = form, types.InsertTextFormat.Snippet
    return item


def kinds_at(cursor: Cursor) -> tuple[str, ...]:
    """Kinds of names that may stand at the cursor."""
    words = [t.text for t in cursor.item]
    last = _last_word(words)
    if not cursor.block:
        return ("target",) if "on" in words else AFTER.get(last, ())
    if cursor.block == "compute" and last == "on" or cursor.block == "place" and last == "on":
        return ("role",)
    if cursor.block == "choose" and last == "on":
        return ("target",)
    if last == "is":
        return ("value",)
    if last == "at":
        return ("word:ptx", "word:sass", "role")
    if last == "order":
        return tuple(f"word:{o}" for o in ORDERS) if cursor.block == "grid" else ("index",)
    if last == "in" and "uses" in words:
        return ("stage",)
    if last in AFTER and not (last == "of" and cursor.block in ("part", "when", "indices")):
        return AFTER[last]
    if cursor.block in ("rule", "kernel", "tactic", "operator") and words and words[0] in ("kernel", "apply"):
        return CALL if "when" in words or words[0] == "apply" else AFTER["computes"]
    if cursor.block == "require" and ":" in words:
        return ("dtype",)
    begun = any(w in (":", "=", "==", "<=", ">=", "<", ">", "(", "is", "in") for w in words)
    table = REST if begun or cursor.block not in START else START
    return table.get(cursor.block, ())


def _last_word(words: list[str]) -> str:
    """The word before the cursor, lists passed over: after `has a, ` it is `has`."""
    index = len(words) - 1
    while index > 0 and words[index] == ",":
        index -= 2
    return words[index] if index >= 0 else ""


@frozen
class Names:
    """The names in scope at a cursor, by kind."""

    scope: Scope
    cursor: Cursor

    def of(self, kind: str) -> Iterable[tuple[str, str]]:
        kind, _, word = kind.partition(":")
        if word:
            return [(word, "")]
        if kind in ("operator", "target", "instruction", "tactic", "rule", "acceptance"):
            return [(name, kind) for name in self.scope.names(kind)]
        method = getattr(self, kind, None)
        return method() if method is not None else self.of_operator(kind)

    @property
    def operator(self) -> OperatorTable | None:
        """The operator that the declaration is, or schedules."""
        words = [t.text for t in self.cursor.header if t.kinds[0] != LINE]
        if "schedules" in words[:-1]:
            return self.scope.table(words[words.index("schedules") + 1])
        if words[:1] == ["operator"] and len(words) > 1:
            return self.scope.table(words[1])
        if words[:1] == ["tactic"] and len(words) > 1:
            return next(map(self.scope.table, self.scope.users(words[1])), None)
        return None

    def of_operator(self, kind: str) -> Iterator[tuple[str, str]]:
        table = self.operator
        for name, found in (table.kinds if table is not None else {}).items():
            if found == kind:
                yield name, f"{kind} of {table.node.name.text}"

    def stage(self) -> Iterator[tuple[str, str]]:
        table = self.operator
        for name in sorted(table.stages) if table is not None else ():
            yield name, f"stage of {table.node.name.text}"

    def part(self) -> list[tuple[str, str]]:
        return [(name, "part") for name in (self.operator.parts if self.operator is not None else ())]

    def value(self) -> Iterator[tuple[str, str]]:
        """Values of the option or form that the item speaks of."""
        words = [t.text for t in self.cursor.item]
        subject = words[-2] if words[-1:] == ["is"] and len(words) > 1 else words[0] if words else ""
        for name in self.operator.cases.get(subject, ()) if self.operator is not None else ():
            yield name, f"{subject} = {name}"

    def dtype(self) -> list[tuple[str, str]]:
        return [(name, f"{size} bytes") for name, size in DTYPE_BYTES.items()]

    def predicate(self) -> list[tuple[str, str]]:
        return [(name, entry.summary) for name, entry in TABLE.items()]

    def baseline(self) -> list[tuple[str, str]]:
        return [(name, "baseline") for name in BASELINES]

    def feature(self) -> list[tuple[str, str]]:
        return [(name, "a target has it") for name in sorted(self.scope.features)]

    def field(self) -> list[tuple[str, str]]:
        """`target.x` of every target in scope."""
        from kdsl.syntax import nodes as n

        names = {item.name.text for _, target in self.scope.names("target").values() for item in target.items
                 if isinstance(item, n.Field)}  # fmt: skip
        return [(f"target.{name}", "limit of the target") for name in sorted(names)]

    def choice(self) -> list[tuple[str, str]]:
        return [(name, "choice") for name in self._lines("choose")]

    def role(self) -> list[tuple[str, str]]:
        return [(name, "role") for name in self._lines("roles")]

    def kernel(self) -> list[tuple[str, str]]:
        from kdsl.syntax import nodes as n

        found = self._declaration()
        return [(k.name.text, "kernel") for k in found.items if isinstance(k, n.Kernel)] if found is not None else []

    def above(self) -> list[tuple[str, str]]:
        """Kernels above the cursor's own, whose warps may be beside its own in a launch."""
        own = [t.text for t in self.cursor.kernel if t.kinds[0] != LINE][1:2]
        names = [name for name, _ in self.kernel()]
        before = names[: names.index(own[0])] if own and own[0] in names else names
        return [(name, "kernel above, its warps beside these") for name in before]

    def _declaration(self):
        words = [t.text for t in self.cursor.header if t.kinds[0] != LINE]
        found = self.scope.find(words[0], words[1]) if len(words) > 1 and words[0] in ("rule", "tactic") else None
        return found[1] if found is not None else None

    def _lines(self, kind: str) -> list[str]:
        """Names that blocks of one kind declare, anywhere in the declaration as it was last read."""
        from kdsl.check.model import walk
        from kdsl.syntax import nodes as n

        found = self._declaration()
        blocks = (x for x in walk(found) if isinstance(x, n.Block) and x.kind == kind) if found is not None else ()
        names = [name.text for b in blocks for line in b.items for name in getattr(line, "names", None) or (line.name,)]
        if kind == "choose" and found is not None and hasattr(found, "parameters"):
            names += [p.text for p in found.parameters]
        return names
