"""The description of a machine."""

import platform

from kdsl.bundle.machine import Machine, cpu_features, shortfall, this_machine


def test_this_machine_is_described():
    here = this_machine()
    assert here.system == platform.system()
    assert here.arch and here.arch == here.arch.lower()
    assert list(here.features) == sorted(here.features)


def test_features_are_those_of_every_cpu(tmp_path):
    table = tmp_path / "cpuinfo"
    table.write_text("processor\t: 0\nflags\t\t: fma avx2 sse\n\nprocessor\t: 1\nflags\t\t: avx2 fma\n")
    assert cpu_features(table) == ("avx2", "fma")
    table.write_text("processor : 0\nFeatures : fp asimd\n")
    assert cpu_features(table) == ("asimd", "fp")


def test_without_a_table_there_are_no_features(tmp_path):
    assert cpu_features(tmp_path / "absent") == ()
    (tmp_path / "cpuinfo").write_text("processor: 0\n")
    assert cpu_features(tmp_path / "cpuinfo") == ()


def test_other_names_of_an_architecture(monkeypatch):
    for found, name in (("AMD64", "x86_64"), ("arm64", "aarch64"), ("riscv64", "riscv64")):
        monkeypatch.setattr(platform, "machine", lambda found=found: found)
        assert this_machine.__wrapped__().arch == name


def test_shortfall():
    here = Machine("Linux", "x86_64", ("avx2", "fma"))
    assert shortfall(Machine("Linux", "x86_64"), here) == ""
    assert shortfall(here, here) == ""
    assert "avx512f" in shortfall(Machine("Linux", "x86_64", ("avx512f", "fma")), here)
