"""Epilogues of blocked kernels that read and write other types than the sums have."""

import numpy as np
import pytest
from support import harness
from support.blocked_cases import check, choices, convolution, laid_out, random, symbols
from support.harness import TARGETS

from onnxc.codegen.kernels import (
    conv,
    conv_grouped,
    conv_stem,
    conv_transpose,
    depthwise,
    depthwise_volume,
    winograd,
)
from onnxc.ir.expr import apply, input_

KERNELS = [  # (kernel, x, w, options)
    (conv, (2, 20, 7, 9), (37, 20, 3, 3), {"pads": 1}),
    (conv, (1, 20, 6, 6), (32, 20, 1, 1), {}),
    (conv_stem, (1, 3, 9, 8), (21, 3, 3, 3), {"pads": 1}),
    (conv_grouped, (1, 24, 7, 6), (36, 8, 3, 3), {"pads": 1, "groups": 3}),
    (depthwise, (1, 21, 8, 11), (21, 1, 3, 3), {"pads": 1, "groups": 21}),
    (winograd, (1, 18, 9, 7), (37, 18, 3, 3), {"pads": 1}),
    (conv_transpose, (1, 20, 5, 4), (20, 19, 3, 3), {"strides": 2, "transposed": True}),
]
EVERY = pytest.mark.parametrize("kernel, x, w, options", KERNELS, ids=lambda v: getattr(v, "__name__", None))


def result_shape(x, w, options):
    return choices(convolution(x, w, **options), conv, harness.RUNNABLE[0])[0].outputs[0].shape


def quantised(x, dtype):
    """x as QuantizeLinear would have it: longer than what runs in registers."""
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    return (apply("round", x * 31.0) + 3.0).clip(float(least), float(most)).cast(str(np.dtype(dtype)))


@TARGETS
@EVERY
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_images_are_quantised_and_quantised_residuals_are_added(target, kernel, x, w, options, dtype):
    residual = (random(*result_shape(x, w, options), seed=3) * 40 + 60).clip(0, 120).astype(dtype)
    name = str(np.dtype(dtype))
    body = quantised(input_(0, "float32") + input_(1, name).cast("float32") * 0.0625, dtype)
    case = convolution(x, w, epilogue=body, extra=[(residual, False)], **options)
    check(case, kernel, target, output_halo=1, tolerance=1.01 / np.iinfo(dtype).max)


@TARGETS
@EVERY
def test_sums_end_as_other_floats_beside_them(target, kernel, x, w, options):
    residual = random(*result_shape(x, w, options), seed=3, dtype=np.float16)
    wide, narrow = (random(1, residual.shape[1], 1, 1, seed=4, dtype=d) for d in (np.float64, np.float16))
    total = input_(0, "float32") + input_(1, "float16").cast("float32")
    total = total + input_(2, "float64").cast("float32") + input_(3, "float16").cast("float32")
    extra = [(residual, False), (wide, True), (narrow, True)]
    case = convolution(x, w, epilogue=total.cast("float16"), extra=extra, **options)
    check(case, kernel, target, wider=1, output_halo=1, tolerance=1e-3)


@TARGETS
def test_masks_and_wide_integers(target):
    mask, counts = random(1, 20, 5, 6, seed=3) > 0, random(1, 1, 5, 6, seed=4).astype(np.int64)
    chosen = apply("select", input_(1, "bool"), input_(0, "float32"), input_(2, "int64").cast("float32"))
    for body in (chosen, chosen > 0.25, chosen.cast("int64")):
        case = convolution((1, 9, 5, 6), (20, 9, 1, 1), epilogue=body, extra=[(mask, False), (counts, False)])
        check(case, conv, target, output_halo=1)


@TARGETS
@pytest.mark.parametrize("size", [(1, 1), (5, 29)])
def test_quantised_images_of_sizes_that_the_run_tells(target, size):
    body = quantised(input_(0, "float32"), np.uint8)
    shapes = symbols("n", 18, "h", "w")
    for kernel in (conv, winograd):
        case = convolution((2, 18, *size), (20, 18, 3, 3), pads=1, epilogue=body, symbolic=shapes)
        check(case, kernel, target, output_halo=1, tolerance=1.01 / 255)


@TARGETS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_block_holds_as_many_channels_of_every_type(target, dtype):
    case = convolution((1, 20, 5, 6), (24, 20, 3, 3), pads=1, dtype=dtype)
    node, (choice,) = choices(case, conv, target)
    assert {layout.block for layout in (choice.inputs[0], choice.output)} == {target.block}
    assert laid_out(node, choice).outputs[0].type.storage == (1, -(-24 // target.block), 5, 6, target.block)


@TARGETS
@EVERY
@pytest.mark.parametrize("repeats", [(), (0,), (2,), (3,), (0, 2, 3)], ids=str)
def test_operands_may_repeat_along_axes_where_only_the_run_can_tell(target, kernel, x, w, options, repeats):
    whole = result_shape((2, *x[1:]), w, options)
    shape = tuple(1 if axis in repeats else size for axis, size in enumerate(whole))
    extra = [random(*shape, seed=3), random(shape[0], whole[1], 1, 1, seed=4), random(*shape[2:], seed=5)]
    body = input_(0, "float32") * input_(1, "float32") + input_(2, "float32") + input_(3, "float32")
    extra = [(array, False) for array in extra]
    case = convolution((2, *x[1:]), w, epilogue=body, extra=extra, **options)
    n, h, v = symbols("n", "h", "v")
    case.shapes = {2: (n, whole[1], h, v), 3: (n, whole[1], 1, 1), 4: (h, v)}
    check(case, kernel, target, output_halo=1)


@TARGETS
@pytest.mark.parametrize("repeats", [False, True])
def test_rows_of_volumes_may_repeat_along_one_axis(target, repeats):
    residual = random(2, 18, 1, 1 if repeats else 5, 7, seed=3)
    body, whole = input_(0, "float32") + input_(1, "float32"), (2, 18, 1, 5, 7)
    case = convolution(
        whole, (18, 1, 1, 3, 3), groups=18, pads=(0, 1, 1) * 2, epilogue=body, extra=[(residual, False)]
    )
    case.shapes = {2: symbols(2, 18, 1, "h", 7)}
    check(case, depthwise_volume, target)


@TARGETS
@pytest.mark.parametrize("channels", [32, 20])
def test_numbers_of_whole_blocks_are_read_where_they_lie(target, channels):
    gate, body = random(2, channels, 1, 1, seed=3), input_(0, "float32") * input_(1, "float32")
    shapes = (2, channels, 5, 6), (channels, channels, 3, 3)
    case = convolution(*shapes, pads=1, epilogue=body, extra=[(gate, False)])
    _, offered = choices(case, conv, target)
    assert {choice.inputs[2] is None for choice in offered} == {channels % target.block == 0}
    check(case, conv, target, output_halo=1)
