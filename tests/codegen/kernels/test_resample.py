"""Groups that interpolate, over blocked and dense images, against the interpreter."""

import numpy as np
import pytest
from support import harness
from support.blocked_cases import Case, laid_out, random, same_bits_in_any_cut, symbols
from support.blocked_cases import check as checked
from support.harness import TARGETS

from onnxc.codegen import abi
from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import resample, resample_rows
from onnxc.ir.dtypes import numpy_dtype
from onnxc.ir.expr import exp, input_, sum_of
from onnxc.ir.graph import Graph, TensorType, Value, make_node
from onnxc.ir.ops import Fused, Gather, Map


def check(case, target, **halos):
    """What both kernels make of it: pixel by pixel of blocked images, row by row of dense ones."""
    checked(case, resample, target, **halos)
    checked(case, resample_rows, target)


class Group:
    """A group being made: its operands and nodes."""

    def __init__(self, dtype="float32"):
        self.dtype = dtype
        self.parameters, self.arrays, self.constant, self.nodes, self.shapes = [], [], [], [], {}

    def operand(self, array, constant=True, shape=None):
        kind = "int64" if array.dtype == np.int64 else self.dtype
        self.parameters.append(Value(TensorType(kind, tuple(shape or array.shape))))
        if constant:
            self.constant.append(len(self.arrays))
        if shape:
            self.shapes[len(self.arrays)] = shape
        self.arrays.append(array)
        return self.parameters[-1]

    def add(self, op, *inputs):
        self.nodes.append(make_node(op, inputs))
        return self.nodes[-1].outputs[0]

    def weighed(self, x, axis, size, taps=2, known=None):
        """x with `size` elements along an axis, each the sum of `taps` weighed ones. known: how long that
        axis is, where only the run knows, as the places picked there, which may be counted from the end."""
        terms, symbolic = [], known is not None
        for tap in range(taps):
            length = known if symbolic else x.shape[axis]
            places = np.random.default_rng(tap + axis).integers(-length if symbolic else 0, length, size)
            weights = random(size, *[1] * (x.rank - 1 - axis), seed=tap).astype(numpy_dtype(self.dtype))
            picked = self.add(Gather("axis", axis), x, self.operand(places, not symbolic))
            terms += [picked, self.operand(weights, not symbolic)]
        e = [input_(k, self.dtype) for k in range(len(terms))]
        return self.add(Map(sum_of(a * b for a, b in zip(e[::2], e[1::2]))), *terms)

    def case(self, result):
        region = Graph(tuple(self.parameters), (result,), tuple(self.nodes))
        return Case(Fused("resampling", region), self.arrays, tuple(self.constant), self.shapes)


def enlarged(shape, size, taps=2, symbolic=None):
    group = Group()
    x = group.operand(random(*shape), False, symbolic)
    for axis in range(len(shape) - 1, 1, -1):
        x = group.weighed(x, axis, size[axis - 2], taps)
    return group, x


def near(shape, size):
    """Means of neighbours one behind the other, as real images have them."""
    group = Group()
    x = group.operand(random(*shape), False)
    for axis in (3, 2) if size[0] > shape[2] else (2, 3):
        first = np.arange(size[axis - 2]) * shape[axis] // size[axis - 2]
        second = np.minimum(first + 1, shape[axis] - 1)
        terms = [group.add(Gather("axis", axis), x, group.operand(places)) for places in (first, second)]
        x = group.add(Map(input_(0, "float32") * 0.25 + input_(1, "float32") * 0.75), *terms)
    return group.case(x)


@TARGETS
@pytest.mark.parametrize("shape", [(1, 16, 3, 4), (2, 5, 1, 7), (1, 35, 4, 1)], ids=str)
def test_images_of_any_size(target, shape):
    group, x = enlarged(shape, (7, 9))
    check(group.case(x), target, wider=1, output_halo=1)


@TARGETS
def test_one_spatial_axis(target):
    group, x = enlarged((2, 20, 6), (11,))
    check(group.case(x), target)


@TARGETS
def test_four_neighbours_along_each_axis(target):
    group, x = enlarged((1, 8, 5, 6), (8, 4), taps=4)
    check(group.case(x), target)


@TARGETS
@pytest.mark.parametrize("shape", [(1, 16, 3, 4), (2, 35, 1, 7)], ids=str)
def test_sizes_and_places_that_only_the_run_knows(target, shape):
    group = Group()
    x = group.operand(random(*shape), False, (*shape[:2], *symbols("h", "w")))
    for axis in (3, 2):
        x = group.weighed(x, axis, 5 + axis, known=shape[axis])
    check(group.case(x), target, wider=1, output_halo=1)


@TARGETS
def test_a_batch_of_any_size(target):
    group, x = enlarged((3, 8, 2, 3), (5, 4), symbolic=symbols("n", 8, 2, 3))
    check(group.case(x), target)


@TARGETS
def test_what_reads_several_images(target):
    """Of the sum of two enlarged ones, an image of the result's size, one number a channel, and one a row;
    exp of it is not zero where there is no channel."""
    group, x = enlarged((1, 20, 3, 4), (6, 8))
    y = group.weighed(group.operand(random(1, 20, 6, 2, seed=8), False), 3, 8)
    operands = [
        x,
        y,
        group.operand(random(1, 20, 6, 8, seed=4), False),
        group.operand(random(20, 1, 1, seed=5)),
        group.operand(random(6, 1, seed=6)),
    ]
    body = exp(sum_of(input_(k, "float32") for k in range(len(operands))))
    check(group.case(group.add(Map(body), *operands)), target, wider=1, output_halo=1)


@TARGETS
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_images_of_every_type(target, dtype):
    """An image, and one number a pixel, which lies at any address."""
    group = Group(dtype)
    x = group.weighed(group.operand(random(1, 20, 3, 5).astype(numpy_dtype(dtype)), False), 3, 8)
    pixel = group.operand(random(1, 1, 3, 8, seed=3).astype(numpy_dtype(dtype)))
    result = group.add(Map(sum_of(input_(k, dtype) for k in range(2))), x, pixel)
    check(group.case(result), target, wider=1, output_halo=1)


@TARGETS
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("known", [None, 1])
def test_images_of_one_column_in_every_type(target, dtype, known):
    """What a row reads once, and what is read where a place has been checked, stay in registers."""
    group = Group(dtype)
    x = group.operand(random(2, 20, 3, 1).astype(numpy_dtype(dtype)), False)
    check(group.case(group.weighed(x, 3, 5, known=known)), target)


@TARGETS
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_places_that_only_the_run_knows_in_narrow_types(target, dtype):
    group = Group(dtype)
    x = group.operand(random(1, 20, 3, 4).astype(numpy_dtype(dtype)), False)
    for axis in (3, 2):
        x = group.weighed(x, axis, 5, known=x.shape[axis])
    check(group.case(x), target)


@TARGETS
@pytest.mark.parametrize("dtype", ["float16", "uint8"])
def test_results_of_another_type(target, dtype):
    group, x = enlarged((1, 20, 3, 4), (6, 8))
    result = group.add(Map((input_(0, "float32") * 30).cast(dtype)), x)
    check(group.case(result), target, wider=1, output_halo=1)


@TARGETS
@pytest.mark.parametrize("shape", [(2, 3, 20, 37), (2, 3, 20, 5), (1, 2, 6, 64)], ids=str)
@pytest.mark.parametrize("size", [(9, 20), (40, 70)], ids=str)
def test_columns_that_are_near_each_other(target, shape, size):
    """They come out of a few vectors, where rows are as long as these and where they are not."""
    checked(near(shape, size), resample_rows, target)


@TARGETS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pixels_that_are_only_picked(target, dtype):
    group = Group(dtype)
    x = group.operand(random(2, 16, 9, 60).astype(numpy_dtype(dtype)), False)
    for axis, places in ((2, [0, 3, 8]), (3, np.arange(25) * 60 // 25)):
        x = group.add(Gather("axis", axis), x, group.operand(np.array(places)))
    check(group.case(x), target)


@TARGETS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_that_are_widened_and_repeated(target, dtype):
    group = Group(dtype)
    x = group.operand(random(2, 16, 3, 35).astype(numpy_dtype(dtype)), False)
    for axis, size in ((3, 70), (2, 7)):
        places = np.arange(size) * x.shape[axis] // size
        x = group.add(Gather("axis", axis), x, group.operand(places))
    check(group.case(x), target)


@TARGETS
@pytest.mark.parametrize("dtype", ["uint8", "int8", "float16"])
def test_pixels_of_dense_images_are_widened_where_they_are_read(target, dtype):
    group = Group()
    image = (random(2, 3, 9, 20) * 50).astype(numpy_dtype(dtype))
    group.parameters.append(Value(TensorType(dtype, image.shape)))
    group.arrays.append(image)
    x = group.add(Map(input_(0, dtype).cast("float32")), group.parameters[-1])
    for axis, size in ((2, 4), (3, 7)):
        x = group.weighed(x, axis, size)
    checked(group.case(x), resample_rows, target)


@pytest.mark.parametrize("axis", [2, 3])
@pytest.mark.parametrize("kernel", [resample, resample_rows], ids=["pixels", "rows"])
def test_places_outside_the_image_end_the_run(kernel, axis):
    target, group = harness.RUNNABLE[0], Group()
    x = group.operand(random(1, 16, 5, 6), False, (1, 16, *symbols("h", "w")))
    case = group.case(group.weighed(x, axis, 20, known=(5, 6)[axis - 2]))
    case.arrays[1][13] = 7
    node = case.node()
    (choice,) = choices_of(kernel, node, target)
    env = harness.bind(node, case.arrays)
    found = harness.run_choice(laid_out(node, choice), choice, case.arrays, target, env)
    assert found == (abi.ERRORS["index_out_of_range"], 7)


def test_rows_give_the_same_bits_in_any_cut():
    same_bits_in_any_cut(near((1, 3, 30, 40), (90, 100)), resample_rows, harness.RUNNABLE[-1])


def test_groups_with_too_many_neighbours_are_left_to_others():
    group, x = enlarged((1, 8, 9, 9), (5, 5), taps=14)
    assert not choices_of(resample, group.case(x).node(), harness.RUNNABLE[0])
