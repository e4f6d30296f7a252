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
from ...ir.graph import TensorType, Type, Value
from ...records import dataclass
from ..onnx_ops.common import generate, insert_axes, zeros
from ..onnx_ops.control import loop
from ..regions import Region

#: Tokens of a chunk; fewer where each element of a key has a decay, of which all pairs of tokens need one.
CHUNK, WIDE_CHUNK = 32, 8


@dataclass(frozen=True)
class Tokens:
    """What tokens bring: queries [batch, heads, queries, tokens, d], keys [batch, heads, tokens, d], values
    [.., w], logarithms of decays [.., d or 1] and rates [.., 1], which may be of all heads."""

    queries: Value
    keys: Value
    values: Value
    decays: Value | None
    rates: Value | None

    def each(self, change: Callable[[Value], Value]) -> Tokens:
        given = (self.queries, self.keys, self.values, self.decays, self.rates)
        return Tokens(*(x if x is None else change(x) for x in given))


def recurrence(
    b: Builder,
    q: Value,
    k: Value,
    v: Value,
    decay: Value | None,
    beta: Value | None,
    state: Value,
    scale: float,
) -> tuple[Value, Value]:
    """(outputs [batch, tokens, heads, queries, w], the last state) of q [batch, tokens, heads, queries, d],
    k [..., d], v [..., w], decay [..., d or 1], beta [..., 1] and a state [batch, heads, d, w]."""
    length = q.shape[1]
    most = CHUNK if decay is None or decay.shape[3] == 1 else WIDE_CHUNK
    count = dims.floor_divide(length, most)
    rest = length - count * most
    given = Tokens(b.map(q, lambda e: e * scale), k, v, decay, beta)
    found = []

    def ordered(x: Value) -> Value:
        """[chunks, tokens, batch, heads, ...] as [chunks, batch, heads, ..., tokens, the last axis]."""
        return b.transpose(x, (0, 2, 3, *range(4, x.rank - 1), 1, x.rank - 1))

    def part(start, count, size) -> Tokens:
        """[chunks, batch, heads, ..., tokens, d or w]"""

        def change(x: Value) -> Value:
            own = b.take(x, 1, start, count * size)
            own = b.reshape(own, (x.shape[0], count, size, *x.shape[2:]))
            middle = range(4, own.rank - 1)
            return b.transpose(own, (1, 0, 3, *middle, 2, own.rank - 1))

        return given.each(change)

    def flat(y: Value) -> Value:
        """[chunks, batch, heads, queries, tokens, w] in the order of tokens."""
        chunks, batch, heads, queries, size, w = y.shape
        y = b.transpose(y, (1, 0, 4, 2, 3, 5))
        return b.reshape(y, (batch, chunks * size, heads, queries, w))

    def one(b: Builder, own: Tokens, state: Value) -> tuple[Value, Value]:
        y, state = chunk(b, own.each(lambda x: b.reshape(x, x.shape[1:])), state, most)
        return insert_axes(b, y, [0]), state

    if count == 1:
        y, state = one(b, part(0, 1, most), state)
        found.append(flat(y))
    elif count != 0:
        parts = part(0, count, most)

        def region(carried: Sequence[Type]) -> Region:
            step = b.inner()
            index = step.input(TensorType("int64", ()), "chunk")
            goes_on = step.input(TensorType("bool", ()), "condition")
            (s,) = states = [step.input(t) for t in carried]
            y, s = chunk(step, parts.each(lambda x: step.emit(ops.Gather("axis"), x, index)[0]), s, most)
            return Region(step, [goes_on, s, y], [index, goes_on, *states])

        state, y = loop(b, b.elements(np.array(count, object)), b.constant(True), [state], region)
        found.append(flat(y))
    if rest != 0:
        y, state = one(b, part(count * most, 1, rest), state)
        found.append(flat(y))
    if not found:
        found.append(zeros(b, "float32", (*q.shape[:4], v.shape[3])))
    return b.concat(found, 1), state


def chunk(b: Builder, t: Tokens, state: Value, most: int) -> tuple[Value, Value]:
    """(outputs [batch, heads, queries, tokens, w], the state behind them) of tokens, at most so many."""
    rows, keys, values = t.queries, t.keys, t.values
    size = keys.shape[2]
    row, column = expr.index(2), expr.index(3)
    if t.rates is not None:
        rows = b.concat([insert_axes(b, keys, [2]), rows], 2)
    asked, later, whole, among = rows, keys, None, None
    if t.decays is not None:
        decays = b.map(t.decays, expr.exp)  # [batch, heads, tokens, d or 1]
        before = b.emit(ops.Cumulate("prod", 2), decays)[0]
        asked = b.map(rows, insert_axes(b, before, [2]), lambda e, g: e * g)
        behind = b.emit(ops.Cumulate("prod", 2, True, True), decays)[0]
        later = b.map(keys, behind, lambda e, g: e * g)
        whole = b.reduce("prod", decays, [2])  # [batch, heads, d or 1]
        shape = (*decays.shape[:3], size, decays.shape[3])
        body = expr.where(row > column, expr.input_(0, "float32"), 1.0)
        among = b.emit(ops.Cumulate("prod", 2), generate(b, shape, body, insert_axes(b, decays, [3])))[0]
    if among is not None and among.shape[4] != 1:
        paired = b.map(among, insert_axes(b, keys, [2]), lambda g, e: g * e)
        scores = b.contract("bhrid", "bhijd", "bhrij", rows, paired)
    else:
        scores = b.contract("bhrid", "bhjd", "bhrij", rows, keys)
        if among is not None:
            among = b.reshape(among, (*among.shape[:2], 1, size, size))
            scores = b.map(scores, among, lambda e, g: e * g)
    seen = b.contract("bhrid", "bhdw", "bhriw", asked, state)
    if t.rates is not None:
        own = b.reshape(b.take(scores, 2, 0, 1), (*scores.shape[:2], size, size))
        own = b.map(own, t.rates, lambda e, r: e * r)
        kept = b.reshape(b.take(seen, 2, 0, 1), values.shape)
        values = b.map(t.rates, values, kept, lambda r, x, y: r * (x - y))
        values = _solved(b, own, values, most)
        scores, seen = (b.take(x, 2, 1, x.shape[2] - 1) for x in (scores, seen))
    here = expr.where(expr.index(4) <= expr.index(3), expr.input_(0, "float32"), 0.0)
    scores = generate(b, scores.shape, here, scores)
    y = b.contract("bhrij", "bhjw", "bhriw", scores, values)
    y = b.map(y, seen, lambda e, s: e + s)
    if whole is not None:
        state = b.map(state, insert_axes(b, whole, [3]), lambda e, g: e * g)
    added = b.contract("bhjd", "bhjw", "bhdw", later, values)
    return y, b.map(state, added, lambda e, s: e + s)


def _solved(b: Builder, own: Value, values: Value, most: int) -> Value:
    """x of x[i] + sum over j < i of own[i, j] x[j] = values[i]. The inverse of a unit lower triangle has at
    its diagonal those of blocks, of which two become one of twice the size: powers of the triangle, which
    may be large where the inverse is not, are not needed."""
    size = own.shape[2]
    if size == 1:
        return values
    row, column = expr.index(2), expr.index(3)
    element = expr.input_(0, "float32")
    below, apart = row > column, row ^ column
    identity = expr.where(row.equals(column), 1.0, expr.const(0.0, "float32"))
    inverse = generate(b, own.shape, expr.where(below & apart.equals(1), -element, identity), own)
    half = 2
    while half < (size if isinstance(size, int) else most):
        inside = below & (apart >= half) & (apart < 2 * half)
        block = generate(b, own.shape, expr.where(inside, element, 0.0), own)
        found = b.contract("bhik", "bhkj", "bhij", inverse, block)
        found = b.contract("bhik", "bhkj", "bhij", found, inverse)
        inverse = b.map(inverse, found, lambda e, x: e - x)
        half *= 2
    return b.contract("bhij", "bhjw", "bhiw", inverse, values)
