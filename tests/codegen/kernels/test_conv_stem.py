"""Stems, which read dense images of few channels, against the interpreter."""

import pytest
from support import harness
from support.blocked_cases import bias, check, convolution, relu_of_bias, symbols

from onnxc.codegen.kernels import conv_stem

TARGETS = pytest.mark.parametrize("target", harness.RUNNABLE, ids=str)


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
@pytest.mark.parametrize("size", [(1, 1), (6, 7), (17, 40), (8, 61)])
def test_symbolic_stems(target, size):
    case = convolution((2, 3, *size), (20, 3, 3, 3), 2, 1, symbolic=symbols("n", 3, "h", "w"))
    check(case, conv_stem, target, output_halo=1)


@TARGETS
def test_stems_in_many_parts(target):
    check(convolution((1, 3, 130, 128), (20, 3, 3, 3), 1, 1), conv_stem, target, output_halo=1)
