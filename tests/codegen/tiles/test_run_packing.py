"""Weights that only the run knows: every kind of convolution packs them as it does constant ones."""

from dataclasses import replace

import numpy as np
import pytest
from support.blocked_cases import check, convolution, symbols, transposed
from support.harness import TARGETS

from onnxc.codegen.kernels import conv, conv_grouped, conv_stem, conv_transpose, depthwise, winograd


def of_the_run(case):
    """The same case with weights that only the run knows."""
    return replace(case, constant=tuple(i for i in case.constant if i != 1))


@TARGETS
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (1, 5), (7, 2)])
@pytest.mark.parametrize(("channels", "outputs"), [(1, 1), (7, 13), (17, 40), (35, 70)])
def test_windows_and_channels_of_any_size(target, kernel, channels, outputs):
    case = convolution((1, channels, 9, 11), (outputs, channels, *kernel), pads=1)
    check(of_the_run(case), conv, target)


@TARGETS
@pytest.mark.parametrize(("channels", "outputs"), [(16, 16), (23, 41)])
def test_winograds_algorithm_transforms_weights_of_the_run(target, channels, outputs):
    case = convolution((1, channels, 9, 11), (outputs, channels, 3, 3), pads=1)
    check(of_the_run(case), winograd, target)


@TARGETS
@pytest.mark.parametrize(("groups", "inside", "made"), [(2, 32, 32), (2, 20, 17), (4, 24, 24), (3, 16, 40)])
def test_winograds_algorithm_in_groups(target, groups, inside, made):
    case = convolution((1, groups * inside, 9, 11), (groups * made, inside, 3, 3), pads=1, groups=groups)
    check(of_the_run(case), winograd, target)


@TARGETS
@pytest.mark.parametrize("shape", [(1, 3, 21, 23), (2, 1, 21, 23), (1, 11, 9, 30)])
def test_the_first_convolution_of_a_network(target, shape):
    check(of_the_run(convolution(shape, (33, shape[1], 7, 7), 2, 3)), conv_stem, target)


@TARGETS
@pytest.mark.parametrize(("channels", "made"), [(16, 1), (21, 1), (24, 2), (36, 4)])
def test_groups_that_share_a_block(target, channels, made):
    groups = channels // made
    check(
        of_the_run(convolution((1, channels, 9, 11), (channels, made, 3, 3), pads=1, groups=groups)),
        depthwise,
        target,
    )


@TARGETS
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3)])
@pytest.mark.parametrize(
    ("groups", "inside", "made"), [(2, 32, 32), (2, 16, 48), (4, 34, 34), (3, 5, 7), (2, 3, 20), (7, 20, 3)]
)
def test_groups_of_any_size(target, kernel, groups, inside, made):
    case = convolution((1, groups * inside, 7, 9), (groups * made, inside, *kernel), pads=1, groups=groups)
    check(of_the_run(case), conv_grouped, target)


@TARGETS
@pytest.mark.parametrize(("kernel", "strides"), [((1, 1), 1), ((2, 2), 2), ((4, 5), (3, 1)), ((3, 3), 2)])
@pytest.mark.parametrize(("channels", "outputs"), [(5, 3), (16, 32), (19, 37)])
def test_transposed_convolutions_with_weights_of_the_run(target, kernel, strides, channels, outputs):
    case = transposed((1, channels, 5, 7), (channels, outputs, *kernel), strides)
    check(of_the_run(case), conv_transpose, target)


@TARGETS
def test_transposed_convolutions_with_padding_and_dilations(target):
    check(of_the_run(transposed((2, 9, 6, 5), (9, 20, 3, 3), 2, 1, 2, (1, 1))), conv_transpose, target)


@TARGETS
def test_one_spatial_axis(target):
    check(of_the_run(convolution((2, 20, 33), (24, 20, 5), 2, 2)), conv, target)
    check(of_the_run(transposed((2, 20, 33), (20, 24, 5), 2)), conv_transpose, target)


@TARGETS
def test_weights_of_the_run_in_double_precision(target):
    for case, kernel in (
        (convolution((1, 10, 9, 8), (21, 10, 3, 3), 1, 1, dtype=np.float64), conv),
        (transposed((1, 10, 9, 8), (10, 21, 3, 3), 2, dtype=np.float64), conv_transpose),
    ):
        check(of_the_run(case), kernel, target, tolerance=1e-12)


@TARGETS
def test_images_and_weights_that_only_the_run_knows(target):
    case = convolution((2, 12, 5, 6), (20, 6, 3, 3), 1, 1, groups=2, symbolic=symbols("n", 12, "h", "w"))
    check(of_the_run(case), conv_grouped, target)
    case = transposed((2, 12, 5, 6), (12, 20, 3, 3), 2, symbolic=symbols("n", 12, "h", "w"))
    check(of_the_run(case), conv_transpose, target)
