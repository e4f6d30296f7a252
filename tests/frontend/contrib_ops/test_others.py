"""Distances, inverses and early forms of operators mean what ONNX Runtime makes of them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from support import contrib
from support.contrib import Case, as_model, check, check_compiled, interpreted

from onnxc.diagnostics import ModelErrors
from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import InterpretError, run_graph

rng = np.random.default_rng(9)
floats = partial(contrib.floats, rng)

#: Words of 4, 1, 6 and 4 characters, a 0 among which ends none; what others without any give ONNX Runtime
#: leaves to chance.
WORDS = np.array([[3, 1, 8, 2, 0, 0], [5, 0, 0, 0, 0, 0], [1, 2, 3, 4, 5, 6], [2, 0, 4, 0, 1, 3]], np.int32)

#: Words of which characters are not in a table of 9.
UNKNOWN = np.array(
    [[3, 1, 99, 2, 0, 0], [99, 1, 2, 0, 0, 0], [5, 9, 1, 2, 1, 99], [3, -1, 4, 2, 0, 0]], np.int32
)

ALL = [
    Case("CDist", [floats(5, 3), floats(7, 3)], {"metric": "euclidean"}, tolerance=1e-4),
    Case("CDist", [floats(5, 3).astype(np.float64), floats(1, 3).astype(np.float64)]),
    Case("Inverse", [floats(4, 4)], tolerance=1e-4),
    Case("Inverse", [floats(2, 3, 5, 5).astype(np.float64)], tolerance=1e-9),
    Case("Inverse", [floats(2, 75, 75).astype(np.float64)], tolerance=1e-9),
    Case("Inverse", [np.array([[0, 2.0], [1, 0]], np.float32)]),
    Case("ExpandDims", [floats(2, 3), np.int32(1)], stored=(1,)),
    Case("ExpandDims", [floats(2, 3), np.int32(-1)], stored=(1,)),
    Case("Trilu", [floats(2, 4, 5)]),
    Case("Trilu", [floats(4, 5), np.int64(-1)], {"upper": 0}),
    Case("Unique", [np.array([3, 1, 3, 2, 1], np.float32)], outputs=(0, 1, 2)),
    Case("Pad", [floats(2, 3), np.array([1, 0, -1, 2])]),
    Case("Pad", [floats(2, 3), np.array([[0, 2, 1, 1]]), np.float32([7.0])]),
    Case("Pad", [floats(3, 4), np.array([1, 0, 0, 2])], {"mode": "reflect"}),
    Case("Pad", [floats(3, 4), np.array([1, 0, 0, 2])], {"mode": "edge"}),
    Case("GatherND", [floats(2, 3, 4), np.array([[0, 1], [1, 2]])]),
    Case("Range", [np.float32(1), np.float32(4.2), np.float32(0.7)]),
    Case("Range", [np.int64(2), np.int64(7)]),
    Case("GridSample", [floats(1, 2, 5, 6), np.tanh(floats(1, 3, 4, 2))], {"padding_mode": "border"}),
    Case("SampleOp", [floats(2, 3)]),
    Case("UnfoldTensor", [floats(2, 7, 3)], {"dim": 1, "size": 3, "step": 2}),
    Case("UnfoldTensor", [np.arange(6)], {"size": 2}),
    Case("DynamicTimeWarping", [floats(5, 7)]),
    Case("DynamicTimeWarping", [np.round(floats(1, 6, 3))]),  # sums are often equal
    Case("DynamicTimeWarping", [floats(1, 1)]),
    Case("WordConvEmbedding", [WORDS, floats(5, 1, 3, 4), floats(5), floats(9, 4)]),
    Case("WordConvEmbedding", [UNKNOWN, floats(5, 1, 3, 4), floats(5), floats(9, 4)]),
]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_the_results_are_those_of_onnxruntime(case):
    check(case)


#: Where ONNX Runtime does as torch does, and the onnx package's reference does not.
IMAGE = floats(1, 2, 4, 6)
LIKE_TORCH = [
    Case(
        "GridSample",
        [IMAGE, np.float32(1.7) * np.tanh(floats(1, 5, 4, 2))],
        {"mode": mode, "padding_mode": "border", "align_corners": corners},
        domain="",
        opset=opset,
    )
    for mode, opset in (("bicubic", 16), ("cubic", 20))
    for corners in (0, 1)
] + [
    Case(
        "Resize",
        [IMAGE, np.float32([]), np.float32([1, 1, down, 1.7])],
        {"mode": mode, "coordinate_transformation_mode": "align_corners"},
        stored=(1, 2),
        domain="",
        opset=opset,
    )
    for mode, opset, down in (
        ("linear", 11, 1.3),
        ("cubic", 13, 1.7),
        ("linear", 18, 0.6),
        ("linear", 13, 0.3),
    )
]


@pytest.mark.parametrize("case", LIKE_TORCH, ids=str)
def test_samples_lie_where_onnxruntime_and_torch_take_them(case):
    check(case)


@pytest.mark.slow
def test_a_library_of_them_computes_what_the_interpreter_does(tmp_path):
    check_compiled(ALL, tmp_path)


@pytest.mark.parametrize(
    "attributes", [{"embedding_size": 4}, {"conv_window_size": 2}, {"char_embedding_size": 3}], ids=str
)
@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
def test_attributes_about_words_that_contradict_the_weights_are_refused(attributes, symbolic):
    inputs = [WORDS, floats(5, 1, 3, 4), floats(5), floats(9, 4)]
    with pytest.raises((ModelErrors, InterpretError), match=r"where \d is needed|dims mismatch"):
        interpreted(Case("WordConvEmbedding", inputs, attributes), symbolic)
    interpreted(Case("WordConvEmbedding", inputs, dict.fromkeys(attributes, -1)), symbolic)


def test_a_convolution_wider_than_the_words_is_refused():
    one = Case("WordConvEmbedding", [WORDS[:, :2], floats(5, 1, 3, 4), floats(5), floats(9, 4)])
    with pytest.raises(ModelErrors, match="wider than words of 2 characters"):
        interpreted(one)
    proto, feeds = as_model([one], symbolic=True)
    with pytest.raises(InterpretError, match="dims mismatch"):
        run_graph(import_model(proto).graph, list(feeds.values()))
