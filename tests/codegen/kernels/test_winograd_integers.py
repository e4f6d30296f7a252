"""Winograd's convolutions of bytes: every sum is the direct one, whatever data, zero point and weights, and
where weights tell that one could not be it is left to others."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from support.blocked_cases import WITH_DOTS, check, choices, integers, laid_out, same_bits_in_any_cut, symbols

from onnxc.codegen.kernels import conv, conv_grouped, winograd
from onnxc.codegen.tiles.winograd_arithmetic import of_bytes
from onnxc.codegen.tiles.winograd_transforms import whole_transforms
from onnxc.ir.expr import input_
from onnxc.target import LEVELS, TARGETS


def exact(case, target, **options):
    check(case, winograd, target, tolerance=0, **options)


def filled(case, x, w):
    """The case with data and weights that are these numbers."""
    case.arrays[:2] = np.full_like(case.arrays[0], x), np.full_like(case.arrays[1], w)
    return case


# Arithmetic --------------------------------------------------------------------------------------


@pytest.mark.parametrize("m, r, most", [(2, 3, 15), (4, 3, 15), (4, 3, 255), (2, 5, 255)])
def test_whole_transforms_give_a_multiple_of_what_a_window_does(m, r, most):
    found, rng = whole_transforms(m, r, most), np.random.default_rng(m)
    data, weights = (rng.integers(-9, 9, size) for size in (m + r - 1, r))
    matrices = [np.array(matrix, Fraction) for matrix in (found.data, found.weights, found.result)]
    assert all(c.denominator == 1 for matrix in matrices for c in matrix.flat)
    assert np.abs(matrices[1]).sum(axis=1).max() <= most
    result = matrices[2] @ ((matrices[0] @ data) * (matrices[1] @ weights))
    np.testing.assert_array_equal(result, found.scale * np.convolve(data, weights[::-1], "valid"))


def test_points_that_are_no_whole_numbers_and_factors_that_are_too_large_have_no_whole_transforms():
    assert whole_transforms(6, 3, 255) is None  # 1/2
    assert whole_transforms(2, 5, 15) is None  # 1 + 2 + 4 + 8 + 16, which is odd


@pytest.mark.parametrize("zero", [0, 1, 128, 255])
def test_16_bits_hold_what_bytes_become(zero):
    arithmetic = of_bytes("uint8", zero, (4, 4), (3, 3))
    data = arithmetic.transforms[0].data
    ends = [0 - zero, 255 - zero]
    for row in data:
        for column in data:
            factors = np.outer(row, column).astype(int)
            worst = np.where(factors > 0, *ends[::-1]) * factors
            assert abs(worst.sum()) < 1 << 15
    weights = arithmetic.in_groups(np.full((2, 9, 1), -128, np.int8), 2)
    assert weights.dtype == np.int16
    assert weights.max() == 128 * 12 * 12


# Sums --------------------------------------------------------------------------------------------


@WITH_DOTS
@pytest.mark.parametrize("size", [(1, 1), (1, 9), (3, 2), (4, 4), (7, 7), (8, 13)], ids=str)
def test_images_of_any_size(target, size):
    exact(integers((1, 16, *size), (24, 16, 3, 3), pads=1, zero=9), target, output_halo=1)


@WITH_DOTS
@pytest.mark.parametrize("size", [(1, 9), (8, 12), (7, 13)], ids=str)
def test_dilated_windows_of_bytes_are_exact(target, size):
    exact(integers((1, 20, *size), (24, 20, 3, 3), dilations=2, pads=2, zero=9), target, output_halo=1)


@WITH_DOTS
@pytest.mark.parametrize("channels", [(16, 17), (17, 16), (33, 70), (64, 32)], ids=str)
def test_sums_over_any_channels_are_exact(target, channels):
    inputs, outputs = channels
    exact(integers((2, inputs, 6, 9), (outputs, inputs, 3, 3), pads=1, zero=128), target)


@WITH_DOTS
@pytest.mark.parametrize("zero", [0, 1, 128, 254, 255])
def test_zero_points_stand_in_for_what_lies_outside(target, zero):
    exact(integers((1, 18, 9, 9), (16, 18, 3, 3), pads=(1, 2, 0, 1), zero=zero), target, wider=1)


@WITH_DOTS
@pytest.mark.parametrize("zero", [0, 128, 255])
@pytest.mark.parametrize("x, w", [(255, 127), (255, -128), (0, 127), (0, -128)])
def test_the_ends_of_all_ranges(target, zero, x, w):
    exact(filled(integers((1, 100, 5, 6), (16, 100, 3, 3), pads=1, zero=zero), x, w), target)
    exact(integers((1, 100, 5, 6), (16, 100, 3, 3), pads=1, zero=zero, full=True), target)


@WITH_DOTS
@pytest.mark.parametrize("zero", [-128, 0, 127])
def test_data_with_a_sign(target, zero):
    case = integers((1, 20, 7, 9), (24, 20, 3, 3), pads=1)
    case.op = replace(case.op, zero=zero)
    case.arrays[0] = (case.arrays[0].astype(np.int16) - 128).astype(np.int8)
    exact(case, target)
    exact(filled(case, -128, -128), target)


@WITH_DOTS
@pytest.mark.parametrize("side", [3, 5])
@pytest.mark.parametrize("length", [1, 2, 7, 50])
def test_windows_along_one_axis(target, side, length):
    before = (side - 1) // 2
    exact(integers((2, 33, length), (17, 33, side), pads=before, zero=3), target)
    pads = (before, 0, before, 0)
    exact(integers((1, 33, length, 2), (17, 33, side, 1), pads=pads, zero=255, full=True), target)


@WITH_DOTS
@pytest.mark.parametrize("channels", [(24, 24, 4), (40, 17, 3), (17, 40, 2)], ids=str)
def test_groups_of_any_width(target, channels):
    inside, made, groups = channels
    case = integers((1, groups * inside, 7, 10), (groups * made, inside, 3, 3), pads=1, zero=7, groups=groups)
    exact(case, target, output_halo=1)


@WITH_DOTS
@pytest.mark.parametrize("size", [(1, 1, 1), (2, 2, 9), (1, 3, 5), (3, 17, 16), (0, 5, 5)], ids=str)
def test_sizes_that_only_the_run_knows(target, size):
    n, height, width = size
    x = symbols("n", 17, "h", "w")
    exact(integers((n, 17, height, width), (40, 17, 3, 3), pads=1, zero=200, symbolic=x), target)


@WITH_DOTS
def test_bias_and_epilogue_make_bytes_again(target):
    scale = np.random.default_rng(3).uniform(0.001, 0.01, (40, 1, 1)).astype(np.float32)
    start = np.random.default_rng(4).integers(-(1 << 30), 1 << 30, (40, 1, 1)).astype(np.int32)
    sums = input_(0, "int32") + input_(1, "int32")
    exact(integers((1, 24, 9, 8), (40, 24, 3, 3), 1, 1, 4, sums, [start]), target, output_halo=1)
    body = (sums.cast("float32") * input_(2, "float32")).clip(0, 255).cast("uint8")
    exact(integers((1, 24, 9, 8), (40, 24, 3, 3), 1, 1, 4, body, [start, scale]), target, output_halo=1)


@WITH_DOTS
def test_any_cut_into_parts_gives_the_same(target):
    case = integers((2, 64, 38, 41), (96, 64, 3, 3), pads=1, zero=3)
    exact(case, target, output_halo=1)
    same_bits_in_any_cut(case, winograd, target)


@WITH_DOTS
def test_groups_across_images_and_any_cut_of_them_give_the_same(target):
    case = integers((12, 64, 7, 6), (96, 64, 3, 3), pads=1, zero=3)
    assert any(choice.tiling.across for choice in choices(case, winograd, target)[1])
    exact(case, target, output_halo=1)
    same_bits_in_any_cut(case, winograd, target)


@WITH_DOTS
def test_weights_from_beyond_the_caches_are_fetched_ahead(target):
    far = replace(target, run_bytes=2 * target.facts.level2_bytes)
    case = integers((1, 60, 4, 4), (72, 60, 3, 3), pads=1)
    exact(case, far)
    node, offered = choices(case, winograd, far)
    for choice in offered:
        near, away = (winograd.emit(laid_out(node, choice), choice, t).steps[0].text for t in (target, far))
        assert ("llvm.prefetch" in near, "llvm.prefetch" in away) == (False, True)


# What is offered ---------------------------------------------------------------------------------


def points(case):
    return {choice.tiling.points for choice in choices(case, winograd, LEVELS["x86-64-v3"])[1]}


def test_sums_that_could_be_too_large_for_a_scale_are_left_to_one_that_is_less():
    wide = integers((1, 512, 8, 8), (16, 512, 3, 3), pads=1, zero=0)
    assert points(filled(wide, 0, 3)) == {4, 6}
    assert points(filled(wide, 0, 28)) == {4, 6}  # 9 * 512 * 28 * 255 < 2^25
    assert points(filled(wide, 0, 29)) == {4}
    wide.arrays[1][1:] = 0  # a single result
    assert points(wide) == {4}
    wide.arrays[1][0, ::2] = -29  # half of the sum, of either sign
    assert points(wide) == {4, 6}
    far = integers((1, 2048, 4, 4), (16, 2048, 3, 3), pads=1)
    assert points(filled(far, 0, 127)) == set()


@pytest.mark.parametrize("w", [28, 29])
@WITH_DOTS
def test_sums_next_to_the_bound(target, w):
    for sign in (1, -1):
        exact(filled(integers((1, 512, 4, 4), (16, 512, 3, 3), pads=1), 255, sign * w), target)


def test_other_windows_are_left_to_others():
    for case in (
        integers((1, 32, 9, 9), (32, 32, 3, 3), strides=2, pads=1),
        integers((1, 32, 9, 9), (32, 32, 5, 5), pads=2),
        integers((1, 32, 9, 9), (32, 32, 1, 1)),
        integers((1, 8, 9, 9), (32, 8, 3, 3), pads=1),
    ):
        assert points(case) == set()


@pytest.mark.parametrize("name", ["x86-64-v4", "x86-64-v3", "cascadelake", "alderlake"])
def test_it_is_expected_to_be_faster_where_images_are_large(name):
    target = TARGETS[name]
    case = integers((1, 128, 56, 56), (128, 128, 3, 3), pads=1)
    fastest = [min(c.time for c in choices(case, kernel, target)[1]) for kernel in (winograd, conv)]
    assert fastest[0] < fastest[1]


@WITH_DOTS
def test_groups_are_added_up_as_directly(target):
    case = integers((1, 48, 9, 9), (48, 24, 3, 3), pads=1, zero=200, groups=2)
    check(case, conv_grouped, target, tolerance=0)
    exact(case, target)
