"""`kdsl.lower` over the protocol: progress, an answer, and a stop. A stand-in takes the compiler's place."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap

import pytest
from lsprotocol import types

from .client import RULE, editor

SLOW = 'import time, pathlib\npathlib.Path("started").write_text("")\ntime.sleep(60)\n'


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Make `python -m kdsl.cli.main lower` run a script."""

    def put(script: str) -> None:
        (tmp_path / "lower.py").write_text(script)
        hook = f"""
            import sys
            if "lower" in sys.orig_argv:
                import os, runpy
                os.chdir({str(tmp_path)!r})
                runpy.run_path({str(tmp_path / "lower.py")!r}, run_name="__main__")
                sys.stdout.flush()
                os._exit(0)
        """
        (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(hook))
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")

    return put


def execute(editor, *arguments):
    params = types.ExecuteCommandParams("kdsl.lower", list(arguments))
    return editor.client.workspace_execute_command_async(params)


def run(root, conversation):
    async def talk():
        async with editor(root) as client:
            await conversation(client)

    asyncio.run(asyncio.wait_for(talk(), 120))


def test_it_answers_with_what_lowering_printed(tmp_path, compiler):
    compiler("import sys; print('lowered', *sys.orig_argv[-8:])")

    async def conversation(editor):
        uri = editor.open("rule.kds", RULE.read_text("utf-8"))
        answer = await execute(editor, uri, "cpu", "cpu_split")
        assert answer["status"] == 0, answer
        assert "--target cpu --emit report --rule cpu_split" in answer["output"]
        kinds = [value["kind"] for value in editor.progress if isinstance(value, dict)]
        assert kinds[0] == "begin" and kinds[-1] == "end"

    run(tmp_path, conversation)


def test_a_file_that_is_not_saved_is_not_lowered(tmp_path):
    async def conversation(editor):
        uri = editor.open("rule.kds", RULE.read_text("utf-8"))
        editor.change(uri, RULE.read_text("utf-8") + "\n# more\n")
        answer = await execute(editor, uri)
        assert answer["status"] == "unsaved" and "save the file first" in answer["output"]

    run(tmp_path, conversation)


@pytest.mark.skipif(sys.platform == "win32", reason="processes end otherwise there")
def test_cancelling_the_progress_stops_it(tmp_path, compiler):
    compiler(SLOW)

    async def conversation(editor):
        uri = editor.open("rule.kds", RULE.read_text("utf-8"))
        asked = asyncio.ensure_future(execute(editor, uri))
        while not (tmp_path / "started").exists():
            await asyncio.sleep(0.1)
        hover = types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(0, 6))
        assert await editor.client.text_document_hover_async(hover) is not None
        token = next(value for value in editor.progress if isinstance(value, str))
        editor.client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token))
        answer = await asked
        assert answer["status"] == "stopped" and answer["seconds"] < 60

    run(tmp_path, conversation)
