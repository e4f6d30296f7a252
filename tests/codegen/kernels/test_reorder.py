"""Changes of layout against what the layouts mean."""

from dataclasses import replace

import numpy as np
import pytest
from support import harness
from support.harness import TARGETS

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import reorder
from onnxc.ir import dims, dtypes
from onnxc.ir.graph import Layout, Node, TensorType, Value
from onnxc.ir.ops import Reorder, Transpose


def check(shape, old, new, target, dtype=np.float32, symbolic=None):
    """A value of that shape in the layout `old` arrives unchanged in the layout `new`, its border
    clear."""
    count = int(np.prod(shape))
    array = (np.arange(count) % 200 + 1).astype(dtype).reshape(shape)
    name = dtypes.from_numpy(array.dtype)
    x, out = (Value(TensorType(name, tuple(symbolic or shape), layout)) for layout in (old, new))
    node = Node(Reorder(new), (x,), (out,))
    (choice,) = choices_of(reorder, node, target)
    assert (choice.inputs, choice.output) == ((old,), new)
    ((got, border_clear),) = harness.run_choice(node, choice, [array], target)
    assert np.array_equal(got, array)
    assert border_clear


def both_ways(shape, layout, target, **options):
    check(shape, None, layout, target, **options)
    check(shape, layout, None, target, **options)


@TARGETS
@pytest.mark.parametrize("channels", [1, 3, 4, 15, 16, 17, 33, 64])
@pytest.mark.parametrize("block", [4, 8, 16])
def test_any_number_of_channels(target, channels, block):
    both_ways((2, channels, 5, 7), Layout(block, (0, 0)), target)
    both_ways((2, channels, 5, 7), Layout(block, (1, 2)), target)
    both_ways((2, channels, 5, 7), Layout(block, (0, 1), pitch=17), target)


@TARGETS
@pytest.mark.parametrize("size", [(1, 1), (1, 2), (7, 1), (3, 3), (4, 16), (5, 17), (2, 47), (40, 40)])
def test_images_of_any_size(target, size):
    for halo in ((0, 0), (1, 1)):
        both_ways((1, 19, *size), Layout(16, halo), target)


@TARGETS
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float16, np.int64, np.float64, np.bool_])
def test_any_element_type(target, dtype):
    for block in (target.block, 16):
        both_ways((1, 21, 6, 9), Layout(block, (0, 1)), target, dtype=dtype)
        both_ways((1, block * 2, 6, 9), Layout(block, (0, 0)), target, dtype=dtype)


@TARGETS
@pytest.mark.parametrize("dtype, channels", [(np.uint8, 1), (np.uint8, 3), (np.int8, 4), (np.float16, 2)])
@pytest.mark.parametrize("width", [1, 2, 17, 40])
def test_few_channels_that_are_a_word_of_a_pixel(target, dtype, channels, width):
    for halo in ((0, 0), (3, 3)):
        both_ways((2, channels, 5, width), Layout(target.block, halo), target, dtype=dtype)


@TARGETS
def test_borders_that_hold_a_zero_point(target):
    full = Layout(target.block, (1, 2), 131)
    for shape in ((2, 19, 5, 6), (1, 8, 1, 30)):
        both_ways(shape, full, target, dtype=np.uint8)
        check(shape, Layout(target.block, (1, 2)), full, target, dtype=np.uint8)
        check(shape, Layout(target.block, (0, 1), 7), full, target, dtype=np.uint8)
    both_ways((1, 19, 5, 6), Layout(target.block, (1, 1), -7), target, dtype=np.int32)


@TARGETS
def test_one_and_three_spatial_axes(target):
    both_ways((2, 19, 37), Layout(8, (3,)), target)
    both_ways((2, 19, 3, 4, 5), Layout(8, (0, 0, 0)), target)
    both_ways((2, 19, 3, 4, 5), Layout(8, (0, 0, 2)), target)


@TARGETS
def test_borders_of_volumes_come_and_go(target):
    for symbolic in (None, (2, 19, dims.symbol("d"), 4, dims.symbol("w"))):
        for old, new in (((0, 0, 0), (0, 0, 2)), ((0, 0, 1), (0, 0, 0)), ((0, 0, 1), (0, 0, 2))):
            check((2, 19, 3, 4, 5), Layout(8, old), Layout(8, new), target, symbolic=symbolic)


@TARGETS
@pytest.mark.parametrize("channels", [3, 16, 21])
@pytest.mark.parametrize("halo", [(0, 0, 0), (0, 1, 2)], ids=str)
def test_planes_of_a_dense_volume_are_images_and_come_back(target, channels, halo):
    for size in ((3, 4, 5), (1, 6, 33), (2, 1, 1), (0, 3, 4)):
        for d in (size[0], dims.symbol("d")):
            dense = numbers((1, channels, *size))
            (choice, _), node = exchange(dense, (1, channels, d, *size[1:]), None, target)
            node = replace(node, outputs=(stored(node.outputs[0], replace(choice.output, halo=halo)),))
            ((got, clear),) = harness.run_choice(node, choice, [dense], target)
            assert np.array_equal(got, dense.swapaxes(0, 2)) and clear
            images = numbers((size[0], channels, 1, *size[1:]))
            layout = Layout(target.block, halo)
            (_, choice), node = exchange(images, (d, channels, 1, *size[1:]), layout, target)
            ((got, _),) = harness.run_choice(node, choice, [images], target)
            assert np.array_equal(got, images.swapaxes(0, 2))


def exchange(array, shape, layout, target):
    """The ways of exchanging batch and planes, from a dense volume and from images, and the node."""
    x = Value(TensorType("float32", shape, layout))
    out = Value(TensorType("float32", (shape[2], shape[1], shape[0], *shape[3:])))
    node = Node(Transpose((2, 1, 0, 3, 4)), (x,), (out,))
    ways = {choice.inputs[0] is None: choice for choice in choices_of(reorder, node, target)}
    return (ways.get(True), ways.get(False)), node


def stored(value, layout):
    return Value(replace(value.type, layout=layout))


def numbers(shape):
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)


@TARGETS
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (6, 21)])
def test_images_whose_size_only_the_run_knows(target, size):
    symbolic = dims.symbol("n"), 19, dims.symbol("h"), dims.symbol("w")
    for halo in ((0, 0), (1, 1)):
        both_ways((2, 19, *size), Layout(16, halo), target, symbolic=symbolic)


@TARGETS
def test_one_halo_to_another(target):
    for shape in ((2, 19, 5, 6), (1, 16, 30, 1), (1, 8, 1, 300)):
        check(shape, Layout(8, (0, 0)), Layout(8, (1, 2)), target)
        check(shape, Layout(8, (2, 1)), Layout(8, (0, 0)), target)
        check(shape, Layout(8, (2, 1)), Layout(8, (1, 1)), target)
    check((2, 19, 40), Layout(8, (0,)), Layout(8, (2,)), target)


@TARGETS
def test_images_into_and_out_of_wider_ones(target):
    alone, inside = Layout(8, (0, 1)), Layout(8, (1, 1), pitch=4)
    for old, new in ((alone, inside), (inside, alone), (inside, replace(inside, pitch=7))):
        check((3, 19, 5, 6), old, new, target)
        check((3, 19, 5, 6), old, new, target, symbolic=(dims.symbol("n"), 19, 5, 6))
    check((3, 19, 5, 6), Layout(16, (0, 1), pitch=3), inside, target)


@TARGETS
def test_one_block_to_another(target):
    check((2, 19, 5, 6), Layout(8, (0, 1)), Layout(16, (1, 1)), target)


@TARGETS
def test_values_without_elements_are_reordered(target):
    both_ways((0, 19, 5, 6), Layout(16, (0, 0)), target)
    both_ways((1, 19, 0, 6), Layout(16, (0, 0)), target)
