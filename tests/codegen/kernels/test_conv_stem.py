"""Stems, which read dense images of few channels, against the interpreter; those of bytes are exact."""

import numpy as np
import pytest
from support.blocked_cases import DOTS, bias, check, choices, convolution, integers, relu_of_bias, symbols
from support.harness import TARGETS

from onnxc.codegen.kernels import conv, conv_stem
from onnxc.ir.expr import input_


def _adds_neighbours(target):
    """Whether it has an instruction that adds up several products of bytes with and without sign."""
    dot = target.integer_dot("uint8", "int8", "int32")
    return dot is not None and dot.group > 1


WITH_DOTS = pytest.mark.parametrize("target", [*filter(_adds_neighbours, DOTS)], ids=str)


@TARGETS
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7])
def test_stems_read_dense_images(target, channels):
    case = convolution(
        (2, channels, 23, 21), (20, channels, 3, 3), 2, 1, epilogue=relu_of_bias(), extra=[bias(20)]
    )
    check(case, conv_stem, target, output_halo=1)


@TARGETS
@pytest.mark.parametrize("pads", [0, 3, (0, 1, 2, 3), (-1, 0, 0, -2), 8])
def test_stems_pad_what_they_copy(target, pads):
    check(convolution((1, 3, 19, 17), (33, 3, 7, 7), 2, pads), conv_stem, target)


@TARGETS
def test_stems_with_dilation_and_one_axis(target):
    check(convolution((1, 3, 19, 17), (8, 3, 3, 3), 1, 2, 2), conv_stem, target, output_halo=2)
    check(convolution((2, 1, 400), (20, 1, 25), 5, 12), conv_stem, target, output_halo=1)
    check(convolution((1, 2, 9000), (8, 2, 3), 1, 1), conv_stem, target)


@TARGETS
@pytest.mark.parametrize("output_halo", [0, 1])
def test_columns_of_pixels_are_rows(target, output_halo):
    case = convolution(
        (2, 1, 90, 1), (20, 1, 72, 1), (4, 1), (30, 0, 30, 0), epilogue=relu_of_bias(), extra=[bias(20)]
    )
    check(case, conv_stem, target, output_halo=output_halo)
    case = convolution((2, 2, 90, 1), (20, 2, 9, 1), 1, (4, 0, 4, 0), symbolic=symbols("n", 2, "h", 1))
    check(case, conv_stem, target)


@TARGETS
def test_windows_of_many_rows(target):
    check(convolution((1, 1, 90, 9), (20, 1, 72, 3), (2, 1), 1), conv_stem, target)


@TARGETS
@pytest.mark.parametrize("size", [(1, 1), (6, 7), (17, 40), (8, 61)])
def test_stems_of_images_whose_size_only_the_run_knows(target, size):
    case = convolution((2, 3, *size), (20, 3, 3, 3), 2, 1, symbolic=symbols("n", 3, "h", "w"))
    check(case, conv_stem, target, output_halo=1)


@TARGETS
def test_stems_in_many_parts(target):
    check(convolution((1, 3, 130, 128), (20, 3, 3, 3), 1, 1), conv_stem, target, output_halo=1)


def exact(case, target, **options):
    check(case, conv_stem, target, tolerance=0, **options)


@WITH_DOTS
@pytest.mark.parametrize("channels", [1, 2, 3, 5])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (2, 5), (7, 7), (3, 8)])
def test_stems_of_bytes_add_up_neighbours_of_a_row(target, channels, kernel):
    exact(integers((2, channels, 17, 15), (24, channels, *kernel), 2, 1, 7), target)


@WITH_DOTS
@pytest.mark.parametrize("pads", [0, 3, (0, 1, 2, 3), (-1, 0, 0, -2), 8])
@pytest.mark.parametrize("zero", [0, 1, 128, 255])
def test_stems_of_bytes_pad_with_the_zero_point(target, pads, zero):
    exact(integers((1, 3, 19, 17), (33, 3, 5, 5), 1, pads, zero), target)


@WITH_DOTS
def test_stems_of_bytes_do_not_saturate(target):
    exact(integers((1, 3, 40, 40), (16, 3, 7, 7), 2, 3, 255, full=True), target)


@WITH_DOTS
def test_stems_of_bytes_over_one_axis(target):
    exact(integers((2, 1, 400), (20, 1, 25), 5, 12, 77), target, output_halo=1)
    exact(integers((1, 2, 9000), (8, 2, 3), 1, 1, 77), target)


@WITH_DOTS
@pytest.mark.parametrize("size", [(1, 1), (6, 7), (17, 40), (8, 61)])
def test_symbolic_stems_of_bytes(target, size):
    exact(integers((2, 3, *size), (20, 3, 3, 3), 2, 1, 9, symbolic=symbols("n", 3, "h", "w")), target)


@WITH_DOTS
def test_stems_of_bytes_in_many_parts(target):
    exact(integers((1, 3, 130, 128), (20, 3, 3, 3), 1, 1, 200), target, output_halo=1)


@WITH_DOTS
def test_stems_of_bytes_end_in_bytes(target):
    scale = np.random.default_rng(3).uniform(0.001, 0.01, (40, 1, 1)).astype(np.float32)
    real = input_(0, "int32").cast("float32") * input_(1, "float32") + 3.0
    body = real.clip(0, 255).cast("uint8")
    exact(integers((1, 3, 19, 18), (40, 3, 7, 7), 2, 3, 4, body, [scale]), target, output_halo=1)


@WITH_DOTS
def test_columns_that_lie_apart_are_no_neighbours(target):
    _, offers = choices(integers((1, 3, 19, 17), (8, 3, 3, 3), 1, 2, 5, dilations=2), conv_stem, target)
    assert not offers


@WITH_DOTS
def test_a_row_of_seven_taps_takes_two_steps_a_channel(target):
    stem, blocked = (
        choices(integers((1, 3, 224, 224), (64, 3, 7, 7), 2, 3, 114), kernel, target)[1][0].cost.compute
        for kernel in (conv_stem, conv)
    )
    assert stem < blocked
