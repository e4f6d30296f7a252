"""Pools, and convolutions, whose windows are greater than the image."""

import pytest
from support.interpreting import close, normal, runtime
from support.one_node import evaluate, model
from support.small_models import parsed

from onnxc.errors import OnnxcError
from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import InterpretError
from onnxc.ir.ops import Pool, RuntimeCall

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


def shape(operator, size, symbolic, kernel, **attributes):
    """Of the result for images of such a size, of a pool or a convolution with such a kernel."""
    inputs = [normal(2, 3, *size), *([normal(3, 3, *kernel)] if operator == "Conv" else [])]
    if operator != "Conv":
        attributes["kernel_shape"] = kernel
    (found,) = evaluate(model(operator, 22, inputs, attributes, symbolic, constants=True), inputs[:1])
    return found.shape


@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
def test_where_a_kernel_exceeds_an_axis_by_a_stride_at_most_there_is_no_window(operator, symbolic):
    assert shape(operator, (1, 5), symbolic, [2, 2]) == (2, 3, 0, 4)
    assert shape(operator, (5, 3), symbolic, [2, 6], strides=[1, 3]) == (2, 3, 4, 0)
    dilated = {"strides": [1, 3], "dilations": [1, 3], "pads": [0, 1, 0, 0]}
    assert shape(operator, (5, 3), symbolic, [2, 3], **dilated) == (2, 3, 4, 0)
    assert shape(operator, (2,), symbolic, [3]) == (2, 3, 0)
    assert shape(operator, (3, 1, 4), symbolic, [1, 2, 2]) == (2, 3, 3, 0, 3)
    with pytest.raises((OnnxcError, InterpretError), match=r"greater than|smaller than|invalid value"):
        shape(operator, (1, 5), symbolic, [3, 2])


@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
def test_a_convolution_is_refused_wherever_its_kernel_exceeds_an_axis(symbolic):
    assert shape("Conv", (2, 5), symbolic, [2, 2]) == (2, 3, 1, 4)
    for size, kernel, attributes in (
        ((1, 5), [2, 2], {}),
        ((5, 3), [2, 6], {"strides": [1, 3]}),
        ((5, 3), [2, 3], {"strides": [1, 3], "dilations": [1, 3], "pads": [0, 1, 0, 0]}),
        ((2,), [3], {}),
        ((3, 1, 4), [1, 2, 2], {}),
        ((1, 5), [3, 2], {}),
    ):
        with pytest.raises((OnnxcError, InterpretError), match=r"smaller than the kernel|dims mismatch"):
            shape("Conv", size, symbolic, kernel, **attributes)


@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
def test_rounding_up_there_is_a_window_where_a_kernel_exceeds_an_axis_by_less_than_a_stride(symbolic):
    up = {"strides": [3, 1], "ceil_mode": 1}
    assert shape("MaxPool", (1, 5), symbolic, [3, 2], **up) == (2, 3, 1, 4)
    assert shape("MaxPool", (1, 5), symbolic, [4, 2], **up) == (2, 3, 0, 4)


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("(float[n, 1, 4, 4] x, float[k, w] r, int64[i] b) => (float y) { y = RoiAlign (x, r, b) }", 4),
        (
            "(float[n, c, h, w] x, float[k, m] r) => (float y)"
            "{ y = MaxRoiPool <pooled_shape = [1, 1]> (x, r) }",
            5,
        ),
    ],
)
def test_the_run_asks_for_the_numbers_of_each_region(text, width):
    graph = import_model(parsed(f"m {text}")).graph
    (call,) = (node for node in graph.nodes if isinstance(node.op, RuntimeCall))
    regions, *images = call.inputs[1:-1]
    assert regions.shape[1] == width
    assert [x.shape for x in images] == [regions.shape[:1]] * len(images)
