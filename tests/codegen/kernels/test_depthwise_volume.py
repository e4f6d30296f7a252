"""Depthwise convolutions over three axes against the interpreter."""

import numpy as np
import pytest
from support import harness
from support.blocked_cases import check, convolution, random, relu_of_bias, symbols
from support.harness import TARGETS

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import depthwise_volume
from onnxc.ir.expr import input_, sigmoid


def case(size, kernel=(3, 3, 3), channels=19, batch=1, **options):
    return convolution((batch, channels, *size), (channels, 1, *kernel), groups=channels, **options)


@TARGETS
@pytest.mark.parametrize("channels", [2, 16, 17, 40])
def test_any_number_of_channels(target, channels):
    check(case((4, 6, 7), channels=channels, pads=1), depthwise_volume, target, output_halo=1)


@TARGETS
@pytest.mark.parametrize("kernel", [(3, 3, 3), (5, 5, 5), (1, 3, 3), (3, 1, 2), (2, 7, 1), (7, 1, 1)])
@pytest.mark.parametrize("strides", [1, 2, (1, 2, 3)])
def test_any_kernel_and_stride(target, kernel, strides):
    check(case((7, 8, 9), kernel, strides=strides, pads=2), depthwise_volume, target, output_halo=1)


@TARGETS
@pytest.mark.parametrize(
    "pads", [0, (0, 1, 0, 2, 0, 1), (3, 0, 1, 0, 2, 4), (4, 4, 4, 4, 4, 4), (-1, 0, 0, 0, -2, 0)]
)
def test_volumes_with_any_padding(target, pads):
    check(case((5, 6, 7), pads=pads), depthwise_volume, target, wider=1)


@TARGETS
@pytest.mark.parametrize("dilations", [2, (3, 1, 1), (1, 2, 3)])
def test_windows_that_are_dilated_along_any_axis(target, dilations):
    check(case((7, 8, 9), dilations=dilations, pads=2), depthwise_volume, target)
    check(case((7, 8, 9), dilations=dilations, pads=3, strides=2), depthwise_volume, target)


@TARGETS
@pytest.mark.parametrize("size", [(1, 1, 1), (2, 1, 1), (1, 9, 2), (1, 2, 30), (5, 4, 4), (3, 33, 2)])
def test_images_of_any_size(target, size):
    check(case(size, pads=1), depthwise_volume, target, wider=1)


@TARGETS
def test_batches_and_wider_borders(target):
    check(case((3, 6, 9), batch=3, pads=1), depthwise_volume, target, wider=2, output_halo=2)


@TARGETS
def test_an_epilogue_is_applied_to_every_channel(target):
    bias = random(19, 1, 1, 1), True
    check(case((3, 8, 5), pads=1, epilogue=relu_of_bias(), extra=[bias]), depthwise_volume, target, 0, 1)
    body = sigmoid(input_(0, "float32") + input_(1, "float32")) * input_(2, "float32") + 1.0
    residual = random(2, 19, 3, 8, 5), False
    check(
        case((3, 8, 5), batch=2, pads=1, epilogue=body, extra=[bias, residual]),
        depthwise_volume,
        target,
        1,
        1,
    )


def test_operands_along_some_of_the_rows_are_left_to_others():
    body = input_(0, "float32") + input_(1, "float32")
    for shape in ((1, 1, 3, 1, 1), (1, 1, 1, 8, 5)):
        node = case((3, 8, 5), pads=1, epilogue=body, extra=[(random(*shape), False)]).node()
        assert not choices_of(depthwise_volume, node, harness.RUNNABLE[0])


@TARGETS
@pytest.mark.parametrize("size", [(1, 1, 1), (2, 3, 5), (3, 6, 8), (1, 4, 23)])
def test_volumes_whose_size_only_the_run_knows(target, size):
    symbolic = symbols("n", 19, "d", "h", "w")
    check(case(size, batch=2, pads=1, symbolic=symbolic), depthwise_volume, target, 1, 1)
    check(case(size, (2, 5, 5), batch=2, strides=2, pads=2, symbolic=symbolic), depthwise_volume, target)


@TARGETS
def test_weights_that_the_run_knows(target):
    found = case((3, 8, 5), pads=1)
    found.constant = ()
    check(found, depthwise_volume, target)


@TARGETS
def test_float64_is_added_up_in_double_precision(target):
    check(case((3, 8, 5), pads=1, dtype=np.float64), depthwise_volume, target, tolerance=1e-12)


@TARGETS
def test_many_parts_and_none(target):
    check(case((16, 33, 30), channels=40, pads=1), depthwise_volume, target, output_halo=1)
    check(case((2, 4, 0), pads=(1, 1, 2, 1, 1, 2)), depthwise_volume, target)


@TARGETS
@pytest.mark.parametrize("channels", [(5, 2, 2), (9, 4, 4), (3, 1, 4), (6, 2, 4), (4, 2, 1)])
def test_groups_of_few_channels(target, channels):
    groups, inside, made = channels
    block = target.lanes("float32")
    bias = random(groups * made, 1, 1, 1), True
    case_ = convolution(
        (2, groups * inside, 3, 6, 9),
        (groups * made, inside, 3, 3, 3),
        1,
        1,
        groups=groups,
        epilogue=relu_of_bias(),
        extra=[bias],
    )
    if block % made == 0 and block % (block // made * inside) == 0:
        check(case_, depthwise_volume, target, output_halo=1)
    else:
        assert not choices_of(depthwise_volume, case_.node(), target)
