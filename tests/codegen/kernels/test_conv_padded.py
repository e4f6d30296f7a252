"""Convolutions whose windows cover much padding, against the interpreter."""

from dataclasses import replace

import pytest
from support import harness
from support.blocked_cases import bias, check, choices, convolution, laid_out, random, relu_of_bias, symbols
from support.harness import TARGETS

from onnxc.codegen.kernels import conv_padded
from onnxc.target import TARGETS as PROCESSORS


@TARGETS
@pytest.mark.parametrize("dilation", [2, 5, 6, 9])
def test_far_dilated_windows(target, dilation):
    case = convolution(
        (2, 35, 6, 9),
        (40, 35, 3, 3),
        dilations=dilation,
        pads=dilation,
        epilogue=relu_of_bias(),
        extra=[bias(40)],
    )
    check(case, conv_padded, target, output_halo=1)


@TARGETS
@pytest.mark.parametrize("size", [(1, 1), (2, 9), (7, 3), (9, 40)])
def test_sizes_that_only_the_run_knows(target, size):
    open_ = symbols("n", 35, "h", "w")
    epilogue, extra = relu_of_bias(), [bias(40)]
    case = convolution((2, 35, *size), (40, 35, 3, 3), 1, 12, 12, 1, epilogue, extra, open_)
    check(case, conv_padded, target, output_halo=1)
    check(convolution((1, 35, *size), (17, 35, 3, 3), 2, 9, 9, symbolic=open_), conv_padded, target, wider=1)
    row = symbols(1, 16, "w")
    check(convolution((1, 16, 8 * size[1]), (24, 16, 3), 1, 40, 40, symbolic=row), conv_padded, target)


@TARGETS
@pytest.mark.parametrize("width", [1, 6, 37])
def test_known_rows_of_a_length_that_only_the_run_knows(target, width):
    row = symbols(1, 35, 9, "w")
    case = convolution((1, 35, 9, width), (40, 35, 3, 3), 1, 6, 6, 1, relu_of_bias(), [bias(40)], row)
    check(case, conv_padded, target, output_halo=1)


@TARGETS
@pytest.mark.parametrize("size", [(18, 10), (9, 9), (12, 5)])
@pytest.mark.parametrize("outputs", [17, 40])
def test_the_border_is_what_the_tiles_read_whatever_layouts_cost(target, size, outputs):
    case = convolution(
        (1, 1, *size), (outputs, 1, 5, 1), 2, (6, 0, 6, 0), 3, 1, relu_of_bias(), [bias(outputs)]
    )
    check(case, conv_padded, target)


def test_windows_over_sizes_of_the_run_count_as_far_dilated_where_they_span_most_of_small_images():
    for dilation, taken in ((1, False), (4, False), (12, True), (24, True)):
        shape = symbols(1, 16, "h", "w")
        case = convolution((1, 16, 9, 9), (16, 16, 3, 3), 1, dilation, dilation, symbolic=shape)
        assert bool(choices(case, conv_padded, harness.RUNNABLE[0])[1]) == taken


def test_long_windows_of_open_signals_without_padding_are_left_to_others():
    for pads, taken in ((0, False), (100, True)):
        case = convolution((1, 1, 900), (16, 1, 256), 1, pads, symbolic=symbols(1, 1, "w"))
        assert bool(choices(case, conv_padded, harness.RUNNABLE[0])[1]) == taken


@TARGETS
def test_windows_larger_than_their_image_with_strides_and_any_padding(target):
    check(convolution((1, 16, 3, 4), (24, 16, 7, 5), 1, (3, 2, 3, 2)), conv_padded, target)
    check(convolution((1, 20, 8, 7), (17, 20, 3, 3), 2, (6, 5, 4, 7), 4), conv_padded, target, 1)
    check(convolution((1, 5, 2, 5), (8, 5, 3, 3), 1, 2, 1), conv_padded, target)


@TARGETS
@pytest.mark.parametrize("output_halo", [0, 1])
def test_sequences_and_columns_that_are_shorter_than_windows(target, output_halo):
    epilogue, extra = relu_of_bias(), [bias(24)]
    row = [(random(24, 1, seed=7), True)]
    case = convolution((2, 35, 11), (24, 35, 40), 1, (20, 19), epilogue=epilogue, extra=row)
    check(case, conv_padded, target, output_halo=output_halo)
    case = convolution((2, 20, 16, 1), (24, 20, 64, 1), 1, (31, 0, 32, 0), epilogue=epilogue, extra=extra)
    check(case, conv_padded, target, output_halo=output_halo)
    check(convolution((1, 16, 1, 9), (24, 16, 3, 5), 2, (3, 6, 3, 6), 3), conv_padded, target, 0, output_halo)


@TARGETS
@pytest.mark.parametrize("known", [True, False], ids=["known size", "size of the run"])
def test_channels_are_summed_up_in_slices_where_weights_leave_the_cache(target, known):
    small = replace(target, facts=replace(target.facts, level2_bytes=24 << 10))
    shape = 2, 96, 9, 37
    case = convolution(
        shape,
        (40, 96, 3, 3),
        1,
        8,
        8,
        epilogue=relu_of_bias(),
        extra=[(random(2, 40, 9, 37, seed=3), False)],
        symbolic=None if known else symbols("n", 96, "h", "w"),
    )
    if not known:
        case.shapes[2] = symbols("n", 40, "h", "w")
    check(case, conv_padded, small, output_halo=1)
    node, (choice, *_) = choices(case, conv_padded, small)
    whole, sliced = (conv_padded.emit(laid_out(node, choice), choice, t).steps[0] for t in (target, small))
    assert whole.scratch == 64 != sliced.scratch
    check(convolution((1, 96, 9, 5), (96, 48, 3, 3), 1, 4, 4, groups=2), conv_padded, small)


@TARGETS
@pytest.mark.parametrize("width", [20, 32, 43])
def test_every_tile_of_a_row_keeps_its_sums_from_slice_to_slice(target, width):
    """Also where tiles of several widths take less time than one that overlaps another."""
    facts = replace(PROCESSORS["znver4"].facts, level2_bytes=24 << 10)
    case = convolution(
        (1, 96, 9, width), (32, 96, 7, 7), 3, (12, 1, 12, 1), 2, symbolic=symbols(1, 96, "h", "w")
    )
    check(case, conv_padded, replace(target, facts=facts))


@TARGETS
@pytest.mark.parametrize("inside, made", [(48, 48), (16, 96), (32, 16)])
def test_groups_of_whole_blocks(target, inside, made):
    shape = 2, 3 * inside, 11
    case = convolution(
        shape,
        (3 * made, inside, 40),
        1,
        (20, 19),
        groups=3,
        epilogue=relu_of_bias(),
        extra=[(random(3 * made, 1, seed=7), True)],
    )
    check(case, conv_padded, target, output_halo=1)
    case = convolution((1, 3 * inside, 6, 9), (3 * made, inside, 3, 3), dilations=5, pads=5, groups=3)
    check(case, conv_padded, target)


@TARGETS
@pytest.mark.parametrize("inside, made", [(2, 16), (16, 6)])
def test_groups_that_share_blocks_are_left_to_others(target, inside, made):
    case = convolution((1, 3 * inside, 11), (3 * made, inside, 40), 1, (20, 19), groups=3)
    assert not choices(case, conv_padded, target)[1]


def test_what_has_little_padding_is_left_to_others():
    for size, dilation in ((28, 1), (7, 1), (4, 1), (28, 2)):
        case = convolution((1, 16, size, size), (16, 16, 3, 3), dilations=dilation, pads=dilation)
        assert not choices(case, conv_padded, harness.RUNNABLE[0])[1]
