"""Templates of random graphs: what moves elements, and arithmetic with shapes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from onnx import numpy_helper
from support.random_elementwise import either, joined
from support.random_graphs import Random, Term, Unfit
from support.random_sums import signed

ANY = ("float32", "float32", "float32", "float64", "float16", "int32", "int64", "uint8", "bool")


# Movement -----------------------------------------------------------------------------------------


def transpose(r: Random):
    x = r.pick(lambda t: t.rank >= 2, ANY)
    perm = list(range(x.rank))
    r.source.shuffle(perm)
    r.add("Transpose", [x], replace(x, dims=tuple(x.dims[p] for p in perm), known=None), perm=perm)


def reshape(r: Random):
    """Axes merged, split or moved against ones; one size may be -1 or 0."""
    x = r.pick(dtypes=ANY)
    dims = list(x.dims)
    for _ in range(r.integer(1, 3)):
        kind = r.integer(0, 2)
        if kind == 0 and len(dims) >= 2:
            at = r.integer(0, len(dims) - 2)
            dims[at : at + 2] = [tuple(a * b for a, b in zip(dims[at], dims[at + 1]))]
        elif kind == 1:
            dims.insert(r.integer(0, len(dims)), r.fixed(1))
        elif dims:
            at = r.integer(0, len(dims) - 1)
            divisors = [n for n in (2, 3, 4, 5, 7) if all(d % n == 0 for d in dims[at])]
            if divisors:
                n = r.choice(divisors)
                parts = [tuple(d // n for d in dims[at]), r.fixed(n)]
                r.source.shuffle(parts)
                dims[at : at + 1] = parts
    if len(dims) > 6:
        raise Unfit
    shape = r.per_run(dims)
    empty = any(0 in sizes for sizes in shape)
    if dims and r.chance(2) and not empty:
        at = r.integer(0, len(dims) - 1)
        for sizes in shape:
            sizes[at] = -1
    if not empty and r.chance(3):
        for at in range(min(len(dims), x.rank)):
            if dims[at] == x.dims[at] and r.chance(2) and all(s[at] > 0 for s in shape):
                for sizes in shape:
                    sizes[at] = 0
    attributes = {"allowzero": 1} if empty else {}
    r.add("Reshape", [x, r.numbers(shape)], replace(x, dims=tuple(dims), known=None), **attributes)


def flatten(r: Random):
    x = r.pick(dtypes=ANY)
    axis = r.integer(0, x.rank)
    merged = [
        tuple(math.prod(d[run] for d in part) for run in range(r.runs))
        for part in (x.dims[:axis], x.dims[axis:])
    ]
    r.add("Flatten", [x], replace(x, dims=tuple(merged), known=None), axis=axis)


def squeeze(r: Random):
    x = r.pick(dtypes=ANY)
    ones = [a for a, d in enumerate(x.dims) if set(d) == {1}]
    if ones and r.chance(2):
        axes = r.subset(ones) or ones
        dims = tuple(d for a, d in enumerate(x.dims) if a not in axes)
        r.add("Squeeze", [x, r.array(signed(r, x, axes))], replace(x, dims=dims, known=None))
        return
    at = r.integer(0, x.rank)
    dims = (*x.dims[:at], r.fixed(1), *x.dims[at:])
    r.add("Unsqueeze", [x, r.array([at])], replace(x, dims=dims, known=None))


def expand(r: Random):
    x = r.pick(dtypes=ANY)
    wide = [r.size() if set(d) == {1} and r.chance(2) else d for d in x.dims]
    shape = [r.fixed(1) if r.chance(4) else d for d in wide]
    shape = [d if set(x.dims[a]) == {1} or d == r.fixed(1) else wide[a] for a, d in enumerate(shape)]
    if r.chance(3):
        shape = [r.size(), *shape]
    dims = joined(x.dims, shape)
    r.add("Expand", [x, r.numbers(r.per_run(shape))], replace(x, dims=dims, known=None))


def tile(r: Random):
    x = r.pick(dtypes=ANY)
    times = [r.fixed(r.choice((1, 1, 2, 3, 0))) for _ in x.dims]
    if x.rank and r.chance(4):
        times[0] = r.size()
    dims = tuple(tuple(a * b for a, b in zip(d, t)) for d, t in zip(x.dims, times))
    r.add("Tile", [x, r.numbers(r.per_run(times))], replace(x, dims=dims, known=None))


def concat(r: Random):
    x = r.pick(lambda t: t.rank, ANY)
    axis = r.integer(0, x.rank - 1)
    parts, length = [x], x.dims[axis]
    for _ in range(r.integer(1, 3)):
        found = [
            t
            for t in r.terms
            if t.dtype == x.dtype
            and t.rank == x.rank
            and all(a == axis or d == e for a, (d, e) in enumerate(zip(t.dims, x.dims)))
        ]
        if not found or r.chance(2):
            found = [r.leaf(x.dtype, [r.size() if a == axis else d for a, d in enumerate(x.dims)])]
        parts.append(r.choice(found))
        length = tuple(a + b for a, b in zip(length, parts[-1].dims[axis]))
    dims = tuple(length if a == axis else d for a, d in enumerate(x.dims))
    r.source.shuffle(parts)
    r.add("Concat", parts, replace(x, dims=dims, **either(*parts)), axis=signed(r, x, [axis])[0])


def split(r: Random):
    x = r.pick(lambda t: t.rank, ANY)
    axis, count = r.integer(0, x.rank - 1), r.integer(1, 3)
    if r.chance(2):
        sizes = []
        rest = x.dims[axis]
        for _ in range(count - 1):
            most = r.integer(0, 3)
            sizes.append(tuple(min(n, most) if most else n // 2 for n in rest))
            rest = tuple(a - b for a, b in zip(rest, sizes[-1]))
        sizes.append(rest)
        inputs, attributes = [x, r.numbers(r.per_run(sizes))], {}
    else:
        each = tuple(-(-n // count) for n in x.dims[axis])
        sizes = [tuple(max(0, min(s, n - k * s)) for n, s in zip(x.dims[axis], each)) for k in range(count)]
        if any(n % count and sizes[-1][run] <= 0 for run, n in enumerate(x.dims[axis])):
            raise Unfit
        inputs, attributes = [x], {"num_outputs": count}
    outputs = [
        replace(x, dims=tuple(s if a == axis else d for a, d in enumerate(x.dims)), known=None) for s in sizes
    ]
    r.add("Split", inputs, *outputs, axis=signed(r, x, [axis])[0], **attributes)


def length(size: int, start: int, end: int, step: int) -> int:
    """Elements of Slice along an axis: Python's, but that a start before the axis is its first element."""
    return len(range(*slice(max(start, -size) if step < 0 else start, end, step).indices(size)))


def slice_(r: Random):
    x = r.pick(lambda t: t.rank, ANY)
    axes = r.subset(range(x.rank)) or [x.rank - 1]
    starts, ends, steps, dims = [], [], [], list(x.dims)
    for axis in axes:
        step = r.choice((1, 1, 1, 2, 3, -1, -2))
        greatest = np.iinfo(np.int64).max
        ends_at = (0, 1, 2, 5, -1, -2, -3, 100, -100, 2**31 - 1, greatest, -greatest - 1)
        start, end = r.choice(ends_at[:9]), r.choice(ends_at)
        if r.chance(3):
            start, end = (0, ends_at[-2]) if step > 0 else (-1, ends_at[-1])
        starts.append(r.fixed(start))
        ends.append(
            r.fixed(end)
            if not r.chance(4) or end > 2**30 or end < -100
            else tuple(min(n, 4) for n in dims[axis])
        )
        steps.append(r.fixed(step))
        dims[axis] = tuple(length(n, start, e, step) for n, e in zip(dims[axis], ends[-1]))
    inputs = [x, r.numbers(r.per_run(starts)), r.numbers(r.per_run(ends)), r.array(signed(r, x, axes))]
    if any(s[0] != 1 for s in steps) or r.chance(3):
        inputs.append(r.numbers(r.per_run(steps)))
    r.add("Slice", inputs, replace(x, dims=tuple(dims), known=None))


def pad(r: Random):
    x = r.pick(lambda t: t.rank, ("float32", "float32", "float64", "int32", "int64", "bool"))
    mode = r.choice(("constant", "constant", "edge", "reflect", "wrap"))
    amounts = []
    for d in [*x.dims, *x.dims]:
        most = 3 if mode in ("constant", "edge") else min(d) - 1 if mode == "reflect" else min(d)
        if mode != "constant" and 0 in d:
            raise Unfit
        amounts.append(r.fixed(r.integer(0, max(0, min(most, 3))) if r.chance(2) else 0))
    if mode == "constant" and r.chance(6):
        amounts[0] = r.fixed(-1)
    dims = tuple(tuple(n + a[0] + b[0] for n in d) for d, a, b in zip(x.dims, amounts, amounts[x.rank :]))
    if any(n < 0 for d in dims for n in d) or (amounts and amounts[0][0] < 0 in x.dims[0]):
        raise Unfit
    inputs, new = [x, r.numbers(r.per_run(amounts))], replace(x, dims=dims, known=None)
    if mode == "constant":
        new = replace(new, low=min(x.low, 0), high=max(x.high, 0))
        if r.chance(2):
            inputs.append(r.leaf(x.dtype, (), 0 if x.dtype == "bool" else -1, 1))
            new = replace(new, low=min(x.low, -1), high=max(x.high, 1), grid=max(x.grid, 3))
    r.add("Pad", inputs, new, mode=mode)


def blocks(r: Random):
    x = r.pick(lambda t: t.rank == 4, ("float32",))
    n, c, h, w = x.dims
    size = r.choice((2, 3))
    if r.chance(2) and all(k % size**2 == 0 for k in c):
        dims = (n, tuple(k // size**2 for k in c), *(tuple(k * size for k in d) for d in (h, w)))
        r.add("DepthToSpace", [x], replace(x, dims=dims), blocksize=size, mode=r.choice(("DCR", "CRD")))
    elif all(k % size == 0 for k in (*h, *w)):
        dims = (n, tuple(k * size**2 for k in c), *(tuple(k // size for k in d) for d in (h, w)))
        r.add("SpaceToDepth", [x], replace(x, dims=dims), blocksize=size)
    else:
        raise Unfit


def triangle(r: Random):
    x = r.pick(lambda t: t.rank >= 2, ("float32", "int64", "float64", "bool"))
    inputs = [x, r.leaf("int64", (), -2, 2)] if r.chance(2) else [x]
    r.add(
        "Trilu", inputs, replace(x, low=min(x.low, 0), high=max(x.high, 0), known=None), upper=r.integer(0, 1)
    )


# Shapes -------------------------------------------------------------------------------------------


def shape_of(r: Random):
    x = r.pick(dtypes=ANY)
    start = r.integer(0, x.rank)
    known = tuple(np.array(x.shape(run)[start:], np.int64) for run in range(r.runs))
    r.add("Shape", [x], Term("", "int64", (r.fixed(x.rank - start),), 0, 5000, known=known), start=start)


def shape_arithmetic(r: Random):
    x = r.pick(lambda t: t.known is not None and t.dtype == "int64")
    operator, other = r.choice(("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min")), r.integer(1, 4)
    function = {
        "Add": np.add,
        "Sub": np.subtract,
        "Mul": np.multiply,
        "Div": np.floor_divide,
        "Mod": np.mod,
        "Max": np.maximum,
        "Min": np.minimum,
    }[operator]
    if operator in ("Div", "Mod") and x.low < 0:
        raise Unfit
    known = tuple(function(k, other) for k in x.known)
    low, high = _extremes(known)
    r.add(operator, [x, r.array(other)], replace(x, low=low, high=high, known=known))


def _extremes(known) -> tuple[int, int]:
    flat = [int(v) for k in known for v in k.flat]
    return min(flat, default=0), max(flat, default=0)


def shape_part(r: Random):
    x = r.pick(lambda t: t.known is not None and t.rank == 1 and t.dims[0][0] > 0 and t.static)
    place = r.integer(0, x.dims[0][0] - 1)
    index = r.choice((r.array(place), r.array([place]), r.array([place - x.dims[0][0], 0])))
    known = tuple(np.asarray(k[[place] if index.rank else place]) for k in x.known)
    if index.rank and index.dims[0][0] == 2:
        known = tuple(k[[place, 0]] for k in x.known)
    low, high = _extremes(known)
    r.add("Gather", [x, index], replace(x, dims=index.dims, low=low, high=high, known=known))


def filled(r: Random):
    """A constant of a computed shape, a range, or an identity."""
    dims = r.shape()
    kind = r.integer(0, 2)
    if kind == 0:
        value = np.array([r.integer(-3, 3)], r.choice((np.float32, np.int64, np.float64)))
        r.add(
            "ConstantOfShape",
            [r.numbers(r.per_run(dims))],
            Term("", value.dtype.name, dims, float(value[0]), float(value[0])),
            value=numpy_helper.from_array(value),
        )
    elif kind == 1:
        size, delta = r.size(), r.choice((1, 2, -1))
        ends = r.numbers([[n * delta] for n in size])
        end = r.add("Squeeze", [ends, r.array([0])], Term("", "int64", (), -100, 100))
        r.add("Range", [r.array(0), end, r.array(delta)], Term("", "int64", (size,), -100, 100))
    else:
        x = r.pick(lambda t: t.rank == 2, ("float32", "int64"))
        r.add("EyeLike", [x], replace(x, low=0, high=1, grid=0, error=0, known=None), k=r.integer(-2, 2))


TEMPLATES = (
    transpose,
    transpose,
    reshape,
    reshape,
    flatten,
    squeeze,
    expand,
    tile,
    concat,
    split,
    slice_,
    slice_,
    pad,
    blocks,
    triangle,
    shape_of,
    shape_arithmetic,
    shape_part,
    filled,
)
