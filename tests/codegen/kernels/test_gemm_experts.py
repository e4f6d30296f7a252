"""Rows multiplied each with the matrix that an index picks, against the interpreter."""

import numpy as np
import pytest
from support import harness
from support.blocked_cases import WITH_DOTS
from support.harness import TARGETS
from support.pass_text import clean
from support.stored import blocks_of, derived

from onnxc.codegen import abi
from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import gemm_experts, gemm_stored
from onnxc.ir import dims, expr
from onnxc.ir.graph import Constant, Graph, TensorType, Value, make_node
from onnxc.ir.interpret import run_node
from onnxc.ir.ops import Contract, Fused, Gather, Map, Reshape
from onnxc.passes.fuse_experts import fuse_experts


def weights_of(shape):
    return Constant.of(np.random.default_rng(1).standard_normal(shape).astype(np.float32))


def picked(weights, indices, symbolic=False, constant=True, form="roi"):
    """(the group, its operands, sizes): random rows, each by the matrix of its index, and a bias for each."""
    rows, n, k = len(indices), *(weights.shape[form.index(c)] for c in "oi")
    arrays = [
        np.random.default_rng(rows).standard_normal((rows, k)).astype(np.float32),
        weights.array,
        np.random.default_rng(0).standard_normal((rows, n)).astype(np.float32),
        np.array(indices, np.int64),
    ]
    r = dims.symbol("r") if symbolic else rows
    types = [(r, k), weights.shape, (r, n), (r,)]
    x, w, b, i = (Value(TensorType(t, s)) for t, s in zip(("float32",) * 3 + ("int64",), types))
    w.constant = weights if constant else None
    gather = make_node(Gather("axis"), [w, i])
    body = expr.input_(0, "float32") + expr.input_(1, "float32")
    product = make_node(Contract("ri", form, "ro", "float32", body), [x, gather.outputs[0], b])
    graph = Graph((x, w, b, i), product.outputs, (gather, product))
    (node,) = (each for each in clean(fuse_experts)(graph).nodes if isinstance(each.op, Fused))
    return node, arrays, {"r": rows} if symbolic else {}


def check(target, weights, indices, **more):
    node, arrays, sizes = picked(weights, indices, **more)
    (choice, *_) = choices_of(gemm_experts, node, target)
    ((got, _),) = harness.run_choice(node, choice, arrays, target, sizes)
    (expected,) = run_node(node, arrays, sizes)
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * max(1, np.abs(expected).max(initial=0)))
    return choice


SORTED = [0] * 3 + [2] * 30 + [3] * 2


@TARGETS
def test_rows_of_one_expert_are_one_product(target):
    check(target, weights_of((4, 48, 37)), SORTED)
    check(target, weights_of((4, 37, 48)), SORTED, form="rio")


@TARGETS
def test_columns_that_fill_no_panels(target):
    check(target, weights_of((4, 37, 20)), SORTED)
    check(target, weights_of((3, 20, 7)), [2, 0, 0], form="rio", constant=False)


@TARGETS
@pytest.mark.parametrize("indices", [[], [3], [1, 0, 1, -1]], ids=len)
def test_any_number_of_rows_in_any_order(target, indices):
    for symbolic in (False, True):
        check(target, weights_of((4, 32, 20)), indices, symbolic=symbolic)


@TARGETS
def test_matrices_that_only_the_run_knows(target):
    check(target, weights_of((4, 32, 20)), SORTED, constant=False)


@TARGETS
@pytest.mark.parametrize("bits,zero", [(4, "middle"), (4, "each"), (8, "middle")])
def test_matrices_of_few_bits_stay_stored(target, bits, zero):
    weights = derived(Reshape((4, 48, 64)), blocks_of(bits, 4 * 48, 64, 32, zero))
    assert isinstance(check(target, weights, SORTED).tiling, gemm_stored.Tiling)


def halves(shape):
    stored = Constant.of(weights_of(shape).array.astype(np.float16))
    return derived(Map(expr.input_(0, "float16").cast("float32")), stored)


@TARGETS
@pytest.mark.parametrize("indices", [[0] * 9 + [1] * 8 + [3] * 10, [2] * 40 + [0] * 7 + [1]], ids=len)
def test_tiles_that_share_a_decoded_panel_end_with_the_rows_of_their_expert(target, indices):
    for weights in (
        derived(Reshape((4, 48, 64)), blocks_of(4, 4 * 48, 64, 32, "middle")),
        halves((4, 48, 64)),
    ):
        node, arrays, sizes = picked(weights, indices)
        (expected,) = run_node(node, arrays, sizes)
        for choice in choices_of(gemm_experts, node, target):
            ((got, _),) = harness.run_choice(node, choice, arrays, target, sizes)
            np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


@WITH_DOTS
@pytest.mark.parametrize("indices", [SORTED, [1], [3, 1, 0]], ids=len)
def test_matrices_of_few_bits_in_any_tiling_where_bytes_are_multiplied(target, indices):
    """Also of an expert that has one row."""
    weights = derived(Reshape((4, 48, 64)), blocks_of(4, 4 * 48, 64, 32, "middle"))
    node, arrays, sizes = picked(weights, indices)
    (expected,) = run_node(node, arrays, sizes)
    for choice in choices_of(gemm_experts, node, target):
        ((got, _),) = harness.run_choice(node, choice, arrays, target, sizes)
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


def test_an_index_outside_fails():
    target = harness.RUNNABLE[0]
    for wrong in (4, -5):
        node, arrays, _ = picked(weights_of((4, 32, 20)), [0, wrong])
        (choice, *_) = choices_of(gemm_experts, node, target)
        assert harness.run_choice(node, choice, arrays, target) == (abi.ERRORS["index_out_of_range"], wrong)


def test_columns_of_few_bits_that_fill_no_vector_are_left_to_the_nodes_of_the_group():
    weights = derived(Reshape((4, 33, 64)), blocks_of(4, 4 * 33, 64, 32, "middle"))
    node, *_ = picked(weights, [0, 1])
    assert not choices_of(gemm_experts, node, harness.RUNNABLE[0])
