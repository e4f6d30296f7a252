"""Convolutions of bytes, by dot products and by sums of two products in 16 bits, and of 16 bits: sums are
exact for all zero points and paddings, whatever the weights are."""

import numpy as np
import pytest
from support.blocked_cases import DOTS, WITH_DOTS, check, choices, integers, symbols
from support.pairs import HERE, of_pairs

from onnxc.codegen.kernels import conv, conv_matrix, conv_matrix_stem, conv_pairs
from onnxc.ir.expr import input_, lookup


def by_dots(case, target, **options):
    """By dot products, wherever there are kernels of them."""
    check(case, conv, target, tolerance=0, **options)
    if target.matrices and case.arrays[0].dtype == np.uint8:
        check(case, conv_matrix, target, tolerance=0, **options)
        if choices(case, conv_matrix_stem, target)[1]:
            check(case, conv_matrix_stem, target, tolerance=0, **options)


def by_pairs(case, target, **options):
    check(of_pairs(case), conv_pairs, target, tolerance=0, every=True, **options)


FORMS = [(by_dots, target) for target in DOTS] + [(by_pairs, target) for target in HERE]
OF_BYTES = pytest.mark.parametrize("exact, target", FORMS, ids=[f"{e.__name__}-{t}" for e, t in FORMS])


@OF_BYTES
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 31, 33, 64, 70])
def test_channels_of_any_number(exact, target, channels):
    exact(integers((1, channels, 5, 7), (20, channels, 1, 1), zero=3), target)
    exact(integers((2, channels, 5, 6), (33, channels, 3, 3), pads=1, zero=128), target)


@OF_BYTES
@pytest.mark.parametrize("zero", [0, 1, 128, 254, 255])
def test_zero_points_stand_in_for_what_lies_outside(exact, target, zero):
    exact(integers((1, 18, 9, 9), (8, 18, 3, 3), pads=(1, 2, 0, 1), zero=zero), target, wider=1)


@OF_BYTES
@pytest.mark.parametrize("strides", [1, 2, 3])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (5, 2), (2, 5), (7, 7)])
def test_windows_and_strides(exact, target, strides, kernel):
    for channels in (3, 12):
        exact(integers((1, channels, 17, 15), (24, channels, *kernel), strides, 1, 7), target)


@OF_BYTES
@pytest.mark.parametrize("size", [(1, 1), (1, 2), (7, 7), (13, 1), (5, 29)])
def test_images_of_any_size(exact, target, size):
    exact(integers((1, 16, *size), (70, 16, 3, 3), 1, 1, 9), target)


@WITH_DOTS
def test_signals_of_one_axis(target):
    by_dots(integers((2, 10, 33), (12, 10, 5), 2, 2, 77), target)


@WITH_DOTS
def test_sums_of_the_ends_of_the_range_do_not_saturate(target):
    by_dots(integers((1, 512, 3, 3), (16, 512, 3, 3), 1, 1, 255, full=True), target)


@WITH_DOTS
@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("size", [(11, 10), (1, 1), (40, 17), (3, 127), (2, 300)])
def test_images_whose_size_the_run_tells(target, size, strides):
    x = symbols("n", 12, "h", "w")
    by_dots(integers((2, 12, *size), (20, 12, 3, 3), strides, 1, 200, symbolic=x), target)
    by_dots(integers((1, 12, *size), (20, 12, 1, 1), strides, symbolic=x), target, output_halo=1)


@WITH_DOTS
@pytest.mark.parametrize("size", [(0, 8), (8, 0)])
def test_images_without_a_pixel_have_results_without_one(target, size):
    by_dots(integers((2, 12, *size), (20, 12, 3, 3), 1, 1, 9, symbolic=symbols("n", 12, "h", "w")), target)


@WITH_DOTS
@pytest.mark.parametrize("width", [513, 1000])
def test_lines_of_many_pixels_are_exact(target, width):
    by_dots(integers((1, 12, 3, width), (20, 12, 3, 3), 1, 1, 200), target)
    by_dots(integers((1, 3, 4, width), (20, 3, 3, 3), 2, 1, 200), target)
    by_dots(integers((2, 12, width), (20, 12, 5), pads=2), target)
    x = symbols("n", 12, "w")
    by_dots(integers((2, 12, width), (20, 12, 5), pads=2, symbolic=x), target)


@WITH_DOTS
def test_a_first_convolution_of_an_image_whose_size_the_run_tells(target):
    for width in (5, 33, 300):
        x = symbols("n", 3, "h", "w")
        by_dots(integers((2, 3, 9, width), (24, 3, 3, 3), 2, 1, 7, symbolic=x), target)


@OF_BYTES
def test_an_epilogue_makes_bytes_again(exact, target):
    scale = np.random.default_rng(3).uniform(0.001, 0.01, (40, 1, 1)).astype(np.float32)
    real = (input_(0, "int32").cast("float32") * input_(1, "float32")).clip(-128, 127)
    body = (real.maximum(0.0) + 3.0).clip(0, 255).cast("uint8")
    exact(integers((1, 24, 9, 8), (40, 24, 3, 3), 1, 1, 4, body, [scale]), target, output_halo=1)


@WITH_DOTS
@pytest.mark.parametrize("width", [1, 3, 8, 13])
@pytest.mark.parametrize("channels", [16, 19])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_an_epilogue_looks_bytes_up(target, width, channels, dtype):
    """The result is that byte, or a number that is made of it; 0 stays 0, as lanes without a channel must."""
    table = np.random.default_rng(1).integers(0, 256, 256).astype(np.uint8)
    table[0] = 0
    byte = (input_(0, "int32").cast("float32") * 0.01).clip(0.0, 255.0).cast("uint8")
    body = lookup(byte, "uint8", table.tobytes()).cast(dtype)
    by_dots(integers((1, 24, 5, width), (channels, 24, 3, 3), 1, 1, 4, body), target, output_halo=1)


@WITH_DOTS
@pytest.mark.parametrize("zero", [0, -(1 << 15), (1 << 15) - 1, -77])
@pytest.mark.parametrize("channels", [1, 3, 16, 33])
def test_words_of_any_zero_point(target, zero, channels):
    case = integers((2, channels, 9, 6), (20, channels, 3, 3), 1, (1, 2, 0, 1), zero, words=True)
    check(case, conv, target, tolerance=0, output_halo=1)
    check(
        integers((1, channels, 5, 7), (40, channels, 1, 1), zero=zero, words=True), conv, target, tolerance=0
    )


@WITH_DOTS
def test_words_of_images_whose_size_the_run_tells(target):
    x = symbols("n", 12, "h", "w")
    case = integers((2, 12, 11, 10), (20, 12, 3, 3), 2, 1, 200, symbolic=x, words=True)
    check(case, conv, target, tolerance=0)
