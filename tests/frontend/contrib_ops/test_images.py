"""Crops and windows whose place the run tells mean what ONNX Runtime makes of them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from support import contrib
from support.contrib import Case, as_model, check, check_compiled

from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import InterpretError, run_graph

rng = np.random.default_rng(12)
floats = partial(contrib.floats, rng)


def mask(*shape: int) -> np.ndarray:
    return (rng.random(shape) < 0.7).astype(np.int32)


ROIS = np.array([[0, 0, 1, 1], [0.2, -0.3, 0.7, 1.2], [0.9, 0.8, 0.1, 0.3]], np.float32)
WHICH = np.array([0, 1, 0], np.int32)


def crop(size: tuple[int, int], **attributes: object) -> Case:
    return Case("CropAndResize", [floats(2, 3, 7, 5), ROIS, WHICH, np.array(size, np.int32)], attributes)


PADS = {"kernel_shape": [3, 3], "pads": [1, 0, 1, 2], "strides": [2, 1]}

ALL = [
    crop((4, 6)),
    crop((1, 3), extrapolation_value=2.5),
    crop((5, 1), mode="nearest", extrapolation_value=-1.0),
    Case("MaxpoolWithMask", [floats(2, 3, 8), mask(2, 3, 8)], {"kernel_shape": [3], "strides": [2]}),
    Case("MaxpoolWithMask", [floats(2, 3, 6, 7), mask(1, 1, 6, 7)], PADS),
    Case("MaxpoolWithMask", [floats(1, 2, 6, 7), mask(1, 2, 6, 7)], PADS),
    Case("MaxpoolWithMask", [floats(1, 2, 4, 5, 6), mask(1, 1, 4, 5, 6)], {"kernel_shape": [2, 3, 2]}),
    Case("ConvTransposeWithDynamicPads", [floats(1, 3, 5, 4), floats(3, 2, 3, 3), np.array([1, 0, 2, 1])]),
    Case(
        "ConvTransposeWithDynamicPads",
        [floats(1, 4, 5), floats(4, 2, 3), np.array([1, 1]), floats(4)],
        {"group": 2, "strides": [2], "output_padding": [1]},
    ),
]


@pytest.mark.parametrize("case", ALL, ids=str)
@pytest.mark.parametrize("symbolic", [False, True], ids=["sized", "open"])
def test_the_results_are_those_of_onnxruntime(case, symbolic):
    check(case, symbolic)


@pytest.mark.slow
def test_a_library_of_them_computes_what_the_interpreter_does(tmp_path):
    check_compiled(ALL, tmp_path)


def test_boxes_of_other_than_four_numbers_fail_the_run():
    proto, feeds = as_model([crop((4, 6))], symbolic=True)
    graph = import_model(proto).graph
    x, _, *others = feeds.values()
    for width in (3, 5, 44):
        with pytest.raises(InterpretError, match="dims mismatch"):
            run_graph(graph, [x, np.zeros((3, width), np.float32), *others])
