"""Convolutions over blocked channels against the interpreter, and that sums of every kind of convolution stay
in registers."""

import re
from dataclasses import replace

import numpy as np
import pytest
from support import harness
from support.blocked_cases import (
    INTO_SECOND_LEVEL,
    behind_the_first,
    bias,
    check,
    check_choice,
    check_halves,
    choices,
    convolution,
    integers,
    laid_out,
    of_halves,
    random,
    relu_of_bias,
    symbols,
    transposed,
)
from support.harness import TARGETS

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import conv, conv_grouped, conv_stem, conv_transpose
from onnxc.codegen.tiles import conv_plan
from onnxc.codegen.tiles.channel_panels import panels_of
from onnxc.facts import Facts
from onnxc.ir import dims, expr
from onnxc.ir.expr import input_, sigmoid
from onnxc.target import LEVELS


@TARGETS
@pytest.mark.parametrize("channels", [(1, 1), (3, 5), (16, 16), (17, 33), (40, 70), (64, 24)])
def test_pointwise_convolutions_of_any_channels(target, channels):
    inputs, outputs = channels
    check(convolution((1, inputs, 5, 7), (outputs, inputs, 1, 1)), conv, target)


@TARGETS
def test_tiles_that_are_nearly_as_fast_give_the_same(target):
    case = convolution((1, 24, 6, 7), (70, 24, 3, 3), pads=1)
    assert len(choices(case, conv, target, every=True)[1]) > 1
    check(case, conv, target, every=True)


@TARGETS
@pytest.mark.parametrize("inputs", [1, 2, 3, 7, 16, 21, 40])
@pytest.mark.parametrize("outputs", [1, 2, 3, 5, 8, 17, 24])
def test_lanes_without_a_result_add_up_other_channels(target, inputs, outputs):
    shape, kernel = (1, inputs, 6, 9), (outputs, inputs, 3, 2)
    case = convolution(shape, kernel, pads=1, epilogue=relu_of_bias(), extra=[bias(outputs)])
    check(case, conv, target, every=True)
    wide = convolution(shape, (outputs, inputs, 1, 1), dtype=np.float64)
    check(wide, conv, target, tolerance=1e-12, every=True)


@TARGETS
@pytest.mark.parametrize(
    "size", [(1, 1), (1, 2), (2, 1), (3, 3), (7, 7), (13, 13), (5, 29), (31, 1), (1, 64)]
)
def test_windows_over_images_of_any_size(target, size):
    check(convolution((1, 9, *size), (18, 9, 3, 3), pads=1), conv, target, output_halo=1)


@TARGETS
@pytest.mark.parametrize("kernel", [(1, 3), (3, 1), (2, 2), (5, 5), (7, 3), (1, 7)])
def test_kernels_of_any_shape(target, kernel):
    check(convolution((1, 20, 11, 9), (8, 20, *kernel), pads=(1, 2, 3, 0)), conv, target)


@TARGETS
@pytest.mark.parametrize("strides", [2, 3, (1, 2), (3, 1)])
@pytest.mark.parametrize("dilations", [1, 2, (1, 3)])
def test_strides_and_dilations(target, strides, dilations):
    check(convolution((1, 8, 17, 15), (10, 8, 3, 3), strides, 2, dilations), conv, target, output_halo=1)


@TARGETS
def test_strided_pointwise_convolutions(target):
    check(convolution((2, 24, 9, 10), (40, 24, 1, 1), 2), conv, target)


SPARSE = {
    "batch": convolution((2, 24, 9, 10), (40, 24, 1, 1), 2),
    "a step along rows": convolution((1, 17, 8, 13), (33, 17, 1, 1), (1, 3)),
    "one axis": convolution((2, 20, 31), (9, 20, 1), 4),
    "a column": convolution((1, 20, 31, 1), (9, 20, 1, 1), 2),
    "no pixels": convolution((0, 20, 3, 5), (9, 20, 1, 1), 2),
    "sizes of the run": convolution((2, 24, 9, 10), (40, 24, 1, 1), 2, symbolic=symbols("n", 24, "h", "w")),
    "epilogue": convolution((1, 24, 9, 9), (20, 24, 1, 1), 2, epilogue=relu_of_bias(), extra=[bias(20)]),
    "bytes": integers((1, 24, 9, 10), (40, 24, 1, 1), 2, zero=3),
}


@TARGETS
@pytest.mark.parametrize("gathered", [False, True])
@pytest.mark.parametrize("name", SPARSE)
def test_pixels_of_which_others_lie_between_may_be_brought_together(target, name, gathered):
    case = SPARSE[name]
    node, (choice, *_) = choices(case, conv, target)
    choice = replace(choice, tiling=replace(choice.tiling, gathered=gathered))
    check_choice(case, node, choice, target)
    check_choice(case, node, choice, target, wider=1, output_halo=1)
    assert len(conv.emit(laid_out(node, choice), choice, target).steps) == 1 + gathered


@pytest.mark.parametrize("side, gathered", [(7, True), (48, False)])
def test_they_are_where_rows_of_the_result_are_no_multiple_of_tiles(side, gathered):
    """Which have up to 6 pixels there."""
    case = convolution((1, 256, 2 * side, 2 * side), (512, 256, 1, 1), 2)
    _, (choice, *_) = choices(case, conv, LEVELS["x86-64-v3"])
    assert choice.tiling.gathered == gathered


@TARGETS
@pytest.mark.parametrize("pixels, large", [(4, False), (64, True)])
def test_a_tile_fetches_the_pixels_of_the_next_one_of_large_images(target, pixels, large):
    """Where tiles are not so large that these come in time."""
    case = convolution((1, 256, pixels, pixels), (16, 256, 1, 1))
    node, (choice, *_) = choices(case, conv, target)
    fetched = "llvm.prefetch" in conv.emit(laid_out(node, choice), choice, target).steps[0].text
    assert fetched == (large and target.vector_bits <= 256)


SLICED = {
    "pixels": convolution((1, 128, 9, 13), (40, 128, 1, 1)),
    "pixels of several images": convolution((2, 80, 14, 14), (24, 80, 1, 1)),
    "channels that fill no block": convolution((1, 61, 9, 13), (37, 61, 1, 1)),
    "windows": convolution((1, 48, 11, 13), (40, 48, 3, 3), pads=1),
    "windows and a rest of channels": convolution((1, 37, 17, 19), (9, 37, 3, 2), 2, pads=1),
    "one axis": convolution((1, 40, 61), (24, 40, 5), pads=2),
    "a column": convolution((1, 40, 61, 1), (24, 40, 3, 1), pads=(1, 0, 1, 0)),
    "pixels that are brought together": convolution((1, 96, 19, 19), (40, 96, 1, 1), 2),
    "sizes of the run": convolution(
        (2, 48, 11, 13), (40, 48, 3, 3), pads=1, symbolic=symbols("n", 48, "h", "w")
    ),
    "pixels of the run": convolution((1, 96, 9, 13), (40, 96, 1, 1), symbolic=symbols("n", 96, "h", "w")),
    "epilogue": convolution((1, 96, 9, 9), (20, 96, 1, 1), epilogue=relu_of_bias(), extra=[bias(20)]),
    "double precision": convolution((1, 61, 9, 13), (37, 61, 1, 1), dtype=np.float64),
}


@TARGETS
@pytest.mark.parametrize("most", [2, 3, 99])
@pytest.mark.parametrize("name", SLICED)
def test_channels_may_be_added_slice_by_slice(target, name, most, monkeypatch):
    monkeypatch.setattr(conv, "slices_of", lambda target, blocks, *rest: min(blocks, most))
    case = SLICED[name]
    node, offered = choices(case, conv, target, every=most == 3)
    assert offered
    for choice in offered:
        check_choice(case, node, choice, target)
        check_choice(case, node, choice, target, wider=1, output_halo=1)
        assert "ptr noalias %sums" in conv.emit(laid_out(node, choice), choice, target).steps[-1].text


@TARGETS
def test_slices_add_in_the_order_of_the_whole(target, monkeypatch):
    case, found = convolution((1, 96, 7, 9), (40, 96, 3, 3), pads=1), []
    for count in (1, 2):
        monkeypatch.setattr(conv, "slices_of", lambda *_, count=count: count)
        node, (choice, *_) = choices(case, conv, target)
        env = harness.bind(node, case.arrays)
        found.append(harness.run_choice(laid_out(node, choice), choice, case.arrays, target, env)[0][0])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    "rate, channels, pixels, sliced",
    [
        (60.0, 768, 20, True),
        (60.0, 768, 1, False),  # nobody reads the weights again
        (60.0, 96, 20, False),  # the first-level cache holds them all
        (600.0, 768, 20, False),  # the second one is as fast
    ],
)
def test_they_do_where_panels_would_come_from_the_second_level_cache(rate, channels, pixels, sliced):
    target = replace(LEVELS["x86-64-v4"], facts=Facts(level2_rate=rate))
    case = convolution((1, channels, pixels, pixels), (64, channels, 1, 1))
    node, (choice, *_) = choices(case, conv, target)
    code = conv.emit(laid_out(node, choice), choice, target)
    assert ("ptr noalias %sums" in code.steps[0].text) == sliced


@TARGETS
@pytest.mark.parametrize("size", [(7, 7), (3, 19), (19, 19), (2, 5), (13, 3), (11, 1), (64, 2)])
@pytest.mark.parametrize("halo", [1, 2])
def test_tiles_of_a_result_with_a_border_go_on_from_row_to_row(target, size, halo):
    bodies = {
        "sums": {},
        "bias": {"epilogue": relu_of_bias(), "extra": [bias(40)]},
        "residual": {
            "epilogue": (input_(0, "float32") + input_(1, "float32")).maximum(0.0),
            "extra": [(random(2, 40, *size, seed=3), False)],
        },
        "long": {
            "epilogue": sigmoid(input_(0, "float32")) * input_(1, "float32"),
            "extra": [(random(2, 40, *size, seed=4), False)],
        },
    }
    for body in bodies.values():
        check(convolution((2, 24, *size), (40, 24, 1, 1), **body), conv, target, output_halo=halo, every=True)


@pytest.mark.parametrize("side, wrapped", [(7, True), (19, True), (12, False), (48, False)])
def test_they_do_where_that_makes_fewer(side, wrapped):
    """Of six pixels."""
    target = LEVELS["x86-64-v3"]
    node, (choice, *_) = choices(convolution((1, 64, side, side), (64, 64, 1, 1)), conv, target)
    code = conv.emit(laid_out(node, choice, output_halo=1), choice, target)
    assert ("%column" in code.steps[0].text) == wrapped


@TARGETS
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_read_as_they_are_stored(target, dtype):
    check_halves(convolution((1, 21, 6, 5), (37, 21, 3, 2), 2, pads=1), conv, target, dtype)
    check_halves(convolution((2, 24, 5, 9), (40, 24, 1, 1)), conv, target, dtype)


@TARGETS
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_panels_of_halves_that_tiles_share_are_decoded_before(target, dtype):
    check_halves(convolution((1, 24, 20, 21), (40, 24, 1, 1)), conv, target, dtype)
    check_halves(convolution((1, 18, 9, 30), (20, 18, 3, 3), pads=1), conv, target, dtype)
    check_halves(convolution((1, 19, 20, 21), (18, 19, 1, 1)), conv, target, dtype)
    small = replace(target, facts=Facts(level2_bytes=16 << 10))  # which keeps panels, but not the image
    check_halves(convolution((2, 24, 20, 21), (40, 24, 1, 1)), conv, small, dtype)


@pytest.mark.parametrize(
    "shape, decoded, kept",
    [
        ((24, 2, 40), False, False),
        ((24, 40, 40), True, False),
        ((256, 56, 64), True, True),  # lines go through all panels, which the cache keeps as numbers
        ((1024, 14, 256), True, False),  # all lines of a panel follow each other
    ],
)
def test_panels_of_halves_are_decoded_where_several_tiles_share_them(shape, decoded, kept):
    channels, side, outputs = shape
    target = replace(LEVELS["x86-64-v4"], facts=Facts(level2_bytes=2 << 20))
    node, _ = of_halves(convolution((1, channels, side, side), (outputs, channels, 1, 1)), "bfloat16")
    choice, *_ = choices_of(conv, node, target)
    plan = conv.plan_of(laid_out(node, choice), target, choice.tiling)
    found = conv_plan.decoding(plan, target, *conv_plan.partition(plan, target, choice.cost))
    assert (found.decoded, found.kept) == (decoded, kept)


@pytest.mark.parametrize("shape, shared", [((64, 28, 96), True), ((1024, 14, 256), False)])
def test_threads_share_lines_where_the_numbers_of_weights_are_few_however_these_are_stored(shape, shared):
    channels, side, outputs = shape
    target = replace(LEVELS["x86-64-v4"], facts=Facts(level2_bytes=2 << 20))
    for node in of_halves(convolution((1, channels, side, side), (outputs, channels, 1, 1)), "bfloat16"):
        choice, *_ = choices_of(conv, node, target)
        plan = conv.plan_of(laid_out(node, choice), target, choice.tiling)
        assert conv_plan.shares_lines(plan, target) is shared


@TARGETS
def test_several_images_are_convolved_as_one_is(target):
    check(convolution((3, 18, 6, 5), (20, 18, 3, 3), pads=1), conv, target, output_halo=2)


@TARGETS
def test_halos_wider_than_the_padding(target):
    check(convolution((2, 18, 6, 5), (20, 18, 3, 3), pads=1), conv, target, wider=2, output_halo=1)


@TARGETS
def test_pointwise_convolutions_between_halos(target):
    check(convolution((2, 18, 6, 5), (20, 18, 1, 1)), conv, target, wider=1, output_halo=2)


@TARGETS
def test_asymmetric_and_negative_padding(target):
    check(convolution((1, 8, 9, 9), (8, 8, 3, 3), 2, (0, 0, 1, 1)), conv, target)
    check(convolution((1, 8, 9, 9), (8, 8, 3, 3), 1, (-1, 2, 1, -2)), conv, target)


@TARGETS
def test_one_spatial_axis(target):
    check(convolution((2, 20, 33), (24, 20, 5), 2, 2), conv, target, output_halo=3)
    check(convolution((1, 20, 300), (24, 20, 1)), conv, target)


@TARGETS
def test_sequences_may_be_padded_far(target):
    """Causal convolutions whose dilations double."""
    check(convolution((1, 20, 90), (24, 20, 3), 1, (128, 0), 64), conv, target, output_halo=256)
    check(convolution((2, 20, 33), (24, 20, 2), 1, (512, 0), 512), conv, target)
    check(convolution((1, 20, 300), (24, 20, 3), 1, 70, 70), conv, target)


@TARGETS
def test_images_of_one_column(target):
    check(convolution((1, 20, 57, 1), (24, 20, 5, 1), 1, (2, 0, 2, 0)), conv, target)


@TARGETS
def test_float64_is_added_up_in_double_precision(target):
    case = convolution((1, 10, 9, 8), (12, 10, 3, 3), 1, 1, dtype=np.float64)
    check(case, conv, target, tolerance=1e-12)


@TARGETS
def test_bias_and_activation(target):
    case = convolution((1, 10, 9, 8), (19, 10, 3, 3), 1, 1, epilogue=relu_of_bias(), extra=[bias(19)])
    check(case, conv, target, output_halo=1)


@TARGETS
def test_activations_that_do_not_keep_zero(target):
    body = sigmoid(input_(0, "float32") + input_(1, "float32"))
    check(
        convolution((1, 10, 9, 8), (19, 10, 3, 3), 1, 1, epilogue=body, extra=[bias(19)]),
        conv,
        target,
        output_halo=1,
    )
    check(
        convolution((1, 10, 9, 8), (19, 10, 1, 1), epilogue=input_(0, "float32") + 1.0),
        conv,
        target,
        output_halo=1,
    )


@TARGETS
@pytest.mark.parametrize("wider", [0, 1])
def test_an_epilogue_adds_a_residual_of_the_run(target, wider):
    body = (input_(0, "float32") + input_(1, "float32") + input_(2, "float32")).maximum(0.0)
    extra = [bias(21), (random(2, 21, 9, 8, seed=3), False)]
    check(
        convolution((2, 10, 9, 8), (21, 10, 3, 3), 1, 1, epilogue=body, extra=extra), conv, target, wider, 1
    )
    check(convolution((2, 10, 9, 8), (21, 10, 1, 1), epilogue=body, extra=extra), conv, target, wider, wider)


@TARGETS
@pytest.mark.parametrize("halo", [0, 1])
@pytest.mark.parametrize("size", [(7, 7), (5, 29), (13, 13), (1, 17)])
def test_residuals_whose_place_the_result_takes(target, size, halo):
    body = (input_(0, "float32") + input_(1, "float32")).maximum(0.0)
    extra = [(random(1, 21, *size, seed=3), False)]
    for kernel, pads in ((1, 0), (3, 1)):
        case = convolution((1, 10, *size), (21, 10, kernel, kernel), 1, pads, epilogue=body, extra=extra)
        check(case, conv, target, wider=halo, output_halo=halo)


@TARGETS
@pytest.mark.parametrize(
    "shape", [(), (1,), (1, 21, 1, 1), (2, 21, 1, 1), (9, 8), (2, 1, 9, 8), (8,), (1, 21, 9, 8)]
)
@pytest.mark.parametrize("known", [True, False])
def test_epilogue_operands_that_broadcast(target, shape, known):
    body = input_(0, "float32") * input_(1, "float32")
    check(
        convolution((2, 6, 9, 8), (21, 6, 3, 3), 1, 1, epilogue=body, extra=[(random(*shape), known)]),
        conv,
        target,
        0,
        1,
    )


@TARGETS
def test_epilogues_longer_than_the_registers_hold(target):
    x, scale = input_(0, "float32") + input_(1, "float32"), input_(2, "float32")
    body = x * sigmoid(x) * scale + expr.tanh(x)
    extra = [bias(21), (random(1, 21, 9, 8, seed=3), False)]
    check(convolution((1, 10, 9, 8), (21, 10, 3, 3), 1, 1, epilogue=body, extra=extra), conv, target, 1, 1)


@TARGETS
@pytest.mark.parametrize("size", [(1, 1), (3, 2), (5, 5), (4, 14), (2, 15), (3, 21), (2, 47)])
def test_images_whose_size_only_the_run_knows(target, size):
    symbolic = symbols("n", 12, "h", "w")
    for kernel, pads in ((3, 1), (1, 0)):
        case = convolution(
            (2, 12, *size),
            (20, 12, kernel, kernel),
            1,
            pads,
            symbolic=symbolic,
            epilogue=relu_of_bias(),
            extra=[bias(20)],
        )
        check(case, conv, target, wider=1, output_halo=1)
        check(case, conv, target)


@TARGETS
def test_symbolic_widths_with_strides(target):
    for width in (1, 2, 9, 30, 64):
        case = convolution((1, 12, 6, width), (20, 12, 3, 3), 2, 1, symbolic=symbols(1, 12, 6, "w"))
        check(case, conv, target, output_halo=1)


@TARGETS
def test_padding_that_only_the_run_knows(target):
    width = symbols("w")[0]
    for size in (7, 8):
        case = convolution((1, 12, 6, size), (20, 12, 3, 3), 2, 1, symbolic=(1, 12, 6, width))
        before = width % 2  # what SAME takes for a stride of 2
        case.op = type(case.op)((2, 2), (1, before, 1, 1), (1, 1))
        check(case, conv, target)
        single = convolution((1, 12, 6, size), (20, 12, 1, 1), 2, 0, symbolic=(1, 12, 6, width))
        single.op = type(single.op)((2, 2), (0, before, 0, 1), (1, 1))
        check(single, conv, target)


@TARGETS
def test_symbolic_padding_of_single_pixels(target):
    width = symbols("w")[0]
    for size in (1, 7, 8):
        case = convolution((1, 24, 9, size), (40, 24, 1, 1), 2, symbolic=(1, 24, 9, width))
        behind = dims.maximum((dims.ceil_divide(width, 2) - 1) * 2 + 1 - width, 0)  # what SAME takes: none
        case.op = type(case.op)((2, 2), (0, 0, 0, behind), (1, 1))
        check(case, conv, target)


@TARGETS
def test_no_images_and_results_without_a_pixel(target):
    check(convolution((0, 12, 6, 6), (20, 12, 3, 3), 1, 1), conv, target)
    check(convolution((1, 12, 2, 6), (20, 12, 3, 3)), conv, target)


@TARGETS
@pytest.mark.parametrize("size", [(0, 5), (5, 0), (0, 0)])
def test_results_of_no_pixels_have_a_border_still(target, size):
    check(convolution((1, 24, *size), (40, 24, 1, 1)), conv, target, output_halo=1, every=True)
    open_ = symbols(1, 24, "h", "w")
    check(convolution((1, 24, *size), (40, 24, 1, 1), symbolic=open_), conv, target, output_halo=1)


@TARGETS
def test_parts_of_large_images_give_the_whole(target):
    check(convolution((2, 40, 60, 62), (40, 40, 3, 3), 1, 1), conv, target, output_halo=1)
    check(convolution((1, 64, 100, 63), (100, 64, 1, 1)), conv, target)


@TARGETS
@pytest.mark.parametrize("known", [True, False], ids=["known size", "size of the run"])
def test_weights_from_beyond_the_caches_are_fetched_before_they_are_multiplied(target, known):
    far = replace(target, run_bytes=2 * target.facts.level2_bytes)
    symbolic = None if known else symbols(1, 40, "h", "w")
    for case in (
        convolution((1, 40, 3, 3), (70, 40, 1, 1), symbolic=symbolic),
        convolution((1, 40, 3, 3), (70, 40, 3, 3), 2, 1, symbolic=symbolic),
    ):
        check(case, conv, far)
        node, offered = choices(case, conv, far)
        for choice in offered:
            near, away = (conv.emit(laid_out(node, choice), choice, t).steps[0].text for t in (target, far))
            assert INTO_SECOND_LEVEL not in near
            assert INTO_SECOND_LEVEL in away
            assert vectors_on_the_stack(far, away) == 0


@pytest.mark.skipif(bool(harness.EMULATED), reason="what is fetched is seen in this process")
@pytest.mark.parametrize("known", [True, False], ids=["known size", "size of the run"])
@pytest.mark.parametrize("size, kernel", [((2, 1), 3), ((7, 7), 1), ((7, 7), 3), ((5, 40), 3)])
def test_every_line_of_the_panels_behind_the_first_is_fetched_while_others_are_multiplied(
    size, kernel, known
):
    symbolic = None if known else symbols("n", 64, "h", "w")
    case = convolution((1, 64, *size), (160, 64, kernel, kernel), 1, kernel // 2, symbolic=symbolic)
    far = replace(harness.RUNNABLE[0], run_bytes=1 << 30)
    node, (choice, *_) = choices(case, conv, far)
    lines, memory = harness.fetched_lines(laid_out(node, choice), choice, case.arrays, far)
    assert {*behind_the_first(memory["input"][1], choice, 64 * kernel**2)} <= lines


@pytest.mark.skipif(bool(harness.EMULATED), reason="what is fetched is seen in this process")
@pytest.mark.parametrize("halo", [0, 1])
def test_the_tiles_of_a_chunk_of_lines_fetch_all_of_the_panels_behind_the_first(halo):
    native = harness.RUNNABLE[0]
    case = convolution((1, 32, 24, 24), (64, 32, 1, 1))
    facts = replace(native.facts, level2_bytes=case.arrays[0].nbytes)  # chunks are half of that
    far = replace(native, facts=facts, run_bytes=1 << 30)
    node, (choice, *_) = choices(case, conv, far)
    panels, node = -(-64 // (choice.tiling.vectors * choice.block)), laid_out(node, choice, 0, halo)
    lines, memory = harness.fetched_lines(node, choice, case.arrays, far, parts=panels)
    assert {*behind_the_first(memory["input"][1], choice, 32)} <= lines


@TARGETS
def test_one_pixel_reads_weights_that_are_far_from_several_places(target):
    far = replace(target, run_bytes=2 * target.facts.level2_bytes)
    for case in (
        convolution((1, 1501, 1, 1), (40, 1501, 1, 1)),
        convolution((2, 320, 3, 3), (40, 320, 3, 3), symbolic=symbols("n", 320, 3, 3)),
    ):
        check(case, conv, far)
        node, offered = choices(case, conv, far)
        text = conv.emit(laid_out(node, offered[0]), offered[0], far).steps[0].text
        assert "llvm.prefetch" in text and vectors_on_the_stack(far, text) == 0


def test_no_choice_for_what_only_the_loop_nest_can_do():
    node = convolution((1, 4, 5, 6, 7), (4, 4, 3, 3, 3)).node()
    assert not choices_of(conv, node, harness.RUNNABLE[0])
    checked = expr.check(input_(0, "float32") < 3.0, input_(0, "float32"), "invalid_value")
    node = convolution((1, 4, 5, 6), (4, 4, 3, 3), epilogue=checked).node()
    assert not choices_of(conv, node, harness.RUNNABLE[0])


# On every processor ------------------------------------------------------------------------------


def vectors_on_the_stack(target, text):
    """Instructions of a kernel that move vectors between registers and the stack."""
    stack = (
        r"[xyz]mm\d+.*\(%[re]sp|\(%[re]sp\).*[xyz]mm\d+"
        if target.triple.startswith("x86")
        else r"\bq\d+.*\[sp"
    )
    return len(re.findall(stack, harness.assembly(text, target)))


@pytest.mark.parametrize("target", LEVELS.values(), ids=str)
def test_sums_stay_in_registers(target):
    cases = [
        (conv, convolution((1, 64, 56, 56), (64, 64, 3, 3), 1, 1, epilogue=relu_of_bias(), extra=[bias(64)])),
        (conv, convolution((1, 64, 56, 56), (256, 64, 1, 1))),
        (conv, convolution((1, 64, 56, 56), (24, 64, 1, 1))),
        (conv, convolution((1, 64, 56, 56), (1, 64, 3, 3), 1, 1)),
        (conv, convolution((1, 64, 56, 56), (64, 64, 3, 3), 2, 1, symbolic=symbols("n", 64, "h", "w"))),
        (conv_stem, convolution((1, 3, 224, 224), (64, 3, 7, 7), 2, 3)),
        (conv_grouped, convolution((1, 136, 28, 28), (136, 34, 1, 1), groups=4)),
        (conv_grouped, convolution((1, 16, 9, 50), (16, 8, 1, 1), groups=2)),
        (conv_transpose, transposed((1, 64, 28, 28), (64, 64, 4, 4), 2, 1)),
    ]
    for kernel, case in cases:
        node, (choice, *_) = choices(case, kernel, target)
        (step,) = kernel.emit(laid_out(node, choice), choice, target).steps
        assert vectors_on_the_stack(target, step.text) == 0


@TARGETS
@pytest.mark.parametrize("length", range(1, 7))
def test_a_tile_has_all_pixels_of_images_of_a_few(target, length):
    case = convolution((1, 33, length), (40, 33, 3), pads=1, symbolic=symbols(1, 33, "l"))
    check(case, conv, replace(target, run_bytes=1 << 30))
    widths, kinds = {}, panels_of(2 * target.block, target.block, 2)
    for typical in (2, 1000):
        axis = dims.symbol("width", typical=typical)
        widths[typical] = conv_plan.tile_shape(target, (None, axis), kinds, "float32", 99)[1]
    assert {2, 3, 4} <= set(widths[2]) and len(widths[1000]) < len(widths[2])


@TARGETS
@pytest.mark.parametrize("width", [7, 14, 16, 49, 56])
def test_few_pixels_of_lines_of_known_width_are_computed_twice(target, width):
    """16 in tiles of at most 6 are 6 + 6 + 4."""
    kinds = panels_of(2 * target.block, target.block, 2)
    _, (columns, *narrower) = conv_plan.tile_shape(target, (None, width), kinds, "float32", 512)
    whole, left = divmod(width, columns)
    assert whole * columns + (left and (*narrower, columns)[0]) <= 1.1 * width
    check(convolution((1, 40, 3, width), (2 * target.block, 40, 1, 1)), conv, target, output_halo=1)


@TARGETS
def test_many_channels_of_equal_weights_are_equal(target):
    case = convolution((1, 48, 5, 5), (1000, 48, 1, 1))
    case.arrays[1][:] = case.arrays[1][:1]
    node, offered = choices(case, conv, target)
    for choice in offered:
        ((got, _),) = harness.run_choice(laid_out(node, choice), choice, case.arrays, target)
        np.testing.assert_array_equal(got, np.broadcast_to(got[:, :1], got.shape))
