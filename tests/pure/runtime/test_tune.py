"""`kdsl tune DIR` with the host as the device, kernels in C: what never runs, what is not timed, how a log goes on."""

import json
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from kdsl.bench.cases import Case
from kdsl.bench.subjects import NotUsable
from kdsl.bundle import manifest as m
from kdsl.bundle import write_bundle
from kdsl.bundle.load import read_bundle
from kdsl.tune import program
from kdsl.tune.log import BELOW_FLOOR, WRONG, Entry, Log
from kdsl.tune.prepared import LOG, Point, Prepared, code_of, read
from kdsl.tune.winners import scored, table
from kdsl.validate.gpu_report import FAILED, PASSED, UNKNOWN, Check

from .conftest import kda_flags, kda_source, kda_variant, simple_manifest
from .test_bench import CHUNK_DTYPES
from .test_gpu_harness import OPTIONS

CHUNK = "kda.chunk_forward"
SLOWER = "for (volatile int64_t i = 0; i < 2000000; i++) ; float *S = state"
CASES = {"a": Case("a", "H = 2, one sequence", 2, (20,)), "b": Case("b", "H = 2, mixed", 2, (9, 0, 14))}
pytestmark = pytest.mark.usefixtures("gcc")


@pytest.fixture
def folder(tmp_path, gcc, monkeypatch):
    """Prepare a folder by hand: folder({value: (new text, verdict or None)}); the first is the default."""
    monkeypatch.setattr("kdsl.bench.program.SMALL_CASES", CASES)

    def prepare(**points):
        place = tmp_path / "tune"
        found = []
        for name, (text, verdict) in points.items():
            source = kda_source(CHUNK).replace("float *S = state", text)
            library = gcc(source, *kda_flags(CHUNK, CHUNK_DTYPES, OPTIONS))
            variant = kda_variant(CHUNK, "lib/all.so", CHUNK_DTYPES, OPTIONS, {})
            if verdict is not None:
                variant = attrs.evolve(variant, verdicts=[m.Verdict("spills == 0", verdict, "binary", "8 bytes")])
            bundle = write_bundle(place / f"points/{name}.kdsb", simple_manifest(CHUNK, variant),
                                  {"lib/all.so": library}, replace=True)  # fmt: skip
            found.append(Point({"way": name}, f"key of {name}", f"points/{name}.kdsb", code_of(read_bundle(bundle))))
        Prepared("by_hand", CHUNK, "cpu", "bounded", found[0].choices, len(found), found).write(place)
        return place

    return prepare


def tune(*words):
    return program.main([*map(str, words), "--runs", "20", "--seed", "5"])


def entries(place):
    return [json.loads(line) for line in (place / LOG).read_text().splitlines()]


def test_points_are_timed_once(folder, capsys):
    place = folder(slow=(SLOWER, None), fast=("float *S = state", "pending"))
    assert tune(place) == 0
    text = capsys.readouterr().out
    assert "4 measured now" in text and text.index("way = fast  ") < text.index("way = slow  ")
    assert [(e["case"], e["choices"]["way"]) for e in entries(place)] == [
        ("a", "slow"), ("a", "fast"), ("b", "slow"), ("b", "fast")
    ]  # fmt: skip
    assert all(e["status"] == PASSED and len(e["numbers"]["samples_us"]) == 20 for e in entries(place))
    assert tune(place) == 0 and "0 measured now; the log is" in capsys.readouterr().out
    assert len(entries(place)) == 4


@pytest.mark.parametrize("verdict", ["fails", "unknown"])
def test_a_point_whose_contract_does_not_hold_never_runs(folder, verdict, capsys):
    place = folder(good=("float *S = state", "holds"), bad=("abort(); float *S = state", verdict))
    assert tune(place) == 0
    said = capsys.readouterr().out
    assert f"way = bad: not run, its contract does not hold: `spills == 0`: {verdict}, found 8 bytes" in said
    assert {e["choices"]["way"] for e in entries(place)} == {"good"} and "left" not in said


def test_the_control_of_the_contract_runs(folder):
    """The same point with a contract that holds does run, and ends the process."""
    place = folder(good=("float *S = state", "holds"), bad=("abort(); float *S = state", "holds"))
    code = (
        "import sys; from kdsl.bench import program as b; from kdsl.tune import program as t; "
        "from kdsl.bench.cases import Case; b.SMALL_CASES = {'a': Case('a', 'a', 2, (20,))}; "
        f"sys.exit(t.main([{str(place)!r}, '--runs', '20']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == -6 and len(entries(place)) == 1


def test_a_wrong_result_is_not_timed_nor_tried_again(folder, capsys):
    place = folder(good=("float *S = state", None), wrong=("scale *= 1.5f; float *S = state", None))
    assert tune(place) == 0
    found = {(e["case"], e["choices"]["way"]): e for e in entries(place)}
    assert set(found) == {("a", "good"), ("a", "wrong"), ("b", "good")}
    wrong = found["a", "wrong"]
    assert wrong["status"] == WRONG and "median_us" not in wrong["numbers"] and "not timed" in wrong["detail"]
    assert "wrong on a" in capsys.readouterr().out
    assert tune(place) == 0 and "0 measured now; the log" in capsys.readouterr().out


def test_a_walk_goes_on_where_it_was_interrupted(folder, monkeypatch, capsys):
    place = folder(slow=(SLOWER, None), fast=("float *S = state", None))
    real, count = Log.add, []

    def interrupted(log, entry):
        real(log, entry)
        count.append(entry)
        if len(count) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Log, "add", interrupted)
        assert tune(place) == 130
    assert "interrupted; what was found is kept" in capsys.readouterr().err and len(entries(place)) == 2
    with (place / LOG).open("a") as file:  # killed while it wrote
        file.write('{"code": "abc", "ca')
    assert tune(place) == 0
    both = capsys.readouterr()
    assert "2 measured now" in both.out and "the last line was cut off, and is dropped" in both.err
    assert len(entries(place)) == 4


def test_time_that_is_up_leaves_the_rest_for_later(folder, capsys):
    place = folder(one=("float *S = state", None))
    assert tune(place, "--seconds", "0") == 1
    assert "0 measured now, 2 left: the same command goes on" in capsys.readouterr().out
    assert tune(place) == 0 and "2 measured now; the log" in capsys.readouterr().out


def test_other_code_leaves_its_entries_behind(folder, capsys):
    place = folder(slow=(SLOWER, None), fast=("float *S = state", None))
    assert tune(place) == 0
    place = folder(slow=(SLOWER.replace("2000000", "2000001"), None), fast=("float *S = state", None))
    capsys.readouterr()
    log = Log.read(place / LOG)
    assert [one.note for one in scored(read(place), log, "cpu")] == ["the default was not timed on these cases"] * 2
    assert tune(place) == 0
    assert "2 measured now" in capsys.readouterr().out and len(entries(place)) == 6
    assert all(one.ratio is not None for one in scored(read(place), Log.read(place / LOG), "cpu"))


def test_a_bundle_that_is_not_the_one_that_was_prepared(folder, capsys):
    place = folder(one=("float *S = state", None))
    before = (place / "tune.json").read_text()
    folder(one=(SLOWER, None))
    (place / "tune.json").write_text(before)
    assert tune(place) == 2 and "is other code than tune.json says; prepare the folder again" in capsys.readouterr().err
    (place / "points/one.kdsb/lib/all.so").write_bytes(b"changed")
    assert tune(place) == 2 and "prepare the folder again" in capsys.readouterr().err
    assert not (place / LOG).exists() or not entries(place)


def test_what_cannot_be_used_is_named(tmp_path, folder, capsys):
    (tmp_path / "empty").mkdir()
    for words, status, said in (
        ([tmp_path / "none"], 2, "there is nothing at"),
        ([tmp_path / "empty"], 2, "has no tune.json; prepare it where the compiler is: kdsl tune RULE --target"),
        ([tmp_path / "empty", "--from", tmp_path], 2, "is a folder; --from goes with a rule"),
        ([tmp_path / "empty", "--from", tmp_path, "--prepare", tmp_path], 2, "two steps: give one"),
    ):
        assert tune(*words) == status and said in capsys.readouterr().err
    place = folder(one=("float *S = state", None))
    assert tune(place, "--target", "sm_90a") == 2 and "is prepared for cpu, not for sm_90a" in capsys.readouterr().err
    for change, said in (
        ({"schema": 9}, "it has schema 9, this kdsl reads 1"),
        ({"target": "sm_90a"}, "no device here runs code for sm_90a: PyTorch sees no GPU here"),
        ({"points": []}, "no point in"),
        ({"more": 1}, "is not what `kdsl tune --prepare` writes"),
    ):
        text = json.loads((place / "tune.json").read_text())
        (place / "other").mkdir(exist_ok=True)
        (place / "other/tune.json").write_text(json.dumps({**text, **change}))
        assert tune(place / "other") in (2, 3) and said in capsys.readouterr().err
    (place / LOG).mkdir()
    assert tune(place) == 2 and "log.jsonl cannot be read" in capsys.readouterr().err


def test_a_device_of_another_target(folder, monkeypatch, capsys, gpu):
    import torch

    place = folder(one=("float *S = state", None))
    text = json.loads((place / "tune.json").read_text())
    (place / "tune.json").write_text(json.dumps({**text, "target": "sm_100a"}))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert tune(place) == 3
    assert "no device here runs code for sm_100a: the device here is sm_90a" in capsys.readouterr().err


def test_a_log_that_cannot_be_written(folder, monkeypatch, capsys):
    place = folder(one=("float *S = state", None))
    real = Path.open

    def read_only(path, mode="r", *rest, **more):
        if path.name == LOG and "a" in mode:
            raise OSError(30, "Read-only file system")
        return real(path, mode, *rest, **more)

    monkeypatch.setattr(Path, "open", read_only)
    assert tune(place) == 2
    said = capsys.readouterr()
    assert "log.jsonl: Read-only file system" in said.err and "passed" not in said.out


def test_needs_neither_click_nor_a_compiler(folder):
    place = folder(one=("float *S = state", None))
    code = (
        "import sys\n"
        "for name in ('click', 'lark', 'tvm', 'platformdirs'): sys.modules[name] = None\n"
        f"sys.argv = ['kdsl', 'tune', {str(place)!r}, '--runs', '20']\n"
        "import runpy; runpy.run_module('kdsl', run_name='__main__')"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0 and "1 measured now" in done.stdout, done.stderr


def test_a_rule_where_no_compiler_is(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.kds").write_text("")
    monkeypatch.setattr(program.importlib.util, "find_spec", lambda name: None)
    assert tune(tmp_path / "a.kds", "--prepare", tmp_path / "d", "--target", "cpu") == 3
    assert "lark and tvm to compile" in capsys.readouterr().err


# ---- the log and the winners


def entry(choice, case, median=None, status=PASSED, device="gpu"):
    numbers = {} if median is None else {"median_us": median}
    return Entry(f"code {choice}", case, device, status, {"x": choice}, "", numbers)


def prepared(*choices):
    found = [Point({"x": x}, f"key {x}", f"points/{x}.kdsb", f"code {x}") for x in choices]
    return Prepared("r", CHUNK, "sm_90a", "bounded", {"x": choices[0]}, len(found), found)


def logged(tmp_path, *found):
    log = Log(tmp_path / LOG)
    for one in found:
        log.add(one)
    return Log.read(tmp_path / LOG)


def test_the_winner_is_of_all_cases_together(tmp_path):
    log = logged(
        tmp_path, entry(1, "a", 100.0), entry(1, "b", 10.0), entry(2, "a", 50.0), entry(2, "b", 15.0),
        entry(3, "a", 200.0), entry(3, "b", 4.0), entry(1, "a", 1.0, device="another"),
    )  # fmt: skip
    found = scored(prepared(1, 2, 3), log, "gpu")
    assert [(one.point.choices["x"], round(one.ratio, 3)) for one in found] == [(2, 0.866), (3, 0.894), (1, 1.0)]
    assert program.best(found, prepared(1, 2, 3), 1.0).point.choices == {"x": 2}
    of_one = scored(prepared(1, 2, 3), log, "gpu", ["b"])
    assert [(one.point.choices["x"], round(one.ratio, 3)) for one in of_one] == [(3, 0.4), (1, 1.0), (2, 1.5)]
    assert program.best(found, prepared(1, 2, 3), 20.0).point.choices == {"x": 1}


def test_what_is_not_compared(tmp_path):
    log = logged(
        tmp_path, entry(1, "a", 100.0), entry(1, "b", 100.0), entry(2, "a", 10.0),
        entry(3, "a", 10.0), entry(3, "b", None, WRONG), entry(4, "a", 1.0), entry(4, "b", 0.1, BELOW_FLOOR),
    )  # fmt: skip
    found = {one.point.choices["x"]: one for one in scored(prepared(1, 2, 3, 4), log, "gpu")}
    assert found[1].ratio == 1 and [found[x].ratio for x in (2, 3, 4)] == [None] * 3
    assert [found[x].note for x in (2, 3, 4)] == ["not timed on b", "wrong on b", "below floor on b"]
    assert program.best(list(found.values()), prepared(1, 2, 3, 4), 1.0) is found[1]
    assert program.best([found[2]], prepared(1, 2), 1.0) is None
    assert "below floor on b" in table(prepared(1, 2, 3, 4), list(found.values()))


def test_what_a_check_becomes():
    def status(**facts):
        return Entry.of(Check("tune", "p", "c", **facts), "code", "a", "gpu", {}).status

    assert status(status=PASSED, numbers={"median_us": 5.0}) == PASSED
    assert status(status=FAILED, numbers={"median_us": 0.1}) == BELOW_FLOOR
    assert status(status=FAILED, numbers={"o_rms": 1.0}) == WRONG
    assert status(status=FAILED, traceback="Traceback") == FAILED
    assert status(status=UNKNOWN) == UNKNOWN


def test_an_error_that_may_not_come_back_is_tried_again(tmp_path):
    log = logged(tmp_path, entry(1, "a", None, FAILED), entry(2, "a", None, WRONG))
    assert log.settled("code 1", "a", "gpu") is None and log.settled("code 2", "a", "gpu") is not None
    assert log.settled("code 2", "a", "another") is None


def test_a_line_that_is_no_entry(tmp_path):
    (tmp_path / LOG).write_text('{"code": 1}\n')
    with pytest.raises(NotUsable, match="log.jsonl:1: no entry of a walk"):
        Log.read(tmp_path / LOG)
