"""The server over its pipes: real messages in, real answers out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time

from lsprotocol import types

from kdsl.data import data_root

from .client import OPERATOR, RULE, at, document, editor


def talk(root, conversation, **general) -> None:
    async def run():
        async with editor(root, **general) as client:
            await conversation(client)

    asyncio.run(run())


def test_diagnostics_follow_the_text(tmp_path):
    text = RULE.read_text("utf-8")

    async def conversation(editor):
        uri = editor.open("rule.kds", text)
        assert await editor.until(uri, lambda found: True) == []
        editor.change(uri, text.replace("fma.f32", "fma.f23"))
        found = await editor.until(uri, bool)
        assert [d.code for d in found] == ["E101"] and "did you mean `fma.f32`?" in found[0].message
        editor.change(uri, text.replace("place {", "place"), 3)
        found = await editor.until(uri, lambda found: found and found[0].code != "E101")
        assert found[0].code == "E004"
        editor.change(uri, text, 4)
        await editor.until(uri, lambda found: not found)
        editor.client.text_document_did_close(types.DidCloseTextDocumentParams(document(uri)))

    talk(tmp_path, conversation)


def test_reading(tmp_path):
    text = RULE.read_text("utf-8")

    async def conversation(editor):
        uri = editor.open("rule.kds", text)
        client, doc = editor.client, document(uri)
        place = at(text, "state, state_ne|xt")
        said = (await client.text_document_hover_async(types.HoverParams(doc, place))).contents.value
        assert (
            "state_next[d, e]" in said
            and "K x V of f32" in said
            and "| cpu_split | all | stack | 256 x 256 f32 | 262144 |" in said
        )
        said = (
            await client.text_document_hover_async(types.HoverParams(doc, at(text, "stack_by|tes <=")))
        ).contents.value
        assert "holds" in said and "proved" in said
        places = await client.text_document_definition_async(types.DefinitionParams(doc, place))
        assert [p.uri for p in places] == [OPERATOR.resolve().as_uri()]
        everywhere = await client.text_document_references_async(
            types.ReferenceParams(types.ReferenceContext(True), doc, place))  # fmt: skip
        assert {p.uri for p in everywhere} == {uri, OPERATOR.resolve().as_uri()}
        outline = await client.text_document_document_symbol_async(types.DocumentSymbolParams(doc))
        assert [s.name for s in outline] == ["cpu_split"] and [s.name for s in outline[0].children] == ["all"]
        data = (await client.text_document_semantic_tokens_full_async(types.SemanticTokensParams(doc))).data
        assert data and len(data) % 5 == 0
        assert await client.text_document_folding_range_async(types.FoldingRangeParams(doc))
        lenses = await client.text_document_code_lens_async(types.CodeLensParams(doc))
        assert [lens.command.title for lens in lenses] == ["lower for cpu"]
        found = await client.workspace_symbol_async(types.WorkspaceSymbolParams("chunk"))
        assert "kda.chunk_forward" in [s.name for s in found]

    talk(tmp_path, conversation)


def test_a_hover_tells_banks_and_what_is_open(tmp_path):
    text = (data_root() / "docs" / "examples" / "bank_conflict.kds").read_text("utf-8")

    async def conversation(editor):
        uri = editor.open("rule.kds", text)
        await editor.until(uri, lambda found: True)

        async def said(marked: str) -> str:
            params = types.HoverParams(document(uri), at(text, marked))
            return (await editor.client.text_document_hover_async(params)).contents.value

        tensor = await said("    k_de|cayed    ")
        assert "| shared | 16 x 128 bf16 ring 2 | 8192 | ldmatrix takes 8 wavefronts where 1 is ideal |" in tensor
        assert "ldmatrix free of conflicts" in await said("    q_decayed, k_re|stored")
        assert "stored at `slot(n, c)` of" in await said("x : n, |c packed")
        spills = await said("spi|lls == 0")
        assert "open at every choose point" in spills and "`kdsl lower` reads it from the binary" in spills

    talk(tmp_path, conversation)


def test_a_request_sees_the_edits_sent_before_it(tmp_path):
    """Open, ask, edit and ask again reach the server in one write, as from an editor that waits for nothing."""
    text = RULE.read_text("utf-8")
    other = text.replace("state, state_next", "gl, state_next", 1)
    uri = (tmp_path / "rule.kds").as_uri()
    places = (at(text, "state, state_ne|xt"), at(other, "g|l, state_next"))
    hovers = [{"textDocument": {"uri": uri}, "position": {"line": p.line, "character": p.character}} for p in places]
    opened = {"uri": uri, "languageId": "kds", "version": 1, "text": text}
    changed = {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [{"text": other}]}
    answers = at_once(
        ("initialize", 1, {"processId": None, "rootUri": None, "capabilities": {}}),
        ("initialized", None, {}),
        ("textDocument/didOpen", None, {"textDocument": opened}),
        ("textDocument/hover", 2, hovers[0]),
        ("textDocument/didChange", None, changed),
        ("textDocument/hover", 3, hovers[1]),
    )
    said = [answers[number] and answers[number]["contents"]["value"].split("\n")[1] for number in (2, 3)]
    assert said == ["state_next[d, e]", "gl[d]"]


def at_once(*messages) -> dict[int, object]:
    """What a server answers to (method, id or None, params) that reach it in one write; results by id."""
    packed = b""
    for method, number, params in messages:
        body = {"jsonrpc": "2.0", "method": method, "params": params}
        data = json.dumps(body if number is None else {**body, "id": number}).encode()
        packed += b"Content-Length: %d\r\n\r\n" % len(data) + data
    wanted = {number for _, number, _ in messages if number is not None}
    answers: dict[int, object] = {}
    with over_tcp() as stream:
        stream.write(packed)
        stream.flush()
        while wanted - set(answers):
            length = int(stream.readline().partition(b":")[2])
            while stream.readline().strip():
                pass
            message = json.loads(stream.read(length))
            if "method" not in message:
                answers[message["id"]] = message.get("result")
    return answers


@contextlib.contextmanager
def over_tcp():
    """A stream to a new server; what arrives there at once is read without a pause, unlike from a pipe."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "kdsl.cli.main", "lsp", "--tcp", str(port)])
    try:
        for _ in range(600):
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), 60) as link:
                yield link.makefile("rwb")
                return
            time.sleep(0.1)
        raise AssertionError("the server does not listen")
    finally:
        process.kill()
        process.wait()


def test_completion_edits_the_word(tmp_path):
    text = "rule a schedules kda.chunk_forward on cpu {\n  ensure { stack_bytes <= target.st }\n}\n"

    async def conversation(editor):
        uri = editor.open("rule.kds", text)
        answer = await editor.client.text_document_completion_async(
            types.CompletionParams(document(uri), at(text, "target.st|")))  # fmt: skip
        found = {item.label: item for item in answer.items}["target.stack_bytes_per_task"]
        assert found.text_edit.range == types.Range(at(text, "<= |target"), at(text, "target.st|"))

    talk(tmp_path, conversation)


def test_a_default_on_a_target(tmp_path):
    text = RULE.read_text("utf-8").replace("default 16", "default 16, 32 on cpu")

    async def conversation(editor):
        uri = editor.open("rule.kds", text)
        doc = document(uri)
        said = await editor.client.text_document_hover_async(types.HoverParams(doc, at(text, "chu|nk in [16, 32]")))
        assert "chunk in [16, 32] default 16, 32 on cpu" in said.contents.value
        place = await editor.client.text_document_definition_async(types.DefinitionParams(doc, at(text, "32 on c|pu")))
        assert "stdlib/targets" in json.dumps(place, default=str)
        answer = await editor.client.text_document_completion_async(
            types.CompletionParams(doc, at(text, "32 on |cpu")))  # fmt: skip
        assert {"sm_90a", "cpu"} <= {item.label for item in answer.items}

    talk(tmp_path, conversation)


def test_rename_across_files(tmp_path):
    operator = (
        "operator toy {\n  sizes { B; D in 16..256 }\n  inputs { x : [B, D] of f32 }\n"
        "  outputs { y : [B, D] of f32 }\n"
        "  indices { n in B parallel; d in D }\n  views { xx[d] = x[n, d]; yy[d] = y[n, d] }\n"
        "  part all { scale : z[d] = xx[d] * 2.0; write : yy[d] = z[d] }\n}\n"
    )
    rule = (
        'use "toy.kds"\nrule r schedules toy on cpu {\n  require { D % 16 == 0 }\n  kernel k computes all {\n'
        "    grid { task : n }\n    place { z : f32 in stack }\n"
        "    compute { scale : fma.f32 vector d by 8 }\n  }\n}\n"
    )

    async def conversation(editor):
        toy, uri = editor.open("toy.kds", operator), editor.open("rule.kds", rule)
        edit = await editor.client.text_document_rename_async(
            types.RenameParams(document(uri), at(rule, "sc|ale"), "double"))  # fmt: skip
        assert {u: len(e) for u, e in edit.changes.items()} == {toy: 1, uri: 1}
        for name, why in (("write", "taken"), ("a b", "no name"), ("over", "word of the language")):
            params = types.RenameParams(document(uri), at(rule, "sc|ale"), name)
            assert await editor.client.text_document_rename_async(params) is None
            assert why in editor.messages[-1]
        place = types.PrepareRenameParams(document(uri), at(rule, "fma|.f32"))
        assert await editor.client.text_document_prepare_rename_async(place) is None
        assert "standard library" in editor.messages[-1]

    talk(tmp_path, conversation)


def test_formatting_and_code_actions(tmp_path):
    text = RULE.read_text("utf-8")
    loose = text.replace("  require {", "      require   {")

    async def conversation(editor):
        uri = editor.open("rule.kds", loose)
        options = types.FormattingOptions(tab_size=2, insert_spaces=True)
        edits = await editor.client.text_document_formatting_async(
            types.DocumentFormattingParams(document(uri), options)
        )
        assert edits[0].new_text == text
        wrong = text.replace("chain = split", "chain = splt")
        editor.change(uri, wrong)
        found = await editor.until(uri, bool)
        context = types.CodeActionContext(found)
        params = types.CodeActionParams(document(uri), found[0].range, context)
        actions = await editor.client.text_document_code_action_async(params)
        edit = actions[0].edit.changes[uri][0]
        assert edit.new_text == "split" and edit.range == found[0].range
        editor.change(uri, "rule a {", 3)
        params = types.DocumentFormattingParams(document(uri), options)
        assert await editor.client.text_document_formatting_async(params) is None

    talk(tmp_path, conversation)


def test_columns_count_utf16_units(tmp_path):
    header = 'rule a schedules kda.chunk_forward on cpu { """\U0001d50a"""; '
    text = f"# \U0001d50a é\n{header}require {{ nothing == 1 }} }}\n"

    async def conversation(editor):
        uri = editor.open("rule.kds", text)
        found = await editor.until(uri, lambda found: any("`nothing`" in d.message for d in found))
        place = next(d for d in found if "`nothing`" in d.message).range
        assert place.start == types.Position(1, text.split("\n")[1].index("nothing") + 1)

    talk(tmp_path, conversation, position_encodings=[types.PositionEncodingKind.Utf16])


def test_faults_do_not_end_the_server(tmp_path):
    async def conversation(editor):
        gone = document((tmp_path / "gone.kds").as_uri())
        nowhere = types.Position(9999, 9999)
        assert await editor.client.text_document_hover_async(types.HoverParams(gone, nowhere)) is None
        assert await editor.client.text_document_definition_async(types.DefinitionParams(gone, nowhere)) == []
        for number, text in enumerate(
            ("", "\0", "rule", "}" * 50, "operator x {\n" * 80, '"""', 'use ".."', "é" * 999)
        ):
            uri = editor.open(f"odd{number}.kds", text, save="\0" not in text)
            for place in (types.Position(0, 0), nowhere):
                await editor.client.text_document_completion_async(types.CompletionParams(document(uri), place))
                await editor.client.text_document_hover_async(types.HoverParams(document(uri), place))
            await editor.client.text_document_semantic_tokens_full_async(types.SemanticTokensParams(document(uri)))
        uri = editor.open("rule.kds", RULE.read_text("utf-8"))
        assert await editor.until(uri, lambda found: True) == []

    talk(tmp_path, conversation)


def test_a_workspace_needs_no_use(tmp_path):
    (tmp_path / "targets.kds").write_text("target tiny extends cpu {\n  stack_bytes_per_task = 64 KiB\n}\n")
    text = RULE.read_text("utf-8").replace("on cpu", "on tiny")

    async def conversation(editor):
        uri = editor.open("rule.kds", text)
        found = await editor.until(uri, bool)
        assert {d.code for d in found} == {"E302"}

    talk(tmp_path, conversation)


def test_a_finding_in_a_tactic_is_shown_where_it_is_applied(tmp_path):
    text = (
        "tactic odd(width) {\n  compute { decay : vector nothing by width }\n}\n"
        "rule r schedules kda.decode on cpu {\n  kernel k computes step {\n    grid { task : n, h }\n"
        "    apply odd(8)\n  }\n}\n"
    )
    (tmp_path / "tactics.kds").write_text(text.partition("rule")[0])
    user = 'use "tactics.kds"\nrule' + text.partition("rule")[2]

    async def conversation(editor):
        uri = editor.open("rule.kds", user)
        found = await editor.until(uri, bool)
        assert [(d.code, d.range.start.line) for d in found] == [("E101", 4)]
        places = [place.location.uri for place in found[0].related_information]
        assert places[0] == (tmp_path / "tactics.kds").as_uri()

    talk(tmp_path, conversation)


def test_what_the_derivation_refuses_is_a_finding_too(tmp_path):
    """As in `kdsl check`: lanes that are taken away leave a sum without its rows; an edit mends it."""
    right = (data_root() / "rules" / "kda.decode" / "lane_columns.kds").read_text("utf-8")
    text = right.replace(" lanes d by 4 via shuffle", "", 1)

    async def conversation(editor):
        uri = editor.open("rule.kds", text)
        found = await editor.until(uri, lambda found: any(d.code.startswith("D") for d in found))
        assert [d.code for d in found] == ["D340"]
        editor.change(uri, right)
        await editor.until(uri, lambda found: not found)

    talk(tmp_path, conversation)


def test_expectations_are_in_the_outline_and_their_names_are_known(tmp_path):
    text = "expect refuse E302 {\n  rule r schedules kda.decode on cpu {\n    kernel k computes step { }\n  }\n}\n"

    async def conversation(editor):
        uri = editor.open("rule.kds", text)
        client, doc = editor.client, document(uri)
        outline = await client.text_document_document_symbol_async(types.DocumentSymbolParams(doc))
        assert outline[0].name == "expect refuse E302" and outline[0].children[0].name == "r"
        said = await client.text_document_hover_async(types.HoverParams(doc, at(text, "computes st|ep")))
        assert "part step" in said.contents.value
        whole = types.Range(types.Position(1, 0), types.Position(2, 0))
        params = types.SemanticTokensRangeParams(doc, whole)
        data = (await client.text_document_semantic_tokens_range_async(params)).data
        assert len(data) == 15 and data[0] == 1

    talk(tmp_path, conversation)


def test_a_broken_promise_is_told_in_numbers(tmp_path):
    """A rule whose only error is a promise that does not hold still has verdicts to show."""
    text = RULE.read_text("utf-8").replace("target.stack_bytes_per_task", "200 KiB")

    async def conversation(editor):
        uri = editor.open("rule.kds", text)
        assert [d.code for d in await editor.until(uri, bool)] == ["E501"]
        params = types.HoverParams(document(uri), at(text, "stack_by|tes <="))
        said = (await editor.client.text_document_hover_async(params)).contents.value
        assert "| **fails** | proved | 729476 bytes | <= 200 KiB = 204800 |" in said

    talk(tmp_path, conversation)
