"""What `kdsl check --format sarif` and `--format github` print is valid: for findings of every kind, a text that is no
text, a file that is missing, and nothing found."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from kdsl.cli.check import check
from kdsl.data import data_root

TESTS = Path(__file__).resolve().parents[2]
MISTAKES = TESTS / "pure" / "cli" / "mistakes"
SCHEMA = TESTS / "node" / "node_modules" / "@microsoft" / "jest-sarif" / "lib" / "schemas" / "sarif-2.1.0-rtm.5.json"
published = pytest.mark.skipif(not SCHEMA.is_file(), reason="`npm ci` in tests/node brings the schema of SARIF")

GOOD = data_root() / "rules" / "kda.decode" / "cpu_stream.kds"
ODD = {
    "syntax.kds": b"rule a {", "empty.kds": b"", "utf16.kds": "rule a {}".encode("utf-16"),
    "latin.kds": b"# caf\xe9\n", "nul.kds": b"rule \0", "uses.kds": b'use "gone.kds"\n',
    "\u00e4, 100%.kds": "operator \u00e4 {\n\t\U0001d50a\n".encode(),
}  # fmt: skip


@pytest.fixture
def paths(tmp_path, monkeypatch) -> list[str]:
    """One path for every way a check can end, relative and absolute."""
    monkeypatch.chdir(tmp_path)
    for name, data in ODD.items():
        Path(name).write_bytes(data)
    Path("folder").mkdir()
    return [*ODD, "folder", "missing.kds", str(tmp_path / "gone" / "missing.kds"), str(GOOD),
            *map(str, sorted(MISTAKES.glob("*.kds")))]  # fmt: skip


def printed(path: str, form: str) -> str:
    done = CliRunner().invoke(check, [path, "--format", form])
    assert done.exit_code in (0, 1, 2), done.output
    assert done.stderr == ""
    return done.stdout


@published
def test_sarif_is_valid(paths):
    schema = json.loads(SCHEMA.read_text("utf-8"))
    validator = jsonschema.validators.validator_for(schema)(schema)
    found = 0
    for path in paths:
        document = json.loads(printed(path, "sarif"))
        assert [error.message for error in validator.iter_errors(document)] == [], path
        found += len(document["runs"][0]["results"])
    assert found > len(paths) / 2
    document["runs"][0]["results"] = [{"ruleId": "E001"}]  # a result without its message
    assert list(validator.iter_errors(document))


def test_sarif_points_into_the_file(paths):
    for path in paths:
        for result in json.loads(printed(path, "sarif"))["runs"][0]["results"]:
            region = result["locations"][0]["physicalLocation"]["region"]
            start, end = (region["startLine"], region["startColumn"]), (region["endLine"], region["endColumn"])
            assert (1, 1) <= start <= end
            assert result["message"]["text"]


COMMAND = re.compile(r"::(error|warning|notice) ([^:]*?)::(.*)")
PROPERTIES = {"file", "line", "endLine", "col", "endColumn", "title"}


def annotations(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Read workflow commands as a runner does; a line that is none raises."""
    found = []
    for line in text.splitlines():
        match = COMMAND.fullmatch(line)
        assert match, line
        pairs = dict(part.split("=", 1) for part in match[2].split(","))
        for escape, sign in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
            pairs = {key: value.replace(escape, sign) for key, value in pairs.items()}
        found.append((match[1], pairs, match[3]))
    return found


def test_annotations_are_commands_of_a_workflow(paths):
    for path in paths:
        listed = annotations(printed(path, "github"))
        documents = json.loads(printed(path, "json"))["diagnostics"]
        assert len(listed) == len(documents)
        for (severity, pairs, message), diagnostic in zip(listed, documents, strict=True):
            assert set(pairs) <= PROPERTIES and {"file", "line", "title"} <= set(pairs) and message
            assert severity == {"note": "notice"}.get(diagnostic["severity"], diagnostic["severity"])
            assert pairs["file"] == diagnostic["span"]["path"].replace("\\", "/")
            assert int(pairs["line"]) <= int(pairs["endLine"])


def test_a_command_that_is_none_is_noticed():
    with pytest.raises(AssertionError):
        annotations("error in file a.kds")
