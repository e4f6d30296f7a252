"""Attention as ONNX Runtime's transformer optimiser writes it: projected inside, packed, padded, with a past.

Masks become what is added to the scores: a number where a key is padding, the lowest one where it lies behind
the query. All is computed in float32 at least, as ONNX Runtime has it on a processor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated

import numpy as np

from ...errors import UnsupportedError
from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Value
from ..onnx_ops import linear
from ..onnx_ops.attention import attend, join_heads, split_heads
from ..onnx_ops.common import (
    generate,
    insert_axes,
    require,
    require_least,
    require_one_of,
    scalar,
    widened,
    with_length,
    with_shape,
    with_size,
)
from ..onnx_ops.linear import MatMulInteger
from ..rule_builder import RuleBuilder
from ..rules import Types
from .caches import appended
from .schema import BYTES, Half, T, contrib_op

Mask = Annotated[Value, Types.of("M", "int32")]

# Masks -------------------------------------------------------------------------------------------


def padding_bias(
    b: Builder,
    mask: Value | None,
    sizes: Sequence[Dimension],
    causal: bool,
    hidden: float | None,
    projecting: bool = False,
) -> Value | None:
    """What is added to scores of these sizes (batch, queries, keys, keys before the first query): `hidden`,
    by default -10000, where a key is padding, the lowest number where it comes after the query.

    mask: int32 [batch] or [3 * batch + 2], where the padding of each sequence begins; [batch, keys] or
    [batch, queries, keys], 0 for padding. What projects inside also takes [2 * batch], which goes on with
    where the words begin, and one column, [batch, 1] or [1, 1], which stands for no mask."""
    if mask is None and not causal:
        return None
    batch, queries, keys, past = sizes
    shape: tuple[Dimension, ...] = (1, 1, queries, keys)
    operands: list[Value] = []
    padded: Expr | None = None
    i, j = expr.index(2), expr.index(3)
    if mask is not None and mask.rank == 1:
        ends, both, more = mask.shape[0], 2 * batch, 3 * batch + 2
        require_one_of(b, ends, (batch, both, more) if projecting else (batch, more), f"the mask {mask.type}")
        operands.append(_each(b, mask, 0, batch))
        padded = j >= expr.input_(0, "int32").cast("int64")
        if projecting and not dims.equal(ends, batch) and dims.equal(ends, both) is not False:
            operands.append(_each(b, mask, ends - batch, batch))
            starts = expr.size(ends).equals(expr.size(both)) & (j < expr.input_(1, "int32").cast("int64"))
            padded = padded | starts
    elif mask is not None and mask.rank in (2, 3):
        column = dims.compare("eq", mask.shape[1], 1) if projecting and mask.rank == 2 and keys != 1 else 0
        if column == 0:
            wanted = (batch, keys) if mask.rank == 2 else (batch, queries, keys)
            mask = with_shape(b, mask, wanted, f"the mask {mask.type}")
        else:
            require_one_of(b, mask.shape[1], (keys, 1), f"the mask {mask.type}")
            rows = batch + column * (1 - batch)
            require_one_of(b, mask.shape[0], (batch, rows), f"the mask {mask.type}")
        if column != 1:
            operands.append(insert_axes(b, mask, [1, 2] if mask.rank == 2 else [1]))
            padded = expr.input_(0, "int32") <= 0
            if column != 0:
                padded = padded & ~expr.size(column).cast("bool")
    elif mask is not None:
        raise UnsupportedError(f"a mask of {mask.rank} axes", "export the model with one of at most three")
    bias = expr.const(0, "float32")
    if padded is not None:
        bias = expr.where(padded, -10000.0 if hidden is None else hidden, bias)
        shape = ops.broadcast_shapes(shape, operands[0].shape)
    if causal:
        behind = (j > i + expr.size(past)) & (i < expr.size(queries) - 1)
        bias = expr.where(behind, float(np.finfo(np.float32).min), bias)
    return None if bias.op == "const" else generate(b, shape, bias, *operands)


def _each(b: Builder, mask: Value, start: Dimension, batch: Dimension) -> Value:
    return b.reshape(b.take(mask, 0, start, batch), (batch, 1, 1, 1))


def _with(b: Builder, bias: Value | None, more: Value | None, sizes: Sequence[Dimension]) -> Value | None:
    """The sum of what is there of the two, of which `more` is one of all queries and keys of these sizes
    (batch, queries, keys, ...), repeated to sequences and heads alone."""
    if more is not None:
        more = of_scores(b, more, sizes[1], sizes[2])
    if bias is None or more is None:
        return bias or (None if more is None else widened(b, more))
    return b.map(bias, more, lambda x, y: x + y.cast(x.dtype))


def of_scores(b: Builder, bias: Value, queries: Dimension, keys: Dimension) -> Value:
    """An operand that is added to scores, [batch or 1, heads or 1, queries, keys]."""
    return with_shape(b, bias, (*bias.shape[:2], queries, keys), f"the bias {bias.type}")


# Projected inside --------------------------------------------------------------------------------


@contrib_op(
    outputs="output present?",
    ranks={
        "input": 3,
        "weights": 2,
        "mask_index": "1 or 2 or 3 or 4",
        "bias": 1,
        "past": 5,
        "attention_bias": 4,
        "past_sequence_length": "<=1",
    },
)
def Attention(
    b,
    input: T,
    weights: T,
    bias: T | None = None,
    mask_index: Mask | None = None,
    past: T | None = None,
    attention_bias: T | None = None,
    past_sequence_length: Mask | None = None,
    *,
    do_rotary: int | None = None,
    mask_filter_value: float | None = None,
    num_heads: int,
    past_present_share_buffer: int | None = None,
    qkv_hidden_sizes: Sequence[int] | None = None,
    rotary_embedding_dim: int | None = None,
    scale: float | None = None,
    unidirectional=0,
):
    """Query, key and value are one product of the input and the weights, side by side.
    `past_sequence_length` is for keys that are written in place."""
    if do_rotary or past_present_share_buffer:
        raise UnsupportedError(
            "an Attention that turns its heads or writes its keys in place", "optimise the model for a CPU"
        )
    x = widened(b, input)
    if bias is not None:
        bias = with_length(b, bias, weights.shape[1], "the bias")

    def project(w: Value, c: Value | None) -> Value:
        y = linear.product(b, x, widened(b, w))
        return y if c is None else b.map(y, c, lambda e, c: e + c.cast(e.dtype))

    y, *state = _attention(
        b,
        _projections(b, project, qkv_hidden_sizes, weights, bias),
        num_heads,
        mask_index,
        past,
        attention_bias,
        unidirectional,
        scale,
        mask_filter_value,
    )
    return b.cast(y, input.dtype), _stacked(b, state, input.dtype) if b.site.wanted[1:] == (True,) else None


def _projections(
    b: Builder,
    project: Callable[..., Value],
    widths: Sequence[int] | None,
    weights: Value,
    *others: Value | None,
) -> list[Value]:
    """Query, key and value [batch, length, width]: `project` of their columns of the weights and the others.
    Constants are cut into columns, so that heads are where a product puts them; else the product is."""
    third = dims.floor_divide(weights.shape[-1], 3)
    sizes: Sequence[Dimension] = tuple(widths) if widths else (third,) * 3
    if len(sizes) != 3 or dims.equal(sum(sizes, 0), weights.shape[-1]) is False:
        raise ops.TypeMismatch(f"{weights.type} do not give queries, keys and values of {sizes} columns")
    require(b, [(weights.shape[-1], sum(sizes, 0))], f"the projection {weights.type}")
    require_least(b, weights.shape[-1], 1, f"the projection {weights.type} has no columns")
    places = list(zip((0, sizes[0], sizes[0] + sizes[1]), sizes))
    if weights.constant is None:
        whole = project(weights, *others)
        return [b.take(whole, whole.rank - 1, start, size) for start, size in places]

    def columns(v: Value | None, start: Dimension, size: Dimension) -> Value | None:
        return v if v is None or v.tensor.count == 1 else b.take(v, v.rank - 1, start, size)

    return [project(*(columns(v, *place) for v in (weights, *others))) for place in places]


def _attention(
    b: Builder,
    projections: Sequence[Value],
    heads: int,
    mask: Value | None,
    past: Value | None,
    attention_bias: Value | None,
    causal: int,
    scale: float | None,
    hidden: float | None,
) -> tuple[Value, Value, Value]:
    """(the attention of what was projected, keys and values with those before)."""
    names = ("the query", "the key", "the value")
    q, k, v = (split_heads(b, x, heads, name) for x, name in zip(projections, names))
    before: Dimension = 0
    if past is not None:
        require(b, [(past.shape[0], 2)], f"the past {past.type}")
        before = past.shape[3]
        k, v = (
            b.concat([b.reshape(b.take(widened(b, past), 0, n, 1), past.shape[1:]), x], 2)
            for n, x in enumerate((k, v))
        )
    sizes = (q.shape[0], q.shape[2], k.shape[2], before)
    padding = padding_bias(b, mask, sizes, bool(causal), hidden, projecting=True)
    total = _with(b, padding, attention_bias, sizes)
    y, _ = attend(b, q, k, v, total, scale or None)
    return join_heads(b, y), k, v


def _stacked(b: Builder, values: Sequence[Value], dtype: str) -> Value:
    keys, rows = values
    if dims.equal(keys.shape[3], rows.shape[3]) is False:
        raise ops.TypeMismatch(f"no one present holds keys of {keys.shape[3]} and values of {rows.shape[3]}")
    return b.cast(b.concat([insert_axes(b, x, [0]) for x in values], 0), dtype)


Q1 = Annotated[Value, Types.of("T1", *BYTES)]
Q2 = Annotated[Value, Types.of("T2", *BYTES)]
Real = Annotated[Value, Types.of("T3", "float", "float16")]
QMask = Annotated[Value, Types.of("T4", "int32")]


@contrib_op(
    outputs="output present?",
    ranks={
        "input": 3,
        "weight": 2,
        "bias": 1,
        "past": 5,
        "input_scale": "<=1",
        "weight_scale": "<=1",
        "mask_index": "1 or 2 or 3 or 4",
        "input_zero_point": "<=1",
        "weight_zero_point": "<=1",
    },
)
def QAttention(
    b,
    input: Q1,
    weight: Q2,
    bias: Real,
    input_scale: Real,
    weight_scale: Real,
    mask_index: QMask | None = None,
    input_zero_point: Q1 | None = None,
    weight_zero_point: Q2 | None = None,
    past: Real | None = None,
    *,
    do_rotary: int | None = None,
    mask_filter_value: float | None = None,
    num_heads: int,
    past_present_share_buffer: int | None = None,
    scale: float | None = None,
    unidirectional=0,
):
    """Attention whose projection is one of integers."""
    if do_rotary or past_present_share_buffer:
        raise UnsupportedError("a QAttention that turns its heads or writes its keys in place")
    step = widened(b, scalar(b, input_scale, "scale"))
    bias = with_length(b, bias, weight.shape[1], "the bias")

    def project(w: Value, c: Value, s: Value, zero: Value | None) -> Value:
        total = MatMulInteger(b, input, w, input_zero_point, zero)
        factor = b.map(b.reshape(s, ()) if s.tensor.count == 1 else s, step, lambda s, x: s.cast(x.dtype) * x)
        return b.map(total, factor, c, lambda t, f, c: t.cast(f.dtype) * f + c.cast(f.dtype))

    y, *state = _attention(
        b,
        _projections(b, project, None, weight, bias, weight_scale, weight_zero_point),
        num_heads,
        mask_index,
        past,
        None,
        unidirectional,
        scale,
        mask_filter_value,
    )
    return b.cast(y, bias.dtype), _stacked(b, state, bias.dtype) if b.site.wanted[1:] == (True,) else None


# Projected before --------------------------------------------------------------------------------


@contrib_op(
    outputs="output present_key? present_value? qk?",
    ranks={
        "query": "3 or 5",
        "key": "k",
        "value": "k",
        "bias": 1,
        "key_padding_mask": "1 or 2 or 3",
        "attention_bias": 4,
        "past_key": 4,
        "past_value": 4,
        "past_sequence_length": "<=1",
        "cache_indirection": 3,
    },
)
def MultiHeadAttention(
    b,
    query: T,
    key: T | None = None,
    value: T | None = None,
    bias: T | None = None,
    key_padding_mask: Mask | None = None,
    attention_bias: T | None = None,
    past_key: T | None = None,
    past_value: T | None = None,
    past_sequence_length: Mask | None = None,
    cache_indirection: Mask | None = None,
    *,
    mask_filter_value: float | None = None,
    num_heads: int,
    scale: float | None = None,
    unidirectional=0,
):
    """query [batch, length, width], or with keys and values packed into it [batch, length, heads, 3, size];
    key and value likewise, or [batch, heads, length, size], which are not biased."""
    if (past_key is None) != (past_value is None):
        raise ops.TypeMismatch("past keys and values go together")
    parts = _unpacked(b, query, key, value)
    parts = _biased(b, parts, 1 if key is not None and key.rank == 4 else 3, bias, num_heads)
    names = ("the query", "the key", "the value")
    q, k, v = (
        with_size(b, split_heads(b, x, num_heads, name), 1, num_heads) for x, name in zip(parts, names)
    )
    if value is not None and value.rank == 4:
        require(b, zip(v.shape, k.shape), f"the value {v.type}")
    past: Dimension = 0
    present = k, v
    if past_key is not None and past_value is not None:
        caches = past_key, past_value
        if past_sequence_length is None:
            past = past_key.shape[2]
            present = k, v = b.concat([past_key, k], 2), b.concat([past_value, v], 2)
        else:
            past = b.dimension(b.reshape(past_sequence_length, ()), 0, "past")
            (k, v), present = appended(b, caches, present, past, cache_indirection)
    sizes = (q.shape[0], q.shape[2], k.shape[2], past)
    padding = padding_bias(b, key_padding_mask, sizes, bool(unidirectional), mask_filter_value)
    y, scores = _exposing(b, (q, k, v), _with(b, padding, attention_bias, sizes), scale)
    return y, *present, scores


def _exposing(
    b: RuleBuilder, operands: Sequence[Value], bias: Value | None, scale: float | None
) -> tuple[Value, Value | None]:
    """(the attention of [batch, heads, length, size] each as [batch, length, width], its scores, where the
    node's fourth output is wanted)."""
    dtype, exposed = operands[0].dtype, 2 if b.site.wanted[3:4] == (True,) else None
    q, k, v = (widened(b, x) for x in operands)
    y, scores = attend(b, q, k, v, bias, scale or None, exposed=exposed)
    return b.cast(join_heads(b, y), dtype), None if scores is None else b.cast(scores, dtype)


@contrib_op(
    outputs="output present_key? present_value? qk?",
    ranks={
        "query": 3,
        "key": "k",
        "value": "k",
        "mask_index": 2,
        "attention_bias": 4,
        "past_key": 4,
        "past_value": 4,
        "past_sequence_length": "<=1",
        "beam_width": "<=1",
        "cache_indirection": 3,
        "bias": 1,
    },
)
def DecoderMaskedMultiHeadAttention(
    b,
    query: Half,
    key: Half | None = None,
    value: Half | None = None,
    mask_index: Mask | None = None,
    attention_bias: Half | None = None,
    past_key: Half | None = None,
    past_value: Half | None = None,
    past_sequence_length: Mask | None = None,
    beam_width: Mask | None = None,
    cache_indirection: Mask | None = None,
    bias: Half | None = None,
    *,
    mask_filter_value: float | None = None,
    num_heads: int,
    output_qk: int | None = None,
    past_present_share_buffer: int | None = None,
    scale: float | None = None,
):
    """MultiHeadAttention of one query a sequence. Without a past it attends to keys and values that are as
    heads already, [batch, heads, length, size], and not biased; else it writes its own behind
    past_sequence_length others. How many beams there are the shape of cache_indirection says."""
    if key is None or value is None:
        raise ops.TypeMismatch(f"the query {query.type} comes without keys or values")
    query = with_shape(b, query, (query.shape[0], 1, query.shape[2]), f"the query {query.type}")
    if beam_width is not None:
        require(b, [(beam_width.tensor.count, 1)], f"the number of beams {beam_width.type}")
    present: tuple[Value, Value] | tuple[None, None]
    if past_key is None or past_value is None:
        q = split_heads(b, _biased(b, [query, key, value], 1, bias, num_heads)[0], num_heads, "the query")
        for x, name in ((key, "the key"), (value, "the value")):
            require(b, zip(x.shape, (q.shape[0], num_heads, key.shape[2], q.shape[3])), f"{name} {x.type}")
        past, seen, present = key.shape[2] - 1, (key, value), (None, None)
    elif past_present_share_buffer and past_sequence_length is not None:
        operands = _biased(b, [query, key, value], 3, bias, num_heads)
        names = ("the query", "the key", "the value")
        q, k, v = (split_heads(b, x, num_heads, name) for x, name in zip(operands, names))
        past = b.dimension(b.reshape(past_sequence_length, ()), 0, "past")
        seen, present = appended(b, (past_key, past_value), (k, v), past, cache_indirection)
    else:
        raise UnsupportedError("a past without room for a row", "export it with past_present_share_buffer")
    sizes = (q.shape[0], 1, seen[0].shape[2], past)
    padding = padding_bias(b, mask_index, sizes, False, mask_filter_value)
    y, scores = _exposing(b, (q, *seen), _with(b, padding, attention_bias, sizes), scale)
    return y, *present, scores


def _unpacked(b: Builder, query: Value, key: Value | None, value: Value | None) -> list[Value]:
    """Query, key and value, [batch, length, width] or [batch, heads, length, size] each."""
    if query.rank == 5:
        return _packed(b, query, 3)
    if key is not None and key.rank == 5:
        return [query, *_packed(b, key, 2)]
    if key is None or value is None:
        raise ops.TypeMismatch(f"the query {query.type} comes without keys or values")
    return [query, key, value]


def _packed(b: Builder, x: Value, count: int) -> list[Value]:
    """[batch, length, heads, count, size] as `count` of [batch, heads, length, size]."""
    require(b, [(x.shape[3], count)], f"what {x.type} packs")
    whole = b.transpose(x, (3, 0, 2, 1, 4))
    return [b.reshape(b.take(whole, 0, n, 1), whole.shape[1:]) for n in range(count)]


def _biased(b: Builder, operands: list[Value], count: int, bias: Value | None, heads: int) -> list[Value]:
    """Query, key and value, of which the first `count` are added their parts of the bias, which has one for
    each."""
    if bias is None:
        return operands
    widths = [x.shape[2] if x.rank == 3 else heads * x.shape[3] for x in operands]
    bias = with_length(b, bias, sum(widths, 0), "the bias")
    start: Dimension = 0
    found = []
    for x, width in zip(operands[:count], widths):
        part = b.take(bias, 0, start, width)
        part = part if x.rank == 3 else b.reshape(part, (heads, 1, x.shape[3]))
        found.append(b.map(x, part, lambda e, c: e + c))
        start = start + width
    return [*found, *operands[count:]]


# Positions ---------------------------------------------------------------------------------------

Length = Annotated[Value, Types.of("U", "int64")]


@contrib_op(outputs="output", ranks={"bias_table": 2, "query_length": "<=1", "key_length": "<=1"})
def RelativePositionBias(
    b, bias_table: Half, query_length: Length, key_length: Length, *, is_bidirectional=0, max_distance: int
):
    """[1, heads, queries, keys] of the bucket that the distance of a key falls into: near ones have buckets
    of their own, far ones share ever wider ones. The table's data are a row for each head, whatever its
    shape."""
    if bias_table.rank != 2 or not isinstance(bias_table.shape[0], int):
        raise ops.TypeMismatch(f"{bias_table.type} is no table of buckets")
    count, heads = bias_table.shape
    buckets = bias_table.shape[0]
    queries, keys = (b.dimension(b.reshape(x, ()), 0, "length") for x in (query_length, key_length))
    distance, start = expr.index(0) - expr.index(1), expr.const(0, "int64")
    if is_bidirectional:
        buckets //= 2
        start = expr.where(distance < 0, expr.const(buckets, "int64"), 0)
        distance = abs(distance)
    distance, near = distance.maximum(0), buckets // 2
    ratio = (distance.cast("float32") / near).maximum(1)
    width = math.log(max_distance / near) / (buckets - near)
    far = (near + (expr.log(ratio) / width).cast("int64")).minimum(buckets - 1)
    bucket = generate(b, (queries, keys), start + expr.where(distance < near, distance, far))
    table = b.reshape(bias_table, (heads, count))
    return insert_axes(b, b.emit(ops.Gather("axis", 1), table, bucket)[0], [0])


@contrib_op(
    outputs="output",
    ranks={
        "query_layer": "2 or 3",
        "query_bias": 1,
        "rel_pos": 4,
        "weight": 2,
        "bias": 1,
        "eco_a": 4,
        "token_offset": 2,
    },
)
def GatedRelativePositionBias(
    b,
    query_layer: Half,
    query_bias: Half,
    rel_pos: Half,
    weight: Half,
    bias: Half,
    eco_a: Half,
    token_offset: Mask | None = None,
    *,
    num_heads: int,
):
    """gate * rel_pos with gate = u (r a - 1) + 2, where u and r are the sigmoids of the sums of the halves of
    a product with each head of the query."""
    if token_offset is not None:
        raise UnsupportedError("a GatedRelativePositionBias without padding", "keep the padding")
    query_bias = with_length(b, query_bias, query_layer.shape[-1], "the query's bias")
    bias = with_length(b, bias, weight.shape[1], "the bias")
    query = b.map(query_layer, query_bias, lambda x, c: x + c)
    q = split_heads(b, query, num_heads, "the query")
    wanted = (rel_pos.shape[0], num_heads, q.shape[2], q.shape[2])
    rel_pos = with_shape(b, rel_pos, wanted, f"the bias {rel_pos.type}")
    gates = b.map(linear.product(b, q, weight), bias, lambda e, c: e + c)
    halves = b.reshape(gates, (*gates.shape[:-1], 2, dims.floor_divide(gates.shape[-1], 2)))
    sums = b.map(b.reduce("sum", halves, [-1]), expr.sigmoid)
    u, r = (b.take(sums, 3, n, 1) for n in range(2))
    a = b.reshape(eco_a, (1, num_heads, 1, 1))
    return b.map(u, r, a, rel_pos, lambda u, r, a, p: (u * (r * a - 1) + 2) * p)
