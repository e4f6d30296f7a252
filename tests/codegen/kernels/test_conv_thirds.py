"""Convolutions with weights stored as halves, by bfloat16s: what they lose, windows and sizes of all kinds;
where the machine lacks the registers, their assembly."""

from dataclasses import replace

import numpy as np
import pytest
from support import harness
from support.blocked_cases import check_choice, convolution, laid_out, of_halves, random, symbols

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import conv_thirds
from onnxc.codegen.kernels.conv_matrix import Convolution
from onnxc.codegen.tiles import thirds
from onnxc.ir.expr import input_
from onnxc.ir.interpret import run_op
from onnxc.target import TARGETS, runs_here

TARGET = TARGETS["sapphirerapids"]
HERE = runs_here(TARGET)
DTYPES = pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
HALVES = pytest.mark.parametrize("halves", [False, True], ids=["float32", "halves"])
LOST = {True: 2.0**-15, False: 2.0**-22}  # of a product, at most


def offered(case, dtype, halves=False, target=TARGET):
    case.op = replace(case.op, halves=halves)
    node, _ = of_halves(case, dtype)
    (choice,) = choices_of(conv_thirds, node, target)
    return node, choice


def agrees(case, dtype, halves, target=TARGET, **layout):
    node, choice = offered(case, dtype, halves, target)
    if not HERE:
        *_, step = conv_thirds.emit(laid_out(node, choice), choice, target).steps
        assert "tdpbf16ps" in harness.assembly(step.text, target)
        return
    tolerance = 4 * LOST[halves] + 2.0**-20
    check_choice(case, node, choice, target, tolerance=tolerance, **layout)
    if case.arrays[0].shape[0] > 1:
        check_choice(case, node, choice, target, tolerance=tolerance, parts=True, **layout)


@DTYPES
@HALVES
@pytest.mark.parametrize(
    "channels, outputs, size, taps, strides",
    [
        (64, 20, (5, 5), 1, 1),
        (33, 40, (9, 9), 3, 1),
        (70, 64, (14, 14), 1, 2),
        (32, 33, (40, 40), 3, 2),
        (40, 48, (17, 9), 3, 2),
        (96, 100, (33, 21), 1, 1),
        (20, 16, (3, 50), 5, 1),
    ],
    ids=str,
)
def test_channels_windows_and_strides(channels, outputs, size, taps, strides, dtype, halves):
    case = convolution((2, channels, *size), (outputs, channels, taps, taps), strides, taps // 2)
    agrees(case, dtype, halves, wider=1, output_halo=1)


@DTYPES
@pytest.mark.parametrize(
    "batch, size, outputs, level2, order",
    [
        (2, (20, 21), 100, 64 << 10, "lines"),  # all panels while a cache holds some lines
        (5, (4, 5), 100, 1 << 20, "batch"),  # a panel while it holds all images
        (1, (20, 21), 100, 1 << 20, "panels"),
    ],
)
def test_orders_of_panels_and_lines(batch, size, outputs, level2, order, dtype):
    small = replace(TARGET, facts=replace(TARGET.facts, level2_bytes=level2))
    case = convolution((batch, 64, *size), (outputs, 64, 1, 1))
    node, choice = offered(case, dtype, target=small)
    unit = small.matrix("bfloat16", "bfloat16", "float32")
    assert Convolution(laid_out(node, choice), choice, small, unit).order == order
    agrees(case, dtype, False, small)


@DTYPES
@pytest.mark.parametrize("size", [(4, 5), (17, 9), (3, 140), (1, 600)])
@pytest.mark.parametrize("taps, strides", [(1, 1), (3, 1), (3, 2)])
def test_images_whose_size_the_run_tells(size, taps, strides, dtype):
    x = symbols("n", 72, "h", "w")
    case = convolution((2, 72, *size), (48, 72, taps, taps), strides, taps // 2, symbolic=x)
    agrees(case, dtype, False, output_halo=1)


@DTYPES
def test_a_line_of_pixels_and_windows_that_are_dilated(dtype):
    agrees(convolution((1, 48, 70), (40, 48, 3), pads=1), dtype, False)
    agrees(convolution((1, 48, 20, 13), (40, 48, 3, 3), pads=2, dilations=2), dtype, True)


@DTYPES
def test_a_residual_and_a_bias(dtype):
    bias, residual = random(40, 1, 1, seed=3), random(1, 40, 14, 14, seed=4)
    body = ((input_(0, "float32") + input_(1, "float32")) + input_(2, "float32")).maximum(0.0)
    extra = [(bias, True), (residual, False)]
    agrees(convolution((1, 64, 14, 14), (40, 64, 3, 3), pads=1, epilogue=body, extra=extra), dtype, False)


@pytest.mark.skipif(not HERE, reason="a processor with registers of matrices runs it")
@DTYPES
@HALVES
def test_infinities_great_numbers_and_what_is_no_number_are_where_they_belong(dtype, halves):
    case = convolution((1, 40, 9, 12), (33, 40, 3, 3), 2, 1)
    x = case.arrays[0]
    x[0, 3, 0, 0], x[0, 39, 4, 5], x[0, 20, 8, 11] = np.inf, np.nan, -np.inf
    x[0, 7, 4, 0] = np.finfo(np.float32).max / 64
    x[0, 1, 6, 3] = 3.4e38
    node, choice = offered(case, dtype, halves)
    ((got, _),) = harness.run_choice(laid_out(node, choice), choice, case.arrays, TARGET)
    with np.errstate(all="ignore"):
        wide = replace(case.op, accumulate="float64", halves=False)
        sums = run_op(wide, [a.astype(np.float64) for a in case.arrays], {})[0]
        expected = sums.astype(np.float32)
    special = ~np.isfinite(expected)
    np.testing.assert_array_equal(got[special], expected[special])
    assert special.any() and np.isfinite(got[~special]).all()
    got, sums = got[~special], sums[~special]
    near = np.abs(got - sums) <= np.maximum(1e-3, np.abs(sums) * 1e-3)
    assert near.mean() > 0.9  # beside great numbers others are lost


@pytest.mark.skipif(not HERE, reason="a processor with registers of matrices runs it")
@DTYPES
def test_parts_of_a_step_give_the_same_bits(dtype):
    case = convolution((2, 64, 30, 30), (80, 64, 1, 1))
    node, choice = offered(case, dtype)
    chosen = laid_out(node, choice)
    one, many = (
        harness.run_choice(chosen, choice, case.arrays, TARGET, split=split)[0][0] for split in (1, 7)
    )
    np.testing.assert_array_equal(one, many)


def test_what_numbers_are_split_into():
    parts = {
        ("float16", False): thirds.THIRDS_OF_HALVES,
        ("float16", True): thirds.TWO,
        ("bfloat16", False): thirds.ONE,
        ("bfloat16", True): thirds.ONE_OF_TWO,
    }
    for (dtype, halves), expected in parts.items():
        _, choice = offered(convolution((1, 64, 14, 14), (40, 64, 1, 1)), dtype, halves)
        assert choice.tiling.parts is expected


def test_weights_of_float32_and_other_processors_have_none():
    case = convolution((1, 64, 14, 14), (40, 64, 1, 1))
    assert not choices_of(conv_thirds, case.node(), TARGET)
    node, _ = of_halves(case, "float16")
    assert not choices_of(conv_thirds, node, TARGETS["cooperlake"])
