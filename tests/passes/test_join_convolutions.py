"""join_convolutions: the sum of two 1x1 convolutions of bfloat16s is one convolution of both images."""

import ml_dtypes
import numpy as np
import pytest
from support.pass_text import agrees, clean, stays

from onnxc.passes.join_convolutions import join_convolutions
from onnxc.target import TARGETS


@clean
def join(graph):
    return join_convolutions(graph, TARGETS["sapphirerapids"])


def text(body, result="%2", strides=1, channels=32, taps=1, dtype="bfloat16", height=3):
    plain = "pads=(0, 0, 0, 0) dilations=(1, 1)"
    y = f"{dtype}[1, 8, {height}, {height}]"
    return f"""graph g(%x: {dtype}[1, {channels}, 3, 3], %y: {y}, %b: float32[16, 1, 1]) {{
        %u = constant {dtype}[16, {channels}, 1, 1] #u
        %v = constant {dtype}[16, 8, {taps}, {taps}] #v
        %0 = conv(%x, %u) strides=(1, 1) {plain}
        %1 = conv(%y, %v) strides=({strides}, {strides}) {plain}
        %2 = map(%0, %1, %b) {{ {body} }}
        return {result}
    }}"""


def weights(channels=32, taps=1, dtype=ml_dtypes.bfloat16):
    draw = np.random.default_rng(0)
    shapes = {"u": (16, channels, 1, 1), "v": (16, 8, taps, taps)}
    return {name: draw.integers(-9, 9, shape).astype(dtype) for name, shape in shapes.items()}


def kinds(graph):
    return [type(node.op).__name__ for node in graph.nodes]


@pytest.mark.parametrize(
    "body", ["max(add(add($0, $2), $1), 0.0)", "add($0, add($1, $2))", "mul(add($0, $1), exp(add($0, $1)))"]
)
def test_their_sum_is_one_convolution(body):
    assert kinds(agrees(join, text(body), weights(), tolerance=1e-5)) == ["Concat", "Conv", "Map"]


def test_nothing_but_their_sum_is_the_convolution_itself():
    assert kinds(agrees(join, text("add($0, $1)"), weights(), tolerance=1e-5)) == ["Concat", "Conv"]


@pytest.mark.parametrize("height", [5, 6])
def test_of_an_image_with_strides_what_is_read_is_joined(height):
    found = agrees(join, text("add($0, $1)", strides=2, height=height), weights(), tolerance=1e-5)
    assert kinds(found) == ["Slice", "Concat", "Conv"]


@pytest.mark.parametrize(
    ("body", "options"),
    [
        ("add(mul($0, 2.0), $1)", {}),
        ("add(add($0, $1), exp($1))", {}),
        ("sub($0, $1)", {}),
        ("add($0, $1)", {"result": "%2, %1"}),
        ("add($0, $1)", {"channels": 24}),
        ("add($0, $1)", {"taps": 2, "height": 4}),
    ],
    ids=["a product", "read twice", "a difference", "a result", "no whole blocks", "windows"],
)
def test_other_uses_of_convolutions_stay_apart(body, options):
    sizes = {name: value for name, value in options.items() if name in ("channels", "taps")}
    stays(join, text(body, **options), weights(**sizes))


def test_convolutions_of_float32_are_not_joined():
    stays(join, text("add($0, $1)", dtype="float32"), weights(dtype=np.float32))
