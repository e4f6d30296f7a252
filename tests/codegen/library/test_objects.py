"""With what effort kernels are compiled, and that who interrupts it leaves nothing behind."""

import os
import signal
import threading
from types import SimpleNamespace

import pytest

from onnxc.codegen.library import objects
from onnxc.codegen.library.worker import CODE, LEAN, QUICK
from onnxc.target import TARGETS

WIDE = TARGETS["x86-64-v4"]
SUMS = "define i32 @entry(ptr %x) {\n  ret i32 1\n}\n"
PRODUCTS = f"{SUMS}declare <16 x i32> @{WIDE.widening.intrinsic}(<32 x i16>, <32 x i16>)\n"


@pytest.mark.parametrize(
    ("text", "target", "asked", "level"),
    [
        (SUMS, "x86-64-v4", CODE, LEAN),
        (PRODUCTS, "x86-64-v4", CODE, CODE),
        (SUMS, "x86-64-v3", CODE, CODE),
        (SUMS, "aarch64", CODE, CODE),
        (SUMS, "x86-64-v4", QUICK, QUICK),
    ],
)
def test_loops_are_reduced_in_strength_where_that_gains(tmp_path, monkeypatch, text, target, asked, level):
    added = []
    monkeypatch.setattr(objects.CodeGeneration, "add", lambda self, *how: added.append(how))
    generation = objects.CodeGeneration(tmp_path, 0, asked)
    generation.add_kernels(SimpleNamespace(steps=[SimpleNamespace(text=text)]), TARGETS[target])
    assert [how[-1] for how in added] == [level]


def test_an_interruption_while_a_thread_begins_is_one_behind_it(tmp_path, monkeypatch):
    """A thread that has not begun cannot be waited for."""
    begin, before = threading.Thread.start, signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupted(thread):
        os.kill(os.getpid(), signal.SIGINT)
        begin(thread)

    monkeypatch.setattr(objects, "GROUP", 1)
    try:
        with pytest.raises(KeyboardInterrupt), objects.CodeGeneration(tmp_path, 1) as generation:
            monkeypatch.setattr(threading.Thread, "start", interrupted)
            generation.add("entry", SUMS, WIDE.triple, WIDE.processor)
        assert not any(thread.is_alive() for thread in generation._threads)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("started", [0, 1])
def test_code_is_generated_by_as_many_threads_as_can_be_started(tmp_path, monkeypatch, threads_left, started):
    monkeypatch.setattr(objects, "GROUP", 1)
    monkeypatch.setattr(objects.object_cache, "fetch", lambda *_: False)
    begun = threads_left(started)
    with objects.CodeGeneration(tmp_path, 4) as generation:
        for name in ("first", "second", "third"):
            generation.add(name, SUMS, WIDE.triple, WIDE.processor)
        made = generation.finish()
    assert [path.name for path in made] == ["first.o", "second.o", "third.o"]
    assert len({path.read_bytes() for path in made}) == 1 and generation._threads == begun


@pytest.mark.parametrize("jobs", [0, 1])
def test_an_object_for_which_the_disk_has_no_room_is_named(tmp_path, monkeypatch, jobs):
    monkeypatch.setattr(objects, "GROUP", 1)
    monkeypatch.setattr(objects.object_cache, "fetch", lambda *_: False)
    (tmp_path / "entry.o").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space") as caught, objects.CodeGeneration(tmp_path, jobs) as made:
        made.add("entry", SUMS, WIDE.triple, WIDE.processor)
        made.finish()
    assert caught.value.filename == str(tmp_path / "entry.o")
