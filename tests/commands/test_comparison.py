"""Differences of outputs: absolute, relative, in ulps, and when they count."""

import os

import ml_dtypes
import numpy as np
import pytest
from support.bad_models import download_cache, external
from support.few_nodes import with_sparse_default

from onnxc.commands import comparison, rivals
from onnxc.commands.comparison import compare, ports_of, reference, ulp_distance
from onnxc.errors import CompileError, ExternalDataError
from onnxc.target import find_target

NAN, INF = np.nan, np.inf


def floats(*values, dtype=np.float32):
    return np.array(values, dtype)


def test_equal_arrays_do_not_differ():
    found = compare("y", floats(1, -0.0, INF, NAN), floats(1, 0.0, INF, NAN))
    assert (found.absolute, found.relative, found.ulp, found.agrees) == (0, 0, 0, True)


def test_absolute_and_relative_differences_are_the_largest():
    found = compare("y", floats(1, 100), floats(1.5, 101), rtol=1)
    assert found.absolute == 1
    assert found.relative == 0.5


def test_the_relative_difference_leaves_out_what_was_expected_to_be_zero():
    assert compare("y", floats(0, 2), floats(1, 2)).relative == 0


def test_the_tolerance_is_relative_to_the_largest_magnitude():
    expected, actual = floats(1000, 0), floats(1000, 0.5)
    assert compare("y", expected, actual, rtol=1e-3, atol=0).agrees
    assert not compare("y", expected, actual, rtol=1e-4, atol=0).agrees


def test_small_outputs_are_held_to_their_own_scale():
    assert not compare("y", floats(1e-20, 2e-20), floats(1e-20, 3e-20)).agrees


def test_what_is_rounded_at_the_scale_of_one_agrees():
    assert compare("y", floats(1e-6, 1e-8), floats(1e-6, 5e-8)).agrees


def test_a_tolerance_of_zero_asks_for_equal_values():
    assert not compare("y", floats(1), np.nextafter(floats(1), floats(2)), rtol=0, atol=0).agrees


@pytest.mark.parametrize(("expected", "actual"), [(NAN, 1), (1, NAN), (INF, 1), (1, -INF), (INF, -INF)])
def test_a_number_does_not_agree_with_nan_or_infinity(expected, actual):
    found = compare("y", floats(expected), floats(actual), rtol=1, atol=1)
    assert not found.agrees
    assert found.absolute == INF


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_neighbours_are_one_ulp_apart(dtype):
    unsigned = {2: np.uint16, 4: np.uint32, 8: np.uint64}[np.dtype(dtype).itemsize]
    for value in (1.0, -1.0):
        one = floats(value, dtype=dtype)
        assert ulp_distance(one, (one.view(unsigned) + unsigned(1)).view(dtype)) == 1


def test_ulps_count_across_zero():
    smallest = np.finfo(np.float32).smallest_subnormal
    assert ulp_distance(floats(-smallest), floats(smallest)) == 3  # both zeros lie between


def test_ulps_of_extremes_do_not_overflow():
    largest = np.finfo(np.float64).max
    assert ulp_distance(floats(-largest, dtype=np.float64), floats(largest, dtype=np.float64)) > 1 << 63


@pytest.mark.parametrize(
    ("expected", "actual", "words"),
    [
        (np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32), r"expected float32\[2, 3\]"),
        (np.zeros(2, np.float32), np.zeros(2, np.float64), "expected float32"),
        (np.array([1, 2]), np.array([1, 3]), "1 of 2 elements differ"),
        (np.array([True]), np.array([False]), "1 of 1 elements differ"),
        (np.array(["a"]), np.array(["b"], object), "1 of 1 elements differ"),
        ([np.zeros(1)], [np.zeros(1), np.zeros(1)], "expected 1 items, got 2 items"),
        ([np.zeros(1)], np.zeros(1), "got no sequence"),
        ([np.array([1])], [np.array([2])], r"y\[0\]: 1 of 1"),
        (None, np.zeros(1), "one is nothing"),
    ],
)
def test_other_values_must_be_equal(expected, actual, words):
    import re

    found = compare("y", expected, actual, rtol=1, atol=1)
    assert not found.agrees
    assert re.search(words, found.reason)


@pytest.mark.parametrize(
    "value",
    [
        np.zeros((0, 2), np.float32),
        np.array(3),
        np.array(1.5),
        np.array(["a"], object),
        [],
        None,
        np.array([1 + 2j], np.complex64),
        np.ones(2, ml_dtypes.float8_e4m3fn),
    ],
)
def test_every_kind_of_value_agrees_with_itself(value):
    assert compare("y", value, value).agrees


# The others


def test_an_input_with_a_sparse_default_need_not_be_given():
    assert [port.name for port in ports_of(with_sparse_default())] == ["x"]


def test_a_missing_package_is_told(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(CompileError, match=r"'onnxruntime' cannot be imported.*pip"):
        reference("model.onnx", "onnxruntime")


def test_a_model_that_the_other_cannot_load_is_told(tmp_path):
    with pytest.raises(CompileError, match="'onnxruntime' cannot load the model") as caught:
        reference(tmp_path / "gone.onnx", "onnxruntime")
    assert caught.value.remedy == "compare with another: --against reference"


def test_what_is_wrong_with_a_models_files_is_not_told_of_the_reference(tmp_path):
    path = external(data=bytes(4))(tmp_path)
    with pytest.raises(ExternalDataError, match=f"^{path}: tensor 'w'"):
        reference(path, "reference")


@pytest.mark.parametrize("other", ["onnxruntime", "reference"])
@pytest.mark.parametrize("written", [external(data=bytes(12)), download_cache], ids=["longer", "links"])
def test_others_read_external_data_as_the_compiler_does(written, other, tmp_path):
    (found,) = reference(written(tmp_path), other)({"x": floats(1, 2)})
    assert np.array_equal(found, floats(1, 2))


@pytest.mark.parametrize("other", ["onnxruntime", "reference"])
@pytest.mark.parametrize("exact", [True, False])
def test_others_read_models_whose_paths_are_not_utf8(other, exact, tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "find_target", lambda: find_target(*["x86-64-v4"] * exact))
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    path = external(data=bytes(8))(folder)
    (found,) = reference(path, other)({"x": floats(1, 2)})
    assert np.array_equal(found, floats(1, 2))
    inputs = {"x": floats(3, 4)}
    assert np.array_equal(rivals._onnxruntime(os.fspath(path), inputs, 1, True)()[0], floats(3, 4))


def test_both_others_give_the_same(tmp_path):
    import onnx
    from support.few_nodes import relu

    path = tmp_path / "relu.onnx"
    onnx.save(relu(), path)
    feeds = {"x": floats(-1, 2)}
    for other in ("onnxruntime", "reference"):
        assert np.array_equal(reference(path, other)(feeds)[0], floats(0, 2))


@pytest.mark.parametrize(
    ("given", "made"), [("int4", "float"), ("uint4", "uint8"), ("float", "float8e4m3fn")]
)
def test_elements_that_numpy_does_not_have_go_both_ways(given, made):
    import onnx
    from onnx.parser import parse_model

    number = onnx.TensorProto.DataType.Value(made.upper())
    text = f"<ir_version: 10, opset_import: ['' : 21]> g ({given}[3, 3] x) => ({made}[3, 3] y)"
    model = parse_model(f"{text} {{ y = Cast <to = {number}> (x) }}".replace("'", '"'))
    dtype = onnx.helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    feeds = {"x": np.arange(9).reshape(3, 3).astype(dtype)}
    results = [reference(model, other)(feeds)[0] for other in ("onnxruntime", "reference")]
    assert results[0].dtype == results[1].dtype
    assert compare("y", *results).agrees


@pytest.mark.parametrize(
    ("actual", "agrees"),
    [({"a": 0.1, "b": 0.9000001}, True), ({"a": 0.1, "b": 0.8}, False), ({"a": 0.1, "c": 0.9}, False)],
)
def test_maps_are_compared_by_their_values(actual, agrees):
    assert compare("y", [{"a": 0.1, "b": 0.9}], [actual]).agrees == agrees
    assert compare("y", {1: 2}, {1: 2}).agrees
    assert not compare("y", {1: 2}, {1: 3}).agrees
