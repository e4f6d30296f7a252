"""Convolutions of bytes by sums of two products in 16 bits are exact, whatever the weights are."""

import numpy as np
import pytest
from support import harness
from support.assembly import spills
from support.blocked_cases import check, integers, laid_out, symbols

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import conv_pairs
from onnxc.ir.expr import input_
from onnxc.target import LEVELS, TARGETS

ABLE = [target for target in LEVELS.values() if target.pairs is not None]
WITHOUT = pytest.param(None, marks=pytest.mark.skip("this processor adds up no pairs"))
HERE = pytest.mark.parametrize("target", [t for t in harness.RUNNABLE if t in ABLE] or [WITHOUT], ids=str)


def few_large(case, deviation=30.0):
    """The case with weights of which some pairs are together beyond 128, as in layers that are quantised by
    channel, and bytes at both ends of their range."""
    x, w, *others = case.arrays
    random = np.random.default_rng(w.shape)
    found = np.clip(random.normal(0, deviation, w.shape).round(), -128, 127).astype(np.int8)
    ends = random.choice(np.array([0, 1, 254, 255], np.uint8), x.shape)
    case.arrays = [ends, found, *others]
    return case


def exact(case, target, **options):
    check(few_large(case), conv_pairs, target, tolerance=0, every=True, **options)


@HERE
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 33, 64])
def test_channels_of_any_number(target, channels):
    exact(integers((1, channels, 5, 7), (20, channels, 1, 1), zero=3), target)
    exact(integers((2, channels, 5, 6), (33, channels, 3, 3), pads=1, zero=128), target)


@HERE
@pytest.mark.parametrize("zero", [0, 128, 255])
def test_zero_points_stand_in_for_what_lies_outside(target, zero):
    exact(integers((1, 18, 9, 9), (8, 18, 3, 3), pads=(1, 2, 0, 1), zero=zero), target, wider=1)


@HERE
@pytest.mark.parametrize("strides", [1, 2, 3])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (5, 2), (2, 5), (7, 7)])
def test_windows_and_strides(target, strides, kernel):
    exact(integers((1, 12, 17, 15), (24, 12, *kernel), strides, 1, 7), target)


@HERE
@pytest.mark.parametrize("size", [(1, 1), (1, 2), (7, 7), (13, 1), (5, 29)])
def test_images_of_any_size(target, size):
    exact(integers((1, 16, *size), (70, 16, 3, 3), 1, 1, 9), target)


@HERE
def test_a_column_of_pixels_is_a_row(target):
    exact(integers((2, 10, 33, 1), (12, 10, 5, 1), 2, (2, 0, 2, 0), 77), target)
    exact(integers((2, 10, 33), (12, 10, 5), 2, 2, 77), target)


@HERE
def test_images_whose_size_the_run_tells(target):
    x = symbols("n", 12, "h", "w")
    exact(integers((2, 12, 11, 10), (20, 12, 3, 3), 1, 1, 200, symbolic=x), target)
    exact(integers((2, 36, 11, 10), (20, 36, 1, 1), 2, 0, 200, symbolic=symbols("n", 36, "h", "w")), target)


@HERE
def test_an_epilogue_makes_bytes_again(target):
    scale = np.random.default_rng(3).uniform(0.001, 0.01, (40, 1, 1)).astype(np.float32)
    real = (input_(0, "int32").cast("float32") * input_(1, "float32")).clip(-128, 127)
    body = (real.maximum(0.0) + 3.0).clip(0, 255).cast("uint8")
    exact(integers((1, 24, 9, 8), (40, 24, 3, 3), 1, 1, 4, body, [scale]), target, output_halo=1)


@HERE
def test_further_steps_have_room_where_there_are_any(target):
    case = few_large(integers((1, 24, 9, 8), (40, 24, 3, 3), 1, 1, 4))
    assert choices_of(conv_pairs, case.node(), target)[0].tiling.further > 0
    case.arrays[1] = case.arrays[1] // 2
    assert choices_of(conv_pairs, case.node(), target)[0].tiling.further == 0
    check(case, conv_pairs, target, tolerance=0, every=True)


def test_weights_that_are_large_are_others():
    case = integers((1, 24, 9, 8), (40, 24, 3, 3), 1, 1, 4)
    case.arrays[1] = np.full_like(case.arrays[1], 100)
    assert not choices_of(conv_pairs, case.node(), TARGETS["x86-64-v3"])


def test_targets_with_dot_products_have_those():
    case = few_large(integers((1, 24, 9, 8), (40, 24, 3, 3), 1, 1, 4))
    for name in ("alderlake", "icelake-server", "aarch64", "neoverse-n1"):
        assert not choices_of(conv_pairs, case.node(), TARGETS[name])


@pytest.mark.parametrize("target", ABLE, ids=str)
def test_tiles_keep_their_sums_in_registers(target):
    node = few_large(integers((1, 64, 28, 28), (128, 64, 1, 1))).node()
    for choice in choices_of(conv_pairs, node, target):
        code = conv_pairs.emit(laid_out(node, choice), choice, target)
        assert not spills(code.steps[-1].text, target)
