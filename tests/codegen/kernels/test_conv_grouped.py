"""Convolutions of groups of channels against the interpreter."""

from dataclasses import replace

import numpy as np
import pytest
from support import harness
from support.blocked_cases import (
    WITH_DOTS,
    Case,
    bias,
    check,
    choices,
    convolution,
    integers,
    laid_out,
    relu_of_bias,
    symbols,
)
from support.harness import TARGETS

from onnxc.codegen.kernels import conv_grouped
from onnxc.codegen.tiles.grouped import grouped_panels
from onnxc.ir.graph import Graph, TensorType, Value, make_node
from onnxc.ir.ops import Fused, Reshape, Transpose


@TARGETS
@pytest.mark.parametrize(
    "channels",
    [
        (2, 2, 1, 1),
        (4, 3, 2, 5),
        (3, 17, 17, 17),
        (4, 34, 34, 34),
        (5, 16, 8, 16),
        (2, 32, 48, 32),
        (8, 4, 4, 4),
        (3, 40, 7, 40),
    ],
)
def test_groups_of_any_number_of_channels(target, channels):
    groups, inside, made, _ = channels
    case = convolution((2, groups * inside, 6, 7), (groups * made, inside, 3, 3), 1, 1, groups=groups)
    check(case, conv_grouped, target, output_halo=1)
    case = convolution(
        (1, groups * inside, 6, 7),
        (groups * made, inside, 1, 1),
        groups=groups,
        epilogue=relu_of_bias(),
        extra=[bias(groups * made)],
    )
    check(case, conv_grouped, target)


@TARGETS
def test_groups_with_strides_and_symbolic_images(target):
    check(convolution((1, 24, 9, 11), (36, 8, 3, 3), 2, (0, 1, 1, 0), groups=3), conv_grouped, target)
    case = convolution(
        (1, 24, 9, 11), (36, 8, 3, 5), (1, 2), 2, (2, 1), groups=3, symbolic=symbols("n", 24, "h", "w")
    )
    check(case, conv_grouped, target, 1, 1)
    check(convolution((2, 20, 50), (30, 10, 5), 1, 2, groups=2), conv_grouped, target)


@WITH_DOTS
@pytest.mark.parametrize(
    "channels", [(2, 1, 1), (4, 3, 2), (3, 17, 17), (5, 16, 8), (2, 32, 48), (8, 4, 4), (3, 40, 7)]
)
def test_sums_of_bytes_are_exact(target, channels):
    groups, inside, made = channels
    x, options = (2, groups * inside, 6, 7), {"groups": groups, "zero": 77}
    case = integers(x, (groups * made, inside, 3, 3), pads=1, **options)
    check(case, conv_grouped, target, output_halo=1, tolerance=0)
    x = symbols("n", groups * inside, "h", "w")
    case = integers((1, groups * inside, 6, 7), (groups * made, inside, 1, 1), symbolic=x, **options)
    check(case, conv_grouped, target, tolerance=0)


def shuffled(x_shape, made, groups, symbolic=None):
    """A Case of a 1x1 convolution in groups, of which the image's channels are shuffled before."""
    link = convolution(
        x_shape,
        (made, x_shape[1] // groups, 1, 1),
        groups=groups,
        epilogue=relu_of_bias(),
        extra=[bias(made)],
    )
    image, *others = (Value(TensorType("float32", a.shape)) for a in link.arrays)
    image = Value(TensorType("float32", symbolic or x_shape))
    n, channels, h, w = image.shape
    split = make_node(Reshape((n, groups, channels // groups, h, w)), [image])
    moved = make_node(Transpose((0, 2, 1, 3, 4)), split.outputs)
    joined = make_node(Reshape(image.shape), moved.outputs)
    conv = make_node(link.op, [*joined.outputs, *others])
    region = Graph((image, *others), conv.outputs, (split, moved, joined, conv))
    return Case(Fused("shuffled", region), link.arrays, link.constant, {0: image.shape})


@TARGETS
@pytest.mark.parametrize("channels", [(24, 36, 4), (136, 136, 4), (20, 10, 2), (96, 64, 2)])
def test_channels_are_read_in_the_order_of_a_shuffle(target, channels):
    inside, made, groups = channels
    check(shuffled((2, inside, 6, 7), made, groups), conv_grouped, target)
    symbolic = symbols("n", inside, "h", "w")
    check(shuffled((1, inside, 6, 7), made, groups, symbolic), conv_grouped, target)


def test_panels_are_cut_where_the_fewest_groups_meet():
    assert [(p.block, p.vectors, p.depth) for p in grouped_panels(272, 272, 4, 16, 4)] == [
        (0, 4, 68),
        (13, 4, 68),
        (5, 3, 68),
        (9, 3, 68),
        (4, 1, 136),
        (8, 1, 136),
        (12, 1, 136),
    ]
    assert all(p.depth == 64 for p in grouped_panels(256, 512, 4, 16, 3))


def test_lanes_of_two_groups_take_the_channels_of_both_side_by_side():
    found = grouped_panels(136, 136, 4, 16, 2, beside=True)
    assert {p.depth for p in found} == {34}
    assert [(p.block, p.low, p.high, p.border) for p in found if p.border] == [
        (2, 0, 68, 2),
        (4, 34, 102, 4),
        (6, 68, 136, 6),
    ]
    assert not any(p.border for p in grouped_panels(16, 16, 4, 16, 2, beside=True))  # four meet


@TARGETS
@pytest.mark.parametrize("channels", [(2, 24, 24), (4, 34, 20), (6, 8, 8), (3, 5, 11), (2, 1, 3)], ids=str)
@pytest.mark.parametrize("strides", [1, 2])
def test_blocks_in_which_two_groups_meet(target, channels, strides):
    groups, inside, made = channels
    x, w = (2, groups * inside, 5, 9), (groups * made, inside, 1, 1)
    options = {"epilogue": relu_of_bias(), "extra": [bias(groups * made)]}
    check(convolution(x, w, strides, groups=groups, **options), conv_grouped, target, 1, 1, every=True)
    known = convolution(x, w, strides, groups=groups)
    of_the_run = Case(known.op, known.arrays)
    check(of_the_run, conv_grouped, target)
    wide = convolution(x, w, strides, groups=groups, dtype=np.float64)
    check(wide, conv_grouped, target, tolerance=1e-12)


@pytest.mark.skipif(bool(harness.EMULATED), reason="what is fetched is seen in this process")
@pytest.mark.parametrize("strides, fetched", [((2, 2), True), ((1, 1), False)])
def test_rows_that_the_tiles_below_read_are_fetched_where_windows_move_by_several(strides, fetched):
    native = harness.RUNNABLE[0]
    case = convolution((2, 32, 21, 20), (32, 16, 3, 3), strides, 1, groups=2)
    for level2, far in ((4096, True), (1 << 30, False)):  # bytes of the second-level cache
        target = replace(native, facts=replace(native.facts, level2_bytes=level2))
        node, (choice, *_) = choices(case, conv_grouped, target)
        lines, memory = harness.fetched_lines(laid_out(node, choice), choice, case.arrays, target)
        pixel, image = 4 * choice.block, memory["input"][0].ctypes.data
        below = {
            (image + ((plane * 23 + row) * 22 + column) * pixel) // 64
            for plane in range(2 * 32 // choice.block)
            for row in range(3, 23)  # those behind the first windows'
            for column in range(21)
        }
        assert (below <= lines, not below & lines) == (far and fetched, not (far and fetched))
