"""Which folder the cache is, wherever the user is put."""

import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from onnxc import LoadError, cache


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch):
    """A user without a cache, and a temporary folder of his own."""
    for name in ("ONNXC_CACHE", "XDG_CACHE_HOME", "ONNXC_CACHE_TRUST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(cache, "_fallback", None)


def fallback(tmp_path: Path) -> Path:
    return tmp_path / "tmp" / f"onnxc-{os.getuid()}"


def test_it_is_made_below_the_home_folder(tmp_path):
    assert cache.cache_folder() == tmp_path / "home" / ".cache" / "onnxc" == cache.writable_folder()


def test_who_only_asks_where_it_is_does_not_make_it(tmp_path, monkeypatch):
    assert cache.cache_folder(make=False) == tmp_path / "home" / ".cache" / "onnxc"
    assert not (tmp_path / "home").exists()
    assert cache.cache_folder() == cache.cache_folder(make=False)
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("ONNXC_CACHE", str(tmp_path / "a file" / "cache"))
    with pytest.raises(LoadError, match="cannot be used"):
        cache.cache_folder(make=False)


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ONNXC_CACHE", "~/kept")
    assert cache.cache_folder() == tmp_path / "home" / "kept"


@pytest.mark.parametrize("what", ["no home", "home cannot be written", "a file in its place"])
def test_without_one_a_temporary_folder_is_used_with_one_warning(what, tmp_path, monkeypatch):
    if what == "no home":
        monkeypatch.delenv("HOME")
        monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    elif what == "home cannot be written":
        monkeypatch.setenv("HOME", "/proc/nowhere")
    else:
        (tmp_path / "home" / ".cache").mkdir(parents=True)
        (tmp_path / "home" / ".cache" / "onnxc").write_text("a file")
    with pytest.warns(RuntimeWarning, match="compiled models are kept in") as caught:
        assert cache.writable_folder() == cache.writable_folder() == fallback(tmp_path)
    assert len(caught) == 1 and caught[0].filename == __file__  # where it was asked for
    assert fallback(tmp_path).stat().st_mode & 0o777 == 0o700


def test_a_user_without_an_entry_has_a_temporary_folder(tmp_path):
    program = (
        "import os, pathlib, tempfile, warnings; from onnxc import cache; os.setuid(54321); "
        "print(cache.writable_folder())"
    )
    if os.getuid() != 0:
        program = program.replace("os.setuid(54321); ", "")
    (tmp_path / "tmp").chmod(0o777)
    tmp_path.chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if k not in ("HOME", "ONNXC_CACHE")}
    environment["XDG_CACHE_HOME"] = "/proc/nowhere"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        capture_output=True, text=True, env={**environment, "TMPDIR": "/tmp"},
    )  # fmt: skip
    assert done.stdout.startswith("/tmp/onnxc-"), done.stderr
    assert done.stderr.count("RuntimeWarning") == 1


@pytest.mark.parametrize("place", ["/proc/nowhere", "a file"])
def test_one_that_was_named_and_cannot_be_used_is_told_in_a_sentence(place, tmp_path, monkeypatch):
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("ONNXC_CACHE", str(tmp_path / place))
    if place.startswith("/"):
        monkeypatch.setenv("ONNXC_CACHE", place)
    with pytest.raises(LoadError, match="ONNXC_CACHE"):
        cache.cache_folder()


@pytest.mark.parametrize("why", ["noexec", "cannot be written"])
def test_one_that_cannot_hold_libraries_is_only_read(why, tmp_path, monkeypatch):
    if why == "noexec":
        monkeypatch.setattr(cache, "_runs_code", lambda folder: "home" not in str(folder))
    else:
        monkeypatch.setattr(os, "access", lambda path, mode: "home" not in str(path))
    with pytest.warns(RuntimeWarning, match=why):
        assert cache.writable_folder() == fallback(tmp_path)
    assert cache.folders() == [tmp_path / "home" / ".cache" / "onnxc", fallback(tmp_path)]


def test_where_no_code_can_be_run_at_all_a_sentence_names_the_variable(monkeypatch):
    monkeypatch.setattr(cache, "_runs_code", lambda folder: False)
    with pytest.raises(LoadError, match=r"noexec.*ONNXC_CACHE"):
        cache.writable_folder()


def test_a_full_disk_leads_to_the_temporary_folder_and_then_to_a_sentence(tmp_path):
    full = cache.cache_folder()
    with pytest.warns(RuntimeWarning, match="No space"):
        other = cache.after_failure(full, "No space left on device")
    assert other == fallback(tmp_path)
    with pytest.raises(LoadError, match=r"No space left on device.*ONNXC_CACHE"):
        cache.after_failure(other, "No space left on device")


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_one_that_others_can_write_is_refused_unless_the_user_trusts_it(mode, tmp_path, monkeypatch):
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    monkeypatch.setenv("ONNXC_CACHE", str(folder))
    with pytest.raises(LoadError, match="ONNXC_CACHE_TRUST"):
        cache.cache_folder()
    monkeypatch.setenv("ONNXC_CACHE_TRUST", "1")
    assert cache.cache_folder() == folder


def test_one_that_root_owns_is_trusted_and_one_of_another_user_is_not(tmp_path, monkeypatch):
    folder = cache.cache_folder()
    owner = folder.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    if owner == 0:
        assert cache.cache_folder() == folder
        os.chown(folder, 54321, -1)
    with pytest.raises(LoadError, match="belongs to"):
        cache.cache_folder()


def test_another_users_temporary_folder_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/proc/nowhere")
    fallback(tmp_path).symlink_to(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        found = cache.writable_folder()
    assert found != fallback(tmp_path) and not found.is_symlink()
    found.rmdir()


# Locks


def test_a_lock_leaves_no_file(tmp_path):
    with cache.locked(tmp_path / "entry"):
        assert [path.name for path in tmp_path.glob(".*")] == [".entry.lock"]
    assert not list(tmp_path.glob(".*"))


def test_one_holds_a_lock_whose_file_comes_and_goes(tmp_path):
    inside, most = [], []

    def work():
        for _ in range(20):
            with cache.locked(tmp_path / "entry"):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 80
