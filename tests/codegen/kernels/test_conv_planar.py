"""Convolutions of dense images, whose pixels lie in the lanes, against the interpreter."""

import numpy as np
import pytest
from support.blocked_cases import bias, check, choices, convolution, random, relu_of_bias, symbols
from support.harness import TARGETS, Prepared

from onnxc.codegen.kernels import conv_planar
from onnxc.ir import dims, expr


@TARGETS
@pytest.mark.parametrize("channels", [1, 2, 3, 7])
def test_few_channels_of_a_dense_image(target, channels):
    epilogue = relu_of_bias()
    case = convolution((2, 5, 13, 71), (channels, 5, 3, 3), 1, 1, epilogue=epilogue, extra=[bias(channels)])
    check(case, conv_planar, target)


@TARGETS
@pytest.mark.parametrize("width", [1, 15, 16, 17, 100, 197])
def test_rows_of_any_length(target, width):
    check(convolution((1, 3, 4, width), (1, 3, 5, 5), 1, 2), conv_planar, target)


@TARGETS
@pytest.mark.parametrize("pads", [0, 3, (0, 1, 2, 3), (-1, 0, 0, -2), 8])
def test_padding_is_copied(target, pads):
    check(convolution((1, 3, 19, 17), (4, 3, 7, 7), (2, 1), pads), conv_planar, target)


@TARGETS
@pytest.mark.parametrize("stride", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("pad", [0, 1])
def test_strides_cut_rows_into_phases(target, stride, pad):
    check(convolution((1, 2, 9, 90), (3, 2, 3, 5), stride, pad), conv_planar, target)
    check(convolution((1, 2, 9, 90), (3, 2, 3, 1), stride, pad), conv_planar, target)


@TARGETS
def test_dilated_and_one_axis(target):
    check(convolution((1, 3, 19, 37), (2, 3, 3, 3), 1, 2, 2), conv_planar, target)
    check(convolution((2, 1, 4000), (1, 1, 256), 2, 12), conv_planar, target)
    check(convolution((1, 2, 9000), (3, 2, 3), 1, 1), conv_planar, target)


@TARGETS
@pytest.mark.parametrize("size", [(1, 1), (6, 7), (17, 40), (8, 161)])
def test_images_whose_size_only_the_run_knows(target, size):
    case = convolution((2, 3, *size), (3, 3, 3, 3), 1, 1, symbolic=symbols("n", 3, "h", "w"))
    check(case, conv_planar, target)
    case = convolution((2, 3, *size), (2, 3, 3, 3), 2, 1, symbolic=symbols("n", 3, "h", "w"))
    check(case, conv_planar, target)


@TARGETS
def test_a_residual_and_a_long_epilogue(target):
    total, other = expr.input_(0, "float32"), expr.input_(1, "float32")
    gate = expr.sigmoid(total + other)
    residual = random(2, 3, 9, 45, seed=5)
    for extra in ((residual, False), (random(3, 1, 1, seed=6), True)):
        case = convolution((2, 4, 9, 45), (3, 4, 3, 3), 1, 1, epilogue=gate * total, extra=[extra])
        check(case, conv_planar, target)


@TARGETS
def test_doubles_and_many_parts(target):
    case = convolution((1, 3, 130, 128), (2, 3, 3, 3), 1, 1, dtype=np.float64)
    check(case, conv_planar, target)
    check(convolution((1, 16, 130, 128), (2, 16, 3, 3), 1, 1), conv_planar, target)


@TARGETS
@pytest.mark.parametrize("channels", [17, 45, 130])
def test_many_channels_of_a_dense_image(target, channels):
    case = convolution(
        (2, 3, 8, 21), (channels, 3, 3, 3), 1, 1, epilogue=relu_of_bias(), extra=[bias(channels)]
    )
    check(case, conv_planar, target)


@TARGETS
@pytest.mark.parametrize("inside, symbolic", [(29, None), (3, symbols(1, 3, 8, "w"))])
def test_many_channels_of_many_terms_or_of_any_width_are_not_taken(target, inside, symbolic):
    for channels, taken in ((16, True), (17, False)):
        case = convolution((1, inside, 8, 21), (channels, inside, 3, 3), 1, 1, symbolic=symbolic)
        assert bool(choices(case, conv_planar, target)[1]) == taken


@TARGETS
def test_code_does_not_grow_with_the_channels(target):
    def size(channels):
        node, (choice,) = choices(convolution((1, 3, 8, 21), (channels, 3, 3, 3), 1, 1), conv_planar, target)
        return len(conv_planar.emit(node, choice, target).steps[0].text)

    assert size(1600) < 2 * size(100)


@TARGETS
def test_rows_of_a_window_beyond_the_second_level_cache(target):
    check(convolution((1, 700, 9, 60), (3, 700, 9, 1), 1, (4, 0, 4, 0)), conv_planar, target)


@TARGETS
@pytest.mark.parametrize("groups, made", [(5, 1), (3, 2), (2, 7)])
@pytest.mark.parametrize("stride", [1, 3])
def test_groups_one_after_the_other(target, groups, made, stride):
    outputs = groups * made
    residual = random(2, outputs, 9 // stride, 45 // stride, seed=5)
    case = convolution(
        (2, 2 * groups, 9, 45),
        (outputs, 2, 3, 3),
        stride,
        1,
        groups=groups,
        epilogue=expr.input_(0, "float32") + expr.input_(1, "float32") * expr.input_(2, "float32"),
        extra=[(residual, False), bias(outputs)],
    )
    check(case, conv_planar, target)


@TARGETS
@pytest.mark.parametrize("groups", [1, 4])
def test_columns_of_pixels_are_rows(target, groups):
    case = convolution(
        (2, 4, 150, 1),
        (4, 4 // groups, 70, 1),
        (2, 1),
        (35, 0, 35, 0),
        groups=groups,
        epilogue=relu_of_bias(),
        extra=[bias(4)],
    )
    check(case, conv_planar, target)
    case = convolution(
        (2, 4, 150, 1),
        (4, 4 // groups, 9, 1),
        1,
        (4, 0, 4, 0),
        groups=groups,
        symbolic=symbols("n", 4, "h", 1),
    )
    check(case, conv_planar, target)


@TARGETS
def test_windows_of_many_rows_and_long_ones(target):
    check(convolution((1, 3, 80, 33), (6, 1, 70, 1), 1, (4, 0, 4, 0), groups=3), conv_planar, target)
    check(convolution((1, 2, 1500), (2, 1, 1200), 1, 600, groups=2), conv_planar, target)
    check(convolution((1, 1, 60), (1, 1, 4001), 1, 2000), conv_planar, target)


@TARGETS
@pytest.mark.parametrize("stride", [1, 2, 5])
@pytest.mark.parametrize("length", [7, 64, 1500])
def test_a_row_shorter_than_there_is_room_for_has_its_own_columns_copied(target, stride, length):
    shape = dims.symbol("n", 1), 3, dims.symbol("w", 1, typical=200_000)
    case = convolution((2, 3, length), (3, 1, 5), stride, 2, groups=3, symbolic=shape)
    node, (choice,) = choices(case, conv_planar, target)
    check(case, conv_planar, target)
    prepared = Prepared(node, choice, case.arrays, target)
    assert prepared.run() is None
    written = np.count_nonzero(prepared.calls[0].scratch != 0xFF)
    assert written <= 8 * (length + 4 + 2 * stride * target.lanes("float32")) < prepared.calls[0].scratch.size
