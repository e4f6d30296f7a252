"""Products of bytes by sums of two in 16 bits are exact, whatever the weights are."""

import numpy as np
import pytest
from support import harness
from support.assembly import spills
from support.pairs import ABLE, WITH_PAIRS, both_ends, few_large

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import gemm_pairs
from onnxc.codegen.tiles.pair_sums import Excess
from onnxc.ir import dims, expr
from onnxc.ir.graph import Constant, TensorType, Value, make_node
from onnxc.ir.interpret import run_node
from onnxc.ir.ops import Contract
from onnxc.target import TARGETS

FAR = {"m": 6, "n": 70, "k": 96}


def node_of(m, n, k, weights=None, form="mk,kn->mn", symbolic=False, body=None, extra=()):
    """(node, its operands) of m rows of k bytes by k x n weights."""
    inputs, out = form.split("->")
    lhs, rhs = inputs.split(",")
    sizes = {"m": m, "n": n, "k": k, "b": 2}
    w = few_large([sizes[c] for c in rhs]) if weights is None else weights
    x = both_ends([sizes[c] for c in lhs])
    shape = tuple(dims.symbol("m") if symbolic and c == "m" else sizes[c] for c in lhs)
    values = [Value(TensorType("uint8", shape)), Value(TensorType("int8", w.shape), "", Constant.of(w))]
    values += [Value(TensorType(str(a.dtype), a.shape)) for a in extra]
    return make_node(Contract(lhs, rhs, out, "int32", body), values), [x, w, *extra]


def check(target, *sizes, **more):
    """The choice of a product, whose result is the interpreter's."""
    node, arrays = node_of(*sizes, **more)
    choice = choices_of(gemm_pairs, node, target)[0]
    ((got, _),) = harness.run_choice(node, choice, arrays, target, {"m": sizes[0]})
    (expected,) = run_node(node, arrays, {"m": sizes[0]})
    np.testing.assert_array_equal(got, expected)
    return choice


@WITH_PAIRS
@pytest.mark.parametrize("k", [*range(4, 20), 31, 66, 70, 129])
def test_sums_of_any_number_of_terms_are_exact(target, k):
    check(target, 5, 37, k)


@WITH_PAIRS
@pytest.mark.parametrize("m, n", [(0, 5), (1, 2), (1, 70), (3, 8), (7, 16), (13, 33), (40, 100)])
@pytest.mark.parametrize("symbolic", [False, True])
def test_any_rows_and_columns(target, m, n, symbolic):
    check(target, m, n, 96, symbolic=symbolic)


@WITH_PAIRS
@pytest.mark.parametrize("form", ["mk,nk->mn", "bmk,kn->bmn", "bmk,nk->bmn"])
def test_transposed_weights_and_batches(target, form):
    check(target, 6, 70, 96, form=form)


@WITH_PAIRS
def test_the_same_weights_are_as_exact_at_both_ends_of_their_range(target):
    weights = np.zeros((64, 40), np.int8)
    weights[8:10], weights[20:22, 3], weights[40:42, 39], weights[63] = 127, -128, 127, -128
    assert check(target, 5, 40, 64, weights=weights).tiling.further > 0
    assert check(target, 5, 40, 64, weights=weights // 2).tiling.further == 0


@WITH_PAIRS
def test_the_epilogue_reads_the_sums(target):
    scale, bias = np.float32([0.125]), few_large((70,)).astype(np.float32)
    numbers = [expr.input_(i, "float32") for i in (1, 2)]
    body = expr.input_(0, "int32").cast("float32") * numbers[0] + numbers[1]
    node, arrays = node_of(**FAR, body=body, extra=[scale, bias])
    choice = choices_of(gemm_pairs, node, target)[0]
    ((got, _),) = harness.run_choice(node, choice, arrays, target, {})
    np.testing.assert_allclose(got, arrays[0].astype(int) @ arrays[1] * 0.125 + bias, rtol=1e-6)


def test_weights_that_are_large_are_others():
    weights = np.full((96, 70), 100, np.int8)
    assert not choices_of(gemm_pairs, node_of(6, 70, 96, weights)[0], TARGETS["x86-64-v3"])


def test_targets_with_dot_products_have_those():
    for name in ("alderlake", "icelake-server", "aarch64", "neoverse-n1"):
        assert not choices_of(gemm_pairs, node_of(**FAR)[0], TARGETS[name])


@pytest.mark.parametrize("target", ABLE, ids=str)
def test_tiles_keep_their_sums_in_registers(target):
    node, _ = node_of(40, 100, 96)
    offered = choices_of(gemm_pairs, node, target)
    assert offered
    for choice in offered:
        assert not spills(gemm_pairs.emit(node, choice, target).steps[-1].text, target)


@pytest.mark.parametrize("depth", [4, 5, 6, 7, 8, 70])
def test_what_pairs_cannot_hold_is_beyond_them(depth):
    weights = np.random.default_rng(depth).choice(np.array([-128, -90, 0, 90, 127], np.int8), (9, depth))
    excess, beyond = Excess(weights), np.zeros((9, depth + depth % 2), int)
    beyond[excess.results, excess.terms] = excess.over
    kept = np.zeros(beyond.shape, int)
    kept[:, :depth] = excess.kept
    np.testing.assert_array_equal((kept + beyond)[:, :depth], weights)
    pairs = kept.reshape(9, -1, 2)
    assert np.maximum(pairs, 0).sum(axis=2).max() <= 128
    assert np.minimum(pairs, 0).sum(axis=2).min() >= -128
    assert not beyond[:, depth:].any() and ((beyond.reshape(9, -1, 2) != 0).sum(axis=2) <= 1).all()
