"""Fast libraries in the cache: the full one is found in their place once a process of its own has made it."""

import fcntl
import io
import os
import pickle
import time
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from support.caches import with_runtime
from support.few_nodes import relu

import onnxc
import onnxc.onnxruntime as onnxruntime
from onnxc import driver
from onnxc.errors import OnnxcError
from onnxc.loading import background
from onnxc.loading.background_process import answer
from onnxc.loading.cached import cached_library, find_library
from onnxc.options import Options

FAST = Options(optimize="fast")
X = np.array([-1, 2], np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache that has the runtime alone."""
    made = with_runtime(tmp_path / "cache")
    monkeypatch.setenv("ONNXC_CACHE", str(made))
    return made


@pytest.fixture
def path(tmp_path):
    onnx.save(relu(), tmp_path / "relu.onnx")
    return tmp_path / "relu.onnx"


@pytest.fixture
def started(monkeypatch):
    """The requests of processes that would have been started."""
    requests = []
    monkeypatch.setattr(background, "_start", lambda request: requests.append(request.read()))
    return requests


def libraries(folder):
    return {each.name for each in folder.glob("*.so")}


@pytest.mark.slow
def test_a_process_that_outlives_the_session_replaces_the_fast_library(path, folder):
    first = onnxc.InferenceSession(path, optimize="fast")
    made = libraries(folder)
    assert len(made) == 1 and first.run(None, {"x": X})[0].tolist() == [0, 2]
    deadline = time.monotonic() + 300
    while libraries(folder) & made or list(folder.glob(".*")):
        assert time.monotonic() < deadline, os.listdir(folder)
        time.sleep(0.05)
    assert len(libraries(folder)) == 1
    assert find_library(path, FAST).path == find_library(path).path
    for session in (first, onnxc.InferenceSession(path, optimize="fast")):  # the old one is still in memory
        assert session.run(None, {"x": X})[0].tolist() == [0, 2]


def test_a_full_library_is_taken_where_it_is_there(path, started, monkeypatch):
    full = cached_library(path)
    monkeypatch.setattr(driver, "compile_model", None)
    assert cached_library(path, FAST) == cached_library(path.read_bytes(), FAST) == full
    assert started == []


def test_a_session_is_told_by_a_configuration_entry(path, started, folder):
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("onnxc.optimize", "fast")
    onnxruntime.InferenceSession(path, options)
    assert len(started) == 1
    options.add_session_config_entry("onnxc.optimize", "none")
    with pytest.raises(OnnxcError, match="unknown optimize 'none'; known are full, fast"):
        onnxruntime.InferenceSession(path, options)


def test_what_a_model_in_memory_needs_goes_along(path, started, folder):
    fast = cached_library(onnx.load(path), FAST)
    answer(io.BytesIO(started[0]))
    assert cached_library(path) != fast and not fast.exists() and not list(folder.glob(".*"))


def test_one_process_makes_a_full_library(path, started, monkeypatch):
    fast = cached_library(path, FAST)
    with open(background.lock_of(fast), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert cached_library(path, FAST) == fast
        monkeypatch.setattr(driver, "compile_model", None)
        answer(io.BytesIO(started[0]))
    assert len(started) == 1 and fast.exists()


def test_one_that_was_killed_is_started_again(path, started):
    assert cached_library(path, FAST) == cached_library(path, FAST)
    assert len(started) == 2


def test_one_that_failed_is_not(path, started):
    fast = cached_library(path, FAST)
    source, options, fix, _ = pickle.loads(started[0])
    wrong = options.with_(target="half")
    answer(io.BytesIO(pickle.dumps((source, wrong, fix, fast))))
    assert "unknown target 'half'" in background.lock_of(fast).read_text()
    assert cached_library(path, FAST) == fast and len(started) == 1


def test_a_process_is_started_where_no_thread_can_wait_for_it(monkeypatch, threads_left):
    threads_left(0)
    begun, request = [], io.BytesIO()

    def begin(*_, stdin, **how):
        begun.append(stdin)
        return SimpleNamespace(wait=None)

    monkeypatch.setattr(background.subprocess, "Popen", begin)
    background._start(request)
    assert begun == [request]
