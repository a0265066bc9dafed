"""A client that speaks the protocol with `kdsl lsp` over its standard input and output."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from kdsl.data import data_root

RULE = data_root() / "rules" / "kda.chunk_forward" / "cpu_split.kds"
OPERATOR = data_root() / "stdlib" / "operators" / "kda.chunk_forward.kds"


class Editor:
    """One editor with a workspace folder; `shown` holds the findings published last, by URI."""

    def __init__(self, client: LanguageClient, root: Path):
        self.client, self.root = client, root
        self.shown: dict[str, list[types.Diagnostic]] = {}
        self.messages: list[str] = []
        self.progress: list[object] = []
        self._published = asyncio.Event()

        @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def publish(params: types.PublishDiagnosticsParams):
            self.shown[params.uri] = list(params.diagnostics)
            self._published.set()

        @client.feature(types.WINDOW_SHOW_MESSAGE)
        def message(params: types.ShowMessageParams):
            self.messages.append(params.message)

        @client.feature(types.WINDOW_WORK_DONE_PROGRESS_CREATE)
        def create(params):
            self.progress.append(params.token)

        @client.feature(types.PROGRESS)
        def report(params: types.ProgressParams):
            self.progress.append(params.value)

    async def start(self, **general) -> types.InitializeResult:
        capabilities = types.ClientCapabilities(
            general=types.GeneralClientCapabilities(**general) if general else None,
            window=types.WindowClientCapabilities(work_done_progress=True),
        )
        folder = types.WorkspaceFolder(self.root.as_uri(), self.root.name)
        params = types.InitializeParams(capabilities, root_uri=self.root.as_uri(), workspace_folders=[folder])
        result = await self.client.initialize_async(params)
        self.client.initialized(types.InitializedParams())
        return result

    def open(self, name: str, text: str, save: bool = True) -> str:
        path = self.root / name
        if save:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8"))
        uri = path.as_uri()
        item = types.TextDocumentItem(uri, "kds", 1, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return uri

    def change(self, uri: str, text: str, version: int = 2) -> None:
        whole = types.TextDocumentContentChangeWholeDocument(text)
        identifier = types.VersionedTextDocumentIdentifier(version, uri)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(identifier, [whole]))

    async def until(self, uri: str, wanted, seconds: float = 60) -> list[types.Diagnostic]:
        """Wait until the findings of a file satisfy `wanted`."""

        async def wait():
            while uri not in self.shown or not wanted(self.shown[uri]):
                self._published.clear()
                await self._published.wait()

        await asyncio.wait_for(wait(), seconds)
        return self.shown[uri]


@contextlib.asynccontextmanager
async def editor(root: Path, **general):
    client = LanguageClient("test", "1")
    await client.start_io(sys.executable, "-m", "kdsl.cli.main", "lsp")
    opened = Editor(client, root)
    try:
        opened.capabilities = (await opened.start(**general)).capabilities
        yield opened
        await client.shutdown_async(None)
        client.exit(None)
    except BaseException:
        client._server.kill()
        raise
    finally:
        await asyncio.wait_for(client.stop(), 20)


def at(text: str, marked: str) -> types.Position:
    """The position of `|` in a piece of the text: `state|_key`."""
    offset = text.index(marked.replace("|", "")) + marked.index("|")
    line = text.count("\n", 0, offset)
    return types.Position(line, offset - (text.rfind("\n", 0, offset) + 1))


def document(uri: str) -> types.TextDocumentIdentifier:
    return types.TextDocumentIdentifier(uri)
