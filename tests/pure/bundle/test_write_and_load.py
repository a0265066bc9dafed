"""A bundle on disk: written whole or not at all, and refused if it is not exactly what was written."""

import errno
import hashlib
import json
import os
import pathlib

import attrs
import pytest

from kdsl.bundle import (
    BundleExists,
    Machine,
    ManifestError,
    NotABundle,
    TamperedBundle,
    UnsafePath,
    WrongMachine,
    load_bundle,
    read_bundle,
    this_machine,
    write_bundle,
)

LIBRARY = "lib/scale.so"


def test_what_was_written_is_read(bundle_path, manifest):
    bundle = load_bundle(bundle_path)
    assert bundle.manifest.variants == manifest().variants
    assert bundle.manifest.files == {LIBRARY: hashlib.sha256(b"not a library").hexdigest()}
    assert bundle.file(LIBRARY).read_bytes() == b"not a library"
    assert bundle.variant("abcd1234").target == "cpu"
    with pytest.raises(KeyError, match="no variant ffff; needed one of abcd1234"):
        bundle.variant("ffff")


def test_equal_bundles_have_equal_bytes(tmp_path, manifest):
    one = write_bundle(tmp_path / "one.kdsb", manifest(), {LIBRARY: b"1"})
    two = write_bundle(tmp_path / "two.kdsb", manifest(), {LIBRARY: b"1"})
    other = write_bundle(tmp_path / "other.kdsb", manifest(), {LIBRARY: b"2"})
    assert (one / "manifest.json").read_bytes() == (two / "manifest.json").read_bytes()
    assert read_bundle(one).digest == read_bundle(two).digest != read_bundle(other).digest


def test_a_file_can_be_given_by_its_path(tmp_path, manifest):
    source = tmp_path / "built.so"
    source.write_bytes(b"code")
    path = write_bundle(tmp_path / "a.kdsb", manifest(), {LIBRARY: source})
    assert (path / LIBRARY).read_bytes() == b"code"


def test_an_existing_bundle_is_replaced_only_on_request(bundle_path, manifest):
    before = read_bundle(bundle_path).digest
    with pytest.raises(BundleExists, match="replace=True"):
        write_bundle(bundle_path, manifest(), {LIBRARY: b"new"})
    assert read_bundle(bundle_path).digest == before
    bundle_path.with_name("empty.kdsb").mkdir()
    with pytest.raises(BundleExists):
        write_bundle(bundle_path.with_name("empty.kdsb"), manifest(), {LIBRARY: b"new"})
    write_bundle(bundle_path, manifest(), {LIBRARY: b"new"}, replace=True)
    assert read_bundle(bundle_path).digest != before


def test_a_failed_write_leaves_nothing(tmp_path, manifest, monkeypatch):
    def full(self, target):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(pathlib.Path, "rename", full)
    with pytest.raises(OSError, match="no space left"):
        write_bundle(tmp_path / "a.kdsb", manifest(), {LIBRARY: b"1"})
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    write_bundle(tmp_path / "a.kdsb", manifest(), {LIBRARY: b"1"})
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.kdsb"]


def test_a_manifest_that_could_not_be_read_is_not_written(tmp_path, manifest):
    with pytest.raises(ManifestError, match="a file of \\$.files"):
        write_bundle(tmp_path / "a.kdsb", manifest(), {"lib/other.so": b"1"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["../x.so", "/x.so", "a/../../x", "a//b", "./a", "C:\\x", "a\\b", "", "manifest.json"]
)
def test_names_that_leave_the_bundle_are_not_written(tmp_path, manifest, name):
    with pytest.raises(UnsafePath):
        write_bundle(tmp_path / "a.kdsb", manifest(), {LIBRARY: b"1", name: b"2"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["../scale.so", "/etc/hostname", "lib/../../scale.so", "lib\\scale.so", "C:/scale.so"]
)
def test_names_that_leave_the_bundle_are_not_read(bundle_path, name):
    file = bundle_path / "manifest.json"
    file.write_text(file.read_text().replace(LIBRARY, name.replace("\\", "\\\\")))
    with pytest.raises(UnsafePath) as caught:
        read_bundle(bundle_path)
    assert caught.value.name == name


def test_a_changed_byte_is_found(bundle_path):
    (bundle_path / LIBRARY).write_bytes(b"not a librarz")
    with pytest.raises(TamperedBundle, match=r"lib/scale.so with sha256 .*needed .*rebuild") as caught:
        read_bundle(bundle_path)
    assert caught.value.changed[0][0] == LIBRARY
    (bundle_path / LIBRARY).write_bytes(b"not a library")
    read_bundle(bundle_path)


def test_missing_extra_and_changed_files_come_in_one_error(tmp_path, manifest):
    path = write_bundle(tmp_path / "a.kdsb", manifest(), {LIBRARY: b"1", "b": b"2", "c": b"3"})
    (path / LIBRARY).write_bytes(b"other")
    (path / "b").unlink()
    (path / "lib" / "d").write_bytes(b"4")
    with pytest.raises(TamperedBundle) as caught:
        read_bundle(path)
    assert caught.value.missing == ("b",)
    assert caught.value.extra == ("lib/d",)
    assert [name for name, _, _ in caught.value.changed] == [LIBRARY]
    assert "missing b" in str(caught.value) and "lib/d that the manifest does not list" in str(caught.value)


def test_symbolic_links_are_refused(bundle_path, tmp_path):
    outside = tmp_path / "outside.so"
    outside.write_bytes(b"not a library")
    (bundle_path / LIBRARY).unlink()
    (bundle_path / LIBRARY).symlink_to(outside)
    with pytest.raises(UnsafePath, match="a symbolic link to"):
        read_bundle(bundle_path)
    (bundle_path / LIBRARY).unlink()
    (bundle_path / LIBRARY).write_bytes(b"not a library")
    read_bundle(bundle_path)
    (bundle_path / "more").symlink_to(tmp_path)
    with pytest.raises(UnsafePath, match="`more` is a symbolic link"):
        read_bundle(bundle_path)


def test_the_bundle_itself_may_be_reached_by_a_link(bundle_path, tmp_path):
    link = tmp_path / "link.kdsb"
    link.symlink_to(bundle_path)
    assert read_bundle(link).digest == read_bundle(bundle_path).digest


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_no_file(bundle_path):
    os.mkfifo(bundle_path / "pipe")
    with pytest.raises(UnsafePath, match="no regular file"):
        read_bundle(bundle_path)


def test_what_is_no_bundle(tmp_path):
    with pytest.raises(NotABundle, match="found nothing"):
        read_bundle(tmp_path / "absent.kdsb")
    (tmp_path / "file.kdsb").write_text("")
    with pytest.raises(NotABundle, match="found a file"):
        read_bundle(tmp_path / "file.kdsb")
    (tmp_path / "empty.kdsb").mkdir()
    with pytest.raises(NotABundle, match="without manifest.json"):
        read_bundle(tmp_path / "empty.kdsb")
    (tmp_path / "empty.kdsb" / "manifest.json").write_bytes(b"\xff")
    with pytest.raises(NotABundle, match="not UTF-8"):
        read_bundle(tmp_path / "empty.kdsb")


def test_an_unknown_schema_is_refused_before_anything_else(bundle_path):
    file = bundle_path / "manifest.json"
    file.write_text(json.dumps({"schema": 7, "whatever": 1}))
    with pytest.raises(ManifestError, match=r"\$.schema: found 7; needed 1.*use the kdsl version"):
        read_bundle(bundle_path)


def test_another_machine_is_named(bundle_path, tmp_path, manifest, variant):
    here = this_machine()
    load_bundle(bundle_path, here)
    for there, words in (
        (attrs.evolve(here, system="Darwin"), "found system Darwin, needed"),
        (attrs.evolve(here, arch="riscv64"), "found architecture riscv64, needed"),
    ):
        with pytest.raises(WrongMachine, match=f"variant abcd1234: {words}.*kdsl lower"):
            load_bundle(bundle_path, there)
    needy = variant(machine=Machine(here.system, here.arch, ["avx2", "amx-moon"]))
    path = write_bundle(tmp_path / "needy.kdsb", manifest(needy), {LIBRARY: b"1"})
    with pytest.raises(WrongMachine, match="found a CPU without amx-moon, needed amx-moon, avx2"):
        load_bundle(path, Machine(here.system, here.arch, ["avx2", "fma"]))
    with pytest.raises(WrongMachine, match="a system that does not list CPU features"):
        load_bundle(path, Machine(here.system, here.arch))
    load_bundle(path, Machine(here.system, here.arch, ["avx2", "fma", "amx-moon"]))
    assert read_bundle(path).manifest.variants == (needy,)


def test_one_fitting_variant_is_enough(tmp_path, manifest, variant):
    other = variant(id="ffff0000", machine=Machine("Plan9", "pdp11"))
    load_bundle(write_bundle(tmp_path / "two.kdsb", manifest(other, variant()), {LIBRARY: b"1"}))
    with pytest.raises(WrongMachine):
        load_bundle(write_bundle(tmp_path / "one.kdsb", manifest(other), {LIBRARY: b"1"}))
