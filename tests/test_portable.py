"""Models that go to other processes as bytes, and columns of tables as their inputs."""

import pickle
import subprocess
import sys

import numpy as np
import onnx
import pytest
from support.shared import shared
from support.tables import expected, scores, table

import onnxc
from onnxc.errors import LoadError, RunError
from onnxc.portable import Portable, feeds_of


@pytest.fixture(scope="module")
def folder():
    def make(work):
        for name, model in (("one", scores()), ("three", scores(one_input=False))):
            onnx.save(model, work / f"{name}.onnx")
            onnxc.compile(work / f"{name}.onnx", work / f"{name}.so")

    return shared("portable", make)


def test_a_pickled_model_is_its_library_and_runs_where_there_is_no_file(folder, tmp_path):
    columns = table(5)
    features = np.column_stack(list(columns.values())).astype(np.float32)
    (tmp_path / "model").write_bytes(pickle.dumps((Portable(folder / "one.so"), features)))
    program = (
        "import pickle, sys; model, x = pickle.load(open('model', 'rb'));"
        "print(model.open() is model.open(), model.open().run(['sum'], {'features': x})[0].tolist());"
        "assert not {'onnx', 'llvmlite'} & set(sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert ended.stdout == f"True {expected(columns)[0].tolist()}\n", ended.stderr


def test_a_library_whose_weights_are_elsewhere_does_not_go_along(folder, tmp_path):
    onnxc.compile(folder / "one.onnx", tmp_path / "m.so", weights_file=tmp_path / "m.weights")
    with pytest.raises(LoadError, match="weights are in a file of their own"):
        Portable(tmp_path / "m.so")


def test_all_columns_are_the_one_input(folder):
    columns = table(4)
    (features,) = feeds_of(onnxc.load(folder / "one.so"), columns).values()
    assert features.dtype == np.float32 and np.allclose(features, np.column_stack(list(columns.values())))


def test_a_column_of_lists_is_one_input(folder):
    rows = np.empty(2, object)
    rows[:] = [[1, 2, 3], [4, 5, 6]]
    (features,) = feeds_of(onnxc.load(folder / "one.so"), {"features": rows}).values()
    assert features.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_columns_are_named_for_inputs(folder):
    columns = {"x": np.arange(2), "y": np.arange(2) + 1, "z": np.arange(2) + 2}
    named = {"a": ["x"], "b": ["y"], "c": ["z"]}
    feeds = feeds_of(onnxc.load(folder / "three.so"), columns, named)
    assert {name: feed.tolist() for name, feed in feeds.items()} == {
        "a": [[0], [1]],
        "b": [[1], [2]],
        "c": [[2], [3]],
    }


def test_a_missing_column_is_told_with_those_that_are_there(folder):
    with pytest.raises(RunError, match="no column 'a'; there are 'x'"):
        feeds_of(onnxc.load(folder / "three.so"), {"x": np.zeros(1)})
