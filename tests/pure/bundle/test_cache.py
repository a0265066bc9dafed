"""The cache of bundles: one builder at a time, whole entries only, bounded, and usable without a home."""

import hashlib
import logging
import multiprocessing
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import pytest

from kdsl.bundle import Cache, TamperedBundle, read_bundle, write_bundle
from kdsl.bundle import cache as cache_module
from kdsl.bundle.cache import CacheKeyError, default_root

LIBRARY = "lib/scale.so"


def key_of(text):
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def build(manifest):
    """A builder of a bundle with this library, counting its runs."""

    class Builder:
        runs = 0

        def __init__(self, content=b"code"):
            self.content = content

        def __call__(self, path):
            self.runs += 1
            write_bundle(path, manifest(), {LIBRARY: self.content})

    return Builder


def test_an_entry_is_built_once(tmp_path, build):
    cache, builder = Cache(tmp_path / "cache"), build()
    assert cache.get(key_of("a")) is None
    path = cache.put(key_of("a"), builder)
    assert cache.put(key_of("a"), builder) == cache.get(key_of("a")) == path
    assert builder.runs == 1
    assert read_bundle(path).file(LIBRARY).read_bytes() == b"code"
    assert cache.get(key_of("b")) is None
    assert [entry.name for entry in (tmp_path / "cache").iterdir()] == [key_of("a") + ".kdsb"]


def test_the_root_comes_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("KDSL_CACHE_DIR", str(tmp_path / "mine"))
    assert default_root() == Cache().root == tmp_path / "mine"
    monkeypatch.delenv("KDSL_CACHE_DIR")
    assert default_root() != tmp_path / "mine" and "kdsl" in default_root().parts


@pytest.mark.parametrize("key", ["", "..", "A" * 64, "0" * 63, "../" + "0" * 61])
def test_a_key_is_a_sha256(tmp_path, build, key):
    with pytest.raises(CacheKeyError, match="64 hexadecimal digits"):
        Cache(tmp_path).get(key)
    with pytest.raises(CacheKeyError):
        Cache(tmp_path).put(key, build())


def test_a_failed_build_leaves_nothing(tmp_path, build):
    def fail(path):
        path.mkdir()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Cache(tmp_path).put(key_of("a"), fail)
    assert list(tmp_path.iterdir()) == []

    def half(path):
        build()(path)
        (path / LIBRARY).write_bytes(b"other")

    with pytest.raises(TamperedBundle):
        Cache(tmp_path).put(key_of("a"), half)
    assert list(tmp_path.iterdir()) == []


def test_a_corrupted_entry_is_dropped_and_built_again(tmp_path, build, caplog):
    cache, builder = Cache(tmp_path), build()
    path = cache.put(key_of("a"), builder)
    (path / LIBRARY).write_bytes(b"rot")
    with caplog.at_level(logging.WARNING):
        assert cache.get(key_of("a")) is None
    assert "dropped" in caplog.text and not path.exists()
    assert cache.put(key_of("a"), builder) == path
    assert builder.runs == 2
    assert read_bundle(path).file(LIBRARY).read_bytes() == b"code"


def test_the_least_recently_used_leave(tmp_path, build):
    size = 20_000
    cache = Cache(tmp_path, largest=3 * (size + 10_000), spared=60.0)
    paths = {}
    for name in "abc":
        paths[name] = cache.put(key_of(name), build(bytes(size)))
    now = time.time()
    for age, name in ((3000, "a"), (2000, "b"), (1000, "c")):
        os.utime(paths[name], (now - age, now - age))
    assert cache.get(key_of("a")) is not None  # and a is the most recent now
    paths["d"] = cache.put(key_of("d"), build(bytes(size)))
    assert [name for name in "abcd" if paths[name].exists()] == ["a", "c", "d"]
    roomy = Cache(tmp_path)
    roomy.put(key_of("e"), build(bytes(size)))
    assert [name for name in "abcd" if paths[name].exists()] == ["a", "c", "d"]


def test_an_entry_in_use_is_spared(tmp_path, build):
    cache = Cache(tmp_path, largest=1)
    first, second = cache.put(key_of("a"), build()), cache.put(key_of("b"), build())
    assert first.exists() and second.exists()
    os.utime(first, (1, 1))
    cache.put(key_of("c"), build())
    assert not first.exists() and second.exists()


def test_what_a_dead_builder_left_is_removed(tmp_path, build):
    left, fresh = tmp_path / ".x.kdsb.1.tmp", tmp_path / ".y.kdsb.2.tmp"
    left.mkdir()
    fresh.mkdir()
    os.utime(left, (1, 1))
    Cache(tmp_path).put(key_of("a"), build())
    assert not left.exists() and fresh.exists()


def _build_in_process(root, started, finished, manifest_and_files):
    def slow(path):
        started.put(os.getpid())
        time.sleep(0.3)
        write_bundle(path, *manifest_and_files())

    finished.put(str(Cache(root).put(key_of("a"), slow)))


@pytest.mark.skipif(os.name == "nt", reason="the test forks")
def test_two_builders_in_two_processes(tmp_path, manifest):
    context = multiprocessing.get_context("fork")
    started, finished = context.Queue(), context.Queue()
    work = (tmp_path, started, finished, lambda: (manifest(), {LIBRARY: b"code"}))
    processes = [context.Process(target=_build_in_process, args=work) for _ in range(3)]
    for process in processes:
        process.start()
    paths = {finished.get(timeout=20) for _ in processes}
    for process in processes:
        process.join(20)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert paths == {str(tmp_path / (key_of("a") + ".kdsb"))}
    assert started.get(timeout=5) and started.empty()
    assert not list(tmp_path.glob(".*"))


def test_without_the_lock_both_build_and_one_result_stays(tmp_path, manifest, monkeypatch, caplog):
    def no_locks(path):
        raise OSError("no locks available")

    monkeypatch.setattr(cache_module, "exclusive", no_locks)
    both, runs, paths = threading.Barrier(2, timeout=10), [], []

    def build(path):
        runs.append(path)
        both.wait()
        write_bundle(path, manifest(), {LIBRARY: b"code"})

    threads = [
        threading.Thread(target=lambda: paths.append(Cache(tmp_path).put(key_of("a"), build)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(runs) == 2 and len(set(paths)) == 1
    assert "no lock" in caplog.text
    read_bundle(paths[0])


def _as_nobody(action):
    """Run `action` in a child process without the rights of root; its exit status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            status = 0 if action() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def open_folder():
    """A folder that other users can reach."""
    folder = Path(tempfile.mkdtemp(prefix="kdsl-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the test forks")
def test_a_read_only_home_falls_back_to_a_temporary_folder(open_folder, build, caplog):
    root = open_folder / "cache"
    kept = Cache(root).put(key_of("kept"), build())
    for folder in (root, kept, kept / "lib"):
        folder.chmod(0o555)

    def use():
        cache = Cache(root)
        assert cache.get(key_of("kept")) == kept
        path = cache.put(key_of("new"), build(b"new"))
        assert not path.is_relative_to(root) and cache.get(key_of("new")) == path
        assert Cache(root).get(key_of("new")) == path
        assert "cannot be written" in caplog.text and "KDSL_CACHE_DIR" in caplog.text
        cache_module._remove_if_own(path.parent, os.getpid())
        return not path.exists()

    assert _as_nobody(use) == 0
    assert _as_nobody(lambda: Cache(root).get(key_of("new")) is not None) == 2
    root.chmod(0o755)


def test_a_root_that_cannot_exist(tmp_path, build, caplog):
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "cache")
    assert cache.get(key_of("a")) is None
    path = cache.put(key_of("a"), build())
    assert "cannot be written" in caplog.text
    assert cache.get(key_of("a")) == path
    assert read_bundle(path)
