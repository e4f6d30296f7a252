"""Convolutions of groups of channels against the interpreter."""

import pytest
from support import harness
from support.blocked_cases import WITH_DOTS, bias, check, convolution, integers, relu_of_bias, symbols

from onnxc.codegen.kernels import conv_grouped

TARGETS = pytest.mark.parametrize("target", harness.RUNNABLE, ids=str)


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
