"""Import rules of normalizations: reductions over trailing axes, then one Map, which passes fuse
as rows."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.expr import Expr
from ...ir.graph import Value
from ..rules import onnx_op
from .common import (
    along,
    element_type,
    fitted,
    mean,
    wide,
    with_channels,
    with_consumed_inputs,
    with_length,
    with_shape,
)

# Rows --------------------------------------------------------------------------------------------


def standardized(b: Builder, x: Value, axes: Sequence[int], dtype: str) -> tuple[Value, Value, Value]:
    """(x - mean, mean, variance) over axes, in dtype."""
    average = mean(b, x, axes, True, lambda e: e.cast(dtype))
    centred = b.map(x, average, lambda e, m: e.cast(dtype) - m)
    return centred, average, mean(b, centred, axes, True, lambda d: d * d)


def _stash(code: int, dtype: str) -> str:
    """The type that stage one computes in; never less exact than the data."""
    return "float64" if dtype == "float64" else _stashed(code)


def _stashed(code: int) -> str:
    """The type that stash_type names; some exporters write 0 for the default."""
    return element_type(code or 1, "stash_type")


@onnx_op(since=17, ranks={"X": "n", "Scale": "<=n", "B": "<=n"})
def LayerNormalization(b, X, Scale, B=None, *, axis=-1, epsilon=1e-5, stash_type=1):
    axes = range(b.axis(axis, X.rank), X.rank)
    affine = []
    for value, name in ((Scale, "the scale"), (B, "the bias")):
        if value is not None:
            X, value = fitted(b, X, value, name)
            affine.append(value)
    centred, average, variance = standardized(b, X, axes, _stash(stash_type, X.dtype))

    def body(d: Expr, v: Expr, *affine: Expr) -> Expr:
        return _scaled(d * (1 / expr.sqrt(v + epsilon)), *affine).cast(X.dtype)

    y = b.map(centred, variance, *affine, body)
    if not any(b.site.wanted[1:]):
        return y
    inverse = b.map(variance, lambda v: 1 / expr.sqrt(v + epsilon))
    return y, *(b.cast(v, _stashed(stash_type)) for v in (average, inverse))


@onnx_op(since=23, ranks={"X": "n", "scale": "<=n"})
def RMSNormalization(b, X, scale, *, axis=-1, epsilon=1e-5, stash_type=1):
    axes, dtype = range(b.axis(axis, X.rank), X.rank), _stash(stash_type, X.dtype)
    X, scale = fitted(b, X, scale, "the scale")
    squares = mean(b, X, axes, True, lambda x: x.cast(dtype) * x.cast(dtype))
    return b.map(
        X, squares, scale, lambda x, v, s: _scaled(x.cast(dtype) / expr.sqrt(v + epsilon), s).cast(s.dtype)
    )


@onnx_op(since=6, ranks={"scale": 1, "B": 1})
def InstanceNormalization(b, input, scale, B, *, epsilon=1e-5):
    if input.rank < 2:
        raise ops.TypeMismatch(f"{input.type} has no axis of channels")
    input = with_channels(b, input, scale.tensor.count)
    scale = with_length(b, scale, input.shape[1], "the scale")
    B = with_length(b, B, input.shape[1], "the bias")
    centred, _, variance = standardized(b, input, range(2, input.rank), wide(input.dtype))
    factor, bias = (along(b, v, 0, input.rank - 1) for v in (scale, B))

    def body(d: Expr, v: Expr, s: Expr, c: Expr) -> Expr:
        return _scaled(d / expr.sqrt(v + epsilon), s, c).cast(s.dtype)

    return b.map(centred, variance, factor, bias, body)


def _scaled(x: Expr, scale: Expr, bias: Expr | None = None) -> Expr:
    """x * scale + bias in the widest of their types: what comes of it is rounded once."""
    dtype = "float64" if "float64" in (x.dtype, scale.dtype) else x.dtype
    y = x.cast(dtype) * scale.cast(dtype)
    return y if bias is None else y + bias.cast(dtype)


_instance_normalization_1 = with_consumed_inputs(InstanceNormalization)


@onnx_op(since=21, ranks={"scale": 1, "bias": 1})
def GroupNormalization(b, X, scale, bias, *, epsilon=1e-5, num_groups, stash_type=1):
    return _grouped(b, X, scale, bias, epsilon, num_groups, _stash(stash_type, X.dtype), True)


@onnx_op(since=18, name="GroupNormalization", ranks={"scale": 1, "bias": 1})
def _group_normalization_18(b, X, scale, bias, *, epsilon=1e-5, num_groups):
    """Before operator set 21 scale and bias have one element for each group."""
    return _grouped(b, X, scale, bias, epsilon, num_groups, wide(X.dtype), False)


def _grouped(
    b: Builder,
    x: Value,
    scale: Value,
    bias: Value,
    epsilon: float,
    groups: int,
    dtype: str,
    each_channel: bool,
) -> Value:
    if x.rank < 2:
        raise ops.TypeMismatch(f"{x.type} has no axis of channels")
    x = with_channels(b, x, scale.tensor.count) if each_channel else x
    channels = x.shape[1]
    if groups < 1 or (isinstance(channels, int) and channels % groups):
        raise ops.TypeMismatch(f"{channels} channels are not divisible into {groups} groups")
    size = dims.floor_divide(channels, groups)
    count = channels if each_channel else groups
    scale, bias = with_length(b, scale, count, "the scale"), with_length(b, bias, count, "the bias")
    parts = b.reshape(x, (x.shape[0], groups, size, *x.shape[2:]))
    centred, _, variance = standardized(b, parts, range(2, parts.rank), dtype)
    shape = (groups, size if each_channel else 1, *(1,) * (x.rank - 2))
    factor, shift = b.reshape(scale, shape), b.reshape(bias, shape)

    def body(d: Expr, v: Expr, s: Expr, c: Expr) -> Expr:
        return _scaled(d / expr.sqrt(v + epsilon), s, c).cast(s.dtype)

    return b.reshape(b.map(centred, variance, factor, shift, body), x.shape)


@onnx_op(since=9)
def MeanVarianceNormalization(b, X, *, axes=(0, 2, 3)):
    centred, _, variance = standardized(b, X, axes, wide(X.dtype))
    return b.map(centred, variance, lambda d, v: (d / (expr.sqrt(v) + 1e-9)).cast(X.dtype))


@onnx_op(since=1)
def LpNormalization(b, input, *, axis=-1, p=2):
    """x / its norm along an axis; 0 where the norm is 0."""
    if p not in (1, 2):
        raise ops.TypeMismatch(f"the norm's order is {p}, neither 1 nor 2")
    dtype = wide(input.dtype)
    power = abs if p == 1 else lambda x: x * x
    total = b.reduce("sum", input, [b.axis(axis, input.rank)], True, lambda x: power(x.cast(dtype)))

    def body(x: Expr, t: Expr) -> Expr:
        norm = t if p == 1 else expr.sqrt(t)
        return expr.where(norm.equals(0), 0, x.cast(dtype) / norm).cast(input.dtype)

    return b.map(input, total, body)


@onnx_op(since=1)
def LRN(b, X, *, alpha=0.0001, beta=0.75, bias=1.0, size):
    """x / (bias + alpha / size * sum of squares over neighbouring channels) ** beta"""
    if X.rank < 3 or size < 1:
        raise ops.TypeMismatch(f"{size} neighbours in the channels of {X.type}")
    rows = b.reshape(X, (X.shape[0], 1, X.shape[1], dims.product(X.shape[2:])))
    squares = b.map(rows, lambda x: x.cast(wide(x.dtype)) * x.cast(wide(x.dtype)))
    before = (size - 1) // 2
    pool = ops.Pool("sum", (size, 1), (1, 1), (before, 0, size - 1 - before, 0), (1, 1), rows.shape[2:])
    total = b.emit(pool, squares)[0]

    def scaled(t: Expr, x: Expr) -> Expr:
        factor = expr.power(bias + alpha / size * t, expr.const(-beta, t.dtype))
        return (x.cast(t.dtype) * factor).cast(x.dtype)

    return b.reshape(b.map(total, rows, scaled), X.shape)


# Batch normalization -----------------------------------------------------------------------------


@onnx_op(since=14, ranks={"scale": 1, "B": 1, "input_mean": 1, "input_var": 1})
def BatchNormalization(b, X, scale, B, input_mean, input_var, *, epsilon=1e-5, momentum=0.9, training_mode=0):
    """With known statistics x * factor + shift; training, with those of the batch, which move
    the running ones."""
    X = with_channels(b, X, scale.tensor.count)
    channels = X.shape[1] if X.rank > 1 else 1
    named = ((scale, "scale"), (B, "bias"), (input_mean, "mean"), (input_var, "variance"))
    scale, B, input_mean, input_var = (with_length(b, v, channels, f"the {name}") for v, name in named)
    if not training_mode:
        return _affine(
            b, X, [along(b, v, 0, max(X.rank - 1, 1)) for v in (scale, B, input_mean, input_var)], epsilon
        )
    return _trained(b, X, scale, B, input_mean, input_var, epsilon, momentum)[:3]


def _trained(
    b: Builder, X: Value, scale: Value, B: Value, mean: Value, var: Value, epsilon: float, momentum: float
) -> tuple[Value, ...]:
    """y, the running mean and variance, and those of the batch."""
    axes = [a for a in range(X.rank) if a != 1]
    exact = wide(X.dtype)
    _, average, variance = standardized(b, X, axes, exact)
    y = _affine(
        b,
        X,
        [
            *(along(b, v, 0, X.rank - 1) for v in (scale, B)),
            *(b.reshape(v, v.shape[1:]) for v in (average, variance)),
        ],
        epsilon,
    )
    batch = [b.reshape(new, old.shape) for old, new in ((mean, average), (var, variance))]
    moved = (
        b.map(old, new, lambda o, n: o * momentum + n.cast(o.dtype) * (1 - momentum))
        for old, new in zip((mean, var), batch)
    )
    return y, *moved, *(b.cast(new, old.dtype) for old, new in zip((mean, var), batch))


def _affine(b: Builder, x: Value, parameters: Sequence[Value], epsilon: float) -> Value:
    """x * factor + shift, which a convolution before can take into its weights."""
    exact = "float64" if "float64" in (x.dtype, parameters[2].dtype) else wide(x.dtype)
    scale, bias, average, variance = (b.cast(p, exact) for p in parameters)
    factor = b.map(scale, variance, lambda s, v: s / expr.sqrt(v + epsilon))
    shift = b.map(bias, average, factor, lambda c, m, f: c - m * f)
    return b.map(x, factor, shift, lambda e, f, s: (e.cast(exact) * f + s).cast(x.dtype))


@onnx_op(since=9, name="BatchNormalization", ranks={"scale": 1, "B": 1, "mean": 1, "var": 1})
def _batch_normalization_9(b, X, scale, B, mean, var, *, epsilon=1e-5, momentum=0.9):
    """It is training where statistics are outputs, too."""
    if not any(b.site.wanted[1:]):
        return BatchNormalization(b, X, scale, B, mean, var, epsilon=epsilon)
    return _trained(b, X, scale, B, mean, var, epsilon, momentum)


@onnx_op(since=1, name="BatchNormalization", ranks={"scale": 1, "B": 1, "mean": 1, "var": 1})
def _batch_normalization_1(
    b, X, scale, B, mean, var, *, consumed_inputs=None, epsilon=1e-5, is_test=0, momentum=0.9, spatial=1
):
    """Not spatial, there are statistics for each element of a sample."""
    training = any(b.site.wanted[1:]) and not is_test
    if spatial and training:
        return _trained(b, X, scale, B, mean, var, epsilon, momentum)
    if spatial:
        return BatchNormalization(b, X, scale, B, mean, var, epsilon=epsilon), mean, var, mean, var
    named = ((scale, "the scale"), (B, "the bias"), (mean, "the mean"), (var, "the variance"))
    scale, B, mean, var = (with_shape(b, value, X.shape[1:], name) for value, name in named)
    if not training:
        return _affine(b, X, (scale, B, mean, var), epsilon), mean, var, mean, var
    samples = b.reshape(X, (X.shape[0], dims.product(X.shape[1:])))
    scale, B, mean, var = (b.reshape(p, samples.shape[1:]) for p in (scale, B, mean, var))
    y, *statistics = _trained(b, samples, scale, B, mean, var, epsilon, momentum)
    return b.reshape(y, X.shape), *(b.reshape(s, X.shape[1:]) for s in statistics)
