"""`kdsl doctor` against packages and programs that are there, other than pinned, or missing."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest
from click.testing import CliRunner

from kdsl.cli import doctor
from kdsl.cli.main import cli


def run(*arguments: str):
    return CliRunner().invoke(cli, ["doctor", *arguments])


def test_check_needs_nothing_more_than_what_runs_this():
    done = run("check", "--format", "json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)["findings"]
    assert {"Python", "click", "lark", "cache folder"} <= {f["name"] for f in found}
    assert {f["status"] for f in found} == {"ok"}


def test_a_version_other_than_pinned(monkeypatch):
    monkeypatch.setattr(doctor, "version", lambda name: "1.2.3")
    monkeypatch.setattr(doctor, "requires", lambda name: ["apache-tvm==9.9; extra == 'compile'", "click>=1.3"])
    done = run("check", "compile")
    assert done.exit_code == 1
    assert "differs  apache-tvm" in done.output and "wanted ==9.9" in done.output
    assert 'pip install "kdsl[compile]"' in done.output and "differs  click" in done.output


def test_a_package_that_is_missing(monkeypatch):
    def version(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "version", version)
    monkeypatch.setattr(doctor, "requires", lambda name: ["pygls==2.1.1; extra == 'lsp'"])
    done = run("lsp")
    assert done.exit_code == 3 and "missing  pygls" in done.output and "1 to mend" in done.output


def test_no_compiler(monkeypatch):
    from kdsl.lower.toolchain import cc

    def find():
        raise cc.ToolMissing("a C compiler", "apt-get install gcc")

    monkeypatch.setattr(cc, "find", find)
    done = run("compile")
    assert done.exit_code == 3 and "apt-get install gcc" in done.output


def test_a_local_version_fits_its_pin(monkeypatch):
    monkeypatch.setattr(doctor, "version", lambda name: "2.13.0+cpu")
    monkeypatch.setattr(doctor, "requires", lambda name: ["torch==2.13.0; extra == 'run'"])
    assert [f.status for f in doctor.packages("run", "run")] == [doctor.OK]


@pytest.mark.parametrize(("found", "status"), [("13.5.0", doctor.OK), ("13.0.1", doctor.DIFFERS)])
def test_a_range_that_holds_on_some_systems(monkeypatch, found, status):
    line = "cuda-bindings<14,>=13.0.3; (sys_platform != 'darwin') and extra == 'run'"
    monkeypatch.setattr(doctor, "version", lambda name: found)
    monkeypatch.setattr(doctor, "requires", lambda name: [line])
    assert [(f.name, f.status, f.wanted) for f in doctor.packages("run", "run")] == [
        ("cuda-bindings", status, ">=13.0.3")
    ]
    assert not list(doctor.packages("check", None))


@pytest.mark.parametrize("found, fits", [("4.10", True), ("4.3", True), ("4.2.9", False)])
def test_releases_are_compared_as_numbers(found, fits):
    assert (doctor.release(found) >= doctor.release("4.3")) is fits


def test_it_imports_no_compiler():
    code = "import sys; from kdsl.cli.doctor import examine; list(examine()); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"tvm", "torch", "numpy"} & {name.split(".")[0] for name in done.stdout.split()}


class Driver:
    """A CUDA driver with some GPUs, as ctypes would call it."""

    def __init__(self, *devices: tuple[str, int, int]):
        self.devices = devices

    def cuInit(self, flags):
        return 0

    def cuDeviceGetCount(self, count):
        count._obj.value = len(self.devices)
        return 0

    def cuDeviceGet(self, handle, index):
        handle._obj.value = index

    def cuDeviceGetName(self, name, size, handle):
        name.value = self.devices[handle.value][0].encode()

    def cuDeviceGetAttribute(self, value, attribute, handle):
        value._obj.value = self.devices[handle.value][attribute - 74]


@pytest.mark.parametrize(
    "devices, said",
    [
        ([("NVIDIA H200", 9, 0)], "NVIDIA H200 (sm_90, target sm_90a)"),
        ([("A100", 8, 0), ("Tesla T4", 7, 5)], "A100 (sm_80, target sm_80); Tesla T4 (sm_75, no target describes it"),
        ([], "a driver and no GPU"),
    ],
)
def test_gpus_and_their_targets(monkeypatch, devices, said):
    monkeypatch.setattr(doctor.ctypes, "CDLL", lambda name: Driver(*devices))
    found = doctor.gpu()
    assert said in found.found and (found.status == doctor.OK) == bool(devices)
