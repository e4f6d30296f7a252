"""1x1 convolutions that add up a slice of the channels after the other, against the interpreter."""

from dataclasses import replace

import numpy as np
import pytest
from support import harness
from support.assembly import spills
from support.blocked_cases import (
    bias,
    check,
    choices,
    convolution,
    laid_out,
    random,
    relu_of_bias,
    same_bits_in_any_cut,
    symbols,
)
from support.harness import TARGETS

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import conv, conv_sliced
from onnxc.facts import Facts
from onnxc.ir.expr import apply, input_
from onnxc.target import LEVELS


def of_little_cache(target, nbytes=12 << 10):
    return replace(target, facts=replace(target.facts, level2_bytes=nbytes))


OF_LITTLE_CACHE = pytest.mark.parametrize("target", [of_little_cache(t) for t in harness.RUNNABLE], ids=str)


@OF_LITTLE_CACHE
@pytest.mark.parametrize("size", [(7, 7), (1, 50), (3, 17), (14, 14), (48, 1)])
@pytest.mark.parametrize("outputs", [8, 40, 70])
def test_images_of_any_size(target, size, outputs):
    outputs = max(outputs, target.block)
    check(convolution((2, 64, *size), (outputs, 64, 1, 1)), conv_sliced, target, every=True)


@OF_LITTLE_CACHE
@pytest.mark.parametrize("channels", [32, 48, 62, 112, 131, 144])
def test_slices_of_any_number(target, channels):
    case = convolution((1, channels, 7, 9), (40, channels, 1, 1), epilogue=relu_of_bias(), extra=[bias(40)])
    check(case, conv_sliced, target, output_halo=1)


@OF_LITTLE_CACHE
def test_the_epilogue_runs_once_behind_the_last_slice(target):
    residual = random(1, 40, 7, 9, seed=3), False
    for body in (
        (input_(0, "float32") + input_(1, "float32")).maximum(0.0),
        apply("erf", input_(0, "float32")) * input_(1, "float32"),
    ):
        case = convolution((1, 96, 7, 9), (40, 96, 1, 1), epilogue=body, extra=[residual])
        check(case, conv_sliced, target, output_halo=1)


@OF_LITTLE_CACHE
def test_any_number_of_images(target):
    case = convolution((3, 64, 7, 7), (40, 64, 1, 1), symbolic=symbols("n", 64, 7, 7))
    check(case, conv_sliced, target, output_halo=1)


@OF_LITTLE_CACHE
def test_slices_of_float64_add_up_in_double_precision(target):
    check(
        convolution((1, 64, 7, 7), (max(20, 3 * target.block), 64, 1, 1), dtype=np.float64),
        conv_sliced,
        target,
        tolerance=1e-13,
    )


@OF_LITTLE_CACHE
def test_parts_do_not_change_a_bit(target):
    same_bits_in_any_cut(convolution((2, 96, 7, 7), (120, 96, 1, 1)), conv_sliced, target)


@TARGETS
def test_lines_are_divided_where_panels_are_few(target):
    little = of_little_cache(target, 1 << 17)
    case = convolution((1, 384, 28, 28), (2 * target.block, 384, 1, 1))
    node, (choice, *_) = choices(case, conv_sliced, little)
    (step,) = conv_sliced.emit(laid_out(node, choice), choice, little).steps
    assert step.parts >= 14
    same_bits_in_any_cut(case, conv_sliced, little)


@OF_LITTLE_CACHE
def test_the_bits_are_those_of_one_slice(target):
    case = convolution((1, 96, 7, 9), (max(40, 3 * target.block), 96, 1, 1))
    found = []
    for kernel in (conv, conv_sliced):
        node, (choice, *_) = choices(case, kernel, target)
        chosen = laid_out(node, choice)
        found.append(
            harness.run_choice(chosen, choice, case.arrays, target, harness.bind(node, case.arrays))[0][0]
        )
    np.testing.assert_array_equal(*found)


@TARGETS
def test_a_slice_has_less_of_an_image_than_the_cache_holds(target):
    case, little = convolution((1, 3072, 7, 7), (768, 3072, 1, 1)), of_little_cache(target, 1 << 19)
    node, (choice, *_) = choices(case, conv_sliced, little)
    assert 8 <= conv_sliced.slice_of(node, little, choice.tiling) * choice.block <= 1536
    small = convolution((1, 64, 7, 7), (768, 64, 1, 1))
    assert not choices_of(conv_sliced, small.node(), of_little_cache(target, 1 << 19))


@OF_LITTLE_CACHE
@pytest.mark.parametrize(
    "shape, weights, options",
    [
        ((1, 64, 7, 7), (40, 64, 3, 3), {"pads": 1}),
        ((1, 64, 7, 7), (40, 64, 1, 1), {"strides": 2}),
        ((1, 64, 7, 7), (40, 32, 1, 1), {"groups": 2}),
        ((1, 64, 7, 7), (40, 64, 1, 1), {"symbolic": symbols(1, 64, "h", "w")}),
    ],
)
def test_other_convolutions_are_not(target, shape, weights, options):
    assert not choices_of(conv_sliced, convolution(shape, weights, **options).node(), target)


@OF_LITTLE_CACHE
def test_sums_stay_in_registers(target):
    node, (choice, *_) = choices(convolution((1, 256, 14, 14), (128, 256, 1, 1)), conv_sliced, target)
    (step,) = conv_sliced.emit(laid_out(node, choice), choice, target).steps
    assert not spills(step.text, target)


@pytest.mark.parametrize(
    "channels, outputs, side, sliced",
    [(2048, 256, 11, True), (1280, 320, 14, True), (768, 768, 32, False), (512, 512, 28, False)],
)
def test_slices_are_for_images_that_the_cache_does_not_hold_and_results_that_it_does(
    channels, outputs, side, sliced
):
    target = replace(LEVELS["x86-64-v4"], facts=Facts(level2_bytes=2 << 20, level1_bytes=48 << 10))
    node = convolution((1, channels, side, side), (outputs, channels, 1, 1)).node()
    whole, slices = (min(c.time for c in choices_of(k, node, target)) for k in (conv, conv_sliced))
    assert (slices < whole) == sliced
