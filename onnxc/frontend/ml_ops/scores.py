"""What rules of classifiers and regressors share: rows of features, transforms of scores, and labels.

The transforms are those of ONNX Runtime, down to its approximation of the inverse error function, since the
specification only names them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Sized

import numpy as np

from ...ir import dims, dtypes, expr, ops
from ...ir.builder import Builder
from ...ir.expr import Expr
from ...ir.graph import Value

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def rows_of(b: Builder, x: Value, dtype: str = "float32") -> Value:
    """x as [N, F] of that type; a vector is one row."""
    if x.rank == 1:
        x = b.reshape(x, (1, x.shape[0]))
    if x.rank != 2:
        raise ops.TypeMismatch(f"{x.type} has no rows of features")
    return b.cast(x, dtype)


def floats(b: Builder, numbers: Sequence[float] | np.ndarray, dtype: str = "float32") -> Value:
    return b.constant(np.asarray(numbers, dtypes.numpy_dtype(dtype)))


def checked_length(numbers: Sized | None, length: int, name: str) -> None:
    """TypeMismatch unless an attribute has so many numbers."""
    count = 0 if numbers is None else len(numbers)
    if count != length:
        raise ops.TypeMismatch(f"'{name}' has {count} elements where {length} are needed")


# Transforms --------------------------------------------------------------------------------------


def logistic(x: Expr) -> Expr:
    """1 / (1 + exp(-x)), as accurate for large negative x."""
    v = 1 / (1 + expr.exp(-expr.apply("abs", x)))
    return expr.where(x < 0, 1 - v, v)


def probit(x: Expr) -> Expr:
    """sqrt(2) erfinv(2 x - 1), by Winitzki's approximation."""
    y = x * 2 - 1
    log = expr.log((1 - y) * (1 + y))
    v = log * 0.5 + 2 / (3.14159 * 0.147)
    root = expr.sqrt(expr.sqrt(v * v - log * (1 / 0.147)) - v)
    return expr.where(y < 0, -root, root) * math.sqrt(2)


def transformed(b: Builder, scores: Value, transform: str) -> Value:
    """scores [N, C] with C > 1, or a single one that only PROBIT changes, after a transform."""
    if transform not in TRANSFORMS:
        raise ops.TypeMismatch(f"there is no transform '{transform}'")
    if transform == "PROBIT":
        return b.map(scores, probit)
    if transform == "NONE" or scores.shape[1] == 1:
        return scores
    if transform == "LOGISTIC":
        return b.map(scores, logistic)
    greatest = b.reduce("max", scores, [1], keepdims=True)
    if transform == "SOFTMAX":
        powers = b.map(scores, greatest, lambda x, m: expr.exp(x - m))
        return b.map(powers, b.reduce("sum", powers, [1], keepdims=True), lambda p, t: p / t)

    def counts(x: Expr) -> Expr:  # what is nearly 0 stays there and is not counted
        return expr.apply("abs", x) > 1e-7

    powers = b.map(scores, greatest, lambda x, m: expr.where(counts(x), expr.exp(x - m), x * expr.exp(-m)))
    counted = b.map(scores, greatest, lambda x, m: expr.where(counts(x), expr.exp(x - m), 0.0))
    return b.map(powers, b.reduce("sum", counted, [1], keepdims=True), lambda p, t: p / t)


def two_columns(b: Builder, first: Value, second: Value) -> Value:
    """Two values [N, 1] side by side."""
    return b.concat([first, second], 1)


def single_score(b: Builder, score: Value, sums_to_one: bool, transform: str) -> Value:
    """Scores [N, 2] of two classes of which one score [N, 1] is known."""
    if transform == "PROBIT":  # ONNX Runtime leaves the other open
        return two_columns(b, transformed(b, score, transform), b.map(score, lambda s: s * 0))
    if transform == "LOGISTIC":
        return two_columns(b, b.map(score, lambda s: logistic(-s)), b.map(score, logistic))
    if sums_to_one:
        return two_columns(b, b.map(score, lambda s: 1 - s), score)
    return two_columns(b, b.map(score, lambda s: -s), score)


# Labels ------------------------------------------------------------------------------------------


def labels_of(strings: Sequence[str] | None, ints: Sequence[int] | None) -> np.ndarray:
    """The labels that the attributes give, one for each class."""
    if strings:
        return np.array(strings, object)
    if not ints:
        raise ops.TypeMismatch("neither strings nor integers name the classes")
    return np.array(ints, np.int64)


def named(b: Builder, index: Value, labels: np.ndarray) -> Value:
    """The label of each class, classes [N] being int64 numbers below len(labels)."""
    if labels.dtype != object and np.array_equal(labels, np.arange(len(labels))):
        return index
    return b.emit(ops.Gather("axis", 0), b.constant(labels), index)[0]


def top_class(b: Builder, scores: Value) -> Value:
    """The number of the first greatest score of each row, int64 [N]."""
    if dims.equal(scores.shape[1], 0) is True:
        raise ops.TypeMismatch("there are no scores to choose from")
    return b.reduce("argmax", scores, [1])


def is_positive(b: Builder, score: Value) -> Value:
    """The class that a single score [N, 1] chooses of two, int64 [N]: 1 where it is above 0."""
    return b.reshape(b.map(score, lambda s: (s > 0).cast("int64")), score.shape[:1])
