"""Import rules of random numbers, and of Dropout, which draws them while training.

A seed makes the stream; without one it differs from run to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ...ir import dtypes, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.graph import Value
from ..rules import onnx_op
from .common import checked, element_type, generate, one_of, scalar, zeros


def _drawn(
    b: Builder,
    kind: Literal["uniform", "normal"],
    dtype: str,
    shape: Sequence[Dimension],
    low: float,
    high: float,
    seed: float | None,
) -> Value:
    one_of(dtype, tuple(dtypes.FLOATS), "dtype")
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise ops.TypeMismatch("a size is negative")
    return b.emit(ops.Random(kind, dtype, tuple(shape), low, high, seed))[0]


def _like(dtype: int | None, other: Value) -> str:
    """The type asked for; by default that of the other tensor, which may be no float."""
    if dtype is not None:
        return element_type(dtype, "dtype")
    return other.dtype if other.dtype in dtypes.FLOATS else "float32"


@onnx_op(since=1)
def RandomNormal(b, *, dtype=1, mean=0.0, scale=1.0, seed=None, shape):
    return _drawn(b, "normal", element_type(dtype, "dtype"), shape, mean, scale, seed)


@onnx_op(since=1)
def RandomNormalLike(b, input, *, dtype=None, mean=0.0, scale=1.0, seed=None):
    return _drawn(b, "normal", _like(dtype, input), input.shape, mean, scale, seed)


@onnx_op(since=1)
def RandomUniform(b, *, dtype=1, high=1.0, low=0.0, seed=None, shape):
    return _drawn(b, "uniform", element_type(dtype, "dtype"), shape, low, high, seed)


@onnx_op(since=1)
def RandomUniformLike(b, input, *, dtype=None, high=1.0, low=0.0, seed=None):
    return _drawn(b, "uniform", _like(dtype, input), input.shape, low, high, seed)


@onnx_op(since=15)
def Bernoulli(b, input, *, dtype=None, seed=None):
    """1 with the probability that the input gives, else 0."""
    target = input.dtype if dtype is None else element_type(dtype, "dtype")
    drawn = _drawn(b, "uniform", "float32", input.shape, 0.0, 1.0, seed)
    return b.map(drawn, input, lambda u, p: (u < p.cast("float32")).cast(target))


@onnx_op(since=7, ranks={"input": 2})
def Multinomial(b, input, *, dtype=6, sample_size=1, seed=None):
    """Classes [batch, samples] drawn by their unnormalized log-probabilities [batch, classes]."""
    if input.rank != 2 or sample_size < 1:
        raise ops.TypeMismatch(f"{sample_size} samples of {input.type}, where [batch, classes] is needed")
    target = element_type(dtype, "dtype")
    one_of(target, ("int32", "int64"), "dtype")
    drawn = _drawn(b, "uniform", "float32", (input.shape[0], sample_size), 0.0, 1.0, seed)
    return b.cast(classes_at(b, input, drawn), target)


def classes_at(b: Builder, logits: Value, drawn: Value) -> Value:
    """int64 [batch, samples]: the classes by unnormalized log-probabilities [batch, classes] that numbers
    from 0 to 1 [batch, samples] fall into."""
    batch, classes = logits.shape
    samples = drawn.shape[1]
    logits = b.cast(logits, "float32")
    weights = b.map(logits, b.reduce("max", logits, [1], True), lambda x, m: expr.exp(x - m))
    running = b.emit(ops.Cumulate("sum", 1), weights)[0]
    total = b.reduce("max", running, [1], True)
    places = (
        b.reshape(running, (batch, 1, classes)),
        b.reshape(drawn, (batch, samples, 1)),
        b.reshape(total, (batch, 1, 1)),
    )
    below = b.map(*places, lambda r, u, t: (r <= u * t).cast("int64"))
    last = expr.size(classes - 1)
    return b.map(b.reduce("sum", below, [2]), lambda k: k.minimum(last))


# Dropout -----------------------------------------------------------------------------------------


@onnx_op(since=12, ranks={"ratio": "<=1", "training_mode": "<=1"})
def Dropout(b, data, ratio=None, training_mode=None, *, seed=None):
    """Passes data on; while training each element is dropped with probability `ratio` and the
    rest scaled to make up for it."""
    ratio = b.constant(np.float32(0.5)) if ratio is None else scalar(b, ratio, "ratio")
    training = b.constant(False) if training_mode is None else scalar(b, training_mode, "training_mode")
    mode = b.known(training)
    if mode is not None and not mode.any():
        return data, generate(b, data.shape, expr.const(True, "bool"))
    ratio, says = b.cast(ratio, "float32"), "the ratio is {}, which is not in [0, 1)"
    ratio = checked(b, ratio, lambda r: (r >= 0) & (r < 1), "invalid_value", says)
    drawn = b.emit(ops.Random("uniform", "float32", data.shape, 0.0, 1.0, seed))[0]
    mask = b.map(drawn, ratio, training, lambda u, r, on: (u >= r) | ~on)
    scale = b.map(ratio, training, lambda r, on: expr.where(on, 1 / (1 - r), 1).cast(data.dtype))
    return b.map(data, mask, scale, lambda x, kept, s: expr.where(kept, x * s, 0)), mask


@onnx_op(since=10, name="Dropout")
def _dropout_10(b, data, *, ratio=0.5):
    return Dropout(b, data)


@onnx_op(since=7, name="Dropout")
def _dropout_7(b, data, *, ratio=0.5):
    """Before operator set 10 the mask is of the type of the data."""
    return data, zeros(b, data.dtype, data.shape, 1) if b.site.wanted[1:2] == (True,) else None


@onnx_op(since=1, name="Dropout")
def _dropout_1(b, data, *, is_test=0, ratio=0.5, consumed_inputs=None):
    return _dropout_7(b, data)
