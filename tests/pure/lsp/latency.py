"""Latency of `kdsl lsp` as an editor sees it: from a message sent to the answer received, over the server's pipes.

    python -m tests.pure.lsp.latency [--lines 2000] [--cold 10000] [--rounds 10]

Prints a table in milliseconds of wall time: median and worst of the rounds. An edit is timed to the first findings that
tell it from the text before; the server goes on deriving schedules in the background, as it does for a person. For the
opening of a file the server's processor time stands beside it: other programs do not stretch that (Linux).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from statistics import median

from lsprotocol import types

from .client import Editor, document, editor
from .texts import large


def variants(text: str) -> dict[str, str]:
    """Texts that differ from `text` in one rule in its middle, each with a finding there."""
    middle = text.index("rule rule", len(text) // 2)
    head, tail = text[:middle], text[middle:]
    return {
        "a value that is not allowed": head + tail.replace("chunk in [16, 32]", "chunk in [16, 31]", 1),
        "a misspelt tensor": head + tail.replace("qn, kn, lg", "qn, kn, lgg", 1),
        "a missing brace": head + tail.replace("place {", "place", 1),
    }


async def edits(client: Editor, uri: str, text: str, rounds: int) -> dict[str, list[float]]:
    version, found = 2, {}
    for _ in range(rounds):
        for name, wrong in variants(text).items():
            for label, changed, wanted in ((name, wrong, bool), ("back to the right text", text, lambda d: not d)):
                client.shown.pop(uri, None)
                start = time.perf_counter()
                client.change(uri, changed, version)
                await client.until(uri, wanted)
                found.setdefault(f"edit: {label}, to its findings", []).append(time.perf_counter() - start)
                version += 1
                await asyncio.sleep(0.05)
    return found


async def requests(client: Editor, uri: str, text: str, rounds: int) -> dict[str, list[float]]:
    """Right after an edit, so that nothing is at hand from before."""
    middle = text.index("state, state_next", len(text) // 2)
    line = text.count("\n", 0, middle)
    place = types.Position(line, middle - text.rindex("\n", 0, middle) + 8)
    doc = document(uri)
    asked = {
        "hover of a tensor": lambda c: c.text_document_hover_async(types.HoverParams(doc, place)),
        "completion": lambda c: c.text_document_completion_async(types.CompletionParams(doc, place)),
        "go to definition": lambda c: c.text_document_definition_async(types.DefinitionParams(doc, place)),
        "semantic tokens of the file": lambda c: c.text_document_semantic_tokens_full_async(
            types.SemanticTokensParams(doc)
        ),
        "document symbols": lambda c: c.text_document_document_symbol_async(types.DocumentSymbolParams(doc)),
    }
    found: dict[str, list[float]] = {}
    for round_ in range(rounds):
        for number, (name, ask) in enumerate(asked.items()):
            client.change(uri, text + f"# {round_} {number}\n", 1000 + round_ * len(asked) + number)
            start = time.perf_counter()
            assert await ask(client.client)
            found.setdefault(f"edit, then {name}", []).append(time.perf_counter() - start)
            await asyncio.sleep(0.05)
    return found


def processor(client: Editor) -> float:
    """Seconds of processor time that the server has used; 0 where /proc does not tell."""
    stat = Path(f"/proc/{client.client._server.pid}/stat")
    if not stat.exists():
        return 0.0
    fields = stat.read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def cold(root: Path, lines: int) -> tuple[float, float]:
    """From opening a file that nobody saw before to the finding at its end: seconds, and processor seconds."""
    text = large(lines)
    last = text.rindex("qn, kn, lg")
    text = text[:last] + "qn, kn, lgg" + text[last + len("qn, kn, lg") :]
    async with editor(root) as client:
        start, used = time.perf_counter(), processor(client)
        uri = client.open("cold.kds", text)
        await client.until(uri, bool)
        return time.perf_counter() - start, processor(client) - used


async def measure(lines: int, cold_lines: int, rounds: int) -> list[tuple[str, float, float]]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        text = large(lines)
        async with editor(root) as client:
            uri = client.open("large.kds", text)
            await client.until(uri, lambda found: not found)
            timed = await edits(client, uri, text, rounds)
            timed |= await requests(client, uri, text, rounds)
        rows = [(f"{lines} lines, {name}", median(seconds), max(seconds)) for name, seconds in timed.items()]
        first = [await cold(root, cold_lines) for _ in range(3)]
    whats = ("to the finding at the end", "processor time of that")
    for what, seconds in zip(whats, zip(*first, strict=True), strict=True):
        rows.append((f"{cold_lines} lines, opened: {what}", median(seconds), max(seconds)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--cold", type=int, default=10000)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    print("| | median, ms | worst, ms |\n|---|---|---|")
    for name, middle, worst in asyncio.run(measure(options.lines, options.cold, options.rounds)):
        print(f"| {name} | {middle * 1000:.0f} | {worst * 1000:.0f} |")


if __name__ == "__main__":
    main()
