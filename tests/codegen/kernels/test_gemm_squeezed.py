"""Products of few rows with float32 weights in 28 bits, which are the weights bit by bit."""

from dataclasses import replace

import numpy as np
import pytest
from support import harness
from support.harness import TARGETS

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import gemm, gemm_squeezed
from onnxc.codegen.tiles.squeezed_panel import squeezed_forms
from onnxc.codegen.tiles.stored_panel import few_rows
from onnxc.ir import dims, expr
from onnxc.ir.graph import Constant, TensorType, Value, make_node
from onnxc.ir.ops import Contract

VECTORS = pytest.mark.parametrize("vectors", [1, 2, 4])


def far(target, streams=3):
    """A target whose runs touch more than its second-level cache holds, which is small."""
    facts = replace(target.facts, streams=streams, level2_bytes=1024)
    return replace(target, run_bytes=1 << 30, facts=facts)


def trained(depth, columns, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((depth, columns)) * 0.02).astype(np.float32)


def product(weights, rows, bias=False, form="mk,kn->mn", x=None):
    """(node, arrays) of `rows` rows times the weights [K, N]."""
    depth, columns = weights.shape
    if x is None:
        x = np.random.default_rng(rows).standard_normal((rows, depth)).astype(np.float32)
    stored = weights if form.endswith("kn->mn") else np.ascontiguousarray(weights.T)
    values = [Value(TensorType("float32", (rows, depth)))]
    values += [Value(TensorType("float32", stored.shape), "", Constant.of(stored))]
    values += [Value(TensorType("float32", (columns,)))] * bias
    body = expr.input_(0, "float32") + expr.input_(1, "float32") if bias else None
    lhs, (rhs, out) = form.split(",")[0], form.split(",")[1].split("->")
    node = make_node(Contract(lhs, rhs, out, "float32", body), values)
    added = np.linspace(-1, 1, columns, dtype=np.float32)
    return node, [x, stored, *[added] * bias]


def run(target, vectors, weights, rows, **more):
    """The product by panels of so many vectors."""
    node, arrays = product(weights, rows, **more)
    (choice,) = choices_of(gemm_squeezed, node, target)
    (form,) = (f for f in squeezed_forms(node.inputs[1].constant, weights.shape[0]) if f.vectors == vectors)
    found = gemm_squeezed.tilings(node, gemm_squeezed.product_of(node), form, target)
    choice = replace(choice, tiling=found[0])
    with np.errstate(all="ignore"):
        ((got, _),) = harness.run_choice(node, choice, arrays, target)
    return arrays, got


def check(target, vectors, weights, rows, **more):
    (x, _, *bias), got = run(target, vectors, weights, rows, **more)
    exact = x.astype(np.float64) @ weights + sum(bias)
    near = 1e-6 * (np.abs(x) @ np.abs(weights) + 1)
    assert (np.abs(got - exact) <= near).all()


@TARGETS
@VECTORS
def test_rows_columns_and_depths(target, vectors):
    few = few_rows(target, vectors)
    for rows, depth, columns in [(1, 800, 150), (few, 61, 64), (few, 8, 200), (1, 1, 80), (1, 70, 67)]:
        check(far(target), vectors, trained(depth, columns), rows)
    check(far(target), vectors, trained(123, 99), few, bias=True, form="mk,nk->mn")


def test_groups_come_from_as_many_places_as_memory_is_read_fastest_from():
    for streams in (1, 2, 8):
        check(far(harness.BEST, streams), 2, trained(331, 70), 2)


# Weights bit by bit: each row of the identity picks a row of weights ---------------------------------


def unusual(depth, columns):
    """Trained weights with one in a thousand of other exponents, and zeros."""
    weights = trained(depth, columns)
    rng = np.random.default_rng(5)
    weights[rng.random(weights.shape) < 0.02] = 0
    others = np.array([1e-30, -3e-12, 7e4, -2e30, 1e-41, -1e-45, 3e38], np.float32)
    places = rng.choice(weights.size, weights.size // 2000, replace=False)
    weights.reshape(-1)[places] = others[np.arange(places.size) % others.size]
    return weights


def signs(weights):
    return np.where(weights == 0, np.float32(0), weights).view(np.uint32)


@TARGETS
@VECTORS
def test_weights_of_any_exponent_are_what_they_are(target, vectors):
    weights, one_hot = unusual(400, 75), np.eye(400, dtype=np.float32)
    exceptions = np.flatnonzero((np.abs(weights) > 1e3).any(axis=1))
    some = [0, *exceptions[:2], 399]
    for row in some:
        _, got = run(far(target), vectors, weights, 1, x=one_hot[[row]])
        assert (signs(got) == signs(weights[[row]])).all()


@VECTORS
def test_what_is_not_finite_reaches_the_columns_that_it_would(vectors):
    weights = trained(300, 64)
    weights[7, 5], weights[100, 9], weights[200, 11] = 1e-30, np.inf, np.nan
    x = np.ones((1, 300), np.float32)
    x[0, 7] = np.inf
    _, got = run(far(harness.BEST), vectors, weights, 1, x=x)
    with np.errstate(all="ignore"):
        expected = x @ weights
    assert got[0, 5] == np.inf and np.isnan(got[0, 11])
    assert (np.isnan(got) == np.isnan(expected)).all()
    assert (np.isinf(got) == np.isinf(expected)).all()


@TARGETS
def test_a_column_of_tiny_weights_keeps_its_digits(target):
    weights = trained(2000, 80)
    weights[:, 33] = 0
    weights[:30, 34] *= np.float32(1e-25)
    weights[30:, 34] = 0
    x = np.random.default_rng(1).standard_normal((1, 2000)).astype(np.float32)
    _, got = run(far(target), 2, weights, 1, x=x)
    assert got[0, 33] == 0
    np.testing.assert_allclose(got[0, 34], x[0].astype(np.float64) @ weights[:, 34], rtol=1e-5)


# Where it is chosen ----------------------------------------------------------------------------------


def offers(target, weights, rows, **more):
    return choices_of(gemm_squeezed, product(weights, rows, **more)[0], target)


def test_weights_with_many_exponents_stay_as_they_are():
    rng = np.random.default_rng(0)
    weights = (2.0 ** rng.integers(-40, 40, (64, 64))).astype(np.float32)
    assert not offers(far(harness.BEST), weights, 1)


def test_weights_that_are_near_or_few_or_have_many_rows_stay_as_they_are():
    runs_far = replace(harness.BEST, run_bytes=1 << 30)
    large = trained(1024, harness.BEST.facts.level2_bytes // 4096)
    assert offers(runs_far, large, 1)
    assert not offers(harness.BEST, large, 1)
    assert not offers(runs_far, trained(64, 64), 1)
    assert not offers(runs_far, large, 100)


def test_rows_that_only_the_run_counts_may_be_many():
    node, _ = product(trained(1024, 1024), 1)
    rows = Value(TensorType("float32", (dims.symbol("m", typical=1), 1024)))
    for x, several in (node.inputs[0], 1), (rows, 0):
        one = make_node(node.op, [x, *node.inputs[1:]])
        assert len(choices_of(gemm_squeezed, one, far(harness.BEST))) == several


def test_a_row_by_weights_of_the_memory_is_fastest_in_fewer_bytes():
    node, *_ = product(trained(4096, 2048), 1)
    target = replace(harness.BEST, run_bytes=1 << 30)
    (squeezed,) = choices_of(gemm_squeezed, node, target)
    assert squeezed.cost.total < min(choice.cost.total for choice in choices_of(gemm, node, target))


def test_panels_have_seven_eighths_of_the_bytes():
    weights = trained(4096, 512)
    node, *_ = product(weights, 1)
    (choice,) = choices_of(gemm_squeezed, node, far(harness.BEST))
    packed = gemm_squeezed.pack(node, choice, 1)
    assert packed.shape == packed.array.shape
    assert 7 / 8 < packed.nbytes / weights.nbytes < 0.9
