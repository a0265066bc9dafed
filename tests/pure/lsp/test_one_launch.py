"""The kernel after `via`, whose warps are beside these: definition, references, rename, hover, completion."""

from __future__ import annotations

from pathlib import Path

from lsprotocol import types

from .client import at, document
from .test_server import talk

RULE = Path(__file__).parents[2] / "compiler/rules/mma_beside.kds"
LINE = "gamma, b                         : f32 in shared ring groups via prep|are"


def test_the_kernel_after_via(tmp_path):
    text = RULE.read_text("utf-8")
    assert text.count("via prepare") >= 3

    async def conversation(editor):
        uri = editor.open("rule.kds", text)
        client, doc = editor.client, document(uri)
        place = at(text, LINE)
        (found,) = await client.text_document_definition_async(types.DefinitionParams(doc, place))
        assert (found.uri, found.range.start) == (uri, at(text, "kernel |prepare computes"))
        everywhere = await client.text_document_references_async(
            types.ReferenceParams(types.ReferenceContext(True), doc, place))  # fmt: skip
        assert len(everywhere) == 1 + text.count("via prepare")
        said = (await client.text_document_hover_async(types.HoverParams(doc, place))).contents.value
        assert "kernel prepare computes prepare" in said
        assert "one launch of `prepare` and `recurrence`: 4 groups of warps of the one pass k_decayed" in said
        edit = await client.text_document_rename_async(types.RenameParams(doc, place, "makes_chunks"))
        assert len(edit.changes[uri]) == 1 + text.count("via prepare")

    talk(tmp_path, conversation)


def test_completion_knows_the_kernels_above(tmp_path):
    text = RULE.read_text("utf-8")

    async def conversation(editor):
        uri = editor.open("rule.kds", text)
        place = at(text, LINE.replace("prep|are", "|prepare"))
        answer = await editor.client.text_document_completion_async(types.CompletionParams(document(uri), place))
        found = {item.label: item for item in answer.items}
        assert found["prepare"].detail == "kernel above, its warps beside these" and "cp.async" in found
        assert "recurrence" not in found

    talk(tmp_path, conversation)
