"""Operators on signals, in the forms that exporters write beside those of the specification."""

import math

import numpy as np
import pytest
from support.interpreting import close, normal, runtime
from support.one_node import evaluate, model

from onnxc.frontend.importer import import_model
from onnxc.ir import ops


@pytest.mark.parametrize("symbolic", [False, True])
def test_a_real_signal_needs_no_axis_for_its_parts(symbolic):
    inputs = [normal(2, 40), np.array(7), np.hanning(16).astype(np.float32)]
    (expected,) = runtime("STFT", inputs, opset=17)
    (found,) = evaluate(model("STFT", 17, inputs, {}, symbolic=symbolic), inputs)
    close(found, expected)


def transformed(x, **attributes):
    (found,) = evaluate(model("DFT", 17, [x], attributes), [x])
    return found


def parts(spectrum):
    return np.stack([spectrum.real, spectrum.imag], -1)


@pytest.mark.parametrize("size", [1, 97, 240, 512, 766], ids=str)
def test_transforms_by_factors_of_their_size_are_those_of_one_sum(size):
    x = normal(2, size, 3, 2).astype(np.float64)
    complex_, real = x[..., 0] + 1j * x[..., 1], x[..., :1]
    for found, expected in (
        (transformed(x, axis=1), parts(np.fft.fft(complex_, axis=1))),
        (transformed(x, axis=1, inverse=1), parts(np.fft.ifft(complex_, axis=1))),
        (transformed(real, axis=1), parts(np.fft.fft(real[..., 0], axis=1))),
        (transformed(real, axis=1, onesided=1), parts(np.fft.rfft(real[..., 0], axis=1))),
    ):
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() <= 1e-13 * np.abs(expected).max()


@pytest.mark.parametrize(
    "rows, size", [(1, 8), (3, 128), (40, 256), (300, 400), (2, 1000), (9, 1024)], ids=str
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_transforms_of_real_numbers_add_some_first(rows, size, dtype):
    x = normal(rows, size, 1).astype(dtype)
    bins = np.fft.fft(x[..., 0].astype(np.float64))
    for onesided, expected in ((1, parts(bins[:, : size // 2 + 1])), (0, parts(bins))):
        found = transformed(x, axis=1, onesided=onesided)
        assert found.dtype == dtype and found.shape == expected.shape
        error = {"float32": 1e-7, "float64": 1e-13}[dtype]
        assert np.abs(found - expected).max() <= error * np.abs(expected).max()


def multiplied(op, inputs, **attributes):
    """The shapes of the weights that a transform multiplies with."""
    graph = import_model(model(op, 17, inputs, attributes)).graph
    return [node.inputs[1].tensor.shape for node in graph.nodes if isinstance(node.op, ops.Contract)]


def test_of_many_frames_four_quarters_are_multiplied():
    """The frames' numbers by factors would leave the caches between products."""
    signal, window = normal(1, 160 * 1000), np.hanning(512).astype(np.float32)
    for onesided in (0, 1):
        shapes = multiplied("STFT", [signal, np.array(160), window], onesided=onesided)
        assert shapes == [(2, 2, 129, 129)]


def test_one_frame_that_is_long_is_transformed_by_factors():
    """One would read weights that are used once."""
    assert max(map(math.prod, multiplied("DFT", [normal(1, 1024, 1)], axis=1, onesided=1))) <= 64 * 1024


def test_a_large_transform_makes_no_matrix_of_its_size():
    x = normal(1, 4096, 1)
    graph = import_model(model("DFT", 17, [x], {"axis": 1})).graph
    made = [value.tensor.shape for node in graph.nodes for value in node.outputs]
    assert max(map(math.prod, made)) <= 64 * 4096


def made(inputs, **attributes):
    """How many elements the largest value has that a transform makes."""
    graph = import_model(model("DFT", 17, inputs, attributes, constants=True)).graph
    return max(math.prod(value.tensor.shape) for node in graph.nodes for value in node.outputs)


@pytest.mark.parametrize("times, size", [(1500, 2048), (4096, 2048), (3000, 4096)], ids=str)
def test_a_transform_of_another_length_makes_no_matrix_of_its_size(times, size):
    for parts in (1, 2):
        assert made([normal(1, times, parts), np.array(size)], axis=1) <= 64 * size


@pytest.mark.parametrize("size", [1024, 2048, 4096])
def test_an_inverse_of_half_of_the_bins_makes_no_matrix_of_its_size(size):
    assert made([normal(1, size // 2 + 1, 2), np.array(size)], axis=1, inverse=1, onesided=1) <= 64 * size


@pytest.mark.parametrize("size", [1511, 2042, 4093, 10007])
def test_a_transform_of_large_factors_makes_no_matrix_of_its_size(size):
    for inverse in (0, 1):
        assert made([normal(1, size, 2)], axis=1, inverse=inverse) <= 64 * size
    assert made([normal(1, size, 1)], axis=1, onesided=1) <= 64 * size
    half = [normal(1, size // 2 + 1, 2), np.array(size)]
    assert made(half, axis=1, inverse=1, onesided=1) <= 64 * size


LENGTHS = [(3, 8), (40, 64), (300, 512), (700, 512), (10, 2048), (1500, 2042), (90, 97), (1200, 1511)]


@pytest.mark.parametrize("open_times", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("times, size", LENGTHS, ids=str)
@pytest.mark.parametrize("opset", [17, 20])
def test_transforms_cut_and_extend_to_a_known_length(opset, times, size, open_times):
    x = normal(2, times, 3, 2).astype(np.float64)

    def found(x, **attributes):
        inputs = [x, np.array(size)]
        if opset == 20:
            inputs.append(np.array(1))
        else:
            attributes["axis"] = 1
        proto = model("DFT", opset, inputs, attributes, constants=True)
        if open_times:
            proto.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "times"
        return evaluate(proto, [x])[0]

    complex_, real, half = x[..., 0] + 1j * x[..., 1], x[..., :1], size // 2 + 1
    for result, expected in (
        (found(x), parts(np.fft.fft(complex_, size, 1))),
        (found(x, inverse=1), parts(np.fft.ifft(complex_, size, 1))),
        (found(real), parts(np.fft.fft(real[..., 0], size, 1))),
        (found(real, onesided=1), parts(np.fft.rfft(real[..., 0], size, 1))),
        (found(x[:, :half], inverse=1, onesided=1), np.fft.irfft(complex_, size, 1)[..., None]),
    ):
        assert result.shape == expected.shape
        assert np.abs(result - expected).max() <= 1e-13 * np.abs(expected).max()


@pytest.mark.parametrize("symbolic", [False, True])
def test_the_inverse_of_one_bin_of_a_onesided_transform_is_empty(symbolic):
    x = np.ones((1, 2), np.float32)
    (found,) = evaluate(model("DFT", 17, [x], {"axis": 0, "inverse": 1, "onesided": 1}, symbolic), [x])
    assert found.shape[0] == 0


@pytest.mark.parametrize("op", ["HannWindow", "BlackmanWindow"])
@pytest.mark.parametrize("size", [2, 8, 30])
def test_a_window_of_integers_has_its_peak(op, size):
    (found,) = evaluate(model(op, 17, [np.array(size)], {"output_datatype": 7}), [np.array(size)])
    assert found.tolist() == [int(k == size // 2) for k in range(size)]
