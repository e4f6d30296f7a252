"""Depthwise convolutions of bytes, and groups that share a block, by dot products: every sum is exact."""

import numpy as np
import pytest
from support.blocked_cases import WITH_DOTS, check, integers, symbols

from onnxc.codegen.kernels import depthwise_integers
from onnxc.ir.expr import input_, lookup


def exact(x_shape, kernel, target, inside=1, made=1, wider=0, output_halo=0, **options):
    """Checks groups of `inside` channels that make `made` each."""
    groups = x_shape[1] // inside
    case = integers(x_shape, (groups * made, inside, *kernel), groups=groups, **options)
    check(case, depthwise_integers, target, wider, output_halo, tolerance=0)


@WITH_DOTS
@pytest.mark.parametrize("channels", [2, 3, 16, 17, 40])
def test_any_number_of_channels(target, channels):
    exact((1, channels, 9, 10), (3, 3), target, pads=1, zero=3, output_halo=1)


@WITH_DOTS
@pytest.mark.parametrize("kernel", [(3, 3), (5, 5), (7, 7), (1, 3), (4, 1), (2, 6)])
@pytest.mark.parametrize("strides", [1, 2])
def test_any_kernel_and_stride(target, kernel, strides):
    exact((1, 19, 12, 17), kernel, target, strides=strides, pads=2, zero=255, wider=1)


@WITH_DOTS
def test_a_window_of_bytes_may_be_large(target):
    exact((1, 16, 15, 14), (13, 11), target, pads=(6, 5, 6, 5), zero=7)


@WITH_DOTS
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_bytes_that_an_epilogue_looks_up(target, dtype):
    table = np.random.default_rng(1).integers(0, 256, 256).astype(np.uint8)
    scale = np.random.default_rng(2).uniform(0.001, 0.01, (32, 1, 1)).astype(np.float32)
    byte = (input_(0, "int32").cast("float32") * input_(1, "float32")).clip(0.0, 255.0).cast("uint8")
    body = lookup(byte, "uint8", table.tobytes()).cast(dtype)
    exact((1, 32, 9, 13), (3, 3), target, pads=1, zero=7, epilogue=body, extra=[scale])


@WITH_DOTS
def test_dilated_windows_of_bytes_are_exact(target):
    exact((2, 19, 12, 17), (3, 3), target, dilations=2, pads=2, zero=128)


@WITH_DOTS
@pytest.mark.parametrize("size", [(1, 1), (2, 1), (1, 9), (3, 3), (8, 30), (33, 2)])
def test_images_of_any_size(target, size):
    exact((1, 19, *size), (3, 3), target, pads=1, zero=7, output_halo=2)


@WITH_DOTS
def test_one_spatial_axis_and_one_column(target):
    exact((2, 20, 33), (5,), target, strides=2, pads=2, zero=9)
    exact((1, 20, 33, 1), (5, 1), target, pads=(2, 0, 2, 0), zero=9)


@WITH_DOTS
@pytest.mark.parametrize("groups", [(2, 2), (4, 4), (1, 2), (2, 8), (4, 8), (8, 8), (1, 64)])
def test_groups_that_share_a_block(target, groups):
    inside, made = (min(n, target.block) for n in groups)
    exact((1, 12 * inside, 9, 10), (3, 3), target, inside, made, pads=1, zero=77)


@WITH_DOTS
@pytest.mark.parametrize("height", [1, 2, 3, 8, 11])
@pytest.mark.parametrize("strides", [1, 2])
def test_images_whose_size_the_run_tells(target, height, strides):
    symbolic = symbols("n", 19, "h", "w")
    exact((2, 19, height, 10), (3, 3), target, strides=strides, pads=1, zero=200, symbolic=symbolic)


@WITH_DOTS
@pytest.mark.parametrize("height", [5, 7, 13])
def test_rows_that_strips_leave(target, height):
    exact((1, 19, height, 9), (3, 3), target, pads=1, zero=9)
    exact((1, 19, height, 9), (5, 5), target, pads=2, zero=9, strides=2)
    exact((1, 32, height, 9), (3, 3), target, inside=2, made=2, pads=1, zero=9)


@WITH_DOTS
def test_an_epilogue_makes_bytes_again(target):
    draw = np.random.default_rng(3)
    scale = draw.uniform(0.001, 0.01, (40, 1, 1)).astype(np.float32)
    bias = draw.integers(-9999, 9999, (40, 1, 1)).astype(np.int32)
    real = (input_(0, "int32") + input_(2, "int32")).cast("float32") * input_(1, "float32")
    body = (real.clip(-128, 127).maximum(0.0) + 3.0).clip(0, 255).cast("uint8")
    options = {"pads": 1, "zero": 4, "epilogue": body, "extra": [scale, bias]}
    exact((1, 40, 9, 8), (3, 3), target, output_halo=1, **options)


@WITH_DOTS
@pytest.mark.parametrize("kernel", [(3, 3), (4, 1), (2, 6)])
@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("groups", [(1, 1), (2, 2), (1, 2)])
def test_sums_of_words_are_exact(target, kernel, strides, groups):
    inside, made = (min(n, target.block) for n in groups)
    options = {"strides": strides, "pads": 2, "zero": -(1 << 15), "words": True}
    exact((1, 19 * inside, 12, 17), kernel, target, inside, made, wider=1, **options)
