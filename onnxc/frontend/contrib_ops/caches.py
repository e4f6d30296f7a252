"""Caches of keys and values [batch, heads, places, size]: what attention writes into them and reads."""

from __future__ import annotations

from ...errors import UnsupportedError
from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Value
from ...records import dataclass
from ..onnx_ops.common import agreed, checked, generate, insert_axes, require, require_least
from ..onnx_ops.movement import padded


def written(b: Builder, past: Value, new: Value, start: Value, total: Dimension = 0) -> Value:
    """The cache with room for `total` places, and each sequence's new rows from its start [batch, 1] on. One
    that is a state of a known size has that room."""
    if past.dtype != new.dtype or past.rank != 4:
        raise UnsupportedError(f"a cache {past.type} for keys {new.type}")
    batch, groups, _, size = new.shape
    start = agreed(b, start, zip(past.shape, (batch, groups, past.shape[2], size)), f"a cache {past.type}")
    past = b.reshape(past, (batch, groups, past.shape[2], size))
    more = dims.substitute(dims.maximum(total - past.shape[2], 0), b.facts)
    room = padded(b, past, (0,) * 4, (0, 0, more, 0))
    axis = expr.index(3)
    row = expr.where(axis.equals(2), expr.input_(0, "int64") + expr.index(2), expr.index(1))
    place = expr.where(axis.equals(0), expr.index(0), row)
    first = checked(b, b.reshape(start, (start.shape[0], 1, 1, 1)), lambda n: n >= 0, "index_out_of_range")
    places = generate(b, (*new.shape[:3], 3), place, first)
    return b.emit(ops.Scatter("nd"), room, places, new)[0]


def appended(
    b: Builder, caches: tuple[Value, Value], new: tuple[Value, Value], past: Dimension, beams: Value | None
) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
    """(keys and values that the query sees, the caches) after new rows behind the `past` ones that sequences
    have; the room is there. beams: see `of_beams`."""
    start = b.reshape(b.elements([past]), (1, 1))
    require(b, [(x.shape[2], y.shape[2]) for y, x in (caches, new)], "a cache or rows of values")
    total = past + new[0].shape[2]
    present = tuple(written(b, cache, rows, start) for cache, rows in zip(caches, new))
    seen = [b.take(cache, 2, 0, total) for cache in present]
    if beams is not None:
        require_least(
            b, caches[0].shape[2], beams.shape[2], f"{caches[0].type} has fewer rows than {beams.type} names"
        )
        seen = [of_beams(b, rows, beams, past) for rows in seen]
    return (seen[0], seen[1]), (present[0], present[1])


def of_beams(b: Builder, rows: Value, beams: Value, past: Dimension) -> Value:
    """Rows [batch, heads, places, size] of beams, each with a history of others: row j of a beam, one of the
    `past` first, is that of beam `beams[group, beam, j]` of its group. beams: int32 [groups, width, room]."""
    if beams.rank != 3:
        raise ops.TypeMismatch(f"{beams.type} does not say which beam each row comes from")
    batch, heads, places, _ = rows.shape
    whole = b.reshape(beams, (batch, beams.shape[2]))
    which = insert_axes(b, b.take(whole, 1, 0, places), [1, 3])
    own, axis = expr.index(0), expr.index(3)
    first = own - own % expr.size(beams.shape[1])
    source = expr.where(expr.index(2) < expr.size(past), first + expr.input_(0, "int32").cast("int64"), own)
    place = expr.where(axis.equals(0), source, expr.where(axis.equals(1), expr.index(1), expr.index(2)))
    return b.emit(ops.Gather("nd"), rows, generate(b, (batch, heads, places, 3), place, which))[0]


@dataclass(frozen=True)
class Storage:
    """How a cache stores its rows: `bits` of whole numbers whose steps the scale says, one for all or one for
    each element of a row; two of 4 bits share a byte, the first one in its lower half."""

    bits: int
    scale: Value
    each: bool  # whether each element of a row has its own

    def _steps(self, b: Builder, x: Value) -> Value:
        """The scale, as it broadcasts to rows [batch, heads, places, size]."""
        return b.reshape(self.scale, (1, x.shape[1], 1, x.shape[3]) if self.each else (1, 1, 1, 1))

    def stored(self, b: Builder, x: Value) -> Value:
        """Rows as the cache has them."""
        most = 2 ** (self.bits - 1)

        def body(e: Expr, step: Expr) -> Expr:
            return expr.round_(e.cast("float32") / step).clip(-most, most - 1)

        codes = b.map(x, self._steps(b, x), body)
        if self.bits == 8:
            return b.cast(codes, "int8")
        batch, heads, places, size = x.shape
        half = dims.floor_divide(size, 2)
        low, high = (
            b.slice(codes, (0, 0, 0, k), (batch, heads, places, half), (1, 1, 1, 2)) for k in range(2)
        )
        return b.map(low, high, lambda p, q: ((p + 8) + (q + 8) * 16).cast("uint8"))

    def loaded(self, b: Builder, rows: Value, dtype: str) -> Value:
        """Rows of the cache as numbers."""
        if self.bits == 4:
            halves = [b.map(rows, f) for f in (lambda e: e & 15, lambda e: e >> 4)]
            pairs = b.concat([insert_axes(b, h, [4]) for h in halves], 4)
            rows = b.map(
                b.reshape(pairs, (*rows.shape[:3], 2 * rows.shape[3])), lambda e: e.cast("float32") - 8
            )
        return b.map(rows, self._steps(b, rows), lambda e, s: (e.cast("float32") * s).cast(dtype))


@dataclass(frozen=True)
class Window:
    """A cache that has room for the last `capacity` rows of a sequence, of which queries see `size`: it keeps
    some of the last rows, in order. When it is full, as many go at once as it has more than the window."""

    capacity: Dimension
    size: int

    def _there(self, count: Expr) -> Expr:
        """How many rows are there after `count` of a sequence."""
        capacity = expr.size(self.capacity)
        spare = capacity - self.size + 1
        return expr.where(count <= capacity, count, count - spare * ((count - capacity + spare - 1) / spare))

    def places(self, b: Builder, start: Value, new: Dimension) -> Value:
        """int64 [batch, capacity + new]: where in the sequence each row of the cache is, and after them each
        new one; behind all others where there is none. start [batch, 1]: how many there were before."""
        n, j, capacity = expr.input_(0, "int64"), expr.index(1), expr.size(self.capacity)
        there = self._there(n)
        own = expr.where(j < there, n - there + j, expr.const(1 << 40, "int64"))
        return generate(
            b, (start.shape[0], self.capacity + new), expr.where(j < capacity, own, n + j - capacity), start
        )

    def kept(self, b: Builder, rows: Value, start: Value, end: Value) -> Value:
        """The cache [batch, heads, capacity, size] after sequences have `end` rows [batch, 1], of `start`
        rows before: rows of the cache and behind them new ones."""
        batch, heads, count, _ = rows.shape
        before, after, axis = expr.input_(0, "int64"), expr.input_(1, "int64"), expr.index(3)
        place = after - self._there(after) + expr.index(2)
        own = place - (before - self._there(before))
        row = expr.where(place < before, own, expr.size(self.capacity) + place - before)
        row = row.clip(0, expr.size(count) - 1)  # behind what there is, any will do
        at = expr.where(axis.equals(0), expr.index(0), expr.where(axis.equals(1), expr.index(1), row))
        bounds = [b.reshape(x, (batch, 1, 1, 1)) for x in (start, end)]
        return b.emit(ops.Gather("nd"), rows, generate(b, (batch, heads, self.capacity, 3), at, *bounds))[0]
