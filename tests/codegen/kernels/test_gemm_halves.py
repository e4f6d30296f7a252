"""Dense convolutions of single pixels with weights stored as halves, against the interpreter."""

import numpy as np
import pytest
from support import harness
from support.blocked_cases import bias, check_choice, convolution, of_halves, random, relu_of_bias, symbols
from support.harness import BEST, TARGETS

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import conv, gemm, gemm_halves
from onnxc.codegen.tiles.stored_form import stored_halves
from onnxc.ir import expr

DTYPES = pytest.mark.parametrize("dtype", ["float16", "bfloat16"])


def check(case, dtype, target):
    node, _ = of_halves(case, dtype)
    offers = choices_of(gemm_halves, node, target)
    assert bool(offers) == (stored_halves(node.inputs[1].constant, target) is not None)
    for choice in offers:
        packed = gemm_halves.pack(node, choice, 1)
        assert packed.dtype == dtype
        check_choice(case, node, choice, target)


@TARGETS
@DTYPES
@pytest.mark.parametrize(
    "channels, outputs, size",
    [
        (64, 128, (14, 14)),
        (1, 1, (3, 3)),
        (17, 15, (5, 9)),
        (70, 33, (7, 7)),
        (300, 20, (1, 45)),
        (2100, 20, (3, 40)),
    ],
    ids=str,
)
def test_channels_and_sizes(target, dtype, channels, outputs, size):
    check(convolution((2, channels, *size), (outputs, channels, 1, 1)), dtype, target)


@TARGETS
@DTYPES
@pytest.mark.parametrize("size", [(1, 1), (6, 7), (40, 41)])
def test_images_whose_size_only_the_run_knows(target, dtype, size):
    epilogue, named = relu_of_bias(), symbols("n", 20, "h", "w")
    case = convolution((2, 20, *size), (18, 20, 1, 1), 1, 0, 1, 1, epilogue, [bias(18)], symbolic=named)
    node, _ = of_halves(case, dtype)
    for choice in choices_of(gemm_halves, node, target):
        check_choice(case, node, choice, target)


@TARGETS
def test_one_axis_three_and_a_residual(target):
    total, other = expr.input_(0, "float32"), expr.input_(1, "float32")
    residual = random(2, 9, 33, seed=5), False
    case = convolution((2, 12, 33), (9, 12, 1), epilogue=expr.sigmoid(total) + other, extra=[residual])
    check(case, "float16", target)
    check(convolution((1, 12, 3, 4, 5), (9, 12, 1, 1, 1)), "bfloat16", target)


def test_the_same_bits_as_of_floats():
    node, plain = of_halves(convolution((1, 40, 12, 20), (24, 40, 1, 1)), "float16")
    got = []
    for each, kernel in ((node, gemm_halves), (plain, gemm)):
        choice = choices_of(kernel, each, BEST)[0]
        got.append(harness.run_choice(each, choice, [random(1, 40, 12, 20), node.inputs[1].data.array], BEST))
    np.testing.assert_array_equal(got[0][0][0], got[1][0][0])


def test_what_other_kernels_take():
    node, plain = of_halves(convolution((1, 40, 12, 20), (24, 40, 1, 1)), "float16")
    assert not choices_of(gemm, node, BEST) and choices_of(conv, node, BEST)
    assert not choices_of(gemm_halves, plain, BEST)
    padded, _ = of_halves(convolution((1, 40, 12, 20), (24, 40, 1, 1), pads=1), "float16")
    strided, _ = of_halves(convolution((1, 40, 12, 20), (24, 40, 1, 1), 2), "float16")
    assert not choices_of(gemm_halves, padded, BEST) and not choices_of(gemm_halves, strided, BEST)
