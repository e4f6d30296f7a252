"""Samples between the pixels of images, and outside of them."""

import numpy as np
import pytest
from support.interpreting import same
from support.one_node import evaluate, model, reference


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
