"""Depthwise convolutions over blocked channels against the interpreter."""

import pytest
from support import harness
from support.blocked_cases import check, convolution, random, relu_of_bias, symbols
from support.harness import TARGETS

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import depthwise
from onnxc.ir.expr import input_, sigmoid
from onnxc.target import TARGETS as PROCESSORS


def case(size, kernel, channels=19, batch=1, **options):
    return convolution((batch, channels, *size), (channels, 1, *kernel), groups=channels, **options)


@TARGETS
@pytest.mark.parametrize("channels", [2, 3, 16, 17, 40])
def test_any_number_of_channels(target, channels):
    check(case((9, 10), (3, 3), channels, pads=1), depthwise, target, output_halo=1)


@TARGETS
@pytest.mark.parametrize("kernel", [(3, 3), (5, 5), (7, 7), (1, 3), (4, 1), (2, 6)])
@pytest.mark.parametrize("strides", [1, 2, (3, 1)])
def test_any_kernel_and_stride(target, kernel, strides):
    check(case((12, 17), kernel, strides=strides, pads=2), depthwise, target, output_halo=1, every=True)


@TARGETS
def test_a_window_may_be_as_large_as_its_image(target):
    check(case((17, 15), (13, 13), channels=16, pads=6), depthwise, target)


@TARGETS
def test_windows_that_are_dilated_along_any_axis(target):
    check(case((12, 17), (3, 3), dilations=2, pads=2), depthwise, target, every=True)
    check(
        case((12, 17), (3, 5), dilations=(1, 3), strides=2, pads=(1, 6, 1, 6)), depthwise, target, every=True
    )


@TARGETS
@pytest.mark.parametrize("size", [(1, 1), (2, 1), (1, 9), (3, 3), (7, 7), (8, 30), (33, 2)])
def test_images_of_any_size(target, size):
    check(case(size, (3, 3), pads=1), depthwise, target, wider=1, every=True)


@TARGETS
def test_batches_and_wider_halos(target):
    check(case((6, 9), (3, 3), batch=3, pads=1), depthwise, target, wider=2, output_halo=2)


@TARGETS
def test_one_spatial_axis_and_one_column(target):
    check(convolution((2, 20, 33), (20, 1, 5), 1, 2, groups=20), depthwise, target, output_halo=1)
    check(case((33, 1), (5, 1), pads=(2, 0, 2, 0)), depthwise, target)


@TARGETS
def test_an_epilogue_is_applied_to_every_channel(target):
    bias = random(19, 1, 1), True
    check(
        case((8, 11), (3, 3), pads=1, epilogue=relu_of_bias(), extra=[bias]), depthwise, target, output_halo=1
    )
    body = sigmoid(input_(0, "float32") + input_(1, "float32")) * input_(2, "float32") + 1.0
    residual = random(2, 19, 8, 11), False
    check(
        case((8, 11), (3, 3), batch=2, pads=1, epilogue=body, extra=[bias, residual]), depthwise, target, 1, 1
    )


@TARGETS
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (6, 8), (4, 23)])
def test_images_whose_size_only_the_run_knows(target, size):
    symbolic = symbols("n", 19, "h", "w")
    check(case(size, (3, 3), batch=2, pads=1, symbolic=symbolic), depthwise, target, 1, 1)
    check(case(size, (5, 5), strides=2, pads=2, symbolic=symbols(1, 19, *size[:1], "w")), depthwise, target)


@TARGETS
def test_an_image_may_have_many_parts(target):
    check(case((96, 90), (3, 3), 40, pads=1), depthwise, target, output_halo=1)


@TARGETS
def test_an_image_without_columns_gives_its_padding(target):
    check(case((4, 0), (3, 3), pads=(0, 2, 0, 2)), depthwise, target)


@TARGETS
@pytest.mark.parametrize(
    "channels", [(5, 1, 2), (5, 2, 2), (9, 4, 4), (3, 1, 4), (6, 2, 4), (4, 2, 1), (11, 1, 8)]
)
def test_groups_of_few_channels(target, channels):
    groups, inside, made = channels
    block = target.lanes("float32")
    bias = random(groups * made, 1, 1), True
    for kernel, pads in ((3, 1), (1, 0)):
        case_ = convolution(
            (2, groups * inside, 6, 9),
            (groups * made, inside, kernel, kernel),
            1,
            pads,
            groups=groups,
            epilogue=relu_of_bias(),
            extra=[bias],
        )
        if block % made == 0 and block % (block // made * inside) == 0:
            check(case_, depthwise, target, output_halo=1)
        else:
            assert not choices_of(depthwise, case_.node(), target)


@pytest.mark.parametrize(
    "target, size, tiling",
    [  # eight multiply-adds are under way at a time in one processor, four in the other
        ("x86-64-v3", (13, 14), (1, True)),
        ("x86-64-v3", (14, 14), (1, True)),
        ("znver4", (13, 14), (1, True)),
        ("znver4", (14, 14), (2, False)),
    ],
)
def test_windows_go_line_by_line_where_few_open_sums_would_wait_for_each_other(target, size, tiling):
    found = choices_of(depthwise, case(size, (3, 3), pads=1).node(), PROCESSORS[target])[0].tiling
    assert (found.rows, found.by_lines) == tiling


def test_windows_too_large_to_unroll_are_left_to_others():
    node = case((40, 40), (33, 33)).node()
    assert not choices_of(depthwise, node, harness.RUNNABLE[0])
