"""The server: messages of the protocol to the functions beside this file, and findings back.

Every request is answered on the event loop from what is known; the check of an edited file runs
there in steps, between messages. Handlers of texts are no coroutines: a request sees every edit that was sent before
it, which a task of its own would only take up later. A fault in a handler is an answer like any other: it is logged,
and the server goes on.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from kdsl import __version__
from kdsl.lsp import completion, navigate, outline, semantic
from kdsl.lsp.claims import claim_hover, lenses
from kdsl.lsp.hover import Hover
from kdsl.lsp.lowering import STOPPED, lower
from kdsl.lsp.positions import offset, position, range_of
from kdsl.lsp.workspace import Workspace
from kdsl.syntax.parse import parse_source
from kdsl.syntax.print import print_tree

LOG = logging.getLogger("kdsl.lsp")
QUIET = 0.3  # seconds without an edit before schedules are derived
LOWER = "kdsl.lower"
LOWER_DEFAULTS = ("", "cpu", None, "report")  # in place of arguments that are left out


class Server(LanguageServer):
    """The protocol's side of one editor; `files` is what it works on."""

    def __init__(self):
        super().__init__("kdsl", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full)
        self.files = Workspace()
        self.snippets = False
        self._checking: asyncio.Task | None = None
        self._shown: dict[str, list[types.Diagnostic]] = {}

    def report_server_error(self, error: Exception, source) -> None:
        LOG.error("%s: %s", type(error).__name__, error, exc_info=error)

    # ---- checking ----
    def recheck(self, first: str | None = None) -> None:
        """Check every open file again, the edited one first; an earlier check that still runs is given up."""
        if self._checking is not None:
            self._checking.cancel()
        self._checking = asyncio.ensure_future(self._check(first))

    async def _check(self, first: str | None) -> None:
        paths = sorted(self.files.session.opened, key=lambda path: path != first)
        for path in paths:
            try:
                for analysis in self.files.check(path):
                    self.publish(path, analysis.diagnostics)
                    await asyncio.sleep(0)
            except Exception as fault:  # a fault in the check of one file leaves the others and the server alone
                LOG.error("check of %s: %s: %s", path, type(fault).__name__, fault, exc_info=fault)
        await asyncio.sleep(QUIET)  # an edit until then gives this up
        for path in paths:
            try:
                for derive, keep in self.files.derivations(path):
                    keep(await asyncio.to_thread(derive))
                    self.publish(path, self.files.analysis(path).diagnostics)
            except Exception as fault:
                LOG.error("derivation of %s: %s: %s", path, type(fault).__name__, fault, exc_info=fault)

    def publish(self, path: str, diagnostics) -> None:
        found = navigate.published(self.files, path, diagnostics)
        if self._shown.get(path) == found:
            return
        self._shown[path] = found
        uri = self.files.session.uri_of(path)
        version = self.workspace.get_text_document(uri).version
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, version))

    def forget(self, path: str, uri: str) -> None:
        self._shown.pop(path, None)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    # ---- places ----
    def path(self, params) -> str:
        return self.files.session.path_of(params.text_document.uri)

    def place(self, params) -> tuple[str, int]:
        """Path and character of a request at a position."""
        path = self.path(params)
        source = self.files.source(path)
        return path, offset(source, params.position, self.files.encoding) if source is not None else 0


server = Server()


# ---- life --------------------------------------------------------------------------------------------------


@server.feature(types.INITIALIZE)
def initialize(ls: Server, params: types.InitializeParams) -> None:
    folders = [folder.uri for folder in params.workspace_folders or ()] or [params.root_uri or ""]
    ls.files.session.roots = [Path(path) for uri in folders if uri and (path := to_fs_path(uri))]
    ls.files.encoding = str(
        getattr(ls.workspace.position_encoding, "value", ls.workspace.position_encoding) or "utf-16"
    )
    document = params.capabilities.text_document
    item = document.completion.completion_item if document and document.completion else None
    ls.snippets = bool(item and item.snippet_support)


@server.feature(types.TEXT_DOCUMENT_DID_OPEN)
def did_open(ls: Server, params: types.DidOpenTextDocumentParams) -> None:
    ls.recheck(ls.files.open(params.text_document.uri, params.text_document.text))


@server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
def did_change(ls: Server, params: types.DidChangeTextDocumentParams) -> None:
    path = ls.path(params)
    ls.files.change(path, ls.workspace.get_text_document(params.text_document.uri).source)
    ls.recheck(path)


@server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
def did_close(ls: Server, params: types.DidCloseTextDocumentParams) -> None:
    path = ls.files.close(params.text_document.uri)
    ls.forget(path, params.text_document.uri)
    ls.recheck()


@server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
def did_change_files(ls: Server, params: types.DidChangeWatchedFilesParams) -> None:
    ls.files.disk_changed()
    ls.recheck()


# ---- reading -----------------------------------------------------------------------------------------------


@server.feature(types.TEXT_DOCUMENT_HOVER)
def hover(ls: Server, params: types.HoverParams) -> types.Hover | None:
    path, at = ls.place(params)
    scope = ls.files.scope(path)
    if scope is None:
        return None
    found = ls.files.at(path, at)
    analysis = ls.files.analysis(path)
    said = Hover(scope, analysis).say(found.symbol) if found is not None else None
    texts = [text for text in (said, claim_hover(scope, analysis, at)) if text]
    if not texts:
        return None
    markup = types.MarkupContent(types.MarkupKind.Markdown, "\n\n---\n\n".join(texts))
    return types.Hover(markup, range_of(found.span, ls.files.encoding) if found is not None else None)


@server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=[".", ":", " "]))
def complete(ls: Server, params: types.CompletionParams) -> types.CompletionList:
    path, at = ls.place(params)
    scope = ls.files.scope(path)
    if scope is None:
        return types.CompletionList(False, [])
    source = scope.loaded.trees[0].source
    start = completion.word_start(source.text, at)
    where = types.Range(position(source, start, ls.files.encoding), params.position)
    items = completion.complete(scope, source, at, ls.snippets)
    for item in items:
        item.text_edit = types.TextEdit(where, item.insert_text or item.label)
        item.insert_text = None
    return types.CompletionList(False, items)


@server.feature(types.TEXT_DOCUMENT_DEFINITION)
def definition(ls: Server, params: types.DefinitionParams) -> list[types.Location]:
    return navigate.definitions(ls.files, *ls.place(params))


@server.feature(types.TEXT_DOCUMENT_REFERENCES)
def references(ls: Server, params: types.ReferenceParams) -> list[types.Location]:
    return navigate.references(ls.files, *ls.place(params), params.context.include_declaration)


@server.feature(types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT)
def highlight(ls: Server, params: types.DocumentHighlightParams) -> list[types.DocumentHighlight]:
    return navigate.highlights(ls.files, *ls.place(params), ls.files.encoding)


@server.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
def symbols(ls: Server, params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
    parsed = ls.files.session.parsed(ls.path(params))
    return outline.outline(parsed.tree.declarations, ls.files.encoding) if parsed is not None else []


@server.feature(types.WORKSPACE_SYMBOL)
def workspace_symbols(ls: Server, params: types.WorkspaceSymbolParams) -> list[types.SymbolInformation]:
    return outline.workspace_symbols(ls.files, params.query)


@server.feature(types.TEXT_DOCUMENT_FOLDING_RANGE)
def folding(ls: Server, params: types.FoldingRangeParams) -> list[types.FoldingRange]:
    parsed = ls.files.session.parsed(ls.path(params))
    return outline.folding(parsed.tree.declarations, parsed.tree.comments) if parsed is not None else []


@server.feature(types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, semantic.LEGEND)
def semantic_tokens(ls: Server, params: types.SemanticTokensParams) -> types.SemanticTokens:
    scope = ls.files.scope(ls.path(params))
    return types.SemanticTokens(semantic.tokens(scope, ls.files.encoding) if scope is not None else [])


@server.feature(types.TEXT_DOCUMENT_SEMANTIC_TOKENS_RANGE, semantic.LEGEND)
def semantic_tokens_range(ls: Server, params: types.SemanticTokensRangeParams) -> types.SemanticTokens:
    scope = ls.files.scope(ls.path(params))
    if scope is None:
        return types.SemanticTokens([])
    source, encoding = scope.loaded.trees[0].source, ls.files.encoding
    first, last = (offset(source, place, encoding) for place in (params.range.start, params.range.end))
    return types.SemanticTokens(semantic.tokens(scope, encoding, first, last))


@server.feature(types.TEXT_DOCUMENT_CODE_LENS)
def code_lens(ls: Server, params: types.CodeLensParams) -> list[types.CodeLens]:
    path = ls.path(params)
    parsed = ls.files.session.parsed(path)
    return (
        lenses(parsed.tree.declarations, params.text_document.uri, LOWER, ls.files.encoding)
        if parsed is not None
        else []
    )


# ---- writing -----------------------------------------------------------------------------------------------


@server.feature(types.TEXT_DOCUMENT_PREPARE_RENAME)
def prepare_rename(ls: Server, params: types.PrepareRenameParams) -> types.Range | None:
    try:
        return range_of(navigate.renamable(ls.files, *ls.place(params)).span, ls.files.encoding)
    except navigate.CannotRename as refused:
        ls.window_show_message(types.ShowMessageParams(types.MessageType.Info, str(refused)))
        return None


@server.feature(types.TEXT_DOCUMENT_RENAME, types.RenameOptions(prepare_provider=True))
def rename(ls: Server, params: types.RenameParams) -> types.WorkspaceEdit | None:
    try:
        return navigate.rename(ls.files, *ls.place(params), params.new_name)
    except navigate.CannotRename as refused:
        ls.window_show_message(types.ShowMessageParams(types.MessageType.Warning, str(refused)))
        return None


@server.feature(types.TEXT_DOCUMENT_FORMATTING)
def formatting(ls: Server, params: types.DocumentFormattingParams) -> list[types.TextEdit] | None:
    """The canonical form; a text with a syntax error stays as it is."""
    source = ls.files.source(ls.path(params))
    parsed = parse_source(source) if source is not None else None
    if parsed is None or not parsed.ok:
        return None
    text = print_tree(parsed.tree)
    if text == source.text:
        return []
    end = position(source, len(source.text), ls.files.encoding)
    return [types.TextEdit(types.Range(types.Position(0, 0), end), text)]


@server.feature(
    types.TEXT_DOCUMENT_CODE_ACTION,
    types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix, types.CodeActionKind.SourceFixAll]),
)
def code_action(ls: Server, params: types.CodeActionParams) -> list[types.CodeAction]:
    path = ls.path(params)
    source = ls.files.source(path)
    if source is None:
        return []
    first, last = (offset(source, place, ls.files.encoding) for place in (params.range.start, params.range.end))
    return navigate.actions(ls.files, path, first, last, params.context.diagnostics)


@server.command(LOWER)
async def lower_rule(ls: Server, *arguments) -> dict:
    """URI, target ("cpu"), rule (all) and stages ("report"): lower the rules of a saved file.

    The answer holds what `kdsl lower` printed.
    """
    uri, target, rule, emit = (*arguments, *LOWER_DEFAULTS[len(arguments) :])
    path = ls.files.session.path_of(uri)
    source = ls.files.source(path)
    try:
        saved = Path(path).read_text("utf-8-sig")
    except (OSError, ValueError):
        saved = None
    if source is None or saved is None or saved.replace("\r\n", "\n") != source.text.replace("\r\n", "\n"):
        told = "save the file first: lowering reads it from disk"
        return {"status": "unsaved", "output": told, "seconds": 0.0}
    done = await lower(ls, path, target, emit, rule)
    if done.status == STOPPED:
        LOG.info("lowering of %s stopped", path)
    return {"status": done.status, "output": done.output, "seconds": round(done.seconds, 3)}
