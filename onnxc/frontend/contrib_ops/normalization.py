"""Layer normalizations with the sums that were fused into them, and embeddings. What is summed stays in the
type that the normalization computes in, where that is wider."""

from __future__ import annotations

from typing import Annotated

from ...ir import expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.graph import Value
from ..onnx_ops import normalization
from ..onnx_ops.common import (
    checked,
    fitted,
    insert_axes,
    require,
    wide,
    widened,
    with_length,
    with_shape,
    zeros,
)
from ..onnx_ops.quantization import DequantizeLinear
from ..rules import Types, onnx_op
from .schema import BYTES, FLOATS, Half, T, contrib_op

Ids = Annotated[Value, Types.of("T1", "int32")]
Factor = Annotated[Value, Types.of("M", "float", "float16")]
Stored = Annotated[Value, Types.of("T2", *BYTES)]
Scale = Annotated[Value, Types.of("T", "float")]

# Sums before a normalization ---------------------------------------------------------------------


def _sum(b: Builder, x: Value, *parts: Value | None) -> Value:
    """The sum of x and those that are there, which repeat to its shape, in their wide type."""
    given = [x]
    for part in parts:
        if part is not None:
            given[0], part = fitted(b, given[0], part, "the summand")
            given.append(part)
    return b.map(*given, lambda *each: expr.sum_of(e.cast(wide(e.dtype)) for e in each))


def _skipped(b: Builder, x: Value, skip: Value, bias: Value | None) -> Value:
    """The sum of x, a skip, which may be one for all samples, and a bias of each element of a row."""
    require(b, zip(skip.shape[:-3:-1], x.shape[:-3:-1]), "an axis of the skip")
    return _sum(b, x, skip, _of_rows(b, x, bias, "the bias"))


def _of_rows(b: Builder, x: Value, parameter: Value | None, name: str) -> Value | None:
    """A parameter of each element of x's rows."""
    return None if parameter is None else with_length(b, parameter, x.shape[-1], name)


def _normalized_rows(
    b: Builder, x: Value, gamma: Value, beta: Value | None, epsilon: float
) -> tuple[Value, ...]:
    """`_normalized` of rows, with a gamma and a beta of each element."""
    gamma = with_length(b, gamma, x.shape[-1], "gamma")
    return _normalized(b, x, gamma, _of_rows(b, x, beta, "beta"), epsilon)


def _normalized(
    b: Builder, x: Value, gamma: Value, beta: Value | None, epsilon: float, axis: int = -1
) -> tuple[Value, ...]:
    """(the layer normalization of a sum in the type of gamma, and, where they are wanted, its mean and the
    inverse of its deviation)."""
    scale, shift = (v if v is None else widened(b, v) for v in (gamma, beta))
    found = normalization.LayerNormalization(b, x, scale, shift, axis=axis, epsilon=epsilon)
    y, *statistics = found if isinstance(found, tuple) else (found,)
    return b.cast(y, gamma.dtype), *statistics


@contrib_op(
    outputs="output mean? inv_std_var? input_skip_bias_sum?",
    ranks={"input": "n", "skip": "<=n", "gamma": 1, "beta": 1, "bias": 1},
)
def SkipLayerNormalization(
    b, input: T, skip: T, gamma: T, beta: T | None = None, bias: T | None = None, *, epsilon=1e-12
):
    total = _skipped(b, input, skip, bias)
    y, *statistics = _normalized_rows(b, total, gamma, beta, epsilon)
    average, inverse = statistics or (None, None)
    return y, average, inverse, b.cast(total, input.dtype)


@contrib_op(
    outputs="output mean? inv_std_var? input_skip_bias_sum?",
    ranks={"input": "n", "skip": "<=n", "gamma": 1, "bias": 1},
)
def SkipSimplifiedLayerNormalization(b, input: T, skip: T, gamma: T, bias: T | None = None, *, epsilon=1e-12):
    """The mean is that which is taken off, 0."""
    total = _skipped(b, input, skip, bias)
    gamma = with_length(b, gamma, total.shape[-1], "gamma")
    y, inverse = _simplified(b, total, widened(b, gamma), epsilon)
    average = zeros(b, inverse.dtype, inverse.shape)
    return b.cast(y, input.dtype), average, inverse, b.cast(total, input.dtype)


def _simplified(b: Builder, x: Value, scale: Value, epsilon: float, axis: int = -1) -> tuple[Value, Value]:
    """(x / its root mean square * scale, the inverse of that root)."""
    y = normalization.RMSNormalization(b, x, scale, axis=axis, epsilon=epsilon)
    exact, axes = wide(x.dtype), range(b.axis(axis, x.rank), x.rank)
    squares = normalization.mean(b, x, axes, True, lambda e: e.cast(exact) * e.cast(exact))
    return y, b.map(squares, lambda v: 1 / expr.sqrt(v + epsilon))


X = Annotated[Value, Types.of("T", *FLOATS, "bfloat16")]
V = Annotated[Value, Types.of("V", *FLOATS, "bfloat16")]


@onnx_op(since=1, outputs="Y inv_std_var?", ranks={"X": "n", "scale": "<=n"})
def SimplifiedLayerNormalization(b, X: X, scale: V, *, axis=-1, epsilon=1e-5, stash_type=1):
    return _simplified(b, X, scale, epsilon, axis)


@onnx_op(
    since=1,
    name="LayerNormalization",
    outputs="Y Mean? InvStdDev?",
    ranks={"X": "n", "Scale": "<=n", "B": "<=n"},
)
def _layer_normalization_1(b, X: X, Scale: V, B: V | None = None, *, axis=-1, epsilon=1e-5, stash_type=1):
    """What ONNX Runtime's optimiser writes into models of operator sets older than the operator, 1 to 16."""
    return _normalized(b, widened(b, X), Scale, B, epsilon, axis)


# Embeddings --------------------------------------------------------------------------------------


@contrib_op(outputs="output mask_index? embedding_sum?", ranks={"gamma": 1, "beta": 1, "*": 2})
def EmbedLayerNormalization(
    b,
    input_ids: Ids,
    segment_ids: Ids | None,
    word_embedding: Half,
    position_embedding: Half,
    segment_embedding: Half | None,
    gamma: Half,
    beta: Half,
    mask: Ids | None = None,
    position_ids: Ids | None = None,
    *,
    epsilon=1e-12,
    mask_index_type: int | None = None,
):
    """The normalized sum of a word's embeddings, and how many ones are in each row of the mask."""
    if input_ids.rank != 2:
        raise ops.TypeMismatch(f"{input_ids.type} are no sequences of words")
    if (segment_ids is None) != (segment_embedding is None):
        raise ops.TypeMismatch("segments and their embedding go together")
    words, width = input_ids.shape, word_embedding.shape[1]
    word = _rows(b, word_embedding, input_ids)
    require(b, [(position_embedding.shape[1], width)], "a row of position_embedding")
    if position_ids is None:
        position = b.take(position_embedding, 0, 0, words[1])
    else:
        require(b, [(position_ids.shape[1], words[1])], "a row of position_ids")
        position = _rows(b, position_embedding, position_ids)
    segment = None
    if segment_embedding is not None and segment_ids is not None:
        require(b, [(segment_embedding.shape[1], width)], "a row of segment_embedding")
        segment = _rows(b, segment_embedding, with_shape(b, segment_ids, words, "segment_ids"))
    mask = None if mask is None else with_shape(b, mask, words, "mask")
    total = _sum(b, word, position, segment)
    y, *_ = _normalized_rows(b, total, gamma, beta, epsilon)
    return y, _ones(b, mask, words[0]), b.cast(total, word.dtype)


def _rows(b: Builder, table: Value, places: Value) -> Value:
    """Rows at places that count from the start alone."""
    inside = checked(b, places, lambda n: n >= 0, "index_out_of_range")
    return b.emit(ops.Gather("axis"), table, inside)[0]


def _ones(b: Builder, mask: Value | None, batch: Dimension) -> Value:
    """int32 [batch]: how many ones are in each row of the mask, 0 without one."""
    if mask is None:
        return zeros(b, "int32", (batch,))
    return b.reduce("sum", mask, [1], False, lambda m: m.equals(1).cast("int32"))


@contrib_op(
    outputs="layernorm_out mask_index_out",
    ranks={
        **dict.fromkeys(("input_ids", "segment_ids", "mask"), 2),
        **dict.fromkeys(("word_embedding_quant", "position_embedding_quant", "segment_embedding"), 2),
        "gamma_quant": 1,
        "beta_quant": 1,
        "*": "<=1",
    },
)
def QEmbedLayerNormalization(
    b,
    input_ids: Ids,
    segment_ids: Ids | None,
    word_embedding_quant: Stored,
    position_embedding_quant: Stored,
    segment_embedding: Stored | None,
    gamma_quant: Stored,
    beta_quant: Stored,
    mask: Ids | None,
    word_embedding_scale: Scale,
    position_embedding_scale: Scale,
    segment_embedding_scale: Scale | None,
    gamma_scale: Scale,
    beta_scale: Scale,
    word_embedding_zero_point: Stored,
    position_embedding_zero_point: Stored,
    segment_embedding_zero_point: Stored | None,
    gamma_zero_point: Stored,
    beta_zero_point: Stored,
    *,
    epsilon=1e-12,
):
    tables = (
        (word_embedding_quant, word_embedding_scale, word_embedding_zero_point),
        (position_embedding_quant, position_embedding_scale, position_embedding_zero_point),
        (segment_embedding, segment_embedding_scale, segment_embedding_zero_point),
        (gamma_quant, gamma_scale, gamma_zero_point),
        (beta_quant, beta_scale, beta_zero_point),
    )
    wide_tables = (None if q is None else DequantizeLinear(b, q, scale, zero) for q, scale, zero in tables)
    y, ones, _ = EmbedLayerNormalization(b, input_ids, segment_ids, *wide_tables, mask, epsilon=epsilon)
    return y, ones


# Groups of channels ------------------------------------------------------------------------------


@contrib_op(outputs="Y", ranks={"X": 4, "gamma": 1, "beta": 1})
def GroupNorm(
    b, X: Half, gamma: Factor, beta: Factor, *, activation: int, channels_last=1, epsilon=1e-5, groups: int
):
    """The normalization of each group of channels, then, with activation 1, silu."""
    order = (0, X.rank - 1, *range(1, X.rank - 1))
    x = b.transpose(X, order) if channels_last else X
    scale, shift = widened(b, gamma), widened(b, beta)
    y = normalization.GroupNormalization(b, widened(b, x), scale, shift, epsilon=epsilon, num_groups=groups)
    if activation:
        y = b.map(y, lambda e: e * expr.sigmoid(e))
    y = b.transpose(y, [order.index(a) for a in range(X.rank)]) if channels_last else y
    return b.cast(y, X.dtype)


@contrib_op(outputs="Y S?", ranks={"X": 4, "gamma": 1, "beta": 1, "skip": "2 or 4", "bias": 1})
def SkipGroupNorm(
    b,
    X: Half,
    gamma: Factor,
    beta: Factor,
    skip: Half,
    bias: Half | None = None,
    *,
    activation: int,
    channels_last=1,
    epsilon=1e-5,
    groups: int,
):
    """GroupNorm of X + skip + bias, and that sum; the skip may be one for each channel."""
    if skip.rank == 2:
        skip = insert_axes(b, skip, [1, 2] if channels_last else [2, 3])
    if bias is not None and not channels_last:
        bias = insert_axes(b, bias, [1, 2])
    total = b.cast(_sum(b, X, skip, bias), X.dtype)
    return GroupNorm(
        b,
        total,
        gamma,
        beta,
        activation=activation,
        channels_last=channels_last,
        epsilon=epsilon,
        groups=groups,
    ), total
