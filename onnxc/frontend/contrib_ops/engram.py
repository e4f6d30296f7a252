"""Embeddings of the last tokens' hashes, and how much of them a model lets in: NGramHashMapping, EngramGate.

Requests lie one behind the other in a list of tokens, or are the rows of a matrix; what was before one is in
a state. `Packed` knows where to look k tokens back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np

from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Value
from ...records import dataclass
from ..onnx_ops.common import checked, generate, insert_axes, scalar, widened, with_length, with_shape, zeros
from ..onnx_ops.normalization import RMSNormalization
from ..rules import Types
from .schema import T, contrib_op

M = Annotated[Value, Types.of("M", "int32", "int64")]
S = Annotated[Value, Types.of("S", "int32")]
Segments = Annotated[Value, Types.of("tensor(int32)", "int32")]


# Requests of several lengths ----------------------------------------------------------------------


def _of(operand: int) -> Expr:
    return expr.input_(operand, "int64")


@dataclass(frozen=True)
class Packed:
    """Where the tokens of each request are. starts, ends: of the requests [B]. request, place: of each token
    [T] whose it is, and which of that request's it is. before: how many tokens the state of each has."""

    b: Builder
    starts: Value
    ends: Value
    request: Value
    place: Value
    before: Dimension

    @classmethod
    def of_ends(cls, b: Builder, ends: Value, tokens: Dimension, before: Dimension, least: int = 1) -> Packed:
        """Of the requests that `ends`, [B + 1], divides so many tokens into, each of at least so many."""
        if ends.rank != 1:
            raise ops.TypeMismatch(f"{ends.type} are no ends of sequences")
        count = ends.shape[0] - 1
        bounds = b.cast(ends, "int64")
        first, last = b.take(bounds, 0, 0, count), b.take(bounds, 0, 1, count)
        index, whole = expr.index(0), expr.size(tokens)
        right = (_of(1) - _of(0) >= least) & (_of(0) >= 0) & (_of(1) <= whole)
        right = right & ((index > 0) | _of(0).equals(0))
        right = right & ((index < expr.size(count) - 1) | _of(1).equals(whole))
        first = generate(b, (count,), expr.check(right, _of(0), "invalid_value"), first, last)
        behind = generate(b, (tokens, count), (_of(0) <= expr.index(0)).cast("int64"), last)
        request = b.reduce("sum", behind, [1])
        start = b.emit(ops.Gather("axis"), first, request)[0]
        place = generate(b, (tokens,), expr.index(0) - _of(0), start)
        return cls(b, first, last, request, place, before)

    @classmethod
    def of_rows(cls, b: Builder, rows: Dimension, tokens: Dimension, before: Dimension) -> Packed:
        """Of a matrix, each row of which is a request."""
        each = expr.size(tokens)
        starts = generate(b, (rows,), expr.index(0) * each)
        ends = generate(b, (rows,), (expr.index(0) + 1) * each)
        whole = (rows, tokens)
        request = b.reshape(generate(b, whole, expr.index(0)), (rows * tokens,))
        place = b.reshape(generate(b, whole, expr.index(1)), (rows * tokens,))
        return cls(b, starts, ends, request, place, before)

    @property
    def tokens(self) -> Dimension:
        return self.request.shape[0]

    @property
    def requests(self) -> Dimension:
        return self.starts.shape[0]

    def joined(self, x: Value, state: Value) -> Value:
        """What is looked up: x [T, ...], and behind it the states [B, before, ...]."""
        flat = (dims.product(state.shape[:2]), *x.shape[1:])
        return self.b.concat([x, self.b.reshape(state, flat)], 0)

    def back(self, k: int | Expr, *more: Dimension) -> Value:
        """int64 [T, *more]: where in `joined` what was k tokens before each is; k may tell by its index."""
        inside = expr.index(0) - k
        earlier = expr.size(self.tokens) + (_of(0) + 1) * expr.size(self.before) + _of(1) - k
        operands = [self.b.reshape(x, (self.tokens, *(1,) * len(more))) for x in (self.request, self.place)]
        body = expr.where(_of(1) >= k, inside, earlier)
        return generate(self.b, (self.tokens, *more), body, *operands)

    def last(self, seen: Value) -> Value:
        """int64 [B, ..., before]: where in `joined` the state is after so many tokens, int64 [B, ...]."""
        b, rank = self.b, seen.rank
        start = b.reshape(self.starts, (self.requests, *(1,) * rank))
        place = _of(0) - expr.size(self.before) + expr.index(rank)
        earlier = expr.size(self.tokens) + (expr.index(0) + 1) * expr.size(self.before) + place
        body = expr.where(place >= 0, _of(1) + place, earlier)
        return generate(b, (*seen.shape, self.before), body, insert_axes(b, seen, [rank]), start)

    def lengths(self) -> Value:
        return self.b.map(self.ends, self.starts, lambda e, s: e - s)

    def rows(self, x: Value, longest: Dimension) -> Value:
        """[B, longest, ...]: x [T, ...] with zeros behind each request."""
        b, index = self.b, expr.index(1)
        whole = b.concat([x, zeros(b, x.dtype, (1, *x.shape[1:]))], 0)
        operands = [insert_axes(b, v, [1]) for v in (self.starts, self.ends)]
        place = expr.where(_of(0) + index < _of(1), _of(0) + index, expr.size(self.tokens))
        return b.emit(ops.Gather("axis"), whole, generate(b, (self.requests, longest), place, *operands))[0]

    def of_these(self, x: Value) -> Value:
        """[T, ...]: what such rows [B, longest, ...] have of the requests."""
        places = generate(
            self.b, (self.tokens,), _of(0) * expr.size(x.shape[1]) + _of(1), self.request, self.place
        )
        flat = self.b.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))
        return self.b.emit(ops.Gather("axis"), flat, places)[0]

    def captured(self, x: Value, count: Value | None, capacity: int, places: Value, unused: int = 0) -> Value:
        """[B, capacity, ...] of what `joined` has at these places [B, capacity, ...]: for each request those
        of its first `count` tokens."""
        if not 0 < capacity <= 8 or count is None:
            raise ops.TypeMismatch(
                f"the attribute state_update_capacity is {capacity} without a capture_count"
            )
        count = with_length(self.b, count, self.requests, "capture_count")
        own = self.b.map(self.b.cast(count, "int64"), self.lengths(), lambda c, n: c.minimum(n))
        found = self.b.emit(ops.Gather("axis"), x, places)[0]
        own = self.b.reshape(own, (self.requests, *(1,) * (found.rank - 1)))
        body = expr.where(expr.index(1) < _of(1), expr.input_(0, x.dtype), unused)
        return generate(self.b, found.shape, body, found, own)


# Hashes -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Hashes:
    """What the hashes of n tokens have in common. largest: n. heads: hashes for each n. missing: the token
    that stands for those before the first."""

    multipliers: Value
    sizes: Value
    offsets: Value | None
    largest: int
    heads: int
    missing: Value

    def fitted(self, b: Builder) -> _Hashes:
        """These hashes, whose parameters must fit each other; what is not certain the run checks."""
        count = (self.largest - 1) * self.heads
        if self.largest < 2 or self.heads < 1:
            raise ops.TypeMismatch(f"{self.heads} hashes of up to {self.largest} tokens")
        if self.multipliers.rank != 1 or dims.less(self.multipliers.shape[0], self.largest):
            raise ops.TypeMismatch(f"{self.multipliers.type} has not {self.largest} multipliers")
        sizes, offsets = with_length(b, self.sizes, count, "vocab_sizes"), self.offsets
        if offsets is not None:
            offsets = with_length(b, offsets, count, "head_offsets")
        return replace(self, sizes=sizes, offsets=offsets)


def _hash_ids(
    b: Builder, packed: Packed, ids: Value, segments: Value | None, hashes: _Hashes, reset: bool
) -> Value:
    """[T, (largest - 1) * heads] of the joined ids: the remainder of t0 m0 ^ t1 m1 ^ ..., tk being the token
    k before. From an end of a text (`reset`) or another segment on, what was before counts as missing."""

    def at(x: Value, k: int) -> Value:
        return b.emit(ops.Gather("axis"), x, packed.back(k))[0]

    def factor(k: int) -> Value:
        return b.take(hashes.multipliers, 0, k, 1)

    mix = b.map(at(ids, 0), factor(0), lambda t, m: t * m)
    dtype, found = ids.dtype, []
    over = zeros(b, "bool", (packed.tokens,))
    positive = checked(b, hashes.sizes, lambda e: e > 0, "invalid_value")
    for k in range(1, hashes.largest):
        token = at(ids, k)
        if reset:
            over = b.map(over, token, hashes.missing, lambda o, t, e: o | t.equals(e))
        if segments is not None:
            over = b.map(over, at(segments, k), at(segments, k - 1), lambda o, x, y: o | ~x.equals(y))
        token = b.map(over, token, hashes.missing, lambda o, t, e: expr.where(o, e, t))
        mix = b.map(mix, token, factor(k), lambda x, t, m: x ^ (t * m))
        first, column = (k - 1) * hashes.heads, insert_axes(b, mix, [1])
        own = b.map(column, b.take(positive, 0, first, hashes.heads), lambda x, n: x % n)
        if hashes.offsets is not None:
            own = b.map(own, b.take(hashes.offsets, 0, first, hashes.heads), lambda x, o: x + o)
        found.append(own)
    return b.cast(b.concat(found, 1), dtype)


def _missing(b: Builder, end: Value | None, pad: int, dtype: str) -> Value:
    bounds = np.iinfo(dtype)
    if not bounds.min <= pad <= bounds.max:
        raise ops.TypeMismatch(f"the attribute pad_id is {pad}, which is no {dtype}")
    return b.constant(pad, dtype) if end is None else scalar(b, end, "eos_token_id")


def _state(b: Builder, past: Value | None, missing: Value, shape: tuple[Dimension, ...]) -> Value:
    return b.broadcast(missing, shape) if past is None else b.reshape(past, shape)


@contrib_op(
    outputs="hash_ids present_ids?",
    ranks={
        "input_ids": 2,
        "multipliers": 1,
        "vocab_sizes": 1,
        "past_ids": 2,
        "head_offsets": 1,
        "eos_token_id": "<=1",
        "segment_ids": 2,
    },
)
def NGramHashMapping(
    b,
    input_ids: M,
    multipliers: M,
    vocab_sizes: M,
    past_ids: M | None = None,
    head_offsets: M | None = None,
    eos_token_id: M | None = None,
    segment_ids: Segments | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos=0,
):
    """Hashes of the last 2, 3, ... tokens [rows, tokens], and the tokens that the next call begins with."""
    if input_ids.rank != 2:
        raise ops.TypeMismatch(f"{input_ids.type} are no rows of tokens")
    rows, tokens = input_ids.shape
    missing = _missing(b, eos_token_id, pad_id, input_ids.dtype)
    hashes = _Hashes(multipliers, vocab_sizes, head_offsets, max_ngram_size, n_head_per_ngram, missing)
    hashes = hashes.fitted(b)
    before = max_ngram_size - 1
    packed = Packed.of_rows(b, rows, tokens, before)
    flat = b.reshape(input_ids, (packed.tokens,))
    ids = packed.joined(flat, _state(b, past_ids, missing, (rows, before)))
    segments = None
    if segment_ids is not None:
        # what was before the row belongs to its first segment
        first = b.take(b.concat([segment_ids, zeros(b, "int32", (rows, 1))], 1), 1, 0, 1)
        own = b.reshape(segment_ids, (packed.tokens,))
        segments = packed.joined(own, b.broadcast(first, (rows, before)))
    found = _hash_ids(b, packed, ids, segments, hashes, bool(reset_on_eos and eos_token_id is not None))
    present = b.emit(ops.Gather("axis"), ids, packed.last(packed.lengths()))[0]
    return b.reshape(found, (rows, tokens, before * n_head_per_ngram)), present


@contrib_op(
    outputs="hash_ids present_ids? present_segment_ids? state_update?",
    ranks={"past_ids": 2, "past_segment_ids": 2, "eos_token_id": "<=1", "*": 1},
)
def VarlenNGramHashMapping(
    b,
    input_ids: M,
    multipliers: M,
    vocab_sizes: M,
    cumulative_sequence_length: S,
    past_ids: M | None = None,
    head_offsets: M | None = None,
    eos_token_id: M | None = None,
    segment_ids: Segments | None = None,
    past_segment_ids: S | None = None,
    capture_count: S | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos=0,
    state_update_capacity=0,
):
    """The same of requests that lie one behind the other."""
    missing = _missing(b, eos_token_id, pad_id, input_ids.dtype)
    hashes = _Hashes(multipliers, vocab_sizes, head_offsets, max_ngram_size, n_head_per_ngram, missing)
    hashes = hashes.fitted(b)
    if input_ids.rank != 1 or (past_segment_ids is not None and segment_ids is None):
        raise ops.TypeMismatch(f"{input_ids.type} are no tokens, or past segments stand alone")
    before = max_ngram_size - 1
    packed = Packed.of_ends(b, cumulative_sequence_length, input_ids.shape[0], before)
    shape = (packed.requests, before)
    ids = packed.joined(input_ids, _state(b, past_ids, missing, shape))
    segments = None
    if segment_ids is not None:
        first = insert_axes(b, b.emit(ops.Gather("axis"), segment_ids, packed.starts)[0], [1])
        segments = packed.joined(segment_ids, _state(b, past_segment_ids, first, shape))
    found = _hash_ids(b, packed, ids, segments, hashes, bool(reset_on_eos and eos_token_id is not None))
    last = packed.last(packed.lengths())
    present = [b.emit(ops.Gather("axis"), x, last)[0] for x in (ids, segments) if x is not None]
    update = None
    if state_update_capacity:
        seen = generate(b, (packed.requests, state_update_capacity), expr.index(1) + 1)
        places = packed.last(b.map(seen, insert_axes(b, packed.lengths(), [1]), lambda e, n: e.minimum(n)))
        update = packed.captured(ids, capture_count, state_update_capacity, places, pad_id)
    return found, present[0], present[1] if segments is not None else None, update


# Gates --------------------------------------------------------------------------------------------


@contrib_op(outputs="output gated_value_normed?", ranks={"key": 4, "query": 4, "value": 3, "*": 2})
def EngramGate(
    b,
    key: T,
    query: T,
    value: T,
    key_norm_scale: T,
    query_norm_scale: T,
    conv_norm_scale: T | None = None,
    *,
    epsilon=1e-5,
):
    """sigmoid(sign(d) sqrt(|d|)) value, d being the product of the norms of key and query, and its norm."""
    if key.rank != 4 or query.rank != 4 or value.rank != 3:
        raise ops.TypeMismatch(f"{key.type}, {query.type} and {value.type} have not 4, 4 and 3 axes")
    *tokens, branches, size = key.shape
    query = with_shape(b, query, key.shape, "query")
    value = with_shape(b, value, (*tokens, size), "value")

    def normed(x: Value, scale: Value, name: str) -> Value:
        ones = generate(b, (size,), expr.const(1, "float32"))
        wide = RMSNormalization(b, widened(b, x), ones, epsilon=epsilon)
        scale = with_shape(b, scale, (branches, size), name)
        return b.map(wide, widened(b, scale), lambda e, s: e * s)

    keys = normed(key, key_norm_scale, "key_norm_scale")
    queries = normed(query, query_norm_scale, "query_norm_scale")
    products = b.map(keys, queries, lambda k, q: k * q)
    dots = b.reduce("sum", products, [3], True)

    def gate(d: Expr) -> Expr:
        d = d / expr.sqrt(expr.size(size).cast("float32"))
        root = expr.sqrt(abs(d).maximum(1e-6))
        return expr.sigmoid(expr.apply("sign", d) * root)

    gated = b.map(b.map(dots, gate), widened(b, insert_axes(b, value, [2])), lambda g, v: g * v)
    rest = None
    if conv_norm_scale is not None:
        rest = b.cast(normed(gated, conv_norm_scale, "conv_norm_scale"), key.dtype)
    return b.cast(gated, key.dtype), rest
