"""Products whose operands lie along k: what every tile, tail and epilogue gives, and when they are chosen."""

import numpy as np
import pytest
from support import harness
from support.harness import BEST, TARGETS

from onnxc.codegen.costs import Estimate
from onnxc.codegen.kernel import Choice, choices_of
from onnxc.codegen.kernels import gemm, gemm_dots
from onnxc.codegen.tiles import contraction
from onnxc.ir import dims, dtypes, expr
from onnxc.ir.graph import Constant, TensorType, Value, make_node
from onnxc.ir.interpret import run_node
from onnxc.ir.ops import Contract

TOTAL, OPERAND = (expr.input_(k, "float32") for k in range(2))
NEAR = {"float64": 1e-12, "float32": 2e-5, "float16": 4e-3, "bfloat16": 2e-5}
LABELS = "bmk", "bnk", "bmn"


def product(batch, rows, depth, columns, symbolic="", dtype="float32", labels=LABELS, body=None, extra=""):
    """The products of a batch, with `symbolic` sizes named, and their operands."""
    random = np.random.default_rng([batch, rows, depth, columns])
    sizes = {"b": batch, "m": rows, "k": depth, "n": columns}
    accumulate = "float64" if dtype == "float64" else "float32"
    types = dtype, dtype, accumulate
    arrays = [
        random.standard_normal([sizes[x] for x in axes]).astype(dtypes.numpy_dtype(kind))
        for axes, kind in zip((*labels[:2], extra), types)
    ][: 3 if extra else 2]
    named = sizes | {x: dims.symbol(x) for x in symbolic}
    values = [
        Value(TensorType(kind, tuple(named[x] for x in axes)), "")
        for axes, kind, _ in zip((*labels[:2], extra), types, arrays)
    ]
    return make_node(Contract(*labels, accumulate, body), values), arrays, sizes


def check(node, arrays, sizes, target, near=2e-5):
    """All tiles, whatever their estimates."""
    assert choices_of(gemm_dots, node, target)
    (expected,) = run_node(node, arrays, sizes)
    for tiling in gemm_dots.tilings(contraction.product_of(node), target):
        choice = Choice(Estimate(), tiling, kernel=gemm_dots)
        ((got, _),) = harness.run_choice(node, choice, arrays, target, sizes)
        scale = np.abs(expected.astype("f8")).max(initial=1)
        np.testing.assert_allclose(got.astype("f8"), expected.astype("f8"), rtol=near, atol=near * scale)


@TARGETS
@pytest.mark.parametrize(
    "size",
    [(1, 1, 64, 16), (3, 2, 7, 5), (2, 4, 32, 33), (1, 5, 33, 8), (2, 3, 2, 17), (1, 9, 70, 3), (0, 2, 8, 8)],
    ids=str,
)
def test_products_of_any_size(target, size):
    check(*product(*size), target)


@TARGETS
@pytest.mark.parametrize("symbolic", ["m", "n", "bm", "bmn"])
@pytest.mark.parametrize("size", [(2, 1, 16, 19), (3, 7, 21, 4), (2, 0, 8, 5), (2, 3, 8, 0)], ids=str)
def test_sizes_that_only_the_run_knows(target, symbolic, size):
    check(*product(*size, symbolic=symbolic), target)


@TARGETS
@pytest.mark.parametrize("depth", [0, 3, 16, 37])
def test_a_depth_that_only_the_run_knows_needs_masks(target, depth):
    node, arrays, sizes = product(2, 3, depth, 11, symbolic="mnk")
    if target.masked:
        check(node, arrays, sizes, target)
    else:
        assert not choices_of(gemm_dots, node, target)


@TARGETS
@pytest.mark.parametrize("dtype", NEAR)
def test_every_float_is_widened_as_it_is_loaded(target, dtype):
    check(*product(2, 3, 45, 10, dtype=dtype), target, NEAR[dtype])


@TARGETS
@pytest.mark.parametrize(
    "labels", [("mbk", "nbk", "bmn"), ("bk", "bnk", "bn"), ("mk", "bnk", "bmn")], ids=str
)
def test_rows_may_lie_apart_and_be_shared(target, labels):
    check(*product(3, 4, 24, 13, labels=labels), target)


@TARGETS
@pytest.mark.parametrize("extra", ["n", "bmn"])
def test_the_epilogue_has_the_sums(target, extra):
    body = expr.erf(TOTAL) + OPERAND
    check(*product(2, 3, 40, 21, body=body, extra=extra), target)


def best(*size, **options):
    node, _, _ = product(*size, **options)
    return min((o for k in (gemm, gemm_dots) for o in choices_of(k, node, BEST)), key=lambda o: o.time).kernel


@pytest.mark.parametrize("size", [(1, 1, 1024, 4096), (200, 4, 64, 200), (12, 2, 64, 512)], ids=str)
def test_a_few_rows_read_what_lies_along_k_in_place(size):
    assert best(*size) is gemm_dots


@pytest.mark.parametrize("size", [(12, 128, 64, 128), (1, 64, 512, 512)], ids=str)
def test_many_rows_are_worth_panels(size):
    assert best(*size) is gemm


def test_constants_and_what_lies_along_columns_are_left_to_others():
    node, arrays, _ = product(1, 2, 32, 16)
    stored = Value(node.inputs[1].type, "", Constant.of(arrays[1]))
    assert not choices_of(gemm_dots, make_node(node.op, [node.inputs[0], stored]), BEST)
    assert not choices_of(gemm_dots, product(1, 2, 32, 16, labels=("bmk", "bkn", "bmn"))[0], BEST)
