"""The runtime's object: made once, kept in the user's cache, and made anew where anything that it depends on
differs or the entry is not whole."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from onnxc.codegen.library import runtime
from onnxc.errors import CompileError
from onnxc.target import find_target


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("ONNXC_CACHE", str(folder))
    monkeypatch.setattr(runtime, "FLAGS", (*runtime.FLAGS, "-O0"))
    return folder


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Makes the object, of a source that is compiled at once, and tells whether the compiler was asked."""
    work, sources = tmp_path / "work", tmp_path / "sources"
    work.mkdir()
    sources.mkdir()
    (sources / "runtime.c").write_text(f"int {runtime.PREFIX}one(void) {{ return 1; }}\n")
    monkeypatch.setattr(runtime, "SOURCES", sources)
    monkeypatch.setattr(runtime, "_sources_digest", lambda: "these")

    def made(**options) -> bool:
        with runtime.start_runtime(work, find_target(), **options) as found:
            asked = found.process is not None
            assert found.wait(60).read_bytes().startswith(b"\x7fELF")
        return asked

    return made


def entries(cache: Path) -> list[Path]:
    return sorted(cache.iterdir())


def test_it_is_compiled_once(make, cache):
    assert [make(), make(), make()] == [True, False, False]
    assert cache.stat().st_mode & 0o777 == 0o700
    assert [entry.suffix for entry in entries(cache)] == [".o"]


def test_each_compiler_with_its_flags_has_one_of_its_own(make, cache, monkeypatch, tmp_path):
    header = tmp_path / "memory.h"
    header.write_text("void *mine(unsigned long);\n")
    monkeypatch.setenv("CC", f"cc -include {header} -DONNXC_MALLOC=mine")
    assert [make(), make()] == [True, False]
    header.write_text("void *mine(unsigned long) __attribute__((malloc));\n")
    assert [make(), make()] == [True, False]
    monkeypatch.setenv("CC", "cc -g")
    assert [make(), make()] == [True, False]
    monkeypatch.setenv("CPATH", str(tmp_path))
    assert [make(), make(), make(names=runtime.runtime_prefix("o", "model"))] == [True, False, False]
    assert len(entries(cache)) == 4


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b[:100], lambda b: b"", lambda b: b[:-200] + b[-199:]]
)
def test_an_entry_that_is_not_whole_is_made_anew(make, cache, damage):
    make()
    (entry,) = entries(cache)
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    assert [make(), make()] == [True, False]
    assert entry.read_bytes() == whole


def test_what_is_no_file_in_the_place_of_an_entry_is_no_trouble(make, cache):
    make()
    (entry,) = entries(cache)
    entry.unlink()
    entry.mkdir()
    assert [make(), make()] == [True, True]


@pytest.mark.parametrize("spoil", [lambda c: c.chmod(0o777), lambda c: (c.rmdir(), c.write_text(""))])
def test_a_cache_that_cannot_be_trusted_or_made_is_not_used(make, cache, spoil):
    cache.mkdir()
    spoil(cache)
    assert [make(), make()] == [True, True]
    assert cache.is_file() or entries(cache) == []


def test_a_failing_compiler_leaves_no_entry(make, cache, monkeypatch):
    monkeypatch.setenv("CC", "cc -Dint=(")
    with pytest.raises(CompileError, match="'cc' failed with status 1"):
        make()
    assert entries(cache) == []


def test_its_names_are_the_models_in_an_object_for_static_linking(tmp_path):
    names = runtime.runtime_prefix("o", "digits")
    with runtime.start_runtime(tmp_path, find_target(), names) as made:
        command = ["nm", "-g", "--defined-only", made.wait(60)]
    symbols = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[2::3]
    assert symbols and all(symbol.startswith(names) for symbol in symbols)
    assert names != runtime.runtime_prefix("o", "letters") and len(names) == len(runtime.PREFIX)
    assert os.listdir(tmp_path / "cache")
