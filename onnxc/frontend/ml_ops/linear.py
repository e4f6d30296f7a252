"""Import rules of linear models and support vector machines: products with constants, and votes between
classes.

Outputs are those of ONNX Runtime, whose labels and scores do not always follow from each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from ...ir import expr, ops
from ...ir.builder import Builder
from ...ir.expr import Expr
from ...ir.graph import TensorType, Value
from ..rules import onnx_op
from .scores import (
    checked_length,
    floats,
    is_positive,
    labels_of,
    named,
    rows_of,
    single_score,
    top_class,
    transformed,
)

ml_op = partial(onnx_op, domain="ai.onnx.ml")


def _matrix(numbers: Sequence[float] | None, rows: int, name: str) -> np.ndarray:
    """An attribute as a matrix of so many rows."""
    if rows < 1 or not numbers or len(numbers) % rows:
        raise ops.TypeMismatch(f"'{name}' has {len(numbers or ())} elements, which are no {rows} rows")
    return np.array(numbers, np.float32).reshape(rows, -1)


def _linear(x: Value, coefficients: Sequence[float] | None, rows: int) -> np.ndarray:
    """The coefficients of x [N, F] as a matrix of so many rows; what follows the last row is not read."""
    features = x.shape[1]
    read = rows * features if isinstance(features, int) and rows > 0 else 0
    if coefficients is not None and 0 < read < len(coefficients):
        coefficients = coefficients[:read]
    return _matrix(coefficients, rows, "coefficients")


def _scores(b: Builder, x: Value, weights: np.ndarray, offsets: Sequence[float]) -> Value:
    """x [N, F] times weights [C, F], transposed, plus offsets [C], or one for all, or none."""
    y = b.contract("nf", "cf", "nc", x, floats(b, weights))
    return y if len(offsets) == 0 else b.map(y, floats(b, offsets), lambda s, c: s + c)


@ml_op(since=1)
def LinearRegressor(b, X, *, coefficients=None, intercepts=None, post_transform="NONE", targets=1):
    x = rows_of(b, X)
    offsets = intercepts if len(intercepts or ()) == targets else ()
    return transformed(b, _scores(b, x, _linear(x, coefficients, targets), offsets), post_transform)


@ml_op(since=1)
def LinearClassifier(
    b,
    X,
    *,
    classlabels_ints=None,
    classlabels_strings=None,
    coefficients,
    intercepts=None,
    multi_class=0,
    post_transform="NONE",
):
    """One score that no labels are for stays alone, and chooses 0 or 1."""
    alone = len(intercepts or ()) == 1 and not classlabels_strings and not classlabels_ints
    labels = np.arange(2) if alone else labels_of(classlabels_strings, classlabels_ints)
    x, count = rows_of(b, X), len(intercepts or labels)
    scores = _scores(b, x, _linear(x, coefficients, count), intercepts or ())
    checked_length(labels, max(count, 2), "the labels of classes")
    index = top_class(b, scores) if count > 1 else is_positive(b, scores)
    if count > 1 or alone:
        return named(b, index, labels), transformed(b, scores, post_transform)
    return named(b, index, labels), single_score(b, scores, True, post_transform)


# Support vectors ---------------------------------------------------------------------------------


def _kernel(b: Builder, x: Value, vectors: np.ndarray, kind: str, params: Sequence[float] | None) -> Value:
    """How similar each row is to each of the vectors, float32 [N, V]; params: gamma, coef0, degree."""
    gamma, coef0, degree = [*(params or ()), 0.0, 0.0, 0.0][:3]
    if kind == "RBF":  # of differences, which float64 keeps where numbers are large and near each other
        wide, known = b.cast(x, "float64"), floats(b, vectors, "float64")
        product = b.contract("nf", "vf", "nv", wide, known)
        lengths = b.reduce("sum", wide, [1], keepdims=True, body=lambda e: e * e)
        squares = floats(b, np.sum(vectors.astype(np.float64) ** 2, 1), "float64")
        distance = b.map(
            *(lengths, squares, product),
            lambda s, t, p: expr.where(s.equals(math.inf), s, (s + t - p * 2).maximum(0)),
        )
        return b.map(distance, lambda d: expr.exp(d.cast("float32") * -gamma))
    product = b.contract("nf", "vf", "nv", x, floats(b, vectors))

    def similar(p: Expr) -> Expr:
        inner = p * gamma + coef0
        return expr.tanh(inner) if kind == "SIGMOID" else expr.power(inner, expr.const(degree, "float32"))

    if kind not in ("LINEAR", "POLY", "SIGMOID"):
        raise ops.TypeMismatch(f"there is no kernel '{kind}'")
    return product if kind == "LINEAR" else b.map(product, similar)


@ml_op(since=1)
def SVMRegressor(
    b,
    X,
    *,
    coefficients=None,
    kernel_params=None,
    kernel_type="LINEAR",
    n_supports=0,
    one_class=0,
    post_transform="NONE",
    rho=None,
    support_vectors=None,
):
    x = rows_of(b, X)
    if n_supports > 0:
        vectors = _matrix(support_vectors, n_supports, "support_vectors")
        x = _kernel(b, x, vectors, kernel_type, kernel_params)
    y = _scores(b, x, _matrix(coefficients, 1, "coefficients"), (rho or ())[:1])
    return b.map(y, lambda s: expr.where(s > 0, 1.0, expr.const(-1, "float32"))) if one_class else y


@ml_op(since=1)
def SVMClassifier(
    b,
    X,
    *,
    classlabels_ints=None,
    classlabels_strings=None,
    coefficients=None,
    kernel_params=None,
    kernel_type="LINEAR",
    post_transform="NONE",
    prob_a=None,
    prob_b=None,
    rho=None,
    support_vectors=None,
    vectors_per_class=None,
):
    labels, x = labels_of(classlabels_strings, classlabels_ints), rows_of(b, X)
    count = len(labels)
    if not sum(vectors_per_class or ()):
        weights = _matrix(coefficients, count, "coefficients")
        scores = _scores(b, x, weights, (rho or ())[:1])
        index = _linear_choice(b, scores, weights, bool(prob_a))
        return named(b, index, labels), transformed(b, scores, post_transform)
    checked_length(vectors_per_class, count, "vectors_per_class")
    vectors = _matrix(support_vectors, sum(vectors_per_class), "support_vectors")
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    checked_length((rho or ())[: len(pairs)], len(pairs), "rho")
    weights = _pair_weights(_matrix(coefficients, count - 1, "coefficients"), vectors_per_class, pairs)
    sums = _scores(b, _kernel(b, x, vectors, kernel_type, kernel_params), weights, (rho or ())[: len(pairs)])
    label = named(b, _voted(b, sums, pairs, count), labels)
    if prob_a:
        scores = transformed(b, _probabilities(b, sums, prob_a, prob_b, count), post_transform)
    elif count > 2:
        scores = transformed(b, sums, post_transform)
    else:
        scores = single_score(b, sums, post_transform != "NONE", post_transform)
    return label, scores


def _linear_choice(b: Builder, scores: Value, weights: np.ndarray, has_probabilities: bool) -> Value:
    """The class of the greatest score; of two the second, where that score says yes."""
    index = top_class(b, scores)
    if scores.shape[1] != 2 or has_probabilities:
        return index
    most, positive = b.reduce("max", scores, [1]), bool(np.all(weights >= 0))
    return b.map(
        index, most, lambda i, m: expr.where(m >= 0.5 if positive else m > 0, expr.const(1, "int64"), i)
    )


def _pair_weights(
    coefficients: np.ndarray, sizes: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> np.ndarray:
    """[P, V]: what each vector counts between each pair of classes, of coefficients [classes - 1, V]."""
    ends = np.cumsum([0, *sizes])
    if coefficients.shape[1] != ends[-1]:
        raise ops.TypeMismatch(f"'coefficients' are for {coefficients.shape[1]} vectors, not {ends[-1]}")
    weights = np.zeros((len(pairs), ends[-1]), np.float32)
    for row, (i, j) in zip(weights, pairs):
        first, second = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        row[first], row[second] = coefficients[j - 1, first], coefficients[i, second]
    return weights


def _voted(b: Builder, sums: Value, pairs: Sequence[tuple[int, int]], count: int) -> Value:
    """The class with most votes, one of each pair."""
    wins, losses = np.zeros((len(pairs), count)), np.zeros((len(pairs), count))
    for p, (i, j) in enumerate(pairs):
        wins[p, i], losses[p, j] = 1, 1
    positive = b.map(sums, lambda s: (s > 0).cast("float32"))
    votes = b.contract("np", "pc", "nc", positive, floats(b, wins - losses))
    return top_class(b, b.map(votes, floats(b, losses.sum(0)), lambda v, w: v + w))


def _probabilities(
    b: Builder, sums: Value, a: Sequence[float], c: Sequence[float] | None, count: int
) -> Value:
    """Each class's probability [N, C], of those between pairs: logistic functions of their sums."""
    for numbers, name in ((a, "prob_a"), (c, "prob_b")):
        checked_length(numbers, count * (count - 1) // 2, name)

    def between(s: Expr, a: Expr, c: Expr) -> Expr:
        return expr.sigmoid(-(s * a + c)).clip(1e-7, float(np.float32(1) - np.float32(1e-7)))

    known = b.map(sums, floats(b, a), floats(b, c or ()), between)
    type_ = TensorType("float32", (sums.shape[0], count))
    return b.call("class_probabilities", [known], [type_], [count])[0]
