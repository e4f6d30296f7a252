"""TreeEnsemble: rows and trees as lanes, of every aggregate, and what NaN does, against the interpreter."""

import numpy as np
import pytest
from support import harness
from support.harness import TARGETS
from support.nests import compare, node_of

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import trees
from onnxc.ir import dims
from onnxc.ir.graph import TensorType
from onnxc.ir.ops import TreeEnsemble
from onnxc.target import LEVELS

ROWS = (0, 1, 3, 15, 16, 33, 100)


def tables(rng, trees, depth, columns, targets, features, dtype, missing=False):
    """Trees that end before `depth` at random; children of a node may be another's, too."""
    nodes, leaves, roots = [], [], []

    def grow(level):
        if level == depth or (level and rng.random() < 0.2):
            leaves.append(rng.integers(-8, 9, columns))
            return ~(len(leaves) - 1)
        place = len(nodes)
        nodes.append(None)
        left = grow(level + 1)
        right = left if rng.random() < 0.1 else grow(level + 1)
        nodes[place] = (
            rng.integers(features),
            rng.integers(-2, 3),
            left,
            right,
            missing and rng.random() < 0.5,
        )
        return place

    roots = [grow(0) for _ in range(trees)]
    kinds = (np.int32, dtype, np.int32, np.int32, bool)
    columns_of = [np.array([n[k] for n in nodes], kind) for k, kind in enumerate(kinds)]
    return [*columns_of, np.array(roots, np.int32), np.array(targets, np.int32), np.array(leaves, dtype)]


def rows(rng, count, features, dtype):
    x = rng.integers(-3, 4, (count, features)).astype(dtype)
    x[rng.random(x.shape) < 0.1] = np.nan
    return x


def check(target, op, given, x, is_symbolic=False, tolerance=None):
    types = [TensorType(t.dtype.name, t.shape) for t in (x, *given)]
    if is_symbolic:
        types[0] = TensorType(x.dtype.name, (dims.symbol("n"), dims.symbol("f")))
    node = node_of(op, [x, *given], types, constant=range(1, 9))
    for choice in choices_of(trees, node, target):
        compare(node, choice, [x, *given], target, tolerance=tolerance)


@TARGETS
@pytest.mark.parametrize(
    ("dtype", "columns", "each", "missing"),
    [
        (np.float32, 1, 1, True),
        (np.float32, 3, 3, False),
        (np.float64, 3, 1, True),
        (np.float32, 10, 10, True),
    ],
)
def test_any_number_of_rows(target, dtype, missing, columns, each):
    rng = np.random.default_rng(columns + each)
    targets = rng.integers(0, columns, 7) if each == 1 else [0] * 7
    given = tables(rng, 7, 5, each, targets, 4, dtype, missing)
    for count in ROWS:  # as symbols, so that one kernel runs them all
        check(target, TreeEnsemble("sum", columns, 4, 5), given, rows(rng, count, 4, dtype), True)
    check(target, TreeEnsemble("sum", columns, 4, 5), given, rows(rng, 33, 4, dtype))


@TARGETS
@pytest.mark.parametrize("aggregate", ["min", "max"])
def test_the_least_and_the_greatest(target, aggregate):
    rng = np.random.default_rng(1)
    given = tables(rng, 40, 3, 1, rng.integers(0, 2, 40), 300, np.float32)
    for count in (1, 20):
        check(target, TreeEnsemble(aggregate, 3, 300, 3), given, rows(rng, count, 300, np.float32))


@TARGETS
@pytest.mark.parametrize("features", [4, 300])
def test_a_row_of_trees_of_any_depth(target, features):
    rng = np.random.default_rng(3)
    for depth in (1, 2, 3, 4, 6, 9):
        given = tables(rng, 20, depth, 1, [0] * 20, features, np.float32, True)
        check(target, TreeEnsemble("sum", 1, features, depth), given, rows(rng, 1, features, np.float32))


def chains(rng, lengths, columns, features, targets, missing):
    """Trees of which each node has a leaf on one side, at random."""
    nodes, roots, leaves = [], [], sum(lengths) + len(lengths)
    begin = 0
    for length in lengths:
        roots.append(len(nodes) if length else ~begin)
        for k in range(length):
            ends = [~(begin + k), len(nodes) + 1 if k + 1 < length else ~(begin + length)]
            nan_left = missing and rng.random() < 0.5
            nodes.append((rng.integers(features), rng.integers(-2, 3), *rng.permutation(ends), nan_left))
        begin += length + 1
    kinds = (np.int32, np.float32, np.int32, np.int32, bool)
    columns_of = [np.array([n[k] for n in nodes], kind) for k, kind in enumerate(kinds)]
    weights = rng.integers(-8, 9, (leaves, columns)).astype(np.float32)
    return [*columns_of, np.array(roots, np.int32), np.array(targets, np.int32), weights]


@TARGETS
@pytest.mark.parametrize(
    ("aggregate", "columns", "each"),
    [("sum", 1, 1), ("sum", 3, 1), ("max", 2, 1), ("sum", 3, 3), ("sum", 12, 12)],
)
@pytest.mark.parametrize("missing", [False, True])
def test_deep_trees_of_few_leaves(target, aggregate, columns, each, missing):
    rng = np.random.default_rng(4)
    lengths = [*rng.integers(9, 32, 37), 0, 31]
    targets = rng.integers(0, columns, 39) if each == 1 else [0] * 39
    for features in (3, 17, 32):
        given = chains(rng, lengths, each, features, targets, missing)
        op = TreeEnsemble(aggregate, columns, features, 31)
        for count in (1, 3, 20):
            check(target, op, given, rows(rng, count, features, np.float32))


@TARGETS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("columns", "each"), [(1, 1), (3, 1), (3, 3), (10, 10)])
def test_sums_are_rounded_once_however_many_rows_there_are(target, dtype, columns, each):
    """So classes that tie for one row tie for many, and equal votes are equal sums."""
    rng, count = np.random.default_rng(6), 43
    targets = rng.integers(0, columns, count) if each == 1 else [0] * count
    shallow = tables(rng, count, 4, each, targets, 5, dtype)
    deep = chains(rng, [11] * count, each, 5, targets, False)
    deep[1], deep[7] = deep[1].astype(dtype), deep[7].astype(dtype)
    x = rows(rng, 37, 5, dtype)
    for given, depth in ((shallow, 4), (deep, 11)):
        shape = given[7].shape
        voted = (rng.integers(0, each + 1, len(given[7]))[:, None] == np.arange(each)) / dtype(count)
        for weights in (voted, rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 3, shape)):
            given[7] = weights.astype(dtype)
            for rows_of in (1, 37):
                op = TreeEnsemble("sum", columns, 5, depth)
                check(target, op, given, x[:rows_of], True, tolerance=0)


@TARGETS
def test_sums_that_overflow_are_infinite(target):
    given = tables(np.random.default_rng(7), 5, 3, 1, [0, 0, 1, 1, 2], 4, np.float64)
    given[7] = np.array([[np.inf, 1e308, -1e308][k % 3] for k in range(len(given[7]))])[:, None]
    for count in (1, 33):
        op = TreeEnsemble("sum", 4, 4, 3)
        check(target, op, given, rows(np.random.default_rng(8), count, 4, np.float64), tolerance=0)


def test_a_row_compares_deep_trees_of_few_leaves_and_walks_others():
    def compares(leaves, features):
        rng, chosen = np.random.default_rng(5), []
        given = chains(rng, [leaves - 1] * 16, 1, features, [0] * 16, False)
        x = np.zeros((1, features), np.float32)
        op = TreeEnsemble("sum", 1, features, leaves - 1)
        node = node_of(op, [x, *given], constant=range(1, 9))
        for choice in choices_of(trees, node, LEVELS["x86-64-v4"]):
            chosen.append(choice.tiling.single)
        return chosen

    assert all(compares(31, 20))
    assert all(compares(32, 32))
    assert not any(compares(33, 20))  # more than a word has bits
    assert not any(compares(31, 33))  # more than two registers hold


def test_trees_without_nodes():
    given = tables(np.random.default_rng(1), 3, 0, 2, [0, 0, 0], 4, np.float32)
    for count, features in ((1, 4), (20, 4), (2, 0)):
        for target in harness.RUNNABLE:
            check(target, TreeEnsemble("sum", 2, 0, 0), given, np.zeros((count, features), np.float32))


def test_words_of_64_bits_where_32_are_too_few():
    rng = np.random.default_rng(2)
    features = 1 << 26
    given = tables(rng, 9, 4, 1, [0] * 9, 3, np.float32)
    given[0] = given[0] * (features // 2 - 1)
    x = np.zeros((2, features), np.float32)
    check(harness.RUNNABLE[0], TreeEnsemble("sum", 1, features, 4), given, x)
