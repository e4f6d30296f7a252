"""Products of few rows whose B is read row by row: what pieces, tails and epilogues give, and when they are
chosen."""

from dataclasses import replace

import numpy as np
import pytest
from support import harness
from support.harness import BEST, TARGETS

from onnxc.codegen.costs import Estimate
from onnxc.codegen.kernel import Choice, choices_of
from onnxc.codegen.kernels import KERNELS, gemm_axpy
from onnxc.codegen.tiles.contraction import product_of
from onnxc.codegen.tiles.gemm_tiling import MOST_VECTORS, lies_along
from onnxc.ir import dims, dtypes, expr
from onnxc.ir.graph import Constant, TensorType, Value, make_node
from onnxc.ir.interpret import run_node
from onnxc.ir.ops import Contract

TOTAL, OPERAND = (expr.input_(k, "float32") for k in range(2))
NEAR = {"float64": 1e-12, "float32": 2e-5, "float16": 4e-3, "bfloat16": 2e-5, "int8": 0, "int32": 0}
LABELS = "bmk", "bkn", "bmn"


def product(
    batch,
    rows,
    depth,
    columns,
    symbolic="",
    dtype="float32",
    labels=LABELS,
    body=None,
    extra="",
    typical=None,
):
    """The products of a batch, with `symbolic` sizes named, and their operands."""
    random = np.random.default_rng([batch, rows, depth, columns])
    sizes = {"b": batch, "m": rows, "k": depth, "n": columns}
    accumulate = "float64" if dtype == "float64" else "float32" if dtypes.is_float(dtype) else "int32"
    types = dtype, dtype, accumulate
    arrays = [
        (9 * random.standard_normal([sizes[x] for x in axes])).astype(dtypes.numpy_dtype(kind))
        for axes, kind in zip((*labels[:2], extra), types)
    ][: 3 if extra else 2]
    named = sizes | {x: dims.symbol(x, typical=typical or sizes[x]) for x in symbolic}
    values = [
        Value(TensorType(kind, tuple(named[x] for x in axes)), "")
        for axes, kind, _ in zip((*labels[:2], extra), types, arrays)
    ]
    return make_node(Contract(*labels, accumulate, body), values), arrays, sizes


def check(node, arrays, sizes, target, near=2e-5):
    """In pieces of every width up to that of the tiling; targets that cannot load a part of a vector leave
    what needs that to others."""
    offers = choices_of(gemm_axpy, node, target)
    if not lies_along(product_of(node), target):
        return offers == []
    (offer,) = offers
    (expected,) = run_node(node, arrays, sizes)
    for vectors in {1, 3, offer.tiling.vectors}:
        choice = Choice(offer.cost, replace(offer.tiling, vectors=vectors), kernel=gemm_axpy)
        ((got, _),) = harness.run_choice(node, choice, arrays, target, sizes)
        scale = np.abs(expected.astype("f8")).max(initial=1)
        np.testing.assert_allclose(got.astype("f8"), expected.astype("f8"), rtol=near, atol=near * scale)
    return True


@TARGETS
@pytest.mark.parametrize(
    "size", [(1, 1, 64, 256), (2, 2, 7, 83), (1, 3, 33, 600), (3, 4, 9, 640), (1, 1, 3, 515), (0, 2, 8, 96)]
)
def test_products_of_any_size(target, size):
    assert check(*product(*size), target)


@TARGETS
@pytest.mark.parametrize("symbolic", ["b", "k", "bk"])
@pytest.mark.parametrize("size", [(2, 1, 16, 96), (1, 3, 0, 85), (0, 4, 8, 96)], ids=str)
def test_sizes_that_only_the_run_knows(target, symbolic, size):
    assert check(*product(*size, symbolic=symbolic), target)


@TARGETS
@pytest.mark.parametrize("columns", [0, 3, 96, 1300])
def test_columns_that_only_the_run_counts_need_masks(target, columns):
    node, arrays, sizes = product(2, 2, 11, columns, symbolic="n", typical=4096)
    assert check(node, arrays, sizes, target)
    assert bool(choices_of(gemm_axpy, node, target)) == target.masked


@TARGETS
@pytest.mark.parametrize("dtype", NEAR)
def test_every_type_is_widened_as_it_is_loaded(target, dtype):
    assert check(*product(2, 3, 45, 128, dtype=dtype), target, NEAR[dtype])


@TARGETS
@pytest.mark.parametrize(
    "labels", [("kbm", "bkn", "bmn"), ("bk", "bkn", "bn"), ("mk", "bkn", "bmn")], ids=str
)
def test_rows_may_lie_apart_and_be_shared(target, labels):
    assert check(*product(3, 4, 24, 130, labels=labels), target)


@TARGETS
@pytest.mark.parametrize("body", [expr.erf(TOTAL) + OPERAND, TOTAL * 2 + OPERAND], ids=str)
@pytest.mark.parametrize("extra", ["n", "bmn"])
def test_the_epilogue_has_the_sums(target, extra, body):
    assert check(*product(2, 3, 40, 144, body=body, extra=extra), target)


def test_the_cut_of_columns_does_not_change_the_bits_of_a_sum():
    node, arrays, sizes = product(1, 2, 50, 3000)
    (offer,) = choices_of(gemm_axpy, node, BEST)
    found = set()
    for split in (1, 2, 5):
        for vectors in (2, offer.tiling.vectors):
            choice = Choice(Estimate(), replace(offer.tiling, vectors=vectors), kernel=gemm_axpy)
            ((got, _),) = harness.run_choice(node, choice, arrays, BEST, sizes, split=split)
            found.add(got.tobytes())
    assert len(found) == 1


def best(*size, **options):
    node, _, _ = product(*size, **options)
    offers = (offer for kernel in KERNELS for offer in choices_of(kernel, node, BEST))
    return min(offers, key=lambda offer: offer.time).kernel


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("size", [(1, 1, 2048, 2048), (1, 4, 1024, 4096), (8, 1, 512, 1024)], ids=str)
def test_a_few_rows_read_a_large_matrix_row_by_row(size, dtype):
    assert best(*size, dtype=dtype) is gemm_axpy


PANEL = MOST_VECTORS * BEST.lanes("float32")  # columns of the widest one


@pytest.mark.parametrize("size", [(1, 64, 512, 512), (1, 1, 4096, PANEL), (12, 16, 64, 256)], ids=str)
def test_many_rows_and_narrow_matrices_are_left_to_panels(size):
    assert best(*size) is not gemm_axpy


def test_constants_and_open_rows_are_left_to_others():
    node, arrays, _ = product(1, 2, 32, 256)
    stored = Value(node.inputs[1].type, "", Constant.of(arrays[1]))
    assert not choices_of(gemm_axpy, make_node(node.op, [node.inputs[0], stored]), BEST)
    assert not choices_of(gemm_axpy, product(1, 2, 32, 256, symbolic="m")[0], BEST)
    assert not choices_of(gemm_axpy, product(1, 2, 32, 256, labels=("bmk", "bnk", "bmn"))[0], BEST)


def test_the_sums_of_many_terms_lose_little():
    ones = np.full((1, 1, 1 << 16), 0.1, np.float32), np.ones((1, 1 << 16, 80), np.float32)
    values = [Value(TensorType("float32", a.shape), "") for a in ones]
    node = make_node(Contract(*LABELS, "float32", None), values)
    (offer,) = choices_of(gemm_axpy, node, BEST)
    ((got, _),) = harness.run_choice(node, offer, ones, BEST, {})
    exact = float(ones[0].astype("f8").sum())
    one_by_one = np.add.accumulate(ones[0].ravel())[-1]
    assert abs(got - exact).max() < abs(one_by_one - exact) / 2
