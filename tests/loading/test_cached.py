"""The cache of compiled models: what is found without being read, what is compiled once, what is given up."""

import contextlib
import errno
import json
import marshal
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.bad_models import external
from support.caches import with_runtime
from support.few_nodes import model, node, relu

import onnxc
from onnxc import cache
from onnxc.commands.cli import main
from onnxc.errors import CompileError, LoadError
from onnxc.loading import cached, finding, housekeeping, making
from onnxc.loading.cached import cached_library, find_library, text_of
from onnxc.onnxruntime.free_dimensions import FreeDimensions
from onnxc.options import Options

X = np.array([-1, 2], np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache that has the runtime alone."""
    made = with_runtime(tmp_path / "cache")
    monkeypatch.setenv("ONNXC_CACHE", str(made))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return made


@pytest.fixture
def path(tmp_path):
    onnx.save(relu(), tmp_path / "relu.onnx")
    return tmp_path / "relu.onnx"


def run(library) -> list:
    with onnxc.load(library) as loaded:
        return loaded.run(None, {"x": X})[0].tolist()


def test_a_file_that_did_not_change_is_not_read_again(path, monkeypatch):
    first = cached_library(path)
    monkeypatch.setattr(cached, "_content", None)
    assert cached_library(path) == first
    assert find_library(path).description["name"] == "model"


def test_a_file_with_the_same_content_is_not_imported_again(path, tmp_path, monkeypatch):
    first = cached_library(path)
    shutil.copy(path, tmp_path / "copy.onnx")
    os.utime(path)
    monkeypatch.setattr(making, "compiled", None)
    assert cached_library(path) == cached_library(tmp_path / "copy.onnx") == first
    assert cached_library(path.read_bytes()) == first


def test_a_file_of_the_same_size_and_time_is_another_one(path):
    first, status = cached_library(path), path.stat()
    changed = path.read_bytes().replace(b"Relu", b"Ceil")
    path.write_bytes(changed)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert cached_library(path) != first


def test_a_change_of_external_data_is_seen_by_either_entry(tmp_path, monkeypatch):
    path = external(data=np.array([1, 2], np.float32).tobytes())(tmp_path)
    assert run(cached_library(path)) == [0, 4]
    shutil.copytree(path.parent, tmp_path / "moved", ignore=lambda *_: ["cache", "moved"], dirs_exist_ok=True)
    monkeypatch.setattr(making, "compiled", lambda *_: pytest.fail("compiled again"))
    assert run(cached_library(tmp_path / "moved" / path.name)) == [0, 4]
    monkeypatch.undo()
    (path.parent / "w.bin").write_bytes(np.array([5, 5], np.float32).tobytes())
    assert run(cached_library(path)) == [4, 7]


def test_a_library_that_goes_before_it_is_open_is_looked_for_again(path):
    def find():
        tries.append(find_library(path))
        if len(tries) == 1:
            os.unlink(tries[0].path)
        return tries[-1]

    tries: list = []
    with finding.opened(find) as model:
        assert model.run(None, {"x": X})[0].tolist() == [0, 2] and len(tries) == 2


def test_a_library_that_is_no_longer_whole_is_an_error(path, tmp_path):
    (tmp_path / "bad.so").write_bytes(b"no library")
    with pytest.raises(LoadError, match="truncated"):
        finding.opened(lambda: finding.Found(tmp_path / "bad.so"))


@pytest.mark.parametrize("damage", [b"", b"abc", marshal.dumps((1, 2, 3))])
def test_a_damaged_entry_is_as_good_as_none(path, folder, damage):
    first = cached_library(path)
    for entry in (*folder.glob("path-*"), *folder.glob("content-*")):
        entry.write_bytes(damage)
    assert cached_library(path) == first


def test_an_entry_of_which_a_byte_is_another_is_mended_by_the_next_opening(path, folder, monkeypatch):
    """What `marshal` makes of such bytes may be another description, or none and out of memory."""
    first = cached_library(path)
    (entry,) = folder.glob("path-*")
    whole = entry.read_bytes()
    for at, byte in ((whole.index(b"dtype"), b"A"), (len(whole) // 2, b"\xff"), (len(whole) - 9, b"(")):
        for damaged in (*folder.glob("path-*"), *folder.glob("content-*")):
            data = damaged.read_bytes()
            damaged.write_bytes(data[:at] + byte + data[at + 1 :])
        housekeeping.kept(folder)
        with onnxc.InferenceSession(path) as session:
            assert session.run(None, {"x": X})[0].tolist() == [0, 2]
        assert entry.read_bytes() == whole and cached_library(path) == first
    entry.write_bytes(whole[:-1])
    housekeeping.prune(folder, 1 << 30)
    assert not entry.exists() and first.exists()


def test_a_library_that_was_written_over_in_another_second_is_made_anew(path):
    first = cached_library(path)
    whole = first.read_bytes()
    changed = whole[:200] + bytes(16) + whole[216:]

    def write_over():
        first.write_bytes(changed)
        os.utime(first, (first.stat().st_atime, first.stat().st_mtime + 1))

    write_over()
    assert cached_library(path) == first and run(first) == [0, 2]
    write_over()
    assert onnxc.InferenceSession(path).run(None, {"x": X})[0].tolist() == run(first) == [0, 2]


def test_a_library_whose_time_alone_is_another_is_not_made_anew(path, monkeypatch):
    first, calls = cached_library(path), []

    def count(module, name):
        function = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given: calls.append(name) or function(*given))

    os.utime(first, (1, 1))
    count(making, "compiled")
    count(finding, "_is_intact")
    for _ in range(2):
        assert cached_library(path) == first and calls == ["_is_intact"]  # which is seen once
        assert onnxc.InferenceSession(path).run(None, {"x": X})[0].tolist() == [0, 2]


#: What a program that opens and runs a model imports beside numpy and what numpy imports.
OPENING = """
onnxc onnxc.errors onnxc.loading onnxc.loading._quick onnxc.loading.c_values onnxc.loading.context
onnxc.loading.finding onnxc.loading.forks onnxc.loading.library onnxc.loading.loader onnxc.onnxruntime
onnxc.onnxruntime.session onnxc.places onnxc.record
"""


def test_a_warm_open_and_a_run_import_no_more_than_they_need(path):
    cached_library(path)
    program = (
        "import sys, numpy; sys.modules.pop('pathlib', None); "  # an editable install has it
        "before = {*sys.modules, '__future__'}; "
        "import onnxc.onnxruntime as ort; s = ort.InferenceSession(sys.argv[1]); "
        "s.run(None, {'x': numpy.zeros(2, numpy.float32)}); print(*sorted({*sys.modules} - before))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program, path], capture_output=True, text=True)
    assert done.stdout.split() == OPENING.split(), done.stderr


@pytest.mark.slow
def test_four_processes_compile_a_model_once(path):
    program = (
        "import sys, logging; logging.basicConfig(level='INFO'); import onnxc; "
        "onnxc.InferenceSession(sys.argv[1])"
    )
    command = [sys.executable, "-P", "-c", program, path]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    told = [process.communicate()[1] for process in started]
    assert [process.returncode for process in started] == [0] * 4, told
    assert "".join(told).count("INFO:onnxc:compiled ") == 1, told


def test_a_full_cache_leads_to_the_temporary_folder(path, tmp_path, monkeypatch):
    from onnxc import driver

    compile_model, tries = driver.compile_model, []

    def full_once(model, output, *options, **how):
        tries.append(output.parent)
        if len(tries) == 1:
            raise CompileError("cannot be written") from OSError(errno.ENOSPC, "No space left on device")
        return compile_model(model, output, *options, **how)

    monkeypatch.setattr(driver, "compile_model", full_once)
    monkeypatch.setattr(cache, "_fallback", None)
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        library = cached_library(path)
    assert library.parent == tmp_path / f"onnxc-{os.getuid()}" and run(library) == [0, 2]
    monkeypatch.setattr(driver, "compile_model", None)
    assert cached_library(path) == library  # found there again


@pytest.mark.parametrize("made", ["kernels.o", "weights.o"])
def test_a_full_temporary_folder_is_not_taken_for_the_cache(path, tmp_path, monkeypatch, made):
    """What is made there is named by the error, and the fall-back would lie in it."""
    if made == "weights.o":
        monkeypatch.setattr("onnxc.driver.tempfile.TemporaryDirectory", lambda **_: full_folder(tmp_path))
    else:
        cause = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / made))
        monkeypatch.setattr("onnxc.driver.compile_model", raising(CompileError("it is full"), cause))
    monkeypatch.setattr(cache, "_fallback", None)
    with pytest.raises(CompileError) as caught:
        cached_library(path)
    assert caught.value.__cause__.filename == str(tmp_path / made)
    assert not (tmp_path / f"onnxc-{os.getuid()}").exists()


def full_folder(folder):
    """A work folder in which there is no place for weights."""
    (folder / "weights.o").symlink_to("/dev/full")
    return contextlib.nullcontext(folder)


def raising(error, cause):
    def fail(*_, **how):
        raise error from cause

    return fail


# What is given up


@pytest.fixture
def filled(folder, tmp_path):
    """Three models' libraries, `a` used last."""
    made = {}
    for age, name in enumerate(("Relu", "Abs", "Neg")):
        onnx.save(model(node(name, "x", "y")), tmp_path / f"{name}.onnx")
        made[name] = cached_library(tmp_path / f"{name}.onnx")
        os.utime(made[name], (time.time() - 1000 * age,) * 2)
    return made


def test_what_was_not_used_for_longest_goes_first(filled, folder):
    sizes = {name: path.stat().st_size for name, path in filled.items()}
    removed = housekeeping.prune(folder, sizes["Relu"] + sizes["Abs"])
    assert [each.path for each in removed] == [filled["Neg"]]
    assert [each.path for each in housekeeping.kept(folder)] == [filled["Relu"], filled["Abs"]]
    assert len(list(folder.glob("path-*"))) == len(list(folder.glob("content-*"))) == 2


def test_what_cannot_be_removed_is_not_told_as_removed(filled, folder, monkeypatch):
    remove, kept = Path.unlink, filled["Abs"]

    def unlink(path, missing_ok=False):
        if path == kept:
            raise PermissionError(errno.EACCES, "no")
        remove(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    removed = housekeeping.prune(folder, kept.stat().st_size)
    assert [each.path for each in removed] == [filled["Neg"], filled["Relu"]]
    assert [each.path for each in housekeeping.kept(folder)] == [kept]


def test_a_folder_in_the_place_of_a_library_is_none(filled, folder):
    filled["Abs"].unlink()
    filled["Abs"].mkdir()
    assert [each.path for each in housekeeping.kept(folder)] == [filled["Relu"], filled["Neg"]]
    assert [each.path for each in housekeeping.clear(folder)] == [filled["Neg"], filled["Relu"]]


def test_a_use_is_written_down(filled, tmp_path):
    os.utime(filled["Neg"], (1, 1))
    cached_library(tmp_path / "Neg.onnx")
    assert filled["Neg"].stat().st_mtime > 1


def test_a_limit_holds_when_more_is_compiled(filled, folder, path, tmp_path, monkeypatch):
    monkeypatch.setenv("ONNXC_CACHE_LIMIT", "1K")
    onnx.save(model(node("Ceil", "x", "y")), path)
    last = cached_library(path)
    assert [each.path for each in housekeeping.kept(folder)] == [last]


def test_what_ended_processes_left_is_removed_and_what_is_new_is_not(folder):
    for name in (".a.so.1.tmp", ".a.so.lock"):
        (folder / name).write_text("")
        (folder / f"{name[:2]}new{name[2:]}").write_text("")
        os.utime(folder / name, (1, 1))
    housekeeping.prune(folder, 1 << 30)
    assert sorted(entry.name for entry in folder.glob(".*")) == [".anew.so.1.tmp", ".anew.so.lock"]


@pytest.mark.parametrize("text, size", [("500M", 500 << 20), ("1.5k", 1536), ("12", 12), ("2G", 2 << 30)])
def test_sizes_have_units(text, size):
    assert housekeeping.size_of(text) == size


# The command


@pytest.fixture
def answer(capsys):
    """What the command says of the cache."""

    def answer(*arguments: str):
        assert main(["cache", *arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return answer


def test_the_command_fills_and_empties_the_cache(path, folder, answer):
    (warm,) = answer("warm", str(path))
    assert find_library(path).path == str(folder) + "/" + warm["library"].rpartition("/")[2]
    (entry,) = answer("list")
    assert (entry["library"], entry["models"]) == (warm["library"], [str(path)])
    assert answer("prune", "--to", "1G") == []
    assert [each["library"] for each in answer("clear")] == [warm["library"]]
    assert answer("list") == [] and list(folder.glob("runtime-*"))


def test_the_command_shows_where_the_cache_is_and_that_nothing_is_there(folder, answer, capsys):
    assert answer("path")["folder"] == str(folder)
    assert main(["cache", "list"]) == 0
    assert "0 libraries" in capsys.readouterr().out


def test_options_that_are_equal_have_one_text():
    assert text_of(Options(dims={"a": 1, "b": 2})) == text_of(Options(dims={"b": 2, "a": 1}))
    assert text_of(Options()) == text_of(Options(shapes={})) == "" != text_of(Options(target="x86-64-v3"))
    fixed = [
        text_of(Options(values={"x": value})) for value in (1, 1.0, True, [1], np.ones(1), np.ones(1, int))
    ]
    assert len(set(fixed)) == 6
    free = [text_of(Options(), FreeDimensions({"a": size}, {})) for size in (1, 2)]
    assert len({"", *free}) == 3


def test_an_input_that_a_session_fixes_is_fed_no_more(path):
    session = onnxc.InferenceSession(path, values={"x": [-3, 4]})
    assert session.get_inputs() == [] and session.run(None, {})[0].tolist() == [0, 4]


def test_machines_are_told_apart_without_proc(monkeypatch):
    def machine(modalias):
        def told(path):
            if path == "/proc/cpuinfo":
                raise FileNotFoundError
            return modalias

        monkeypatch.setattr(finding, "_read", told)
        return finding._machine()

    one, another = (machine(b"cpu:type:x86:feature:,%d\n" % number) for number in (1, 2))
    assert one != another and os.uname().nodename in machine(b"nothing")
