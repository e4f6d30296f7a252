"""Where the pixels of a resized image come from."""

import math
from fractions import Fraction

import numpy as np
import pytest
from support.one_node import evaluate, model

HALF = Fraction(1, 2)
ROUNDED = {
    "round_prefer_floor": lambda x: math.ceil(x - HALF),
    "round_prefer_ceil": lambda x: math.floor(x + HALF),
    "floor": math.floor,
    "ceil": math.ceil,
}


def coordinate(mode: str, i: int, length: int, size: int, scale: Fraction) -> Fraction:
    """The specification's, without rounding."""
    reach, centred = scale * length, (i + HALF) / scale - HALF
    return {
        "half_pixel": centred,
        "half_pixel_symmetric": Fraction(length, 2) * (1 - size / reach) + centred,
        "align_corners": Fraction(i * (length - 1)) / (reach - 1) if reach != 1 else Fraction(0),
        "asymmetric": i / scale,
    }[mode]


def picked(mode: str, rounding: str, length: int, size: int, scale: Fraction) -> list[int]:
    places = [ROUNDED[rounding](coordinate(mode, i, length, size, scale)) for i in range(size)]
    return [min(max(place, 0), length - 1) for place in places]


MODES = ("half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric")


@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("rounding", ROUNDED)
@pytest.mark.parametrize("mode", MODES)
def test_sizes_tell_the_nearest_pixels_exactly(mode, rounding, symbolic):
    """Also those that are met exactly, and halves: a scale that is rounded to float32 misses them."""
    attributes = {"coordinate_transformation_mode": mode, "nearest_mode": rounding}
    for length, size in ((13, 7), (13, 14), (7, 2), (7, 16), (5, 1), (6, 26)):
        x, sizes = np.arange(length, dtype=np.float32), np.array([size])
        (got,) = evaluate(model("Resize", 19, [x, None, None, sizes], attributes, symbolic), [x, sizes])
        assert got.tolist() == picked(mode, rounding, length, size, Fraction(size, length))


@pytest.mark.parametrize("opset", [13, 18])
def test_aligned_corners_of_long_axes_are_met(opset):
    attributes = {"coordinate_transformation_mode": "align_corners", "nearest_mode": "floor"}
    x, sizes = np.arange(70001, dtype=np.int32), np.array([100001])
    (got,) = evaluate(model("Resize", opset, [x, None, None, sizes], attributes), [x, sizes])
    np.testing.assert_array_equal(got, np.arange(sizes[0]) * 70000 // 100000)


@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("policy", "chosen"), [("not_larger", min), ("not_smaller", max)])
def test_a_common_scale_tells_the_nearest_pixels_exactly(policy, chosen, mode, symbolic):
    attributes = {"coordinate_transformation_mode": mode, "keep_aspect_ratio_policy": policy}
    attributes |= {"nearest_mode": "round_prefer_ceil"}
    for shape, asked in (((3, 7), (5, 4)), ((13, 5), (7, 14)), ((7, 10), (2, 3))):
        x, sizes = np.arange(math.prod(shape), dtype=np.float32).reshape(shape), np.array(asked)
        scale = chosen(map(Fraction, asked, shape))
        rows, columns = (
            picked(mode, "round_prefer_ceil", n, math.floor(n * scale + HALF), scale) for n in shape
        )
        (got,) = evaluate(model("Resize", 19, [x, None, None, sizes], attributes, symbolic), [x, sizes])
        np.testing.assert_array_equal(got, x[np.ix_(rows, columns)])


@pytest.mark.parametrize("rounding", ROUNDED)
@pytest.mark.parametrize(("length", "scale"), [(5, 1.5), (3, 1.5), (10, 1.25), (5, 2.5), (7, 0.75)])
def test_a_scale_that_makes_no_whole_length_is_symmetric_about_the_middle(length, scale, rounding):
    attributes = {"coordinate_transformation_mode": "half_pixel_symmetric", "nearest_mode": rounding}
    x, scales = np.arange(length, dtype=np.float32), np.array([scale], np.float32)
    (got,) = evaluate(model("Resize", 19, [x, None, scales], attributes), [x, scales])
    size = math.floor(length * scale)
    assert got.tolist() == picked("half_pixel_symmetric", rounding, length, size, Fraction(scale))


@pytest.mark.parametrize("opset", [13, 19])
def test_pixels_of_bytes_that_are_met_keep_their_values(opset):
    x = np.array([208, 92, 221, 164, 164, 97, 87, 97, 182, 128, 5, 4, 49], np.uint8)
    sizes, attributes = np.array([7]), {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    (got,) = evaluate(model("Resize", opset, [x, None, None, sizes], attributes), [x, sizes])
    np.testing.assert_array_equal(got, x[::2])
