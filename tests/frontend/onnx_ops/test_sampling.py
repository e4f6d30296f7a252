"""Samples between the pixels of images, and outside of them."""

import numpy as np
import pytest
from support.interpreting import same
from support.one_node import evaluate, model, reference

from onnxc.diagnostics import ModelErrors
from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import InterpretError
from onnxc.ir.ops import OverlapAdd


def unfinished(dtype: str = "float32") -> np.ndarray:
    """An image of ones whose first pixel is infinite and whose last is NaN."""
    image = np.ones((1, 1, 4, 4), dtype)
    image[0, 0, 0, 0], image[0, 0, 3, 3] = np.inf, np.nan
    return image


PLACES = np.array(
    [[-9, -9], [9, 9], [-9, 9], [0.1, 0.1], [-1.2, 0.2], [-0.75, -1.2], [np.nan, 0]], np.float32
)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("align", [0, 1])
def test_outside_an_image_are_zeros_also_beside_infinite_pixels(mode, align):
    inputs = [unfinished(), PLACES[None, None, :-1]]
    proto = model("GridSample", 22, inputs, {"mode": mode, "align_corners": align})
    (found,), (expected,) = evaluate(proto, inputs), reference(proto, inputs)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_no_place_is_outside():
    inputs = [unfinished(), PLACES[None, None, -1:]]
    (found,) = evaluate(model("GridSample", 22, inputs, {}), inputs)
    assert (found == 0).all()


def test_a_pixel_without_weight_still_counts():
    image = np.float32([[[[1, np.inf, 1]]]])
    inputs = [image, np.zeros((1, 1, 1, 2), np.float32) - [1, 0]]
    (found,) = evaluate(model("GridSample", 22, inputs, {"align_corners": 1}), inputs)
    assert np.isnan(found).all()


@pytest.mark.parametrize("opset", [19, 22])
def test_taps_outside_a_deformed_image_are_zeros(opset):
    inputs = [unfinished("float64"), np.ones((1, 1, 1, 1)), np.full((1, 2, 4, 4), -9.0)]
    (found,) = evaluate(model("DeformConv", opset, inputs, {"kernel_shape": [1, 1]}), inputs)
    same(found, np.zeros((1, 1, 4, 4)))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (0, 0)])
def test_an_image_without_pixels_is_zero_everywhere(mode, symbolic, sizes):
    inputs = [
        np.zeros((1, 2, *sizes), np.float32),
        np.linspace(-1, 1, 12, dtype=np.float32).reshape(1, 2, 3, 2),
    ]
    (found,) = evaluate(model("GridSample", 22, inputs, {"mode": mode}, symbolic), inputs)
    same(found, np.zeros((1, 2, 2, 3), np.float32))


@pytest.mark.parametrize("padding", ["border", "reflection"])
def test_an_image_without_pixels_has_no_border(padding):
    inputs = [np.zeros((1, 2, 0, 3), np.float32), np.zeros((1, 2, 3, 2), np.float32)]
    with pytest.raises(ModelErrors, match=r"the image float32\[1, 2, 0, 3\] has no pixels to sample"):
        evaluate(model("GridSample", 22, inputs, {"padding_mode": padding}), inputs)
    with pytest.raises(InterpretError, match="wrong shape"):
        evaluate(model("GridSample", 22, inputs, {"padding_mode": padding}, symbolic=True), inputs)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
def test_no_samples_need_no_pixels(padding, symbolic):
    inputs = [np.zeros((1, 2, 0, 3), np.float32), np.zeros((1, 0, 3, 2), np.float32)]
    (found,) = evaluate(model("GridSample", 22, inputs, {"padding_mode": padding}, symbolic), inputs)
    assert found.shape == (1, 2, 0, 3)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
def test_images_of_few_and_of_many_channels_are_sampled_alike(mode, padding, symbolic):
    """Few are read plane by plane, many as rows."""
    rng = np.random.default_rng(0)
    many = rng.standard_normal((2, 9, 5, 7)).astype(np.float32)
    grid = rng.uniform(-1.5, 1.5, (2, 4, 6, 2)).astype(np.float32)
    attributes = {"mode": mode, "padding_mode": padding}
    found = []
    for image in (many, many[:, :3]):
        proto = model("GridSample", 22, [image, grid], attributes, symbolic)
        found.append(evaluate(proto, [image, grid])[0])
        if (mode, padding) != ("cubic", "border"):  # of which the reference reads other neighbours
            np.testing.assert_allclose(found[-1], reference(proto, [image, grid])[0], atol=1e-5)
    same(found[1], found[0][:, :3])


@pytest.mark.parametrize("groups", [1, 3])
def test_deformed_images_of_few_and_of_many_channels_give_the_same(groups):
    rng = np.random.default_rng(1)
    image, weights = rng.standard_normal((2, 9, 6, 5)), rng.standard_normal((4, 9, 3, 3))
    offset, mask = rng.standard_normal((2, 18 * groups, 4, 3)), rng.random((2, 9 * groups, 4, 3))
    inputs = [image, weights, offset, np.zeros(4), mask]
    proto = model("DeformConv", 22, inputs, {"kernel_shape": [3, 3], "offset_group": groups})
    np.testing.assert_allclose(evaluate(proto, inputs)[0], reference(proto, inputs)[0], atol=1e-5)


SIDE_BY_SIDE = [  # the image, a block, pads
    ((6, 8), (3, 2), (0, 0, 0, 0)),
    ((7, 9), (3, 2), (0, 0, 0, 0)),  # what no block reaches is zero
    ((5, 9), (3, 2), (1, 2, 0, 1)),
    ((2, 3), (3, 2), (5, 0, 2, 2)),
    ((9,), (4,), (1, 2)),
    ((3, 2, 4), (1, 2, 2), (0, 0, 0, 0, 0, 0)),
]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("image, block, pads", SIDE_BY_SIDE)
def test_columns_of_blocks_side_by_side_move_and_are_not_added(image, block, pads, symbolic):
    rank = len(image)
    counts = [(d + p + q - k) // k + 1 for d, k, p, q in zip(image, block, pads, pads[rank:])]
    shape = (2, 3 * int(np.prod(block)), int(np.prod(counts)))
    x = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    inputs = [x, np.array(image), np.array(block)]
    proto = model("Col2Im", 18, inputs, {"strides": block, "pads": pads}, constants=True)
    if symbolic:
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    assert not any(isinstance(node.op, OverlapAdd) for node in import_model(proto).graph.nodes)
    padded = [d + p + q for d, p, q in zip(image, pads, pads[rank:])]
    expected = np.zeros((2, 3, *padded), np.float32)
    blocks = x.reshape(2, 3, *block, *counts)
    for at in np.ndindex(*block):
        places = tuple(slice(a, n * k, k) for a, n, k in zip(at, counts, block))
        expected[(..., *places)] = blocks[(slice(None), slice(None), *at)]
    inside = tuple(slice(p, p + d) for p, d in zip(pads, image))
    np.testing.assert_array_equal(evaluate(proto, inputs[:1])[0], expected[(..., *inside)])
