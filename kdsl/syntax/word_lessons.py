"""Lessons about words: misspelt, of another language, or in the wrong block."""

from __future__ import annotations

from kdsl.syntax.findings import Findings
from kdsl.syntax.here import Here, Repair, declarations, made, sections
from kdsl.syntax.homes import home
from kdsl.syntax.tables import tables
from kdsl.syntax.words import enumerate_words, literal_texts, meant

FOREIGN = {
    "def": "a piece of a kernel is a `tactic name(parameters) { ... }`, a schedule is a `rule`",
    "class": "the declarations are operator, instruction, target, tactic and rule",
    "struct": "the declarations are operator, instruction, target, tactic and rule",
    "func": "a piece of a kernel is a `tactic name(parameters) { ... }`",
    "fn": "a piece of a kernel is a `tactic name(parameters) { ... }`",
    "function": "a piece of a kernel is a `tactic name(parameters) { ... }`",
    "import": "other files are read with `use \"path\"`",
    "from": "other files are read with `use \"path\"`",
    "include": "other files are read with `use \"path\"`",
    "let": "a line gives a value with `name = value`, without a keyword before it",
    "var": "a line gives a value with `name = value`, without a keyword before it",
    "const": "a line gives a value with `name = value`, without a keyword before it",
    "return": "nothing is returned: an operator names its outputs in `outputs`",
    "assert": "write the condition in `require { ... }` or `ensure { ... }`",
    "for": "there are no loops to write: `indices` names them, `grid` and `compute` place them",
    "while": "there are no loops to write: `indices` names them, `grid` and `compute` place them",
    "lambda": "write a line `name(i) = ...` in `define { ... }`",
}  # fmt: skip

GPU_MEMORIES = ("registers", "shared", "tensor_memory")
CPU_MEMORY = "stack"  # where a task of the target `cpu` keeps what a block of a GPU keeps in those


def foreign_word(here: Here, findings: Findings):
    """`def`, `import`, `let` ... where an item begins."""
    index = here.item if here.item < len(here.tokens) else here.position
    token = here.tokens[index]
    if token.text not in FOREIGN or index > here.position or here.position - index > 2:
        return None
    if token.text in tables().literals and index != here.position:
        return None
    findings.report(
        "E017", (token.start, token.stop), f"`{token.text}` is not a keyword of this language",
        label="a word of another language", help=FOREIGN[token.text],
    )  # fmt: skip
    return True


def misspelt(here: Here, findings: Findings):
    """A word that is nearly one the parser accepts, here or just before."""
    for index in dict.fromkeys((here.position, here.position - 1, here.item)):
        if index < here.item or index > here.position or index >= len(here.tokens):
            continue
        token = here.tokens[index]
        if token.kinds[-1] != "NAME":
            continue
        expected = here.expected_at(index) - {"NAME"}
        choices = [text for text in literal_texts(expected) if text[0].isalpha() and text != token.text]
        right = meant(token.text, choices)
        if right is None:
            continue
        message = f"`{token.text}` is no keyword here: did you mean `{right}`?"
        if right in GPU_MEMORIES and _targets(here) == {"cpu"}:
            message = f"`{token.text}` is called `{right}`, which cpu does not have: write `{CPU_MEMORY}`"
            right = CPU_MEMORY
        word = made(right, token)
        fits = here.fits(index, 1, word, ahead=2 if index == here.position else 6)
        if not fits and index != here.position:
            continue
        findings.report(
            "E008", (token.start, token.stop), message,
            help=f"write `{right}`", edit=(token.start, token.stop, right, f"write `{right}`"),
        )  # fmt: skip
        return Repair(index, 1, (word,)) if fits else True
    return None


def _targets(here: Here) -> set[str]:
    """The targets that the header of the rule around names; none in another declaration."""
    if not here.machine.frames:
        return set()
    frame = here.machine.frames[0]
    header = [token.text for token in here.tokens[frame.item : frame.token]]
    if header[:1] != ["rule"] or "on" not in header:
        return set()
    return {text for text in header[header.index("on") + 1 :] if text[0].isalpha()}


def misplaced(here: Here, findings: Findings):
    """A section in a block that has no such section, or outside of any."""
    token = here.token
    if here.position != here.item:
        return None
    homes = sections().get(token.text)
    if not here.machine.frames:
        if token.text in declarations():
            return None
        return _outside(here, findings, homes)
    if homes is None or here.keyword in homes:
        return None
    allowed = sorted(text for text, places in sections().items() if here.keyword in places)
    owner = here.block
    help = [f"`{token.text}` belongs in {_articles(homes)}"]
    labels = ()
    if here.keyword == "rule" and "kernel" in homes:
        text, other = home(here)
        help += [text] if text else []
        labels = ((other.start, other.stop, "settled here"),) if other is not None else ()
    if allowed:
        help.append(f"in {owner} may stand: {', '.join(allowed)}")
    findings.report(
        "E009", (token.start, token.stop), f"`{token.text}` cannot stand in {owner}", label="wrong place",
        labels=labels, help=tuple(help),
    )  # fmt: skip
    return True


def _outside(here: Here, findings: Findings, homes):
    token = here.token
    if homes:
        findings.report(
            "E009", (token.start, token.stop), f"`{token.text}` stands outside of any declaration",
            label="outside", help=f"`{token.text}` belongs in {_articles(homes)}",
        )  # fmt: skip
        return True
    right = meant(token.text, list(declarations())) if token.kinds[-1] == "NAME" else None
    findings.report(
        "E008", (token.start, token.stop), f"`{token.text[:40]}` does not begin a declaration",
        label=f"did you mean `{right}`?" if right else "not expected",
        required=enumerate_words([f"`{word}`" for word in declarations()]),
        help=f"write `{right}`" if right else "a file holds declarations, each with its block in { }",
        edit=(token.start, token.stop, right, f"write `{right}`") if right else None,
    )  # fmt: skip
    return Repair(here.position, 1, (made(right, token),)) if right else True


def _articles(homes) -> str:
    words = [("an " if word[0] in "aeiou" else "a ") + f"`{word}`" for word in homes]
    return enumerate_words(words)


def doc_place(here: Here, findings: Findings):
    token = here.token
    if token.kinds[0] != "DOC":
        return None
    findings.report(
        "E009", (token.start, token.stop), f"a doc string cannot stand in {here.block or 'this place'}",
        label="wrong place",
        help="it stands on a line of its own at the start of a declaration, part or kernel; "
        "elsewhere write `#`",
    )  # fmt: skip
    return True
