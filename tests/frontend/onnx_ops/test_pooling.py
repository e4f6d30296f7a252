"""Pools whose windows are greater than the image."""

import pytest
from support.interpreting import close, normal, runtime
from support.one_node import evaluate, model

from onnxc.frontend.importer import import_model
from onnxc.ir.ops import Pool

WINDOWS = {
    "the whole image": {"kernel_shape": [1280, 1280], "strides": [1280, 1280]},
    "dilated": {"kernel_shape": [9, 4], "strides": [20, 1], "dilations": [3, 2], "pads": [0, 3, 0, 3]},
    "padded": {"kernel_shape": [9, 9], "strides": [3, 2], "pads": [1, 4, 2, 3]},
    "several": {"kernel_shape": [12, 3], "strides": [4, 1], "pads": [6, 0, 6, 0]},
}


@pytest.mark.parametrize("attributes", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("counted", [{}, {"count_include_pad": 1}], ids=["image", "padding"])
def test_elements_of_a_kernel_that_meet_no_pixel_change_nothing(operator, attributes, counted):
    more = counted if operator == "AveragePool" else {}
    x, attributes = normal(1, 3, 7, 8), {"ceil_mode": 1, **attributes, **more}
    (expected,) = runtime(operator, [x], opset=22, **attributes)
    (found,) = evaluate(model(operator, 22, [x], attributes), [x])
    close(found, expected)


def test_a_pool_of_the_whole_image_has_its_size():
    attributes = {"ceil_mode": 1, **WINDOWS["the whole image"]}
    graph = import_model(model("AveragePool", 22, [normal(1, 3, 7, 8)], attributes)).graph
    (pool,) = (node.op for node in graph.nodes if isinstance(node.op, Pool))
    assert (pool.kernel, pool.pads) == ((7, 8), (0, 0, 0, 0))
