"""Transposed convolutions against the interpreter."""

from dataclasses import replace

import pytest
from support.blocked_cases import (
    INTO_SECOND_LEVEL,
    bias,
    check,
    choices,
    laid_out,
    random,
    relu_of_bias,
    symbols,
    transposed,
)
from support.harness import TARGETS

from onnxc.codegen.kernels import conv_transpose
from onnxc.ir import dims
from onnxc.ir.expr import input_, sigmoid


@TARGETS
@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5, (2, 3)])
@pytest.mark.parametrize("strides", [1, 2, 3, (1, 2)])
def test_windows_and_strides(target, kernel, strides):
    kernel = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    check(transposed((1, 18, 4, 5), (18, 20, *kernel), strides), conv_transpose, target, output_halo=1)


@TARGETS
@pytest.mark.parametrize("pads", [1, (0, 1, 2, 0), (2, 2, 1, 1), (-1, 0, 0, -2)])
def test_padding_cuts_what_the_image_spreads(target, pads):
    check(transposed((2, 9, 6, 5), (9, 17, 4, 3), 2, pads), conv_transpose, target, wider=1)
    check(transposed((2, 9, 6, 5), (9, 17, 4, 3), 2, pads, output_padding=(1, 1)), conv_transpose, target)


@TARGETS
@pytest.mark.parametrize("strides", [1, 2, 3, 4])
@pytest.mark.parametrize("dilations", [2, 3])
def test_windows_that_are_dilated_by_any_stride(target, strides, dilations):
    check(transposed((1, 9, 6, 5), (9, 17, 3, 3), strides, 1, dilations), conv_transpose, target)


@TARGETS
@pytest.mark.parametrize("width", range(9, 33))
def test_lattices_of_different_widths_have_tiles_of_one_window_in_common(target, width):
    check(transposed((1, 9, 3, width), (9, 41, 3, 3), 3, 1), conv_transpose, target)
    check(transposed((1, 9, 3, width), (9, 41, 4, 4), 2, 1, output_padding=(1, 1)), conv_transpose, target)


@TARGETS
def test_an_epilogue_is_applied_to_what_is_added_up(target):
    body = sigmoid(input_(0, "float32") + input_(1, "float32")) + input_(2, "float32")
    extra = [bias(19), (random(2, 19, 8, 10, seed=3), False)]
    check(
        transposed((2, 9, 4, 5), (9, 19, 2, 2), 2, epilogue=body, extra=extra), conv_transpose, target, 1, 1
    )


@TARGETS
@pytest.mark.parametrize("outputs", [1, 2])
def test_to_few_channels_is_dense(target, outputs):
    body = sigmoid(input_(0, "float32") * input_(2, "float32") + input_(1, "float32"))
    for size in ((4, 5), (3, 16), (2, 37)):
        case = transposed(
            (2, 24, *size), (24, outputs, 2, 2), 2, epilogue=body, extra=[bias(outputs), (random(), False)]
        )
        check(case, conv_transpose, target, wider=1)
    check(transposed((1, 9, 33), (9, outputs, 3), 3), conv_transpose, target)


@TARGETS
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (6, 21)])
def test_images_whose_size_only_the_run_knows(target, size):
    symbolic = symbols("n", 9, "h", "w")
    for outputs, kernel, pads in ((17, 2, 0), (17, 3, 1), (1, 2, 0)):
        case = transposed(
            (2, 9, *size),
            (9, outputs, kernel, kernel),
            2,
            pads,
            symbolic=symbolic,
            epilogue=relu_of_bias(),
            extra=[bias(outputs)],
        )
        check(case, conv_transpose, target, 1, 1)


@TARGETS
@pytest.mark.parametrize("kernel, strides, pads", [(2, 3, 0), (3, (1, 2), (2, 0, 1, 2)), (3, 2, 1)])
def test_symbolic_images_that_end_between_two_steps(target, kernel, strides, pads):
    symbolic = (dims.symbol("n"), 9, dims.symbol("h"), dims.symbol("w"))  # which may be 0
    case = transposed((2, 9, 4, 6), (9, 17, kernel, kernel), strides, pads, symbolic=symbolic)
    check(case, conv_transpose, target)


@TARGETS
def test_signals_of_one_axis_are_spread(target):
    check(transposed((2, 20, 31), (20, 12, 4), 2, 1), conv_transpose, target, output_halo=1)
    check(transposed((1, 20, 301), (20, 40, 5), 3), conv_transpose, target)


@TARGETS
@pytest.mark.parametrize("kernel", [2, 3, 4])
@pytest.mark.parametrize("known", [True, False])
def test_weights_from_beyond_the_caches_are_fetched_before_they_are_multiplied(target, kernel, known):
    far = replace(target, run_bytes=2 * target.facts.level2_bytes)
    symbolic = None if known else symbols(1, 40, "h", "w")
    case = transposed((1, 40, 3, 3), (40, 70, kernel, kernel), 2, symbolic=symbolic)
    check(case, conv_transpose, far)
    node, (choice, *_) = choices(case, conv_transpose, far)
    near, away = (conv_transpose.emit(laid_out(node, choice), choice, t).steps[0].text for t in (target, far))
    assert INTO_SECOND_LEVEL not in near
    assert INTO_SECOND_LEVEL in away


@TARGETS
def test_lattices_that_fetch_and_have_no_taps(target):
    far = replace(target, run_bytes=2 * target.facts.level2_bytes)
    check(transposed((1, 40, 3, 3), (40, 70, 1, 1), 2), conv_transpose, far, output_halo=1)
