"""The array functions of the interpreter that numpy does not have, from matrix products to sorts.

They take arrays and plain numbers, never dimension variables, and are plain and accurate rather
than fast: sums of 16-bit floats run in float32, those of float32 in float64, and matrix products
in the type that they are given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import dtypes, expr, ops
from .runtime_twins import InterpretError

Array = np.ndarray


def cast_to(x: Array, dtype: str) -> Array:
    same = dtypes.from_numpy(x.dtype) == dtype
    return x if same else expr.saturating_cast(x, dtypes.numpy_dtype(dtype))


def widened(x: Array) -> Array:
    """x in the type that sums of it run in."""
    name = dtypes.from_numpy(x.dtype)
    if dtypes.is_float(name):
        return x.astype(np.float64 if x.dtype.itemsize > 2 else np.float32)
    if dtypes.is_integer(name) and dtypes.bits(name) < 8:
        return x.astype(np.int8 if dtypes.is_signed(name) else np.uint8)
    return x


def neutral(kind: str, dtype: np.dtype) -> object:
    """What min, max, and, or give over no elements at all."""
    name = dtypes.from_numpy(dtype)
    if name in dtypes.FLOATS:
        return {"min": math.inf, "max": -math.inf}[kind]
    if dtypes.is_float(name):
        import ml_dtypes

        limits = ml_dtypes.finfo(dtype)
        return {"min": limits.max, "max": limits.min}[kind]
    low, high = dtypes.integer_range(name)
    return {"min": high, "max": low, "or": 0, "and": high if low == 0 else -1}[kind]


# Matrix products ---------------------------------------------------------------------------------


def matmul(a: Array, b: Array) -> Array:
    """a @ b in their type; integers wrap. Integers go through floats where these are exact."""
    if a.dtype.kind in "iu" and a.size and b.size:
        largest = [max(abs(int(m.min())), abs(int(m.max()))) for m in (a, b)]
        if largest[0] * largest[1] * a.shape[-1] < 1 << 53:
            product = np.matmul(a.astype(np.float64), b.astype(np.float64))
            return product.astype(np.int64).astype(a.dtype)
    if a.dtype.itemsize <= 2 and a.dtype.kind in "fV":
        return np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)
    return np.matmul(a, b)


def einsum(lhs: str, rhs: str, out: str, x: Array, y: Array, repeated: str = "") -> Array:
    """lhs, rhs -> out as one batched matrix product; operands of size 1 repeat along labels of that name."""
    length: dict[str, int] = {}
    for labels, operand in ((lhs, x), (rhs, y)):
        for label, size in zip(labels, operand.shape, strict=True):
            known = length.setdefault(label, size)
            if known != size:
                if label not in repeated or 1 not in (known, size):
                    raise InterpretError("dims_mismatch", f"{list(x.shape)} and {list(y.shape)}")
                length[label] = known * size
    lhs, x = _without_own(lhs, {*rhs, *out}, x)
    rhs, y = _without_own(rhs, {*lhs, *out}, y)
    batch = [c for c in lhs if c in rhs and c in out]
    inner = [c for c in lhs if c in rhs and c not in out]
    left, right = [c for c in lhs if c not in rhs], [c for c in rhs if c not in lhs]

    def matrix(operand: Array, labels: str, rows: list[str], columns: list[str]) -> Array:
        operand = operand.transpose([labels.index(c) for c in (*batch, *rows, *columns)])
        shape = [math.prod(length[c] for c in group) for group in (rows, columns)]
        return operand.reshape([*operand.shape[: len(batch)], *shape])

    product = matmul(matrix(x, lhs, left, inner), matrix(y, rhs, inner, right))
    order = [*batch, *left, *right]
    return product.reshape([length[c] for c in order]).transpose([order.index(c) for c in out])


def rounded_in_blocks(x: Array, axis: int, block: int) -> Array:
    """x in steps of a 127th of the greatest magnitude of each block along an axis; the last may be short."""
    rows, size = np.moveaxis(x, axis, -1), x.shape[axis]
    whole = np.pad(rows, [(0, 0)] * (x.ndim - 1) + [(0, -size % block)])
    parts = whole.reshape(*rows.shape[:-1], whole.shape[-1] // block, block)
    step = np.abs(parts).max(axis=-1, keepdims=True, initial=0) / np.asarray(127, x.dtype)
    steps = np.rint(parts * np.where(step == 0, step, 1 / step))
    return np.moveaxis((steps * step).reshape(whole.shape)[..., :size], -1, axis)


def rounded_in_range(x: Array, counted: Array) -> Array:
    """x as DynamicQuantizeLinear rounds it, over the range of 0 and its elements that count."""
    low, high = (f(x, initial=0, where=counted) for f in (np.min, np.max))
    span = (high - low) / np.asarray(255, x.dtype)
    step = span if span else np.ones_like(span)
    zero = np.rint(np.clip(-low / step, 0, 255))
    return (np.clip(np.rint(x / step) + zero, 0, 255) - zero) * step


def _without_own(labels: str, others: set[str], x: Array) -> tuple[str, Array]:
    """x with its diagonals taken and the labels that appear nowhere else summed away."""
    kept = "".join(c for c in dict.fromkeys(labels) if c in others)
    if kept == labels:
        return labels, x
    return kept, np.einsum(f"{labels}->{kept}", widened(x)).astype(x.dtype)


def attention(op: ops.Attention, q: Array, k: Array, v: Array, *bias: Array) -> Array:
    """16-bit floats compute in float32."""
    wide = np.float64 if q.dtype == np.float64 else np.float32
    batch = "".join(c for c in op.q if c not in "qd")
    scores = einsum(op.q, op.k, f"{batch}qk", q.astype(wide), k.astype(wide), op.repeated) * wide(op.scale)
    if bias:
        scores = scores + bias[0].astype(wide)
    weights = np.exp(scores - np.max(scores, -1, keepdims=True, initial=-np.inf))
    weights = weights / np.sum(weights, -1, keepdims=True)
    if op.defined:
        weights = np.where(np.isnan(weights), 0, weights)
    return einsum(f"{batch}qk", op.v, op.out, weights, v.astype(wide), op.repeated).astype(q.dtype)


# Windows -----------------------------------------------------------------------------------------


def convolve(op: ops.Conv, x: Array, w: Array, pads: Sequence[int]) -> Array:
    """The sums of a Conv: one matrix product for each element of the kernel."""
    rank, groups, kernel = len(op.strides), op.groups, w.shape[2:]
    channels = w.shape[0] if op.transposed else w.shape[1] * groups
    if x.shape[1] != channels:
        raise InterpretError("dims_mismatch", f"{list(x.shape)} and {list(w.shape)}")
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, op.dilations, strict=True)]
    before, after = pads[:rank], pads[rank:]
    if op.transposed:
        sizes = zip(x.shape[2:], op.strides, extents, strict=True)
        grown = [max(0, (n - 1) * s + e) for n, s, e in sizes]
        out_channels, counts = w.shape[1] * groups, list(x.shape[2:])
    else:
        x = with_border(x, before, after)
        sizes = zip(x.shape[2:], op.strides, extents, strict=True)
        out_channels, counts = w.shape[0], [(n - e) // s + 1 for n, s, e in sizes]
        grown = counts
    if any(size < 0 for size in grown):
        raise InterpretError("invalid_value", list(grown))
    sums = np.zeros((x.shape[0], out_channels, *grown), x.dtype)
    for offset in np.ndindex(kernel):
        firsts = [o * d for o, d in zip(offset, op.dilations, strict=True)]
        ranges = zip(firsts, counts, op.strides, strict=True)
        window: Any = (..., *(slice(f, f + max(0, (n - 1) * s + 1), s) for f, n, s in ranges))
        weights = w[(slice(None), slice(None), *offset)]
        if op.transposed:
            sums[window] += _grouped_product(x, _transposed(weights, groups), groups)
        else:
            sums += _grouped_product(x[window], weights, groups)
    if not op.transposed:
        return sums
    extra = op.output_padding or (0,) * rank
    return with_border(sums, [-p for p in before], [e - p for e, p in zip(extra, after)])


def _transposed(w: Array, groups: int) -> Array:
    """[C, O/groups] -> [O, C/groups]"""
    channels, outputs = w.shape
    grouped = w.reshape(groups, channels // groups, outputs)
    return grouped.transpose(0, 2, 1).reshape(groups * outputs, channels // groups)


def _grouped_product(x: Array, w: Array, groups: int) -> Array:
    """out[n, o, ...] = sum over the channels c of o's group of w[o, c] * x[n, c, ...]"""
    columns = x.reshape(x.shape[0], groups, x.shape[1] // groups, math.prod(x.shape[2:]))
    rows = w.reshape(groups, w.shape[0] // groups, w.shape[1])
    product = rows * columns if w.shape[1] == 1 else matmul(rows, columns)
    return product.reshape(x.shape[0], w.shape[0], *x.shape[2:])


def with_border(x: Array, before: Sequence[int], after: Sequence[int]) -> Array:
    """x with zeros added around its last axes; negative numbers cut away."""
    lead = x.ndim - len(before)
    shape: list[int] = []
    read: list[Any] = []  # slices, which numpy's annotations take in no tuple of other things
    write: list[Any] = []
    for n, b, a in zip(x.shape[lead:], before, after, strict=True):
        first, last = max(0, -b), max(0, -b, n + min(0, a))
        shape.append(n + b + a)
        read.append(slice(first, last))
        write.append(slice(first + b, last + b))
    if any(size < 0 for size in shape):
        raise InterpretError("invalid_value", shape)
    result = np.zeros((*x.shape[:lead], *shape), x.dtype)
    if result.size:
        result[(..., *write)] = x[(..., *read)]
    return result


def pool(op: ops.Pool, x: Array, pads: Sequence[int], counts: Sequence[int]) -> Array:
    """Visits the elements of the kernel in order, for all windows at once."""
    rank, image, wide = len(op.kernel), x.shape[2:], widened(x)
    shape, extreme = (*x.shape[:2], *counts), op.kind in ("max", "argmax")
    best = np.full(shape, neutral("max", wide.dtype) if extreme else 0, wide.dtype)
    place, found = np.zeros(shape, np.int64), np.zeros(tuple(counts), np.int64)
    for offset in np.ndindex(op.kernel):
        values, inside, grid = wide, np.ones(tuple(counts), bool), []
        for a in range(rank):
            at = np.arange(counts[a]) * op.strides[a] - pads[a] + offset[a] * op.dilations[a]
            grid.append(at.reshape([-1 if axis == a else 1 for axis in range(rank)]))
            inside = inside & (grid[a] >= 0) & (grid[a] < image[a])
            at = np.clip(at, 0, max(image[a] - 1, 0))
            values = np.take(values if image[a] else np.insert(values, 0, 0, a + 2), at, a + 2)
        if extreme:
            greater = (values > best) | (np.isnan(values) & ~np.isnan(best))
            better = inside & (greater | (found == 0))
            best = np.where(better, values, best)
            place = np.where(better, _flat_place(grid, image, op.column_major), place)
        else:
            best = best + np.where(inside, values, np.zeros_like(values))
        found = found + inside
    if op.kind == "argmax":
        return place
    return (best / found if op.kind == "mean" else best).astype(x.dtype)


def overlap_add(op: ops.OverlapAdd, x: Array, kernel: Sequence[int], counts: Sequence[int]) -> Array:
    """Visits the elements of the kernel in order, for all blocks at once."""
    channels = x.shape[1] // math.prod(kernel)
    taps = widened(x).reshape(x.shape[0], channels, *kernel, *x.shape[2:])
    sums = np.zeros((x.shape[0], channels, *counts), taps.dtype)
    for offset in np.ndindex(*kernel):
        read: list[Any] = []
        write: list[Any] = []
        for a, (size, blocks, stride) in enumerate(zip(counts, x.shape[2:], op.strides, strict=True)):
            shift = offset[a] * op.dilations[a] - op.pads[a]
            low = max(0, -(shift // stride))
            high = max(low, min(blocks, -((shift - size) // stride)))
            read.append(slice(low, high))
            write.append(slice(low * stride + shift, high * stride + shift, stride))
        sums[(..., *write)] += taps[(slice(None), slice(None), *offset, *read)]
    return sums.astype(x.dtype)


def _flat_place(grid: Sequence[Array], image: Sequence[int], column_major: bool) -> Array:
    """The index of a position of the image in its flattened axes."""
    flat = np.zeros((), np.int64)
    for a in reversed(range(len(image))) if column_major else range(len(image)):
        flat = flat * image[a] + grid[a]
    return flat


# Recurrence --------------------------------------------------------------------------------------

_ACTIVATIONS = {
    "relu": lambda x, a, b: expr.OPERATIONS["max"].numpy(x, 0),
    "tanh": lambda x, a, b: np.tanh(x),
    "sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": lambda x, a, b: np.where(x >= 0, x, a * x),
    "thresholdedrelu": lambda x, a, b: np.where(x > a, x, 0),
    "scaledtanh": lambda x, a, b: a * np.tanh(b * x),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "elu": lambda x, a, b: np.where(x >= 0, x, a * np.expm1(x)),
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "softplus": lambda x, a, b: np.logaddexp(x, 0),
}


def recurrent(op: ops.Recurrent, gates: Array, r: Array, *extra: Array) -> list[Array]:
    """Steps beyond a sequence's length leave its state alone and give zero."""
    optional = dict(zip(op.operands, extra, strict=True))
    (steps, batch, *_), hidden = gates.shape, op.hidden
    wide = np.float64 if gates.dtype.itemsize > 2 else np.float32
    lengths = optional.get("lengths", np.full(batch, steps))
    if np.any((lengths < 0) | (lengths > steps)):
        raise InterpretError("index_out_of_range", list(lengths))

    def part(name: str, direction: int, shape: tuple[int, ...]) -> Array:
        known = name in optional
        return optional[name][direction].astype(wide) if known else np.zeros(shape, wide)

    y = np.zeros((steps, len(op.directions), batch, hidden), wide)
    states = np.zeros((2, len(op.directions), batch, hidden), wide)
    for d, direction in enumerate(op.directions):
        bias, peepholes = part("b", d, (hidden,)), part("p", d, (3 * hidden,))
        step = _Step(op, d, r[d].astype(wide), bias, peepholes)
        h, c = part("h", d, (batch, hidden)), part("c", d, (batch, hidden))
        for t in range(steps) if direction == "forward" else reversed(range(steps)):
            running = (t < lengths)[:, None]
            counted = (t <= lengths)[:, None]
            seen = rounded_in_range(h.astype(gates.dtype), counted).astype(wide) if op.rounded else h
            new_h, new_c = step(gates[t, :, d].astype(wide), seen, c)
            h, c = np.where(running, new_h, h), np.where(running, new_c, c)
            y[t, d] = np.where(running, new_h, 0)
        states[:, d] = h, c
    outputs = [y, *states] if op.kind == "lstm" else [y, states[0]]
    return [output.astype(gates.dtype) for output in outputs]


class _Step:
    """One step of one direction: (gates of the input, h, c) -> (h, c)."""

    def __init__(self, op: ops.Recurrent, direction: int, r: Array, bias: Array, peepholes: Array):
        self.op, self.r, self.bias, self.peepholes = op, r, bias, peepholes
        count = len(op.activations) // len(op.directions)
        self.activations = op.activations[direction * count : (direction + 1) * count]

    def __call__(self, gates: Array, h: Array, c: Array) -> tuple[Array, Array]:
        return getattr(self, self.op.kind)(gates, h, c)

    def activate(self, k: int, x: Array) -> Array:
        name, alpha, beta = self.activations[k]
        return _ACTIVATIONS[name.lower()](x, alpha, beta)

    def gate(self, k: int, x: Array) -> Array:
        clip = self.op.clip
        return self.activate(k, x if clip is None else np.clip(x, -clip, clip))

    def rnn(self, gates: Array, h: Array, c: Array) -> tuple[Array, Array]:
        return self.gate(0, gates + h @ self.r.T), c

    def gru(self, gates: Array, h: Array, c: Array) -> tuple[Array, Array]:
        (xz, xr, xh), (rz, rr, rh) = np.split(gates, 3, -1), np.split(self.r, 3)
        update, reset = self.gate(0, xz + h @ rz.T), self.gate(0, xr + h @ rr.T)
        if self.op.linear_before_reset:
            candidate = self.gate(1, xh + reset * (h @ rh.T + self.bias))
        else:
            candidate = self.gate(1, xh + (reset * h) @ rh.T)
        return (1 - update) * candidate + update * h, c

    def lstm(self, gates: Array, h: Array, c: Array) -> tuple[Array, Array]:
        i, o, f, g = np.split(gates + h @ self.r.T, 4, -1)
        pi, po, pf = np.split(self.peepholes, 3)
        i = self.gate(0, i + pi * c)
        f = 1 - i if self.op.input_forget else self.gate(0, f + pf * c)
        c = f * c + i * self.gate(1, g)
        return self.gate(0, o + po * c) * self.activate(2, c), c


# Movement ----------------------------------------------------------------------------------------


def strided(x: Array, starts: Sequence[int], counts: Sequence[int], steps: Sequence[int]) -> Array:
    """Along each axis, count elements from start, each step after the last."""
    taken = []
    for length, start, count, step in zip(x.shape, starts, counts, steps, strict=True):
        last = start + (count - 1) * step
        for place in (start, last) if count else ():
            if not 0 <= place < length:
                raise InterpretError("index_out_of_range", place)
        end = last + (1 if step > 0 else -1)
        taken.append(slice(start, None if end < 0 else end, step) if count else slice(0, 0))
    return x[tuple(taken)]


def pad(x: Array, mode: str, before: Sequence[int], after: Sequence[int], *value: Array) -> Array:
    if mode == "constant":
        sizes = list(zip(before, x.shape, after, strict=True))
        result = np.empty([b + n + a for b, n, a in sizes], x.dtype)
        result[...] = value[0].reshape(())
        result[tuple(slice(b, b + n) for b, n, _ in sizes)] = x
        return result
    for axis, (b, n, a) in enumerate(zip(before, x.shape, after, strict=True)):
        if n == 0 and b + a > 0:
            raise InterpretError("dims_mismatch", f"{list(x.shape)} has nothing to repeat")
        at = np.arange(-b, n + a)
        if mode == "reflect":
            at = np.abs(at) % max(2 * (n - 1), 1)
            at = np.minimum(at, 2 * (n - 1) - at)
        elif n:
            at = np.clip(at, 0, n - 1) if mode == "edge" else at % n
        x = np.take(x, at, axis) if b + a else x
    return x


def _checked(indices: Array, limits: int | Sequence[int]) -> Array:
    """indices below limits, negative ones counted from there. Limits: one, or one for each place
    of the last axis."""
    indices, ends = indices.astype(np.int64), np.asarray(limits, np.int64)
    outside = (indices < -ends) | (indices >= ends)
    if np.any(outside):
        raise InterpretError("index_out_of_range", int(indices[outside][0]))
    return np.where(indices < 0, indices + ends, indices)


def _place(form: str, axis: int, batch: int, x: Array, indices: Array) -> tuple[Array, ...]:
    """The numpy index into x[None] of what indices name in the form `elements` or `nd`."""
    kept = [a for a in range(x.ndim) if a != axis] if form == "elements" else range(batch)
    if any(indices.shape[a] > x.shape[a] for a in kept):
        raise InterpretError("dims_mismatch", f"{list(indices.shape)} in {list(x.shape)}")
    if form == "elements":
        grid: list[Array] = list(np.indices(indices.shape, sparse=True))
        grid[axis] = _checked(indices, x.shape[axis])
        return np.zeros(indices.shape, np.int64), *grid
    at = np.moveaxis(_checked(indices, x.shape[batch : batch + indices.shape[-1]]), -1, 0)
    inner = (1,) * (indices.ndim - 1 - batch)
    grids: Sequence[Array] = np.indices(x.shape[:batch], sparse=True)
    shared = [g.reshape(*g.shape, *inner) for g in grids]
    return np.zeros(indices.shape[:-1], np.int64), *shared, *at


def gather(op: ops.Gather, x: Array, indices: Array) -> Array:
    if op.form == "axis":
        return np.take(x, _checked(indices, x.shape[op.axis]), op.axis)
    return x[None][_place(op.form, op.axis, op.batch, x, indices)]


def scatter(op: ops.Scatter, x: Array, indices: Array, updates: Array) -> Array:
    """numpy writes and combines repeated places in order, as the op wants."""
    places = _place(op.form, op.axis, 0, x, indices)
    named = indices.shape
    if op.form == "nd":
        named = (*indices.shape[:-1], *x.shape[indices.shape[-1] :])
    if updates.shape != named:
        raise InterpretError("dims_mismatch", f"{list(updates.shape)} for {list(named)}")
    if op.reduction == "none":
        result = np.array(x)[None]
        result[places] = updates
        return result[0]
    result = np.array(widened(x))[None]
    combine = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[op.reduction]
    combine.at(result, places, widened(updates))
    return result[0].astype(x.dtype)


def cumulate(op: ops.Cumulate, x: Array) -> Array:
    wide, axis = widened(x), op.axis
    wide = np.flip(wide, axis) if op.reverse else wide
    if op.exclusive:
        first = np.full((*x.shape[:axis], 1, *x.shape[axis + 1 :]), op.kind == "prod", wide.dtype)
        wide = np.concatenate([first, wide], axis).take(range(x.shape[axis]), axis)
    total = (np.cumsum if op.kind == "sum" else np.cumprod)(wide, axis, dtype=wide.dtype)
    return (np.flip(total, axis) if op.reverse else total).astype(x.dtype)


def sorted_order(x: Array, axis: int, descending: bool) -> Array:
    """The int64 index in x of each element of the sorted x. numpy puts NaN last; a descending
    order is the ascending one of the flipped axis, flipped."""
    x = widened(x)
    if not descending:
        return np.argsort(x, axis, kind="stable").astype(np.int64)
    flipped = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - flipped, axis).astype(np.int64)


# Trees -------------------------------------------------------------------------------------------


def tree_ensemble(op: ops.TreeEnsemble, x: Array, *tables: Array) -> Array:
    """All rows go down one tree after the other. What sums round off is added up, too, and added last."""
    features, thresholds, lefts, rights, missing, roots, targets, weights = tables
    combine = {"sum": np.add, "min": np.minimum, "max": np.maximum}[op.aggregate]
    start = 0 if op.aggregate == "sum" else neutral(op.aggregate, x.dtype)
    result, rows = np.full((len(x), op.columns), start, np.float64), np.arange(len(x))
    rests = np.zeros_like(result)
    for root, target in zip(roots, targets, strict=True):
        places = np.full(len(x), root)
        while np.any(inside := places >= 0):
            nodes = places[inside]
            values = x[rows[inside], features[nodes]]
            left = (values <= thresholds[nodes]) | (np.isnan(values) & missing[nodes])
            places[inside] = np.where(left, lefts[nodes], rights[nodes])
        part, more = np.s_[:, target : target + weights.shape[1]], weights[~places]
        before, result[part] = result[part].copy(), combine(result[part], more)
        if op.aggregate == "sum":  # Knuth's sum of two
            of_more = result[part] - before
            rests[part] += (before - (result[part] - of_more)) + (more - of_more)
    return np.where(np.isnan(result + rests), result, result + rests).astype(x.dtype)
