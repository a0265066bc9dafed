"""Files, folders and what they use."""

from __future__ import annotations

import pytest
from texts import CPU, STANDARD

from kdsl.check import check_paths

TARGET = "target mine extends sm_90a {\n  sms = 144\n}\n"


def codes(result):
    return [d.code for d in result.diagnostics]


@pytest.fixture
def write(tmp_path):
    def make(name: str, text: str):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return make


def test_a_folder_is_read_in_order_and_below(write, tmp_path):
    write("b/two.kds", TARGET)
    write("a.kds", "# nothing\n")
    write("ignored.txt", "target")
    result = check_paths([tmp_path])
    assert [p.rpartition("/")[2] for p in result.files] == ["a.kds", "two.kds"]
    assert result.diagnostics == () and "mine" in result.library.targets


def test_use_is_relative_and_read_once(write):
    write("lib/target.kds", TARGET)
    one = write("one.kds", 'use "lib/target.kds"\n' + CPU.replace("on cpu", "on cpu"))
    two = write("two.kds", 'use "lib/target.kds"\n')
    result = check_paths([one, two])
    assert codes(result) == [] and len(result.files) == 3


def test_missing_and_circular_use(write):
    assert codes(check_paths([write("a.kds", 'use "none.kds"\n')])) == ["E105"]
    first = write("x.kds", 'use "y.kds"\n')
    write("y.kds", 'use "x.kds"\n')
    result = check_paths([first])
    assert codes(result) == ["E106"] and "x.kds -> y.kds -> x.kds" in result.diagnostics[0].message


def test_one_name_in_two_files(write):
    result = check_paths([write("a.kds", TARGET), write("b.kds", TARGET)])
    assert codes(result) == ["E102"] and result.diagnostics[0].labels[0].span.path.endswith("a.kds")


def test_a_file_that_is_not_there(tmp_path):
    assert codes(check_paths([tmp_path / "none.kds"])) == ["E030"]


def test_the_standard_library_is_not_declared_twice_when_it_is_checked_itself():
    assert check_paths([STANDARD]).diagnostics == ()
    assert check_paths([STANDARD / "targets" / "nvidia.kds"]).diagnostics == ()


def test_one_target_only(write):
    path = write("r.kds", CPU.replace("on cpu", "on cpu, sm_80"))
    assert codes(check_paths([path], target="cpu")) == []
    assert codes(check_paths([path]))


def test_a_rule_with_a_syntax_error_has_no_findings_that_follow(write):
    text = CPU.replace("width in [8, 16]  default 8", "width in [8, 16  default 8")
    found = codes(check_paths([write("r.kds", text)]))
    assert found and all(code.startswith("E0") for code in found)
