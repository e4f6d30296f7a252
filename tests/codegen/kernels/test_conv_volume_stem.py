"""Stems over three axes, which read dense volumes of few channels, against the interpreter."""

import numpy as np
import pytest
from support import harness
from support.blocked_cases import check, convolution, random, relu_of_bias, symbols
from support.harness import TARGETS

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import conv_volume_stem
from onnxc.ir.expr import input_


def case(size, kernel=(3, 3, 3), channels=3, outputs=20, batch=1, **options):
    return convolution((batch, channels, *size), (outputs, channels, *kernel), **options)


@TARGETS
@pytest.mark.parametrize("channels, outputs", [(1, 16), (3, 20), (4, 5), (7, 40), (16, 33)])
def test_any_number_of_channels(target, channels, outputs):
    bias = random(outputs, 1, 1, 1), True
    found = case(
        (4, 9, 11), channels=channels, outputs=outputs, pads=1, epilogue=relu_of_bias(), extra=[bias]
    )
    check(found, conv_volume_stem, target, output_halo=1)


@TARGETS
@pytest.mark.parametrize("kernel", [(3, 7, 7), (5, 3, 1), (1, 3, 3), (2, 1, 5)])
@pytest.mark.parametrize("strides", [1, 2, (1, 2, 3)])
def test_any_kernel_and_stride(target, kernel, strides):
    check(case((7, 9, 12), kernel, strides=strides, pads=2, batch=2), conv_volume_stem, target, output_halo=1)


@TARGETS
@pytest.mark.parametrize("pads", [0, 4, (0, 1, 0, 2, 0, 1), (3, 0, 1, 0, 2, 4), (-1, 0, 0, 0, -2, 0)])
@pytest.mark.parametrize("dilations", [1, (3, 1, 2)])
def test_any_padding_and_dilation(target, pads, dilations):
    check(case((7, 6, 8), pads=pads, dilations=dilations), conv_volume_stem, target)


@TARGETS
@pytest.mark.parametrize("size", [(1, 1, 1), (2, 1, 9), (1, 9, 1), (1, 2, 30), (3, 33, 2), (2, 96, 90)])
def test_volumes_of_any_size(target, size):
    check(case(size, pads=1), conv_volume_stem, target, output_halo=1)


@TARGETS
def test_what_is_added_to_the_result(target):
    body = (input_(0, "float32") + input_(1, "float32")) * input_(2, "float32")
    extra = [(random(20, 1, 1, 1), True), (random(2, 20, 3, 4, 5), False)]
    check(case((3, 4, 5), batch=2, pads=1, epilogue=body, extra=extra), conv_volume_stem, target, 1, 1)


@TARGETS
@pytest.mark.parametrize("size", [(1, 1, 1), (3, 6, 8), (2, 40, 33)])
def test_volumes_whose_size_only_the_run_knows(target, size):
    symbolic = symbols("n", 3, "d", "h", "w")
    found = case(size, batch=2, strides=(1, 2, 2), pads=1, symbolic=symbolic)
    check(found, conv_volume_stem, target, output_halo=1)


@TARGETS
def test_double_precision_and_no_pixels(target):
    check(case((3, 8, 5), pads=1, dtype=np.float64), conv_volume_stem, target, tolerance=1e-12)
    check(case((2, 4, 0), pads=(1, 1, 2, 1, 1, 2)), conv_volume_stem, target)
    check(case((0, 4, 5), pads=(2, 1, 1, 2, 1, 1)), conv_volume_stem, target)


def test_weights_that_the_run_knows_are_left_to_others():
    found = case((3, 8, 5))
    found.constant = ()
    assert not choices_of(conv_volume_stem, found.node(), harness.RUNNABLE[0])
