"""Convolutions of bfloat16s, by dot products and on registers that hold matrices: whole numbers, whose sums
are exact; where the machine lacks the instructions, their assembly."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from support import harness
from support.blocked_cases import Case, check, choices, laid_out, symbols
from support.harness import TARGETS

from onnxc.codegen.kernels import conv, conv_matrix, conv_matrix_stem, conv_stem, depthwise, winograd
from onnxc.ir.expr import input_
from onnxc.ir.ops import Conv
from onnxc.target import TARGETS as PROCESSORS

KERNELS = [
    (conv, "cooperlake", "vdpbf16ps"),
    (conv_matrix, "sapphirerapids", "tdpbf16ps"),
    (conv, "neoverse-v1", "bfdot"),
]
EACH = pytest.mark.parametrize("kernel, target, instruction", KERNELS, ids=("dots", "matrices", "emulated"))


def halves(x_shape, w_shape, strides=1, pads=0, epilogue=None, extra=(), symbolic=None):
    draw = np.random.default_rng([*x_shape, *w_shape])
    x, w = (draw.integers(-9, 9, shape).astype(ml_dtypes.bfloat16) for shape in (x_shape, w_shape))
    op = Conv((strides,) * 2, (pads,) * 4, (1, 1), epilogue=epilogue)
    return Case(op, [x, w, *extra], (1,), {0: symbolic} if symbolic else None)


def exact(case, kernel, target, instruction, **options):
    target = PROCESSORS[target]
    if harness.runs(target):
        check(case, kernel, target, tolerance=0, **options)
        return
    node, offered = choices(case, kernel, target)
    for choice in offered:
        *_, step = kernel.emit(laid_out(node, choice), choice, target).steps
        assert instruction in harness.assembly(step.text, target)


@EACH
def test_channels_windows_and_strides(kernel, target, instruction):
    for channels, outputs, size, taps, strides in (
        (16, 20, 5, 1, 1),
        (33, 40, 9, 3, 1),
        (64, 16, 7, 3, 1),
        (70, 64, 14, 1, 2),
        (32, 33, 40, 3, 2),
        (40, 48, 17, 3, 2),
    ):
        case = halves((2, channels, size, size), (outputs, channels, taps, taps), strides, taps // 2)
        exact(case, kernel, target, instruction)


@EACH
@pytest.mark.parametrize("size", [(4, 5), (17, 9), (3, 140), (1, 600)])
def test_images_whose_size_the_run_tells(kernel, target, instruction, size):
    for taps, strides in ((1, 1), (3, 1), (3, 2), (1, 2)):
        x = symbols("n", 40, "h", "w")
        case = halves((2, 40, *size), (48, 40, taps, taps), strides, taps // 2, symbolic=x)
        exact(case, kernel, target, instruction)


def test_single_pixels_that_lie_apart_are_brought_together():
    for strides, size in (((2, 2), (28, 28)), ((1, 3), (5, 20)), ((4, 1), (9, 40))):
        case = halves((2, 70, *size), (48, 70, 1, 1))
        case = replace(case, op=replace(case.op, strides=strides))
        exact(case, *KERNELS[1], wider=1, output_halo=1)


@EACH
def test_a_residual_and_a_bias(kernel, target, instruction):
    bias, residual = np.arange(40, dtype=np.float32).reshape(40, 1, 1), np.ones((1, 40, 14, 14), np.float32)
    body = ((input_(0, "float32") + input_(1, "float32")) + input_(2, "float32")).maximum(0.0)
    case = halves((1, 32, 14, 14), (40, 32, 3, 3), 1, 1, body, [bias, residual])
    exact(replace(case, constant=(1, 2)), kernel, target, instruction, output_halo=1)


def test_an_image_of_float32_is_narrowed_on_the_way():
    case = halves((1, 70, 9, 9), (16, 70, 3, 3), 1, 1)
    wide = [case.arrays[0].astype(np.float32), case.arrays[1]]
    case = replace(case, op=replace(case.op, narrow=True), arrays=wide)
    exact(case, *KERNELS[1], wider=1)
    assert not choices(case, conv, PROCESSORS["sapphirerapids"])[1]


def test_a_first_convolution_of_few_channels():
    for channels, taps, strides, size in ((3, 7, 2, 33), (1, 3, 1, 17), (4, 5, 1, 9), (2, 1, 1, 40)):
        case = halves((2, channels, size, size), (24, channels, taps, taps), strides, taps // 2)
        exact(case, conv_matrix_stem, *KERNELS[1][1:])
        wide = [case.arrays[0].astype(np.float32), case.arrays[1]]
        narrow = replace(case, op=replace(case.op, narrow=True), arrays=wide)
        exact(narrow, conv_matrix_stem, *KERNELS[1][1:], output_halo=1)


@pytest.mark.parametrize("target, instruction", [k[1:] for k in KERNELS if k[0] is conv], ids=lambda a: a)
def test_a_first_convolution_adds_up_neighbours_of_a_row(target, instruction):
    for channels, taps, strides, pads in ((3, 7, 2, 3), (1, 3, 1, 1), (4, 4, 1, (0, 1, 2, 3)), (2, 1, 1, 0)):
        case = halves((2, channels, 17, 15), (24, channels, taps, taps), strides)
        case = replace(case, op=replace(case.op, pads=pads if isinstance(pads, tuple) else (pads,) * 4))
        exact(case, conv_stem, target, instruction, output_halo=1)


@pytest.mark.parametrize("target", [k[1] for k in KERNELS if k[0] is conv])
def test_winograds_transforms_compute_in_float32(target):
    target = PROCESSORS[target]
    for size, epilogue in ((14, None), (9, input_(0, "float32").maximum(0.0).cast("bfloat16"))):
        case = halves((2, 33, size, 14), (40, 33, 3, 3), 1, 1, epilogue)
        node, offered = choices(case, winograd, target)
        assert {winograd.pack(node, choice, 1).dtype for choice in offered} == {"bfloat16"}
        if harness.runs(target):
            tolerance = 2e-5 if epilogue is None else 2**-7  # the last bit of a result
            check(case, winograd, target, tolerance=tolerance, wider=1, output_halo=1)


@TARGETS
def test_a_depthwise_convolution_reads_them_and_computes_in_float32(target):
    for size, strides in ((9, 1), (14, 2)):
        draw = np.random.default_rng(size)
        x = draw.integers(-9, 9, (2, 40, size, size)).astype(ml_dtypes.bfloat16)
        w = draw.integers(-9, 9, (40, 1, 3, 3)).astype(np.float32)
        op = Conv((strides,) * 2, (1,) * 4, (1, 1), groups=40)
        check(Case(op, [x, w], (1,)), depthwise, target, tolerance=0, output_halo=1)


def test_images_that_overlap_are_packed_one_after_the_other():
    """As those of a volume: how far they lie apart says nothing of their copies."""
    case, target = halves((3, 16, 5, 6), (16, 16, 3, 3), pads=1), PROCESSORS["sapphirerapids"]
    images = case.arrays[0].astype(np.float32)
    case = replace(case, op=replace(case.op, narrow=True), arrays=[images, case.arrays[1]])
    node, (choice, *_) = choices(case, conv_matrix, target)
    alone, parts = laid_out(node, choice), laid_out(node, choice, parts=True)
    wide, halo = 32, 1
    for stored in (alone, parts):
        (nbytes,) = conv_matrix.emit(stored, choice, target).temporaries
        assert nbytes == 3 * (5 + 2 * halo) * (6 + 2 * halo) * wide * 2
