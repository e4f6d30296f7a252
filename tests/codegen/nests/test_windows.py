"""Conv and Attention of loop_nest: any rank, padding, type and order of axes."""

import numpy as np
import pytest
from support.harness import TARGETS
from support.nests import check, dense_choice, node_of, numbers, variable

from onnxc.codegen.kernels import loop_nest
from onnxc.ir import dims, dtypes, expr
from onnxc.ir.expr import input_
from onnxc.ir.graph import TensorType
from onnxc.ir.ops import Attention, Conv, OverlapAdd

CONVOLVED = [  # image, weights, strides, pads, dilations, groups, transposed, output padding
    ((1, 3, 8, 9), (4, 3, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, False, ()),
    ((2, 4, 10, 33), (6, 2, 3, 3), (2, 2), (1, 0, 1, 2), (1, 1), 2, False, ()),
    ((1, 4, 9, 40), (4, 1, 3, 5), (1, 1), (2, 4, 2, 4), (2, 2), 4, False, ()),
    ((2, 3, 20), (5, 3, 4), (3,), (2, 2), (1,), 1, False, ()),
    ((1, 2, 5, 6, 7), (3, 2, 2, 2, 2), (1, 2, 1), (0, 1, 0, 1, 0, 1), (1, 1, 2), 1, False, ()),
    ((1, 2, 4, 4, 4, 4), (2, 2, 2, 2, 2, 2), (1,) * 4, (0,) * 8, (1,) * 4, 1, False, ()),
    ((1, 2, 6, 6), (2, 2, 3, 3), (1, 1), (-1, -1, 0, 1), (1, 1), 1, False, ()),
    ((0, 3, 8, 9), (4, 3, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, False, ()),
    ((1, 3, 5, 6), (3, 4, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 1, True, (1, 1)),
    ((2, 4, 5, 20), (4, 3, 2, 2), (2, 2), (0, 0, 0, 0), (1, 1), 2, True, ()),
    ((1, 3, 7), (3, 2, 4), (1,), (0, 0), (2,), 1, True, ()),
    ((1, 2, 4, 5), (2, 2, 3, 3), (3, 1), (0, 2, 1, 0), (1, 2), 1, True, (2, 0)),
]


@TARGETS
@pytest.mark.parametrize(
    "dtype, accumulate",
    [("float32", "float32"), ("int8", "int32"), ("float16", "float16"), ("float64", "float64")],
)
def test_any_convolution_is_computed_by_loops(target, dtype, accumulate):
    for image, weights, strides, pads, *rest in CONVOLVED:
        x, w = numbers(image, dtype, -5, 5), numbers(weights, dtype, -5, 5, 1)
        check(target, Conv(strides, pads, *rest, accumulate), x, w, only="static")
        if dtype == "float32":
            symbols, env = variable("p", pads)
            sizes = (dims.symbol("n"), image[1], *(dims.symbol(f"s{k}") for k in range(len(strides))))
            types = [TensorType(dtype, sizes), TensorType(dtype, weights)]
            check(
                target, Conv(strides, symbols, *rest, accumulate), x, w, env=env, types=types, only="symbolic"
            )


@TARGETS
def test_convolutions_with_run_time_kernels(target):
    x, w = numbers((1, 3, 8, 9), low=-5, high=5), numbers((4, 3, 3, 2), low=-5, high=5, seed=1)
    types = [
        TensorType("float32", x.shape),
        TensorType("float32", (4, 3, dims.symbol("kh"), dims.symbol("kw"))),
    ]
    check(target, Conv((1, 1), (1, 1, 1, 1), (1, 1)), x, w, types=types, only="symbolic")


@TARGETS
def test_epilogues_of_convolutions(target):
    bias, residual = numbers((4, 1, 1), seed=2), numbers((1, 4, 8, 9), seed=3)
    total, b, r = (input_(k, "float32") for k in range(3))
    body = (total + b + expr.index(3).cast("float32")).maximum(0) * r
    x, w = numbers((1, 3, 8, 9), low=-5, high=5), numbers((4, 3, 3, 3), low=-5, high=5, seed=1)
    check(target, Conv((1, 1), (1, 1, 1, 1), (1, 1), epilogue=body), x, w, bias, residual, only="static")


OVERLAPPING = [  # blocks, kernel, strides, pads, dilations, sizes
    ((2, 18, 8, 40), (3, 3), (1, 1), (1, 1), (1, 1), (8, 40)),
    ((1, 12, 5, 7), (2, 3), (2, 3), (0, 1), (1, 2), (10, 20)),
    ((3, 4, 33), (4,), (1,), (2,), (3,), (38,)),
    ((1, 8, 2, 3, 9), (2, 1, 2), (1, 2, 1), (0, 0, 3), (1, 1, 1), (3, 5, 4)),
    ((1, 4, 0, 3), (2, 2), (1, 1), (0, 0), (1, 1), (1, 4)),
    ((1, 4, 3, 3), (2, 2), (1, 1), (0, 0), (1, 1), (0, 4)),
    ((2, 18, 3, 40), (2, 3), (2, 2), (0, 1), (1, 1), (6, 80)),
    ((1, 5, 21), (5,), (3,), (2,), (2,), (65,)),
    ((2, 20, 31), (20,), (9,), (4,), (1,), (283,)),
    ((1, 3, 2101), (3,), (2,), (1,), (1,), (4201,)),
]


@TARGETS
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8"])
def test_blocks_that_overlap_are_added_up(target, dtype):
    for blocks, kernel, strides, pads, dilations, sizes in OVERLAPPING:
        x = numbers(blocks, dtype, -9, 9)
        if dtype == "float32" and x.size:
            x.flat[5] = np.inf
        check(target, OverlapAdd(kernel, strides, pads, dilations, sizes), x, only="static")
        if dtype == "float32":
            (k, some), (s, others) = variable("k", kernel, 1), variable("s", sizes, 0)
            env = {**some, **others}
            check(target, OverlapAdd(k, strides, pads, dilations, s), x, env=env, only="symbolic")


@TARGETS
@pytest.mark.parametrize("stride", [2, 9])
def test_blocks_that_lie_apart_are_added_in_vectors(target, stride):
    node = node_of(OverlapAdd((11,), (stride,), (1,), (1,), (31 * stride,)), [numbers((1, 22, 30))])
    (step,) = loop_nest.emit(node, dense_choice(node, target), target).steps
    assert "fadd <" in step.text


ATTENDED = [  # labels of q, k, v, out; sizes
    ("bhqd", "bhkd", "bhke", "bhqe", {"b": 2, "h": 3, "q": 5, "k": 7, "d": 16, "e": 9}),
    ("bqhd", "bkhd", "bkhe", "bqhe", {"b": 1, "h": 2, "q": 1, "k": 70, "d": 8, "e": 33}),
    ("qd", "dk", "ke", "qe", {"q": 4, "k": 6, "d": 5, "e": 20}),
    ("hbqd", "bhdk", "bhek", "bqhe", {"b": 2, "h": 3, "q": 5, "k": 7, "d": 16, "e": 9}),
]


def drawn(shape, dtype, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtypes.numpy_dtype(dtype))


@TARGETS
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_attention_of_any_axes_and_bias(target, dtype):
    for q, k, v, out, sizes in ATTENDED:
        arrays = [drawn([sizes[c] for c in labels], dtype, n) for n, labels in enumerate((q, k, v))]
        types = [TensorType(dtype, tuple(dims.symbol(c) for c in labels)) for labels in (q, k, v)]
        batch = [c for c in q if c not in "qd"]
        for bias in ([], [*batch, "q", "k"], "k"):
            extra = [drawn([sizes[c] for c in bias], dtype, 9)] if bias else []
            more = [TensorType(dtype, a.shape) for a in extra]
            check(
                target,
                Attention(0.3, q, k, v, out),
                *arrays,
                *extra,
                types=types + more,
                env=sizes,
                only=None if dtype == "float32" else "static",
                tolerance=3e-2 if "16" in dtype else 1e-5,
            )


@TARGETS
@pytest.mark.parametrize("stored", ["float16", "bfloat16"])
def test_attention_over_keys_and_values_stored_in_halves(target, stored):
    for q, k, v, out, sizes in ATTENDED:
        shapes = [[sizes[c] for c in labels] for labels in (q, k, v)]
        arrays = [drawn(shape, dtype, 3) for shape, dtype in zip(shapes, ("float32", stored, stored))]
        check(target, Attention(0.3, q, k, v, out), *arrays, only="static", tolerance=1e-5)


@TARGETS
def test_a_query_without_keys_gives_zeros(target):
    arrays = [drawn(shape, "float32", 0) for shape in ((2, 3, 4), (2, 0, 4), (2, 0, 5))]
    check(target, Attention(1.0, "bqd", "bkd", "bke", "bqe"), *arrays, only="static")


@TARGETS
def test_weights_that_are_no_numbers_are_zeros_where_the_op_says_so(target):
    arrays = [drawn(shape, "float32", 0) for shape in ((1, 3, 4), (1, 6, 4), (1, 6, 5), (3, 6))]
    arrays[3][0, :] = -np.inf
    arrays[3][1, 2] = np.nan
    check(target, Attention(1.0, "bqd", "bkd", "bke", "bqe", defined=True), *arrays, only="static")
