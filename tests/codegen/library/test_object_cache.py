"""Objects that were compiled before are taken from the user's cache, whole and made of the same things, and
the cache stays small."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onnxc.codegen.library import object_cache, objects, worker
from onnxc.target import TARGETS, find_target

TARGET = find_target()
TEXT = "define i32 @f() {\n  ret i32 1\n}\n"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("ONNXC_CACHE", str(folder))
    return folder


@pytest.fixture
def compiled(monkeypatch) -> list[object]:
    """What LLVM was asked for."""
    asked = []
    usual = worker.compile_texts
    monkeypatch.setattr(worker, "compile_texts", lambda *what: asked.append(what) or usual(*what))
    return asked


@pytest.fixture
def make(tmp_path):
    def made(text=TEXT, target=TARGET, level=worker.CODE) -> bytes:
        with objects.CodeGeneration(tmp_path, jobs=0) as generation:
            generation.add("m", text, target.triple, target.processor, level)
            (path,) = generation.finish()
        return path.read_bytes().partition(b"ONNXCLIB")[0]

    return made


def entries(cache: Path) -> list[Path]:
    return sorted((cache / object_cache.FOLDER).glob("*/*"))


def test_a_text_is_compiled_once(make, compiled, cache):
    assert make() == make() == make()
    assert len(compiled) == len(entries(cache)) == 1


def test_another_text_processor_or_level_is_another_object(make, compiled):
    make()
    make(TEXT.replace("1", "2"))
    make(target=TARGETS["aarch64"])
    make(level=worker.DATA)
    make(level=worker.LEAN)
    assert len(compiled) == 5


def test_strength_is_reduced_or_not_as_each_text_wants_it():
    loop = """define void @f(ptr %x, i64 %n) {
entry:
  br label %loop
loop:
  %k = phi i64 [0, %entry], [%next, %loop]
  %at = mul i64 %k, 4000
  %p = getelementptr i8, ptr %x, i64 %at
  store float 0.0, ptr %p
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""
    machine = TARGET.triple, TARGET.processor
    reduced, lean, again = (
        worker.compile_texts([loop], *machine, level) for level in (worker.CODE, worker.LEAN, worker.CODE)
    )
    assert reduced == again != lean


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:64] + bytes([b[64] ^ 1]) + b[65:]]
)
def test_an_entry_that_is_not_whole_is_made_anew(make, compiled, cache, damage):
    whole = make()
    (entry,) = entries(cache)
    entry.write_bytes(damage(entry.read_bytes()))
    assert make() == make() == whole
    assert len(compiled) == 2


def test_what_was_not_used_for_longest_is_given_up(make, compiled, cache, monkeypatch):
    monkeypatch.setattr(object_cache, "PARTS", 1)
    texts = [TEXT.replace("1", str(k)) for k in range(4)]
    for age, text in enumerate(texts[:3]):
        before = set(entries(cache))
        make(text)
        (entry,) = set(entries(cache)) - before
        os.utime(entry, (age, age))
    make(texts[0])
    room = sum(entry.stat().st_size for entry in entries(cache))
    monkeypatch.setattr(object_cache, "LIMIT", room)
    make(texts[3])
    compiled.clear()
    for text in (texts[0], texts[2], texts[3], texts[1]):
        make(text)
    assert [asked[0] for asked in compiled] == [[texts[1]]]


def test_a_cache_that_cannot_be_written_is_no_trouble(make, compiled, cache):
    cache.mkdir(mode=0o700)
    (cache / object_cache.FOLDER).write_text("no folder")
    assert make() == make()
    assert len(compiled) == 2


def test_clearing_removes_all(make, cache):
    make()
    object_cache.clear(cache)
    assert entries(cache) == []
