"""Models that go to other processes as bytes, and columns of tables as their inputs."""

import pickle
import subprocess
import sys
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from support.shared import shared
from support.tables import expected, scores, table

import onnxc
from onnxc.errors import LoadError, RunError
from onnxc.loading.c_values import Port
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


def test_columns_without_a_name_of_text_are_told_too(folder):
    with pytest.raises(RunError, match="no column 'a'; there are '0', '1'"):
        feeds_of(onnxc.load(folder / "three.so"), {0: np.zeros(1), 1: np.zeros(1)})


def test_where_there_is_no_column_the_input_is_missing(folder):
    with pytest.raises(RunError, match="no column 'features'; there are none"):
        feeds_of(onnxc.load(folder / "one.so"), {})


def test_columns_of_an_input_have_one_length(folder):
    columns = {"a": np.zeros(2), "b": np.zeros(3), "c": np.zeros(2)}
    with pytest.raises(RunError, match=r"input 'features': .*must match"):
        feeds_of(onnxc.load(folder / "one.so"), columns)


def read(column, dtype, shape=("n",), inputs=None):
    """What a model whose only input is `x` is given of a column of that name."""
    model = SimpleNamespace(inputs=(Port("x", shape, dtype),))
    return feeds_of(model, {"x": column}, inputs)["x"]


def objects(*values):
    column = np.empty(len(values), object)
    column[:] = values
    return column


@pytest.mark.parametrize("inputs", [None, {"x": ["x"]}])
@pytest.mark.parametrize("shape", [("n",), ("n", 1), ("n", "k")])
def test_one_column_has_as_many_axes_as_its_input(shape, inputs):
    found = read(np.arange(3.0), "float32", shape, inputs)
    assert found.tolist() == ([0, 1, 2] if len(shape) == 1 else [[0], [1], [2]])


def test_a_column_of_no_rows_has_the_axes_of_its_input():
    assert read(objects(), "float32", ("n", 2, "k")).shape == (0, 2, 1)


@pytest.mark.parametrize(
    "column, dtype, expected",
    [
        ([1.0, -2.0], "int8", [1, -2]),
        ([True, False], "int64", [1, 0]),
        ([0.0, 1.0], "bool", [False, True]),
        (np.array([2**63], np.uint64), "uint64", [2**63]),
        ([1, -8], "int4", [1, -8]),
        (objects(1, Decimal(2)), "int64", [1, 2]),
        (objects(1, Decimal("1.5"), None), "float32", [1, 1.5, np.nan]),
        ([2**24 + 1], "float32", [2**24]),
        ([np.inf, np.nan, 0.5], "float16", [np.inf, np.nan, 0.5]),
        (objects("a", "b"), "string", ["a", "b"]),
    ],
)
def test_a_column_whose_numbers_stay_what_they_are_takes_the_type_of_its_input(column, dtype, expected):
    np.testing.assert_array_equal(read(column, dtype).tolist(), expected)


@pytest.mark.parametrize(
    "column, dtype, told",
    [
        ([1, 300], "int8", "300 in row 1 is no number of int8"),
        ([1.0, 2.5], "int64", "2.5 in row 1 is no number of int64"),
        ([1.0, np.nan], "int64", "nan in row 1 is no number of int64"),
        ([2.0**63], "int64", r"9.22\S* in row 0 is no number of int64"),
        ([-1], "uint64", "-1 in row 0 is no number of uint64"),
        (np.array([1, 2**63], np.uint64), "int64", "9223372036854775808 in row 1 is no number of int64"),
        ([0, 2], "bool", "2 in row 1 is no number of bool"),
        (objects(1, None), "int64", "None in row 1 is no number of int64"),
        (objects(Decimal("1.5")), "int64", "1.5 in row 0 is no number of int64"),
        (["7", "8"], "int64", "'7' in row 0 is no number of int64"),
        (objects(7, "x"), "float32", "'x' in row 1 is no number of float32"),
        (np.array(["2020-01-01"], "datetime64[D]"), "int64", "2020-01-01 in row 0 is no number of int64"),
        ([1.0, 1e300], "float32", r"1e\+300 in row 1 is no number of float32"),
        (objects(10**400), "float32", "too large"),
        ([1.0, 7.0], "float4e2m1", "7.0 in row 1 is no number of float4e2m1"),
        ([np.inf], "float8e4m3fn", "inf in row 0 is no number of float8e4m3fn"),
        ([1j], "float32", "1j in row 0 is no number of float32"),
        (objects([1, 2], [3]), "float32", r"row 1 has the shape \[1\], those before \[2\]"),
        (objects(None, [1, 2]), "float32", r"row 1 has the shape \[2\], those before \[\]"),
        ([[1, 2], [3]], "float32", "inhomogeneous"),
        (7, "float32", "expected an element for each row, got a int"),
    ],
)
def test_a_column_that_would_become_another_number_is_refused_with_its_row(column, dtype, told):
    with pytest.raises(RunError, match=f"^column 'x': .*{told}"):
        read(column, dtype)
