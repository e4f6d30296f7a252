"""Convolutions of few channels a group whose windows cover much padding, against the interpreter."""

import pytest
from support import harness
from support.blocked_cases import bias, check, choices, convolution, random, relu_of_bias, symbols
from support.harness import TARGETS

from onnxc.codegen.kernels import depthwise_padded


def case(size, kernel=(3, 3), channels=19, batch=2, inside=1, groups=None, **options):
    groups = groups or channels
    shape = (batch, groups * inside, *size)
    return convolution(shape, (channels, inside, *kernel), groups=groups, **options)


@TARGETS
@pytest.mark.parametrize("dilation", [3, 6, 9, 24])
def test_far_dilated_windows(target, dilation):
    more = {"epilogue": relu_of_bias(), "extra": [bias(19)]}
    check(case((6, 9), dilations=dilation, pads=dilation, **more), depthwise_padded, target, output_halo=1)


@TARGETS
@pytest.mark.parametrize("size", [(1, 1), (2, 9), (7, 3), (9, 40)])
def test_sizes_that_only_the_run_knows(target, size):
    there = case(size, dilations=14, pads=14, symbolic=symbols("n", 19, "h", "w"))
    check(there, depthwise_padded, target, output_halo=1)
    there = case(size, strides=2, pads=9, dilations=9, batch=1, symbolic=symbols(1, 19, "h", "w"))
    check(there, depthwise_padded, target, wider=1)


@TARGETS
def test_windows_larger_than_their_image_with_strides_and_any_padding(target):
    check(case((3, 4), (7, 5), pads=(3, 2, 3, 2)), depthwise_padded, target)
    check(case((8, 7), strides=2, pads=(6, 5, 4, 7), dilations=4), depthwise_padded, target, 1)
    check(case((2, 5), pads=2, dilations=1), depthwise_padded, target)


@TARGETS
def test_sequences_that_are_shorter_than_windows(target):
    check(convolution((2, 20, 11), (20, 1, 40), 1, (20, 19), groups=20), depthwise_padded, target)
    check(case((1, 9), (3, 5), strides=2, pads=(3, 6, 3, 6), dilations=3), depthwise_padded, target)


@TARGETS
@pytest.mark.parametrize("inside, made", [(2, 2), (4, 4), (1, 2), (2, 4)])
def test_groups_of_several_channels(target, inside, made):
    there = case((5, 9), channels=16 * made, groups=16, inside=inside, dilations=4, pads=4)
    check(there, depthwise_padded, target, output_halo=1)


@TARGETS
def test_weights_of_the_run(target):
    there = case((6, 7), dilations=4, pads=4)
    there.constant = ()
    check(there, depthwise_padded, target)


@TARGETS
def test_operands_of_each_pixel(target):
    extra = [(random(2, 19, 6, 7, seed=3), False)]
    there = case((6, 7), dilations=4, pads=4, epilogue=relu_of_bias(), extra=extra)
    check(there, depthwise_padded, target)


def test_what_has_little_padding_and_columns_of_pixels_are_left_to_others():
    for there in (
        case((28, 28), pads=1),
        case((7, 7), pads=1),
        case((28, 28), dilations=2, pads=2),
        case((12, 1), (9, 1), pads=(12, 0, 12, 0), dilations=(3, 1)),
    ):
        assert not choices(there, depthwise_padded, harness.RUNNABLE[0])[1]
