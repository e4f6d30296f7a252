"""The recurrence of attention without softmax, whose state is a matrix for each head.

Of each token S = exp(g) S + k (beta (v - S^T k))^T, of which rules leave parts out, and o = S^T q. Token by
token that would read and write the states several times a token. Of a chunk of tokens all follows from
products of matrices: where D[i, j] is the product of the decays of tokens j + 1 to i, and D[i] that of all up
to i,

    delta[i] = beta[i] (v[i] - S^T D[i] k[i] - sum over j < i of (k[i] D[i, j] k[j]) delta[j])
    o[i] = S^T D[i] q[i] + sum over j <= i of (q[i] D[i, j] k[j]) delta[j]

and the states are read twice and written once a chunk ("Parallelizing Linear Transformers with the Delta Rule
over Sequence Length", "Gated Delta Networks"). Nothing is divided by a decay, and no sums of logarithms are
subtracted: D is multiplied up from the same decays as token by token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import TensorType, Type, Value
from ...records import dataclass
from ..onnx_ops.common import generate, insert_axes, with_size, zeros
from ..onnx_ops.control import loop
from ..rule_builder import Region, emit_if

#: Tokens of a chunk; fewer where each element of a key has a decay, of which all pairs of tokens need one.
CHUNK, WIDE_CHUNK = 16, 8


@dataclass(frozen=True)
class Tokens:
    """What tokens bring. queries [batch, tokens, key heads, queries, d], keys [batch, tokens, key heads, d],
    values [batch, tokens, key heads, states of each, w], logarithms of decays [.., d or 1] and rates [.., 1],
    which may be those of all heads."""

    queries: Value
    keys: Value
    values: Value
    decays: Value | None
    rates: Value | None

    @classmethod
    def of(cls, b: Builder, q: Value, k: Value, v: Value, decay: Value | None, beta: Value | None) -> Tokens:
        """Of q [batch, tokens, key heads, queries, d], k [batch, tokens, key heads, d], v [batch, tokens,
        heads, w], decay [..., d or 1] and beta [..., 1], where heads that follow each other share a key."""
        shared, each = k.shape[2], dims.floor_divide(v.shape[2], k.shape[2])
        lengths = [x.shape[1] for x in (q, k, v, decay, beta) if x is not None]
        length = next((size for size in lengths if isinstance(size, int)), lengths[0])
        q, k, v = (with_size(b, x, 1, length) for x in (q, k, v))

        def split(x: Value) -> Value:
            heads = (1, 1) if x.shape[2] == 1 else (shared, each)
            if x.shape[2] not in (1, v.shape[2]):  # the run tells which
                x = b.emit(ops.Broadcast((*x.shape[:2], v.shape[2], x.shape[3])), x)[0]
            return b.reshape(x, (x.shape[0], length, *heads, x.shape[3]))

        if decay is not None and decay.shape[3] not in (1, k.shape[3]):  # the run tells which
            decay = b.emit(ops.Broadcast((*decay.shape[:3], k.shape[3])), decay)[0]
        decays, rates = (x if x is None else split(x) for x in (decay, beta))
        return cls(q, k, split(v), decays, rates)

    @property
    def most(self) -> int:
        """How many a chunk has."""
        return CHUNK if self.decays is None or self.decays.shape[4] == 1 else WIDE_CHUNK

    def take(self, b: Builder, start: Dimension, size: Dimension) -> Tokens:
        """So many of them from one on."""
        queries, keys, values = (b.take(x, 1, start, size) for x in (self.queries, self.keys, self.values))
        decays, rates = (x if x is None else b.take(x, 1, start, size) for x in (self.decays, self.rates))
        return Tokens(queries, keys, values, decays, rates)

    def states(self, b: Builder, state: Value) -> Value:
        """A state [batch, heads, d, w] with the axes of key heads and states of each."""
        return b.reshape(state, (state.shape[0], *self.values.shape[2:4], *state.shape[2:]))


def recurrence(b: Builder, tokens: Tokens, state: Value, scale: Expr | float) -> tuple[Value, Value]:
    """(outputs [batch, tokens, heads, queries, w], the last state) of a state [batch, heads, d, w]."""
    batch, length, *_, w = tokens.values.shape
    heads, most = state.shape[1], tokens.most
    state = tokens.states(b, state)
    # the last chunk, which may be short, is apart: what it gives is written where the results belong
    count = dims.maximum(dims.floor_divide(length - 1, most), 0)
    done = count * most
    first, state = _before(b, tokens, count, state, scale)
    last, state, _ = _chunk(b, tokens.take(b, done, length - done), state, scale)
    y = b.reshape(b.concat([first, last], 2), (tokens.queries.shape[3], batch, length, heads, w))
    return b.transpose(y, (1, 2, 3, 0, 4)), b.reshape(state, (batch, heads, *state.shape[3:]))


def transitions(b: Builder, tokens: Tokens, state: Value, count: int) -> list[Value]:
    """What the first tokens, not more than a chunk has, do to a state [batch, heads, d, w], S = decay S + key
    delta^T: decays [batch, count, heads, d or 1], keys [batch, count, key heads, d] and deltas [batch, count,
    heads, w], behind which zeros stand for tokens that are not there."""
    batch, length, shared, each, _ = tokens.values.shape
    size = dims.minimum(length, count)
    own = tokens.take(b, 0, size)
    *_, deltas = _chunk(b, own, tokens.states(b, state), 1.0)
    decays = zeros(b, "float32", (batch, size, shared, each, 1))
    decays = b.map(decays if own.decays is None else own.decays, expr.exp)
    found = []
    for x in (decays, own.keys, deltas):
        x = b.reshape(x, (batch, size, dims.product(x.shape[2:-1]), x.shape[-1]))
        behind = (0, count - size, 0, 0)
        found.append(b.emit(ops.Pad("constant", (0,) * 4, behind), x, zeros(b, "float32", ()))[0])
    return found


def _before(
    b: Builder, tokens: Tokens, count: Dimension, state: Value, scale: Expr | float
) -> tuple[Value, Value]:
    """What `_chunks` gives; where there are none, or the run tells so, the state itself instead of a copy."""
    batch, _, *heads = tokens.values.shape
    shape = (tokens.queries.shape[3], batch, count * tokens.most, *heads)

    def none(b: Builder) -> tuple[Value, Value]:
        return zeros(b, "float32", shape), state

    def some(b: Builder) -> tuple[Value, Value]:
        return _chunks(b, tokens, count, state, scale)

    found = dims.compare("lt", 0, count)
    if isinstance(found, int):
        return some(b) if found else none(b)

    def region(build: Callable[[Builder], tuple[Value, Value]]) -> Region:
        inner = b.inner()
        return Region(inner, [inner.capture(x) for x in build(inner)], [])

    condition, types = b.elements(np.array(found, object), "bool"), [TensorType("float32", shape), state.type]
    y, state = emit_if(b, condition, region(some), region(none), types)
    return y, state


def _chunks(
    b: Builder, tokens: Tokens, count: Dimension, state: Value, scale: Expr | float
) -> tuple[Value, Value]:
    """The outputs and the state that `_chunk` gives of so many whole chunks, one behind the other."""
    size = tokens.most
    if count == 1:
        return _chunk(b, tokens.take(b, 0, size), state, scale)[:2]

    def region(carried: Sequence[Type]) -> Region:
        step = b.inner()
        index = step.input(TensorType("int64", ()), "chunk")
        goes_on = step.input(TensorType("bool", ()), "condition")
        (s,) = states = [step.input(t) for t in carried]
        own = tokens.take(step, step.dimension(index, 0, "chunk") * size, size)
        y, s, _ = _chunk(step, own, s, scale)
        return Region(step, [goes_on, s, y], [index, goes_on, *states])

    state, y = loop(b, b.elements(np.array(count, object)), b.constant(True), [state], region)
    y = b.transpose(y, (1, 2, 0, *range(3, y.rank)))
    return b.reshape(y, (*y.shape[:2], count * size, *y.shape[4:])), state


def _chunk(b: Builder, t: Tokens, state: Value, scale: Expr | float) -> tuple[Value, Value, Value]:
    """(outputs [queries, batch, tokens, key heads, states of each, w], the state behind them [batch, key
    heads, states of each, d, w], deltas [batch, tokens, key heads, states of each, w]) of the tokens of one
    chunk. Labels: r rows, b batch, i and j tokens, o key heads, g states of each."""
    batch, size, shared, each, _ = t.values.shape
    square, row, column = (batch, shared, each, size, size), expr.index(3), expr.index(4)
    values, element = t.values, expr.input_(0, "float32")
    rows = b.transpose(t.queries, (3, 0, 1, 2, 4))
    if t.rates is not None:
        rows = b.concat([insert_axes(b, t.keys, [0]), rows], 0)
    if t.decays is None:
        scores = insert_axes(b, b.contract("rbiod", "bjod", "rboij", rows, t.keys), [3])
        scores = b.broadcast(scores, (scores.shape[0], *square))
        seen = b.contract("rbiod", "bogdw", "rbiogw", rows, state)
    else:
        decays = b.map(t.decays, expr.exp)
        before = b.emit(ops.Cumulate("prod", 1), decays)[0]
        of_each = insert_axes(b, b.transpose(decays, (0, 2, 3, 1, 4)), [4])
        here = expr.where(row > column, element, 1.0)
        among = b.emit(ops.Cumulate("prod", 3), generate(b, (*square, decays.shape[4]), here, of_each))[0]
        if decays.shape[4] == 1:
            scores = insert_axes(b, b.contract("rbiod", "bjod", "rboij", rows, t.keys), [3])
            scores = b.map(scores, b.reshape(among, square), lambda e, g: e * g)
            seen = b.contract("rbiod", "bogdw", "rbiogw", rows, state)
            seen = b.map(seen, before, lambda e, g: e * g)
        else:
            keys = insert_axes(b, b.transpose(t.keys, (0, 2, 1, 3)), [2, 3])
            decayed = b.map(among, keys, lambda g, e: g * e)
            scores = b.contract("rbiod", "bogijd", "rbogij", rows, decayed)
            asked = b.map(insert_axes(b, rows, [4]), before, lambda e, g: e * g)
            seen = b.contract("rbiogd", "bogdw", "rbiogw", asked, state)
    if t.rates is not None:
        kept, own = (b.reshape(b.take(x, 0, 0, 1), x.shape[1:]) for x in (seen, scores))
        seen, scores = (b.take(x, 0, 1, x.shape[0] - 1) for x in (seen, scores))
        values = b.map(t.rates, values, kept, lambda r, v, x: r * (v - x))
        own = b.map(own, b.transpose(t.rates, (0, 2, 3, 1, 4)), lambda e, r: e * r)
        values = _solved(b, own, values, t.most)
    scores = generate(b, scores.shape, expr.where(expr.index(5) <= expr.index(4), element, 0.0), scores)
    y = b.contract("rbogij", "bjogw", "rbiogw", scores, values)
    y = b.map(y, seen, lambda e, s: (e + s) * scale)
    if t.decays is None:
        added = b.contract("bjod", "bjogw", "bogdw", t.keys, values)
    else:
        behind = b.emit(ops.Cumulate("prod", 1, True, True), decays)[0]
        keys = b.map(insert_axes(b, t.keys, [3]), behind, lambda e, g: e * g)
        added = b.contract("bjogd", "bjogw", "bogdw", keys, values)
        whole = b.reshape(b.reduce("prod", decays, [1]), (batch, shared, each, decays.shape[4], 1))
        state = b.map(state, whole, lambda e, g: e * g)
    return y, b.map(state, added, lambda e, s: e + s), values


def _solved(b: Builder, own: Value, values: Value, most: int) -> Value:
    """x[i] such that x[i] + sum over j < i of own[i, j] x[j] = values[i]. The inverse of a unit lower
    triangle has at its diagonal those of blocks, of which two become one of twice the size. The powers of the
    triangle, which may be large where the inverse is not, are not needed."""
    size = own.shape[3]
    if size == 1:
        return values
    row, column, element = expr.index(3), expr.index(4), expr.input_(0, "float32")
    below, apart = row > column, row ^ column
    identity = expr.where(row.equals(column), 1.0, expr.const(0.0, "float32"))
    inverse = generate(b, own.shape, expr.where(below & apart.equals(1), -element, identity), own)
    half = 2
    while half < (size if isinstance(size, int) else most):
        inside = below & (apart >= half) & (apart < 2 * half)
        block = generate(b, own.shape, expr.where(inside, element, 0.0), own)
        found = b.contract("bogik", "bogkj", "bogij", inverse, block)
        found = b.contract("bogik", "bogkj", "bogij", found, inverse)
        inverse = b.map(inverse, found, lambda e, x: e - x)
        half *= 2
    return b.contract("bogij", "bjogw", "biogw", inverse, values)
