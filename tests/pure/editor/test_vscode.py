"""The extension: its files, its package, and the client against a stand-in for VS Code."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import zipfile
from pathlib import PurePosixPath
from xml.etree import ElementTree

import pytest

from kdsl.source.span import SourceFile
from kdsl.syntax.parse import parse_source

from .highlighters import EDITOR, MODULES

VSCODE = EDITOR / "vscode"
installed = pytest.mark.skipif(not (MODULES / "vscode-languageclient").is_dir(), reason="npm ci was not run")


def load(name: str) -> dict:
    return json.loads((VSCODE / name).read_text("utf-8"))


def test_every_file_that_the_package_names_is_there():
    contributes = load("package.json")["contributes"]
    named = [entry.get("path") or entry.get("configuration")
             for kind in ("languages", "grammars", "snippets") for entry in contributes[kind]]  # fmt: skip
    assert all((VSCODE / name).is_file() for name in [*named, "extension.js"])


def test_brackets_and_words_are_those_of_the_language():
    configuration = load("language-configuration.json")
    word = re.compile(configuration["wordPattern"])
    assert word.match("mma.m16n8k16.C").group() == "mma.m16n8k16.C"
    assert word.match("16..256").group() == "16"
    increase = re.compile(configuration["indentationRules"]["increaseIndentPattern"])
    assert increase.match("  place {") and not increase.match("  form { C = 16 }")


@pytest.mark.parametrize("name", load("snippets/kds.json"))
def test_snippets_are_texts_of_the_language(name):
    text = "\n".join(load("snippets/kds.json")[name]["body"])
    text = re.sub(r"\$\{\d+:([^}]*)\}", r"\1", text).replace("$0", "")
    wrapped = {
        "kernel": "rule r schedules o on t {\n%s\n}",
        "claim": "rule r schedules o on t {\n require { a == 1 %s }\n}",
    }
    parsed = parse_source(SourceFile("s.kds", wrapped.get(name, "%s") % text))
    assert parsed.ok, parsed.diagnostics


@installed
def test_the_package_is_a_vsix_and_the_same_every_time(tmp_path):
    spec = importlib.util.spec_from_file_location("build", VSCODE / "build.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    first, second = build.build(tmp_path / "a"), build.build(tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        names = archive.namelist()
        assert names[:2] == ["extension.vsixmanifest", "[Content_Types].xml"]
        manifest = ElementTree.fromstring(archive.read("extension.vsixmanifest"))
        space = {"v": "http://schemas.microsoft.com/developer/vsx-schema/2011"}
        assets = [asset.get("Path") for asset in manifest.findall("v:Assets/v:Asset", space)]
        assert assets and set(assets) <= set(names)
        types = ElementTree.fromstring(archive.read("[Content_Types].xml"))
        endings = {entry.get("Extension") for entry in types if entry.get("Extension")}
        used = {PurePosixPath(name).suffix for name in names[2:]} - {""}
        assert used <= {f".{ending.removeprefix('.')}" for ending in endings}
    assert "extension/node_modules/vscode-languageclient/package.json" in names
    assert not any("vscode-textmate" in name for name in names)


@installed
@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_client_starts_and_stops():
    script = """
      const Module = require("module");
      const seen = [];
      const disposable = { dispose() {} };
      const vscode = {
        window: { createOutputChannel: () => disposable, showErrorMessage: (m) => seen.push(m) },
        commands: { registerCommand: (name) => (seen.push(name), disposable) },
        workspace: {
          getConfiguration: () => ({ get: () => ["kdsl", "lsp"] }),
          createFileSystemWatcher: () => disposable,
        },
      };
      class LanguageClient {
        constructor(id, name, server) { seen.push([server.command, ...server.args].join(" ")); }
        async start() { seen.push("started"); }
        async stop() { seen.push("stopped"); }
      }
      const load = Module._load;
      Module._load = (name, ...rest) => name === "vscode" ? vscode
        : name === "vscode-languageclient/node" ? { LanguageClient } : load(name, ...rest);
      const extension = require(process.argv[1]);
      extension.activate({ subscriptions: [] })
        .then(() => extension.deactivate()).then(() => console.log(seen.join()));
    """
    command = ["node", "-e", script, str(VSCODE / "extension.js")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "kds.lower,kds.restart,kdsl lsp,started,stopped"
