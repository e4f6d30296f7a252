"""Loading: whatever is at the path, the answer is a model or one sentence."""

from __future__ import annotations

import gc
import os
import shutil
import struct
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.handmade_models import AFFINE, HERE, NOWHERE, Parts, cc, scale_bytes

from onnxc import trailer
from onnxc.codegen.library.weights import side_file_head
from onnxc.errors import LoadError, RunError
from onnxc.loading.loader import load

ONE = (np.ones(1, np.float32), np.zeros(1, np.float32), np.int64(NOWHERE))


def refused(path: Path, *words: str) -> None:
    with pytest.raises(LoadError) as caught:
        load(path)
    text = str(caught.value)
    assert text.startswith(os.fspath(path)) and "\n" not in text and len(text) < 1000
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    "given",
    [{"threads": "2"}, {"threads": -1}, {"threads": 2.0}, {"target": 1}, {"target": b"x"}, {"weights": 1}],
    ids=str,
)
def test_what_a_library_cannot_be_opened_with_is_refused_in_one_sentence(affine_path, given):
    (name,) = given
    with pytest.raises(LoadError, match=f"^{name}="):
        load(affine_path, **given)


def test_paths_and_numbers_are_of_any_kind(affine_path):
    for path in (affine_path, os.fspath(affine_path), os.fsencode(affine_path)):
        assert load(path, threads=np.int64(1))(*ONE) == 3
    with pytest.raises(LoadError, match="cannot be opened"):
        load("a\0b")


def test_what_calls_do_not_take_is_refused_in_one_sentence(affine_path):
    model = load(affine_path)
    feeds = dict(zip((port.name for port in model.inputs), ONE))
    for call, words in (
        (lambda: model.run(None, feeds, out=0), "expected a mapping of output names to arrays, got a int"),
        (lambda: model.profile(feeds, runs=-1), "runs=-1 is no count"),
        (lambda: model.profile(feeds, runs=2.0), "runs=2.0 is no count"),
        (lambda: model([1e300], [0.0], NOWHERE), r"input 'x': 1e\+300 is no number of float32"),
        (lambda: model.workspace_bytes([1]), "expected a mapping of inputs to shapes, got a list"),
        (lambda: model.workspace_bytes({model.inputs[0].name: (2.5,)}), "something else than integers"),
    ):
        with pytest.raises(RunError, match=words):
            call()


def test_a_library_truncated_anywhere_is_refused(affine_path, tmp_path):
    whole = affine_path.read_bytes()
    cut = tmp_path / "cut.so"
    for length in {*range(0, len(whole), 1021), *range(len(whole) - 100, len(whole)), 1, 4095, 4096, 4097}:
        cut.write_bytes(whole[:length])
        refused(cut, "not a library compiled by onnxc, or it is truncated")


def test_a_changed_byte_is_noticed_except_in_the_weights(affine_path, tmp_path):
    whole = bytearray(affine_path.read_bytes())
    changed = tmp_path / "changed.so"
    fields = trailer.LAYOUT.unpack(whole[-trailer.LAYOUT.size :])
    offset, size = fields[4:6]
    assert size == 64 and whole[offset : offset + 4] == np.float32(3).tobytes()
    for place in (0, 100, len(whole) // 2, len(whole) - trailer.LAYOUT.size - 1):
        assert not offset <= place < offset + size
        whole[place] ^= 1
        changed.write_bytes(whole)
        refused(changed, "damaged")
        whole[place] ^= 1
    whole[offset : offset + 4] = np.float32(5).tobytes()
    changed.write_bytes(whole)
    assert load(changed)(*ONE) == 5  # weights are read when they are used, not hashed


def test_bytes_added_to_a_library_are_noticed(affine_path, tmp_path):
    longer = tmp_path / "longer.so"
    whole = affine_path.read_bytes()
    longer.write_bytes(whole + b"\0")
    refused(longer, "not a library compiled by onnxc")
    longer.write_bytes(whole[:5000] + whole)
    refused(longer, "damaged", f"{len(whole) + 5000} bytes")


@pytest.mark.parametrize("content", [b"!<arch>\n", b"\x7fELF\2\1\1" + bytes(9) + b"\1\0" + bytes(200)])
def test_an_object_or_archive_is_told_as_such(content, tmp_path):
    (tmp_path / "model.o").write_bytes(content)
    refused(tmp_path / "model.o", "is an object or archive for static linking; compile the model to OUT.so")


@pytest.mark.parametrize("content", [b"", b"text\n", b"\x7fELF", bytes(5000), trailer.MAGIC * 20])
def test_files_of_other_kinds_are_refused(tmp_path, content):
    path = tmp_path / "other.so"
    path.write_bytes(content)
    refused(path)


def test_a_library_of_somebody_else_is_refused(tmp_path):
    source, path = tmp_path / "other.c", tmp_path / "other.so"
    source.write_text("int answer(void) { return 42; }\n")
    cc("-shared", "-fPIC", source, "-o", path)
    refused(path, "not a library compiled by onnxc")
    trailer.append_trailer(path)
    refused(path, "not a library compiled by onnxc")


def test_missing_files_folders_and_fifos_are_refused(tmp_path):
    refused(tmp_path / "missing.so", "No such file")
    refused(tmp_path, "not a regular file")
    fifo = tmp_path / "fifo.so"
    os.mkfifo(fifo)
    refused(fifo, "not a regular file")


def test_another_interface_version_is_refused_with_both_versions(affine_path, tmp_path):
    other = tmp_path / "other.so"
    whole = bytearray(affine_path.read_bytes())
    struct.pack_into("<I", whole, len(whole) - trailer.LAYOUT.size + 8, 7)
    other.write_bytes(whole)
    refused(other, f"version 7.{trailer.ABI_MINOR}", "loads version 1", "compile the model again")


def test_a_library_for_another_kind_of_processor_is_told_so(affine_path, tmp_path):
    other = tmp_path / "other.so"
    whole = bytearray(affine_path.read_bytes()[: -trailer.LAYOUT.size])
    struct.pack_into("<H", whole, 18, 2)  # SPARC
    other.write_bytes(whole)
    trailer.append_trailer(other)
    refused(other, "cannot be loaded: it is for another kind of processor than this machine has")


def needing(*features: str):
    """The affine model for a processor with these features."""
    return replace(AFFINE, lowered=(replace(AFFINE.lowered[0], features=features),))


def test_a_missing_processor_feature_is_named(tmp_path):
    description = needing("sse2", "avx1024f", "quantum")
    path = Parts(tmp_path / "work", HERE / "affine.c", description, scale_bytes(3)).link(tmp_path / "m.so")
    refused(path, "affine", "another processor", "avx1024f, quantum")
    with pytest.raises(LoadError) as caught:
        load(path)
    assert "sse2" not in str(caught.value)


def test_this_machine_has_what_its_target_asks_for(tmp_path):
    from onnxc.target import find_target

    description = needing(*find_target("native").features)
    path = Parts(tmp_path / "work", HERE / "affine.c", description, scale_bytes(3)).link(tmp_path / "m.so")
    assert load(path)(*ONE) == 3


def test_a_library_rebuilt_at_its_path_is_loaded_anew(tmp_path):
    path = tmp_path / "model.so"
    models = []
    for scale in (2, 3, 4):
        Parts(tmp_path / f"work{scale}", HERE / "affine.c", AFFINE, scale_bytes(scale)).link(path)
        models.append(load(path))
    assert [model(*ONE)[0] for model in models] == [2, 3, 4]


def test_a_descriptor_used_again_does_not_bring_back_another_library(affine_path, divide_path):
    first, second = load(affine_path), load(affine_path)
    del second  # its descriptor is free now, the library still mapped
    gc.collect()
    assert load(divide_path).name == "divide"
    assert first.name == "affine"


def mapped(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path.resolve()))


def test_a_library_is_unmapped_when_nobody_looks_at_it(affine_path, tmp_path):
    path = tmp_path / "model.so"
    shutil.copy(affine_path, path)
    gc.collect()  # what earlier tests left open
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        model = load(path, threads=3)
        x = np.arange(1000, dtype=np.float32)
        result = model(x, x, np.int64(NOWHERE))
        assert mapped(path) > 0
        del model
        gc.collect()
        assert mapped(path) > 0 and result[2] == 8
        del result
        gc.collect()
        assert mapped(path) == 0
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_calls_with_arrays_import_nothing(affine_path):
    """Who has changed root or user after opening could not."""
    program = f"""
import sys, numpy as np
from onnxc.loading.loader import load
model = load({str(affine_path)!r})
before, x = {{*sys.modules}}, np.arange(1000, dtype=np.float32)
model(x, x, np.array({NOWHERE}))
print(*{{*sys.modules}} - before)
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, []), done


def test_copies_of_a_library_come_and_go_while_others_run(affine_path, tmp_path):
    """Each has state and threads of its own; the same file is mapped several times too."""
    x, wrong, busy = np.arange(5000, dtype=np.float32), [], threading.Event()

    def run(model) -> None:
        while not busy.is_set():
            if not np.array_equal(model(x, x, np.int64(NOWHERE)), 4 * x):
                wrong.append(model)

    models = [load(affine_path, threads=2) for _ in range(2)]
    callers = [threading.Thread(target=run, args=(model,)) for model in models]
    for caller in callers:
        caller.start()
    for k in range(20):
        path = tmp_path / f"copy{k}.so"
        shutil.copy(affine_path, path)
        for other in (path, affine_path):
            with load(other, threads=2) as model:
                assert np.array_equal(model(x, x, np.int64(NOWHERE)), 4 * x)
        path.unlink()
    busy.set()
    for caller in callers:
        caller.join()
    assert not wrong


def test_unloading_leaves_nothing_that_a_fork_would_call(affine_path):
    program = f"""
import os, gc, numpy as np
from onnxc.loading.loader import load
model = load({str(affine_path)!r}, threads=2)
x = np.arange(1000, dtype=np.float32)
model(x, x, np.int64({NOWHERE}))
del model
gc.collect()
child = os.fork()
if child == 0:
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    subprocess.run([sys.executable, "-P", "-c", program], check=True, timeout=60)


def test_a_child_does_not_wait_for_what_a_thread_of_its_parent_held(affine_path):
    program = f"""
import os, threading, numpy as np
from onnxc.loading.loader import load
model = load({str(affine_path)!r})
x = np.arange(1000, dtype=np.float32)
taken, held = model.acquire(), threading.Event()
def hold():
    with model._lock:
        held.set()
        threading.Event().wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if child == 0:
    os._exit(model(x, x, np.int64({NOWHERE}))[1] == 4)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
"""
    subprocess.run([sys.executable, "-P", "-W", "ignore", "-c", program], check=True, timeout=60)


def test_the_interpreter_ends_well_with_a_model_in_a_cycle(affine_path):
    program = f"""
import numpy as np
from onnxc.loading.loader import load
class Holder: pass
holder = Holder()
holder.me, holder.model = holder, load({str(affine_path)!r}, threads=2)
x = np.arange(1000, dtype=np.float32)
holder.result = holder.model(x, x, np.int64({NOWHERE}))
kept = holder.result
del holder
import gc; gc.collect()
assert kept[1] == 4
other = load({str(affine_path)!r}, threads=2)
bound = other(x, x, np.int64({NOWHERE}))
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_loading_imports_neither_onnx_nor_llvm(affine_path):
    program = f"""
import sys
import onnxc.loading.loader
onnxc.loading.loader.load({str(affine_path)!r})
heavy = [m for m in ("onnx", "llvmlite", "google.protobuf", "ml_dtypes") if m in sys.modules]
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-P", "-c", program], check=True, timeout=60)


# Weights in a side file


@pytest.fixture
def apart(tmp_path) -> Path:
    """The affine model with its weights in a file beside it."""
    description = replace(AFFINE, weights_file="model.weights", weights_digest=bytes(range(32)))
    path = Parts(tmp_path / "work", HERE / "affine.c", description, b"").link(tmp_path / "model.so")
    (tmp_path / "model.weights").write_bytes(side_file_head(bytes(range(32)), 64) + scale_bytes(6))
    return path


def test_weights_may_be_in_a_side_file(apart, tmp_path):
    assert load(apart)(*ONE) == 6
    link = tmp_path / "elsewhere" / "link.so"
    link.parent.mkdir()
    link.symlink_to(apart)
    assert load(link)(*ONE) == 6
    (tmp_path / "model.weights").rename(link.parent / "w")
    assert load(apart, weights=link.parent / "w")(*ONE) == 6
    refused(apart, f"the weights '{tmp_path}/model.weights' cannot be opened: No such file or directory")


def test_a_side_file_that_is_no_longer_whole_is_refused(apart, tmp_path):
    side = tmp_path / "model.weights"
    whole = side.read_bytes()
    for length in (0, 1, 47):
        side.write_bytes(whole[:length])
        refused(apart, "is not a file of weights")
    for length in (48, 4095, 4096, len(whole) - 1):
        side.write_bytes(whole[:length])
        refused(apart, "damaged", f"it has {length} bytes, not {len(whole)}")
    side.write_bytes(whole + b"\0")
    refused(apart, "damaged", f"it has {len(whole) + 1} bytes")


def test_a_side_file_of_another_build_is_refused(apart, tmp_path):
    side = tmp_path / "model.weights"
    for head in (side_file_head(bytes(32), 64), side_file_head(bytes(range(32)), 128)):
        side.write_bytes(head + scale_bytes(6))
        refused(apart, "does not hold the weights of this build of model 'affine'")


def test_what_is_no_side_file_is_refused(apart, tmp_path):
    side = tmp_path / "model.weights"
    side.write_bytes(b"text" * 5000)
    refused(apart, "is not a file of weights")
    side.unlink()
    os.mkfifo(side)
    refused(apart, "is not a file of weights")
    side.unlink()
    side.mkdir()
    refused(apart, "is not a file of weights")


def test_callers_share_one_mapping_of_the_side_file(apart, tmp_path):
    side = tmp_path / "model.weights"
    model = load(apart, threads=1)
    assert mapped(side) == 1
    contexts = [model.acquire() for _ in range(3)]
    assert mapped(side) == 1
    side.unlink()  # a model in use has what it needs
    assert len(contexts) == 3 and model(*ONE) == 6
    for context in contexts:
        model.give_back(context)
    model.close()
    assert mapped(side) == 0


def test_a_profile_has_a_timing_for_every_step_of_a_run(affine_path):
    with load(affine_path, threads=1) as model:
        x = np.ones(40, np.float32)
        steps = model.profile({"x": x, "b": x, "fail_at": np.int64(NOWHERE)}, runs=3)
        assert [step.parts for step in steps] == [3, 3, 3]
        assert all(step.ns >= 0 and step.node for step in steps)
        assert len(model.profile({"x": x, "b": x, "fail_at": np.int64(NOWHERE)})) == 3
        np.testing.assert_array_equal(model(x, x, np.int64(NOWHERE)), 4 * x)  # and runs as before
