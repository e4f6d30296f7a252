"""multiply_pixels: convolutions of single pixels, or with windows of whole images, are products."""

import numpy as np
import pytest
from support.pass_text import agrees, clean, stays

from onnxc.ir.ops import Contract, Conv, Map
from onnxc.passes.multiply_pixels import multiply_pixels

PLAIN = "strides=(2, 3) pads=(0, 0, 0, 0) dilations=(1, 1)"


def convolution(image, weights, attributes, known=True, transposed=True):
    w = f"%w = constant float32[{weights}] #w" if known else ""
    given = "" if known else f", %w: float32[{weights}]"
    return f"""graph g(%x: float32[{image}]{given}) {{
        {w}
        %y = conv(%x, %w) {attributes}{" transposed=true" if transposed else ""}
        return %y
    }}"""


def constants(weights):
    shape = tuple(int(n) for n in weights.split(","))
    return {"w": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}


@pytest.mark.parametrize(
    "image, weights, attributes",
    [
        ("3, 5, 1, 1", "5, 7, 4, 3", PLAIN),
        ("d, 5, 1, 1", "5, 1, 1, 2", PLAIN),
        ("1, 5, 1, 1", "5, 2, 1, 1", "strides=(1, 1) pads=(0, 0, 0, 0) dilations=(2, 2)"),
        ("2, 5, 1", "5, 3, 6", "strides=(4,) pads=(0, 0) dilations=(1,)"),
        ("2, 3, 1, 1, 1", "3, 2, 2, 1, 3", "strides=(1, 1, 1) pads=(0, 0, 0, 0, 0, 0) dilations=(1, 1, 1)"),
    ],
)
def test_the_taps_of_a_single_pixel_are_columns(image, weights, attributes):
    text = convolution(image, weights, attributes)
    found = agrees(clean(multiply_pixels), text, constants(weights), tolerance=1e-5, d=4)
    assert [type(n.op) for n in found.nodes if isinstance(n.op, Conv | Contract)] == [Contract]


@pytest.mark.parametrize(
    "image, weights, attributes",
    [
        ("3, 5, 4, 3", "7, 5, 4, 3", PLAIN),
        ("d, 5, 1, 1", "6, 5, 1, 1", "strides=(1, 1) pads=(0, 0, 0, 0) dilations=(2, 2)"),
        ("2, 5, 6", "3, 5, 6", "strides=(4,) pads=(0, 0) dilations=(1,)"),
        ("2, 3, 2, 1, 3", "4, 3, 2, 1, 3", "strides=(1, 1, 1) pads=(0, 0, 0, 0, 0, 0) dilations=(1, 1, 1)"),
    ],
)
def test_a_window_of_the_whole_image_is_a_row(image, weights, attributes):
    text = convolution(image, weights, attributes, transposed=False)
    found = agrees(clean(multiply_pixels), text, constants(weights), tolerance=1e-5, d=4)
    assert [type(n.op) for n in found.nodes if isinstance(n.op, Conv | Contract)] == [Contract]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "image, weights, attributes",
    [
        ("3, 5, 4, 3", "5, 1, 1, 1", "strides=(1, 1) pads=(0, 0, 0, 0) dilations=(2, 1)"),
        ("d, 5, h", "5, 1, 1", "strides=(1,) pads=(0, 0) dilations=(1,)"),
        ("2, 5, 2, 1, d", "5, 1, 1, 1, 1", "strides=(1, 1, 1) pads=(0, 0, 0, 0, 0, 0) dilations=(1, 1, 1)"),
    ],
)
def test_groups_of_a_pixel_are_scales_of_channels(image, weights, attributes, transposed):
    text = convolution(image, weights, f"{attributes} groups=5", transposed=transposed)
    found = agrees(clean(multiply_pixels), text, constants(weights), tolerance=1e-6, d=4, h=6)
    assert [type(n.op) for n in found.nodes if isinstance(n.op, Conv | Map)] == [Map]


@pytest.mark.parametrize(
    "weights, attributes",
    [
        ("10, 1, 1, 1", "strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)"),
        ("5, 1, 1, 1", "strides=(1, 2) pads=(0, 0, 0, 0) dilations=(1, 1)"),
        ("5, 1, 1, 1", "strides=(1, 1) pads=(0, 1, 0, 0) dilations=(1, 1)"),
    ],
    ids=["two results a channel", "strides", "padding"],
)
def test_other_groups_of_a_pixel_stay(weights, attributes):
    text = convolution("3, 5, 4, 3", weights, f"{attributes} groups=5", transposed=False)
    stays(multiply_pixels, text, constants(weights))


@pytest.mark.parametrize("transposed, weights", [(True, "5, 7, 4, 3"), (False, "7, 5, 1, 1")])
def test_weights_may_be_the_runs(transposed, weights):
    text = convolution("2, 5, 1, 1", weights, PLAIN, known=False, transposed=transposed)
    found = agrees(clean(multiply_pixels), text, {}, tolerance=1e-5)
    assert any(isinstance(n.op, Contract) for n in found.nodes)


@pytest.mark.parametrize(
    "image, weights, attributes",
    [
        ("2, 5, 1, 2", "5, 7, 4, 3", PLAIN),
        ("2, 5, d, 1", "5, 7, 4, 3", PLAIN),
        ("2, 5, 1, 1", "5, 7, 4, 4", "strides=(2, 2) pads=(1, 1, 1, 1) dilations=(1, 1)"),
        ("2, 5, 1, 1", "5, 7, 2, 2", "strides=(2, 2) pads=(0, 0, 0, 0) dilations=(2, 2)"),
        ("2, 4, 1, 1", "4, 7, 2, 2", "strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1) groups=2"),
        (
            "2, 5, 1, 1",
            "5, 7, 2, 2",
            "strides=(3, 3) pads=(0, 0, 0, 0) dilations=(1, 1) output_padding=(1, 1)",
        ),
    ],
)
def test_what_is_cut_off_or_spread_stays(image, weights, attributes):
    stays(multiply_pixels, convolution(image, weights, attributes), constants(weights))


@pytest.mark.parametrize(
    "image, weights, attributes",
    [
        ("2, 5, 4, 4", "7, 5, 4, 3", "strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)"),
        ("2, 5, 4, 4", "7, 5, 3, 3", "strides=(2, 2) pads=(0, 0, 0, 0) dilations=(1, 1)"),
        ("2, 5, d, 3", "7, 5, 4, 3", PLAIN),
        ("2, 5, 1, 1", "7, 5, 3, 3", "strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)"),
        ("2, 6, 4, 3", "4, 3, 4, 3", PLAIN + " groups=2"),
    ],
)
def test_windows_of_parts_of_an_image_stay(image, weights, attributes):
    stays(multiply_pixels, convolution(image, weights, attributes, transposed=False), constants(weights))
