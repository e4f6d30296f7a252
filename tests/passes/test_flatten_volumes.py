"""flatten_volumes: windows over four axes and more become windows over three."""

import pytest
from support.pass_text import agrees, clean, ops, stays

from onnxc.ir.graph import walk
from onnxc.ir.ops import Conv, Loop, Pool
from onnxc.ir.text_parser import parse
from onnxc.passes import flatten_volumes as flattening
from onnxc.passes.flatten_windows import flattened
from onnxc.passes.pipeline import optimise
from onnxc.target import TARGETS

TARGET = TARGETS["x86-64-v4"]


def flatten_volumes(graph):
    return flattening.flatten_volumes(graph, TARGET)


def convolution(image, weights, attributes="", types=("float32", "float32")):
    axes = weights.count(",") - 1
    given = dict(
        strides=(1,) * axes,
        pads=(0,) * 2 * axes,
        dilations=(1,) * axes,
        transposed="false",
        accumulate=types[0],
    )
    words = [f"{name}={value}" for name, value in given.items() if f"{name}=" not in attributes]
    return f"""graph g(%x: {types[0]}[{image}], %w: {types[1]}[{weights}]) {{
        %y = conv(%x, %w) {" ".join(words)} {attributes}
        return %y
    }}"""


CONVOLUTIONS = {  # (image, weights): attributes
    ("1, 4, 4, 5, 3, 4", "6, 4, 3, 3, 2, 3"): "pads=(1, 1, 0, 1, 1, 0, 1, 1)",
    ("2, 4, 4, 5, 3, 4", "6, 4, 2, 2, 2, 2"): "strides=(2, 1, 2, 1) pads=(1, 0, 1, 0, 0, 1, 1, 0)",
    ("1, 4, 5, 5, 3, 4", "6, 4, 2, 2, 2, 2"): "dilations=(2, 3, 1, 2)",
    ("n, 4, d, 4, 3, h", "6, 4, 2, 3, 1, 2"): "pads=(1, 1, 0, 1, 0, 1, 0, 1)",
    ("1, 6, 3, 4, 3, 3", "4, 3, 2, 2, 2, 2"): "groups=2",
    ("2, 4, 3, 4, 3, 3", "4, 1, 2, 2, 2, 2"): "groups=4",
    ("2, 3, 3, 2, 3, 3, 4", "4, 3, 2, 1, 2, 3, 2"): "pads=(1, 0, 0, 1, 0, 0, 0, 1, 0, 1)",
    ("1, 4, 3, 2, 3, 4", "4, 3, 2, 1, 3, 2"): "groups=2 strides=(2, 1, 1, 2) transposed=true",
    ("2, 4, 3, 2, 3, 4", "4, 3, 2, 3, 3, 4"): (
        "strides=(2, 1, 2, 3) pads=(1, 1, 0, 1, 0, 1, 1, 1) output_padding=(1, 0, 0, 1) transposed=true"
    ),
}


@pytest.mark.parametrize("shapes", CONVOLUTIONS, ids=str)
def test_convolutions_are_over_three_axes(shapes):
    text = convolution(*shapes, CONVOLUTIONS[shapes])
    found = agrees(clean(flatten_volumes), text, tolerance=1e-4, n=2, d=3, h=4)
    assert [len(n.op.strides) for n in found.nodes if isinstance(n.op, Conv)] == [3]


def test_padding_of_integers_is_their_zero_point():
    text = convolution(
        "1, 3, 3, 2, 3, 3",
        "2, 3, 2, 2, 2, 2",
        "pads=(1, 0, 1, 1, 0, 1, 0, 1) accumulate=int32 zero=2",
        ("uint8", "int8"),
    )
    found = agrees(clean(flatten_volumes), text)
    assert [n.op.zero for n in found.nodes if isinstance(n.op, Conv)] == [2]


@pytest.mark.parametrize(
    "image, weights",
    [("2, 4, 3, 1, 4, 3", "6, 4, 2, 1, 2, 2"), ("2, 4, 3, 4, 3, 1", "6, 4, 1, 1, 2, 1")],
    ids=["a single place", "two that see one place each"],
)
def test_nothing_moves_along_axes_that_need_no_window(image, weights):
    found = agrees(clean(flatten_volumes), convolution(image, weights), tolerance=1e-5)
    assert ops(found) == ["Reshape", "Reshape", "Conv", "Reshape"]


POOLS = {  # window: (sizes, kernels left)
    "kernel=(3, 2, 3, 3) strides=(1, 1, 2, 1) pads=(1, 0, 1, 0, 1, 0, 1, 1)": ("5, h - 1, 3, 4", [2, 3]),
    "kernel=(1, 3, 3, 3) strides=(1, 1, 1, 1) pads=(0, 1, 1, 1, 0, 1, 1, 1)": ("5, h, 5, 5", [3]),
    "kernel=(3, 3, 2, 3) strides=(2, 1, 1, 1) pads=(0, 1, 0, 0, 0, 1, 0, 0)": ("2, h, 4, 3", [2, 3]),
}


def pool(window, sizes, kind="max"):
    return f"""graph g(%x: float32[2, 3, 5, h, 5, 5]) {{
        %y = pool(%x) kind={kind} {window} dilations=(1, 1, 1, 1) sizes=({sizes})
        return %y
    }}"""


@pytest.mark.parametrize("kind", ["max", "sum", "mean"])
@pytest.mark.parametrize("window", POOLS, ids=str)
def test_pools_are_over_three_axes(window, kind):
    sizes, left = POOLS[window]
    found = agrees(clean(flatten_volumes), pool(window, sizes, kind), tolerance=1e-5, h=5)
    assert sorted(len(n.op.kernel) for n in found.nodes if isinstance(n.op, Pool)) == left


@pytest.mark.parametrize(
    "window, sizes, kind",
    [
        ("kernel=(2, 2, 2, 2) strides=(1, 1, 1, 1) pads=(0, 0, 0, 0, 0, 0, 0, 0)", "4, h - 1, 4, 4", "max"),
        ("kernel=(3, 3, 3, 3) strides=(3, 3, 3, 3) pads=(0, 0, 0, 0, 0, 0, 0, 0)", "1, h // 3, 1, 1", "sum"),
        (
            "kernel=(3, 3, 3, 3) strides=(1, 1, 1, 1) pads=(0, 0, 0, 0, 0, 0, 0, 0)",
            "3, h - 2, 3, 3",
            "argmax",
        ),
    ],
    ids=["few rows", "windows apart", "places"],
)
def test_pools_that_gain_nothing_stay(window, sizes, kind):
    stays(flatten_volumes, pool(window, sizes, kind))


@pytest.mark.parametrize("axes", [3, 4, 5])
def test_the_convolution_that_one_becomes_is_told_before(axes):
    text = convolution("2, 4" + ", 5" * axes, "6, 4" + ", 2" * axes)
    (node,) = parse(text).nodes
    assert len(flattened(node.op, *node.inputs, TARGET).strides) == 2


def test_constant_weights_are_constant_in_the_loop_over_volumes():
    text = f"""graph g(%x: uint8[1, 16, 8, 8, 8, 8]) {{
        %w = constant int8[16, 16, 3, 3, 3, 3] splat 3
        %y = conv(%x, %w) strides=(1, 1, 1, 1) pads={(1,) * 8} dilations=(1, 1, 1, 1) accumulate=int32
        return %y
    }}"""
    nodes = list(walk(optimise(parse(text), TARGET)))
    assert any(isinstance(n.op, Loop) for n in nodes)
    (window,) = (n for n in nodes if isinstance(n.op, Conv))
    assert len(window.op.strides) == 2 and window.inputs[1].constant is not None
