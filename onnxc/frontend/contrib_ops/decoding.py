"""Attention of decoders with a cache of keys and values: GroupQueryAttention, and rotary positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np

from ...errors import UnsupportedError
from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Value
from ..onnx_ops import attention
from ..onnx_ops.attention import attend, join_heads, split_heads
from ..onnx_ops.common import (
    checked,
    generate,
    insert_axes,
    one_of,
    require,
    require_least,
    require_one_of,
    widened,
    with_length,
    with_shape,
    zeros,
)
from ..onnx_ops.movement import padded
from ..onnx_ops.normalization import RMSNormalization
from ..rules import Types
from .attention import of_scores
from .caches import Storage, Window, written
from .schema import FUSED_FLOATS, T, contrib_op

Place = Annotated[Value, Types.of("M", "int64")]
Count = Annotated[Value, Types.of("M", "int32")]
Position = Annotated[Value, Types.of("tensor(int64)", "int64")]
Cache = Annotated[Value, Types.of("T_CACHE", *FUSED_FLOATS, "float8e4m3fn", "int8", "uint8")]
Scale = Annotated[Value, Types.of("T_KV_SCALE", "float")]

# Rotary positions --------------------------------------------------------------------------------


@contrib_op(
    outputs="output", ranks={"input": "3 or 4", "position_ids": "1 or 2", "cos_cache": 2, "sin_cache": 2}
)
def RotaryEmbedding(
    b,
    input: T,
    position_ids: Place,
    cos_cache: T,
    sin_cache: T,
    *,
    interleaved: int | None = None,
    is_packed_batching: int | None = None,
    num_heads: int | None = None,
    rotary_embedding_dim: int | None = None,
    scale: float | None = None,
):
    """The specification's operator over positions that count from the start alone; one by itself is that of
    the first element of all sequences. The last element of a head of an odd size stays as it is. `scale` is
    for other processors."""
    position_ids = checked(b, position_ids, lambda n: n >= 0, "index_out_of_range")
    x = input
    if input.rank == 3:
        batch, count, width = input.shape
        size = (
            dims.floor_divide(width, num_heads)
            if num_heads and rotary_embedding_dim
            else 2 * cos_cache.shape[1]
        )
        parts = b.reshape(input, (batch, count, dims.floor_divide(width, size), size))
        x = b.transpose(parts, (0, 2, 1, 3))
    if position_ids.rank < 2:
        position_ids = _from(b, b.reshape(position_ids, (1, 1)), x.shape[2])
    else:
        require(b, [(position_ids.shape[0], x.shape[0])], f"the batch of {position_ids.type}")
    y = attention.rotated(
        b,
        x,
        cos_cache,
        sin_cache,
        position_ids,
        interleaved=interleaved or 0,
        rotary_embedding_dim=rotary_embedding_dim or 2 * dims.floor_divide(x.shape[3], 2),
    )
    return b.reshape(join_heads(b, y), input.shape) if input.rank == 3 else y


@contrib_op(outputs="output", ranks={"input": "3 or 4", "position_ids": 3, "cos_cache": 2, "sin_cache": 2})
def MRotaryEmbedding(
    b,
    input: T,
    position_ids: Place,
    cos_cache: T,
    sin_cache: T,
    *,
    interleaved: int | None = None,
    is_packed_batching: int | None = None,
    mrope_layout: int | None = None,
    mrope_section: Sequence[int],
    num_heads: int | None = None,
    rotary_embedding_dim: int | None = None,
    scale: float | None = None,
):
    """RotaryEmbedding with three positions a token, of which each angle takes one: in sections one after the
    other, or (mrope_layout 1) the second and the third every third angle of the first."""
    position_ids = checked(b, position_ids, lambda n: n >= 0, "index_out_of_range")
    half = sum(mrope_section)
    if len(mrope_section) != 3 or position_ids.rank != 3:
        raise ops.TypeMismatch(f"positions {position_ids.type} for the sections {list(mrope_section)}")
    streams = np.zeros(half, np.int64)
    for stream, size in enumerate(mrope_section[1:], 1):
        if mrope_layout:
            streams[stream : 3 * size : 3] = stream
        else:
            first = sum(mrope_section[:stream])
            streams[first : first + size] = stream
    which = b.constant(streams)
    cos_cache, sin_cache = (
        with_shape(b, c, (cos_cache.shape[0], half), f"the cache {c.type}") for c in (cos_cache, sin_cache)
    )

    def angles(cache: Value) -> Value:
        each = b.emit(ops.Gather("axis"), cache, position_ids)[0]
        parts = [b.reshape(b.take(each, 0, n, 1), each.shape[1:]) for n in range(3)]
        return b.map(
            which, *parts, lambda n, t, h, w: expr.where(n.equals(0), t, expr.where(n.equals(1), h, w))
        )

    x = input
    if input.rank == 3:
        if not num_heads:
            raise ops.TypeMismatch(f"{input.type} is of an unknown number of heads")
        x = split_heads(b, input, num_heads, "the input")
    wanted = (3, x.shape[0], x.shape[2])
    position_ids = with_shape(b, position_ids, wanted, f"the positions {position_ids.type}")
    y = attention.rotated(
        b,
        x,
        angles(cos_cache),
        angles(sin_cache),
        interleaved=interleaved or 0,
        rotary_embedding_dim=rotary_embedding_dim or 0,
    )
    return b.reshape(join_heads(b, y), input.shape) if input.rank == 3 else y


def _from(b: Builder, start: Value, count: Dimension) -> Value:
    """int64 [batch, count]: the places from start [batch, 1] on."""
    return generate(b, (start.shape[0], count), expr.input_(0, "int64") + expr.index(1), start)


# A cache -----------------------------------------------------------------------------------------


@contrib_op(
    outputs="output present_key? present_value? output_qk?",
    ranks={
        "query": 3,
        "key": 3,
        "value": 3,
        "past_key": 4,
        "past_value": 4,
        "seqlens_k": 1,
        "total_sequence_length": "<=1",
        "cos_cache": 2,
        "sin_cache": 2,
        "position_ids": 2,
        "attention_bias": 4,
        "head_sink": 1,
        "q_norm_weight": 1,
        "k_norm_weight": 1,
        "query_seqlens": 1,
    },
)
def GroupQueryAttention(
    b,
    query: T,
    key: T | None,
    value: T | None,
    past_key: Cache | None,
    past_value: Cache | None,
    seqlens_k: Count,
    total_sequence_length: Count,
    cos_cache: T | None = None,
    sin_cache: T | None = None,
    position_ids: Position | None = None,
    attention_bias: T | None = None,
    head_sink: T | None = None,
    k_scale: Scale | None = None,
    v_scale: Scale | None = None,
    q_norm_weight: T | None = None,
    k_norm_weight: T | None = None,
    query_seqlens: Count | None = None,
    *,
    causal=1,
    do_rotary: int | None = None,
    k_norm_epsilon: float | None = None,
    k_quant_type="NONE",
    kv_cache_bit_width: int | None = None,
    kv_num_heads: int,
    local_window_size=-1,
    num_heads: int,
    q_norm_epsilon: float | None = None,
    qk_norm_epsilon=1e-6,
    qk_output=0,
    rotary_interleaved: int | None = None,
    scale: float | None = None,
    sliding_window_cache=0,
    smooth_softmax=-1,
    softcap: float | None = None,
    v_quant_type="NONE",
):
    """Causal attention over a cache [batch, groups, places, size], into which the new keys and values of each
    sequence are written behind those it has: seqlens_k says how many it then has, less one. query_seqlens:
    how many of a sequence's new rows count, the first ones; what the others give is not specified."""
    stores = (
        _storage(k_quant_type, k_scale, kv_cache_bit_width),
        _storage(v_quant_type, v_scale, kv_cache_bit_width),
    )
    one_of(qk_output, (0, 1, 2), "qk_output")
    q, k, v = _operands(b, query, key, value, num_heads, kv_num_heads)
    batch, _, queries, _ = q.shape
    pasts = past_key, past_value
    _require_caches(b, pasts)
    none = () if past_key is None else (0,)  # no new keys: those of the cache are seen
    require_one_of(b, k.shape[2], (queries, *none), f"the key {k.type}")
    if q_norm_weight is not None:
        q = _normalized(b, q, q_norm_weight, _epsilon(q_norm_epsilon, qk_norm_epsilon))
    if k_norm_weight is not None:
        k = _normalized(b, k, k_norm_weight, _epsilon(k_norm_epsilon, qk_norm_epsilon))
    total = b.dimension(b.reshape(total_sequence_length, ()), 0, "total")
    if query_seqlens is not None and past_key is None:
        raise ops.TypeMismatch("padded queries need a cache")
    if attention_bias is not None:
        attention_bias = of_scores(b, attention_bias, queries, total)
    prompt = expr.const(False, "bool") if query_seqlens is not None else _is_prompt(queries, total)
    start = _first_place(b, seqlens_k, batch, queries, prompt, query_seqlens)
    if do_rotary:
        places = _places(b, start, queries, prompt, position_ids)
        of_keys = places if dims.equal(k.shape[2], queries) else b.take(places, 1, 0, k.shape[2])
        q, k = (
            _turned(b, x, cos_cache, sin_cache, at, rotary_interleaved or 0)
            for x, at in ((q, places), (k, of_keys))
        )
    dtype = k.dtype
    k, v = (x if store is None else store.stored(b, x) for x, store in zip((k, v), stores))
    where: Value | None = None
    if sliding_window_cache:
        if b.site.wanted[3:4] == (True,):
            raise UnsupportedError("scores over a cache that is a window", "export it with the whole cache")
        rows, (k, v), where = _in_window(b, pasts, (k, v), start, seqlens_k, local_window_size)
        if attention_bias is not None:
            attention_bias = _of_places(b, attention_bias, where)
    else:
        if query_seqlens is None:
            _require_room(b, past_key, k.shape[2], total)
        rows, (k, v) = _in_order(b, pasts, (k, v), start, total)
    rows = [x if store is None else store.loaded(b, x, dtype) for x, store in zip(rows, stores)]
    sink = head_sink if head_sink is not None or smooth_softmax != 1 else zeros(b, q.dtype, (num_heads,))
    ends = None if causal else seqlens_k
    bias = _visible(b, q, rows[0], start, attention_bias, sink, ends, local_window_size, where)
    keys, values = (v if sink is None else _with_row(b, v) for v in rows)
    exposed = {1: 2, 2: 3}.get(qk_output) if b.site.wanted[3:4] == (True,) else None
    q, keys, values = (widened(b, x) for x in (q, keys, values))
    y, scores = attend(b, q, keys, values, bias, scale or None, softcap=softcap or 0.0, exposed=exposed)
    if scores is not None:  # of the keys that there are; 0 where a query does not see one
        scores = b.map(b.take(scores, 3, 0, total), lambda e: expr.where(e.equals(-math.inf), 0, e))
        scores = b.cast(scores, query.dtype)
    return b.cast(join_heads(b, y), query.dtype), k, v, scores


def _require_caches(b: Builder, pasts: tuple[Value | None, Value | None]) -> None:
    """Refuses caches of keys and values of which one is missing or has other room."""
    keys, values = pasts
    if (keys is None) != (values is None):
        raise ops.TypeMismatch("past keys and values go together")
    if keys is not None and values is not None:
        require(b, [(values.shape[2], keys.shape[2])], f"the cache {values.type}")


def _require_room(b: Builder, past: Value | None, new: Dimension, total: Dimension) -> None:
    """Refuses a total number of keys that is neither within the cache nor that of its rows and the new
    ones."""
    room = 0 if past is None else past.shape[2]
    require_one_of(b, dims.maximum(total, room), (room + new, room), "the cache with new keys")


def _in_order(
    b: Builder, pasts: Sequence[Value | None], new: Sequence[Value], start: Value, total: Dimension
) -> tuple[list[Value], list[Value]]:
    """(keys and values of all places so far, the caches) after new ones."""
    present = [x if past is None else written(b, past, x, start, total) for past, x in zip(pasts, new)]
    if pasts[0] is not None and isinstance(pasts[0].shape[2], int):  # as long as it may ever become
        return [b.take(x, 2, 0, total) for x in present], present
    return present, present


def _in_window(
    b: Builder, pasts: Sequence[Value | None], new: Sequence[Value], start: Value, seqlens: Value, window: int
) -> tuple[list[Value], list[Value], Value]:
    """(keys and values of the caches and new ones, the caches after them, where each key is)."""
    if pasts[0] is None or pasts[1] is None or window < 1:
        raise ops.TypeMismatch("a cache that is a window comes without a past or the window's size")
    cache, end = Window(pasts[0].shape[2], window), b.reshape(seqlens, (start.shape[0], 1))
    end = b.map(end, lambda n: n.cast("int64") + 1)
    rows = [b.concat([past, x], 2) for past, x in zip(pasts, new) if past is not None]
    return rows, [cache.kept(b, x, start, end) for x in rows], cache.places(b, start, new[0].shape[2])


def _of_places(b: Builder, bias: Value, places: Value) -> Value:
    """The columns that belong to the places [batch, keys] of some keys, of a bias [batch or 1, heads or 1,
    queries, total] of all; any where a key is not there."""
    whole = b.broadcast(bias, (places.shape[0], *bias.shape[1:]))
    column = expr.input_(0, "int64").clip(0, expr.size(bias.shape[3]) - 1)
    at = insert_axes(b, places, [1, 2])
    columns = generate(b, (*whole.shape[:3], places.shape[1]), column, at)
    return b.emit(ops.Gather("elements", 3), whole, columns)[0]


def _storage(kind: str, scale: Value | None, bits: int | None) -> Storage | None:
    """How a cache stores keys or values; None where as they are."""
    one_of(kind, ("NONE", "PER_TENSOR", "PER_CHANNEL"), "k_quant_type or v_quant_type")
    if kind == "NONE":
        return None
    one_of(bits or 8, (4, 8), "kv_cache_bit_width")
    if scale is None:
        raise ops.TypeMismatch("a quantised cache needs a scale")
    return Storage(bits or 8, scale, kind == "PER_CHANNEL")


def _epsilon(own: float | None, both: float) -> float:
    """That of one norm, where it is given, or of both."""
    found = both if own is None else own
    if not 0 < found < math.inf:
        raise ops.TypeMismatch(f"a norm has the epsilon {found}, which is not positive and finite")
    return found


def _normalized(b: Builder, x: Value, weight: Value, epsilon: float) -> Value:
    """x with every row of a head scaled to a mean square of 1, times the weight."""
    weight = with_length(b, weight, x.shape[3], "the weight of a norm")
    return RMSNormalization(b, x, weight, epsilon=epsilon)


def _turned(
    b: Builder, x: Value, cosines: Value | None, sines: Value | None, places: Value, interleaved: int
) -> Value:
    """x [batch, heads, rows, size] turned by its rows' places; the caches say how much of a row that is."""
    if cosines is None or sines is None:
        raise ops.TypeMismatch("rotary positions need a cache of cosines and one of sines")
    turned = 2 * cosines.shape[1]
    return attention.rotated(
        b, x, cosines, sines, places, interleaved=interleaved, rotary_embedding_dim=turned
    )


def _operands(
    b: Builder, query: Value, key: Value | None, value: Value | None, heads: int, groups: int
) -> list[Value]:
    """Query, key and value as [batch, heads, length, size]; without a key the query has all side by side.
    Keys and values have the same shape, and the query's batch and size."""
    if query.rank != 3 or (key is None) != (value is None):
        raise ops.TypeMismatch(f"the query {query.type} comes without keys or values")
    if key is not None and value is not None:
        require(b, zip(value.shape, key.shape), f"the value {value.type}")
        named = ((query, heads, "the query"), (key, groups, "the key"), (value, groups, "the value"))
        q, k, v = (split_heads(b, x, n, name) for x, n, name in named)
        require(b, [(k.shape[0], q.shape[0]), (k.shape[3], q.shape[3])], f"the key {key.type}")
        return [q, k, v]
    whole = split_heads(b, query, heads + 2 * groups, "the query")
    return [b.take(whole, 1, n, m) for n, m in ((0, heads), (heads, groups), (heads + groups, groups))]


def _first_place(
    b: Builder, seqlens: Value, batch: Dimension, queries: Dimension, prompt: Expr, counts: Value | None
) -> Value:
    """int64 [batch, 1]: where the first query of each sequence is in the cache. A prompt, which is as long as
    all, begins it; else the queries, or as many as count, are the last ones of the sequence."""
    ends = [b.cast(b.reshape(v, (batch, 1)), "int64") for v in (seqlens, counts) if v is not None]
    if counts is not None:
        return b.map(*ends, lambda n, count: n + 1 - count)
    return b.map(*ends, lambda n: expr.where(prompt, 0, n + 1 - expr.size(queries)))


def _is_prompt(queries: Dimension, total: Dimension) -> Expr:
    return expr.size(queries).equals(expr.size(total))


def _places(b: Builder, start: Value, queries: Dimension, prompt: Expr, given: Value | None) -> Value:
    """int64 [batch, queries]: where each query is; in a prompt only the first counts of those given."""
    if given is None:
        return _from(b, start, queries)
    require(b, [(given.shape[0], start.shape[0])], f"the batch of {given.type}")
    first = b.slice(given, (0, 0), (1, 1))
    return b.map(given, first, lambda p, f: expr.where(prompt, f + expr.index(1), p))


def _visible(
    b: Builder,
    q: Value,
    k: Value,
    start: Value,
    given: Value | None,
    sink: Value | None,
    ends: Value | None,
    window: int,
    places: Value | None = None,
) -> Value:
    """What is added to the scores: -inf where a query does not see a key; of a last column, which no key has,
    the sink of each head. ends: the last place of each sequence [batch], where queries see what comes after
    them. places: where each key is [batch, keys], by default in order."""
    queries, keys = q.shape[2], k.shape[2]
    operands = [b.reshape(start, (start.shape[0], 1, 1, 1))]
    i, j = expr.index(2), expr.index(3)
    columns = keys if sink is None else keys + 1
    at = j
    if places is not None:
        operands.append(padded(b, insert_axes(b, places, [1, 2]), (0,) * 4, (0, 0, 0, columns - keys)))
        at = expr.input_(1, "int64")
    last = place = expr.input_(0, "int64") + i
    if ends is not None:
        operands.append(b.reshape(ends, (start.shape[0], 1, 1, 1)))
        last = expr.input_(len(operands) - 1, "int32").cast("int64")
    seen = at <= last
    if window > 0:
        seen = seen & (at > place - window)
    bias = expr.const(0, "float32")
    if given is not None:
        operands.append(padded(b, given, (0,) * 4, (0, 0, 0, columns - given.shape[3])))
        bias = expr.input_(len(operands) - 1, given.dtype).cast("float32")
    bias = expr.where(seen, bias, -math.inf)
    heads = 1 if sink is None and (given is None or given.shape[1] == 1) else q.shape[1]
    if sink is not None:
        operands.append(b.reshape(sink, (1, heads, 1, 1)))
        extra = expr.input_(len(operands) - 1, sink.dtype).cast("float32")
        bias = expr.where(j.equals(expr.size(keys)), extra, bias)
    shape = ops.broadcast_shapes((1, heads, queries, columns), *(v.shape for v in operands))
    return generate(b, shape, bias, *operands)


def _with_row(b: Builder, x: Value) -> Value:
    """Keys or values with a row of zeros behind them: what a sink attends to."""
    return padded(b, x, (0,) * 4, (0, 0, 1, 0))


# A cache of which blocks are seen -----------------------------------------------------------------


@contrib_op(
    outputs="output present_key present_value",
    ranks={
        "query": 3,
        "key": 3,
        "value": 3,
        "past_key": 4,
        "past_value": 4,
        "block_row_indices": 2,
        "block_col_indices": 2,
        "total_sequence_length": "<=1",
        "key_total_sequence_lengths": 1,
        "cos_cache": 2,
        "sin_cache": 2,
    },
)
def SparseAttention(
    b,
    query: T,
    key: T | None,
    value: T | None,
    past_key: T,
    past_value: T,
    block_row_indices: Count,
    block_col_indices: Count,
    total_sequence_length: Count,
    key_total_sequence_lengths: Count,
    cos_cache: T | None = None,
    sin_cache: T | None = None,
    *,
    do_rotary: int | None = None,
    kv_num_heads: int,
    num_heads: int,
    rotary_interleaved: int | None = None,
    scale: float | None = None,
    sparse_block_size: int,
):
    """GroupQueryAttention over a cache with room, in which a query sees some blocks of places before it,
    those that one of several layouts, for heads in turn, lists for its own block (compressed sparse
    rows)."""
    if sparse_block_size < 1:
        raise ops.TypeMismatch(f"blocks of {sparse_block_size} places")
    q, k, v = _operands(b, query, key, value, num_heads, kv_num_heads)
    batch, _, queries, _ = q.shape
    require(b, [(k.shape[2], queries)], f"the key {k.type}")
    _require_caches(b, (past_key, past_value))
    total = b.dimension(b.reshape(total_sequence_length, ()), 0, "total")
    prompt = _is_prompt(queries, total)
    ends = b.cast(b.reshape(key_total_sequence_lengths, (batch, 1)), "int64")
    ends = checked(b, ends, lambda n: (n > 0) & (n <= expr.size(total)), "index_out_of_range")
    start = b.map(ends, lambda n: expr.where(prompt, 0, n - expr.size(queries)))
    if do_rotary:
        places = _places(b, start, queries, prompt, None)
        q, k = (_turned(b, x, cos_cache, sin_cache, places, rotary_interleaved or 0) for x in (q, k))
    k, v = (written(b, past, x, start) for past, x in ((past_key, k), (past_value, v)))
    rows = [b.take(x, 2, 0, total) for x in (k, v)]
    blocks = _seen_blocks(b, block_row_indices, block_col_indices)
    given = _of_layouts(b, blocks, start, (num_heads, queries, total), sparse_block_size)
    bias = _visible(b, q, rows[0], start, given, None, None, -1)
    keys, values = (widened(b, x) for x in rows)
    y, _ = attend(b, widened(b, q), keys, values, bias, scale or None)
    return b.cast(join_heads(b, y), query.dtype), k, v


def _seen_blocks(b: Builder, rows: Value, columns: Value) -> Value:
    """bool [layouts, blocks + 1, blocks]: whether a block of queries sees one of keys, of compressed sparse
    rows [layouts, blocks + 1] and columns [layouts, entries], of which each row must be in order and within
    those; the last row is for entries that belong to none."""
    if rows.rank != 2 or columns.rank != 2:
        raise ops.TypeMismatch(f"{rows.type} and {columns.type} are no layouts of blocks")
    layouts, count, entries = rows.shape[0], rows.shape[1] - 1, columns.shape[1]
    require(b, [(columns.shape[0], layouts)], f"the layouts of {columns.type}")
    require_least(b, count * count, entries, f"{columns.type} names more blocks than {rows.type} has")
    layout, axis, size = expr.index(0), expr.index(2), expr.size(count)

    def end(n: Expr, start: Expr) -> Expr:
        """Where a row ends, which begins where the one before it ends, the first at 0."""
        n, start = n.cast("int64"), start.cast("int64")
        ordered = (start <= n) & (n <= expr.size(entries)) & ((expr.index(1) > 0) | start.equals(0))
        return expr.check(ordered, n, "index_out_of_range")

    ends = b.map(b.take(rows, 1, 1, count), b.take(rows, 1, 0, count), end)
    place = expr.where(axis.equals(0), layout, expr.input_(0, "int64"))
    places = generate(b, (layouts, count, 2), place, insert_axes(b, ends, [2]))
    ones = zeros(b, "int64", (layouts, count), 1)
    none = zeros(b, "int64", (layouts, entries + 1))
    ended = b.emit(ops.Cumulate("sum", 1), b.emit(ops.Scatter("nd", reduction="add"), none, places, ones)[0])[
        0
    ]
    row = b.take(ended, 1, 0, entries)  # as many rows have ended before an entry
    parts = [insert_axes(b, x, [2]) for x in (row, columns)]
    of, column = expr.input_(0, "int64"), expr.input_(1, "int32").cast("int64")
    there = ((column >= 0) & (column < size)) | of.equals(size)
    column = expr.check(there, column.clip(0, size - 1), "index_out_of_range")
    place = expr.where(axis.equals(0), layout, expr.where(axis.equals(1), of, column))
    entry = generate(b, (layouts, entries, 3), place, *parts)
    nothing = zeros(b, "bool", (layouts, count + 1, count))
    return b.emit(ops.Scatter("nd"), nothing, entry, zeros(b, "bool", (layouts, entries), True))[0]


def _of_layouts(
    b: Builder, blocks: Value, start: Value, sizes: tuple[int, Dimension, Dimension], block: int
) -> Value:
    """What is added to scores of these sizes (heads, queries, keys): the lowest number where a query's block
    does not see a key's. Heads have the layouts in turn."""
    heads, queries, keys = sizes
    layouts, batch = blocks.shape[0], start.shape[0]
    of_query = generate(b, (batch, queries), (expr.input_(0, "int64") + expr.index(1)) / block, start)
    of_key = generate(b, (keys,), expr.index(0) / block)
    seen = b.emit(ops.Gather("axis", 1), blocks, of_query)[0]  # layouts, batch, queries, blocks
    seen = b.emit(ops.Gather("axis", 3), seen, of_key)[0]
    lowest = expr.const(float(np.finfo(np.float32).min), "float32")
    bias = b.transpose(b.map(seen, lambda s: expr.where(s, 0, lowest)), (1, 0, 2, 3))
    if layouts == 1:
        return bias
    if isinstance(layouts, int) and heads % layouts:
        raise ops.TypeMismatch(f"{heads} heads do not share {layouts} layouts")
    turns = dims.floor_divide(heads, layouts)
    whole = b.broadcast(insert_axes(b, bias, [1]), (batch, turns, layouts, queries, keys))
    return b.reshape(whole, (batch, heads, queries, keys))
