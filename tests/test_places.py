"""Paths from a working folder that is no longer there are refused in one sentence, whoever takes them."""

import os
import subprocess
import sys

import numpy as np
import onnx.parser
import pytest

import onnxc
from onnxc import onnxruntime
from onnxc.errors import CompileError, LoadError, OnnxcError

MODEL = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Neg (x) }"""


@pytest.fixture
def removed(tmp_path, monkeypatch):
    """A model outside the working folder, which was removed."""
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    yield path
    os.chdir(tmp_path)  # which is there when monkeypatch looks


@pytest.mark.parametrize(
    "asked, failure",
    [
        (lambda model: onnxc.load("asked"), LoadError),
        (lambda model: onnxc.InferenceSession("asked"), OnnxcError),
        (lambda model: onnxc.InferenceSession("asked", threads=1, precision="bf16"), OnnxcError),
        (lambda model: onnxc.compile(model, "asked"), CompileError),
        (lambda model: onnxc.compile("asked", model.with_suffix(".so")), CompileError),
        (lambda model: onnxc.compile(model, model.with_suffix(".so"), header="asked"), CompileError),
        (lambda model: onnxc.compile(model, model.with_suffix(".so"), weights_file="asked"), CompileError),
    ],
)
def test_a_relative_path_is_named_in_a_removed_folder(removed, asked, failure):
    with pytest.raises(failure, match=r"asked: the working folder, from which this path is, was removed$"):
        asked(removed)


def test_profiles_and_optimised_models_are_refused_there_too(removed):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = "asked"
    with pytest.raises(OnnxcError, match="asked: the working folder"):
        onnxruntime.InferenceSession(removed, options)
    options.optimized_model_filepath, options.enable_profiling = "", True
    with pytest.raises(OnnxcError, match="json: the working folder"):
        onnxruntime.InferenceSession(removed, options).end_profiling()


def test_absolute_paths_are_as_good_there_as_anywhere(removed):
    library = onnxc.compile(removed, removed.with_suffix(".so"))
    for model in (onnxc.load(library), onnxc.InferenceSession(removed)):
        np.testing.assert_array_equal(model.run(None, {"x": np.ones(2, np.float32)})[0], [-1, -1])


def test_a_command_names_the_file_that_it_was_to_write_there(removed):
    command = [sys.executable, "-m", "onnxc", "compile", removed, "-o", "asked.so"]
    found = subprocess.run(command, capture_output=True, text=True)
    expected = "onnxc: error: asked.so: the working folder, from which this path is, was removed\n"
    assert (found.returncode != 0, found.stderr) == (True, expected)
