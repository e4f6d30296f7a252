"""Import rules of operators that move elements: reshapes, slices, pads, joins and repeats.

Every size may be symbolic or come from data; bounds are clamped by formulas (`dims.clamp`), which
vanish where known.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ...ir import dims, dtypes, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Value
from ..rule_builder import holds
from ..rules import onnx_op
from .common import (
    as_many,
    at_axes,
    checked,
    count_at,
    known_axes,
    number_of,
    one_of,
    require,
    require_least,
    scalar,
    with_ones,
    with_size,
    without,
    zeros,
)

# Shapes ------------------------------------------------------------------------------------------


@onnx_op(since=5, ranks={"shape": 1})
def Reshape(b, data, shape, *, allowzero=0):
    """A size 0 copies the input's unless allowzero; -1 is what remains. Sizes that are data may
    be either: what they mean is computed by the run."""
    if shape.rank != 1:
        raise ops.TypeMismatch(f"the shape is {shape.type} where a vector is needed")
    wanted = _partly_known(b, shape)
    if any(isinstance(d, int) and d < -1 for d in wanted):
        raise ops.TypeMismatch("a size is negative")
    # a symbolic size that is 0 in a run stays 0: else every such size would be a formula that equals no other
    copied = [k for k, d in enumerate(wanted) if d == 0 and not allowzero]
    wanted = [_copied(k, data) if k in copied else d for k, d in enumerate(wanted)]
    meant = _meant(b, data, b.as_data(shape), wanted, allowzero) if None in wanted else shape
    sizes = [b.dimension(b.take(meant, 0, k, 1), 0, "size") if d is None else d for k, d in enumerate(wanted)]
    rest = [k for k, d in enumerate(sizes) if isinstance(d, int) and d == -1]
    if len(rest) > 1:
        raise ops.TypeMismatch("more than one size is -1")
    for k in rest:  # sizes that are copied cancel, also where they are 0
        others = [j for j in range(len(sizes)) if j not in (k, *copied)]
        known = dims.product(sizes[j] for j in others)
        told = dims.product(sizes[j] for j in others if wanted[j] in (None, 0))
        require_least(b, told, 1, "a size is -1 beside a 0, where it could be any")
        whole = dims.product(d for j, d in enumerate(data.shape) if j not in copied)
        sizes[k] = dims.remaining(whole, known)
    return b.reshape(data, sizes)


def _partly_known(b: Builder, shape: Value) -> list[Dimension | None]:
    """The elements of a vector of sizes; None for data, which may be -1 or 0."""
    if shape.elements is not None or b.known(shape) is not None:
        return [None if dims.bounds(d)[0] is None else d for d in b.dimensions(shape)]
    node = shape.producer
    if node is not None and isinstance(node.op, ops.Concat) and shape.rank == 1:
        return [d for part in node.inputs for d in _partly_known(b, part)]
    return [None] * number_of(b, shape, "sizes")


def _copied(axis: int, data: Value) -> Dimension:
    if axis >= data.rank:
        raise ops.TypeMismatch(f"size {axis} is 0, which copies an axis that {data.type} lacks")
    return data.shape[axis]


def _meant(
    b: Builder, data: Value, shape: Value, wanted: Sequence[Dimension | None], allowzero: int
) -> Value:
    """What the sizes of a Reshape's shape that the run tells, None in `wanted`, stand for; several -1 stay.
    The run fails where a 0 copies an axis that data lacks, or a -1 could be any beside a 0."""
    if not allowzero:
        own = [*data.shape, *[-1] * len(wanted)][: len(wanted)]
        lacking = None in wanted[data.rank :]

        def copied(size: Expr, axis: Expr) -> Expr:
            found = expr.check(size._with("ne", 0) | (axis >= 0), size, "invalid_value") if lacking else size
            return expr.where(found.equals(0), axis, found)

        shape = b.map(shape, b.elements(own), copied)
    if -1 in wanted:
        return shape
    known = b.reduce("prod", shape, [0], False, lambda s: expr.where(s.equals(-1), 1, s))
    several = wanted.count(None) > 1
    rests = [b.reduce("sum", shape, [0], False, lambda s: s.equals(-1).cast("int64"))] if several else []
    whole = expr.size(data.tensor.count)

    def meant(size: Expr, known: Expr, *rests: Expr) -> Expr:
        rest = size.equals(-1)
        found = expr.check(size._with("ne", -1) | known._with("ne", 0), size, "invalid_value")
        for count in rests:
            rest = rest & count.equals(1)
        return expr.where(rest, whole / known, found)

    return b.map(shape, known, *rests, meant)


@onnx_op(since=1, name="Reshape")
def _reshape_1(b, data, *, shape=None, consumed_inputs=None):
    return Reshape(b, data, b.constant(np.array(shape or (), np.int64)))


@onnx_op(since=1)
def Flatten(b, input, *, axis=1):
    """[d0, ..., dn] as a matrix whose rows are the axes before `axis`."""
    if not -input.rank <= axis <= input.rank:
        raise ops.TypeMismatch(f"axis {axis} is outside a tensor of {input.rank} axes")
    axis = axis + input.rank if axis < 0 else axis
    return b.reshape(input, (dims.product(input.shape[:axis]), dims.product(input.shape[axis:])))


@onnx_op(since=13, ranks={"axes": "<=1"})
def Squeeze(b, data, axes=None):
    """Without axes every axis of size 1 goes, which may be for the run to tell."""
    if axes is None:
        return b.reshape(data, [d for d in data.shape if not holds(b, dims.compare("eq", d, 1))])
    known = known_axes(b, axes, data.rank, repeated=True) or ()
    for axis in known:
        if dims.equal(data.shape[axis], 1) is False:
            raise ops.TypeMismatch(f"axis {axis} of {data.type} is not of size 1")
    require(b, [(data.shape[axis], 1) for axis in known], "an axis")
    return b.reshape(data, without(b, data.shape, axes))


@onnx_op(since=1, name="Squeeze")
def _squeeze_1(b, data, *, axes=None):
    return Squeeze(b, data, axes)


@onnx_op(since=13, ranks={"axes": "<=1"})
def Unsqueeze(b, data, axes):
    return b.reshape(data, with_ones(b, data.shape, axes))


@onnx_op(since=1, name="Unsqueeze")
def _unsqueeze_1(b, data, *, axes):
    return Unsqueeze(b, data, axes)


@onnx_op(since=1)
def Transpose(b, data, *, perm=None):
    return b.transpose(data, range(data.rank)[::-1] if perm is None else perm)


@onnx_op(since=1)
def Shape(b, data, *, start=0, end=None):
    shape = b.shape(data)
    low, high = (
        min(max(k + data.rank if k < 0 else k, 0), data.rank)
        for k in (start, data.rank if end is None else end)
    )
    return b.take(shape, 0, low, max(high - low, 0))


@onnx_op(since=1)
def Size(b, data):
    return b.elements(np.array(data.tensor.count, object))


#: "To the end" of an axis of unknown size is written as the greatest int32 or more (the
#: specification of Slice).
_ENDLESS = (1 << 31) - 1

#: Farther than any axis is long.
_FAR = 1 << 61

# Joins and cuts ----------------------------------------------------------------------------------


@onnx_op(since=4, ranks={"*": "n"})
def Concat(b, *inputs, axis):
    if not inputs:
        raise ops.TypeMismatch("it has no inputs")
    return b.concat(inputs, axis)


@onnx_op(since=1, name="Concat", ranks={"*": "n"})
def _concat_1(b, *inputs, axis=None):
    return Concat(b, *inputs, axis=1 if axis is None else axis)


@onnx_op(since=13, ranks={"split": 1})
def Split(b, input, split=None, *, axis=0, num_outputs=None):
    """Parts of the sizes given, or as many equal ones as there are outputs, the last of which
    may be smaller."""
    axis, count = b.axis(axis, input.rank), len(b.site.wanted)
    length = input.shape[axis]
    if split is not None and num_outputs is not None:
        raise ops.TypeMismatch("it has both sizes of parts and num_outputs")
    if split is not None:
        return _parts(b, input, axis, _split_sizes(b, split, length, count))
    if num_outputs is not None and num_outputs != count:
        raise ops.TypeMismatch(f"num_outputs is {num_outputs} where it has {count} outputs")
    if num_outputs is None:
        if isinstance(length, int) and length % count:
            raise ops.TypeMismatch(f"{length} elements cannot be split into {count} equal parts")
        return _parts(b, input, axis, [dims.floor_divide(length, count)] * count)
    size = dims.ceil_divide(length, count)
    return _parts(b, input, axis, [dims.clamp(length - k * size, 0, size) for k in range(count)])


def _split_sizes(b: Builder, split: Value | Sequence[int], length: Dimension, count: int) -> list[Dimension]:
    if isinstance(split, Value):
        sizes = b.dimensions(as_many(b, split, count), 0, "split")
    else:
        sizes = list[Dimension](split)
    if len(sizes) != count:
        raise ops.TypeMismatch(f"{len(sizes)} sizes are given for {count} outputs")
    if any(isinstance(s, int) and s < 0 for s in sizes):
        raise ops.TypeMismatch("a size of a part is negative")
    if dims.equal(sum(sizes), length) is False:
        raise ops.TypeMismatch(f"the parts have {sum(sizes)} elements together where there are {length}")
    return sizes


def _parts(b: Builder, x: Value, axis: int, sizes: Sequence[Dimension]) -> tuple[Value, ...]:
    """x cut into parts; the last is what remains, which must have the size given for it."""
    start: Dimension = 0
    parts = []
    for size in sizes[:-1]:
        parts.append(b.take(x, axis, start, size))
        start = b.short(start + size)
    rest = b.take(x, axis, start, x.shape[axis] - start)
    require(b, [(rest.shape[axis], sizes[-1])], "the last part")
    return (*parts, with_size(b, rest, axis, sizes[-1]))


@onnx_op(since=2, name="Split")
def _split_2(b, input, *, split=None, axis=0):
    return Split(b, input, split, axis=axis)


@onnx_op(since=1, name="Split", ranks={"split": 1})
def _split_1(b, input, split=None, *, axis=None):
    """The sizes are an attribute or an input of the same name, which has the type of what is split."""
    return Split(b, input, b.cast(split, "int64") if isinstance(split, Value) else split, axis=axis or 0)


@onnx_op(since=10, ranks={"starts": 1, "ends": 1, "axes": 1, "steps": 1})
def Slice(b, data, starts, ends, axes=None, steps=None):
    """x[start:end:step] along some axes, with Python's meaning of negative numbers and of those
    out of range."""
    if steps is not None and steps.elements is None:
        steps = checked(b, steps, lambda s: s._with("ne", 0), "invalid_value", "a step is {}")
    if dims.equal(ends.tensor.count, starts.tensor.count) is False:
        raise ops.TypeMismatch(f"it has {starts.tensor.count} starts and {ends.tensor.count} ends")
    count = count_at(b, starts, axes, data.rank)
    starts, ends = as_many(b, starts, count), as_many(b, ends, count)
    steps = None if steps is None else as_many(b, steps, count)
    first = at_axes(b, _countable(b, starts), axes, data.rank, 0)
    last = at_axes(b, _countable(b, ends), axes, data.rank, _FAR)
    by = [1] * data.rank if steps is None else at_axes(b, steps, axes, data.rank, 1)
    if any(isinstance(s, int) and s == 0 for s in by):
        raise ops.TypeMismatch("a step is 0")
    reach = [_reach(axis, data) for axis in range(data.rank)]
    last = [_FAR if isinstance(end, int) and end >= far else end for end, far in zip(last, reach)]
    by = [max(-far, min(step, far)) if isinstance(step, int) else step for step, far in zip(by, reach)]
    ranges = (slice_range(*place) for place in zip(first, last, by, data.shape))
    return b.slice(data, *(zip(*ranges) if data.rank else ((), ())))


def _countable(b: Builder, places: Value) -> Value:
    """Known places of which the farthest are near enough for formulas to add and subtract them."""
    data = b.known(places)
    return places if data is None else b.constant(np.clip(data.astype(np.int64), -_FAR, _FAR))


def _reach(axis: int, x: Value) -> int:
    """So many places along an axis that x, which has them, could not be in memory."""
    others = dims.product(d for a, d in enumerate(x.shape) if a != axis and isinstance(d, int))
    return -(-(1 << 48) // max(others * dtypes.itemsize(x.dtype), 1))


def slice_range(
    start: Dimension, end: Dimension, step: Dimension, length: Dimension
) -> tuple[Dimension, ...]:
    """Python's slice(start, end, step).indices(length) as (start, number of elements, step), but that a start
    before the axis is its first element where Python going backward finds nothing."""
    backward = dims.compare("lt", step, 0)
    low, high = _bound(start, length, backward, 0), _bound(end, length, backward, -backward)
    if isinstance(backward, int):
        sign = 1 - 2 * backward
        count = dims.ceil_divide(sign * (high - low), sign * step)
        first, last = (length - 1, -1) if backward else (0, length)
        return low, count if low == first or high == last else dims.maximum(count, 0), step
    return low, dims.maximum(-dims.floor_divide(low - high, step), 0), step


def _bound(place: Dimension, length: Dimension, backward: Dimension, low: Dimension) -> Dimension:
    """A slice's start or end inside an axis, from low on, a negative one counted from its end; the length is
    never negative."""
    high = length - backward
    within = (
        partial(dims.minimum, high) if low == 0 and backward == 1 else lambda least: least
    )  # none of nothing
    if isinstance(place, int) and isinstance(backward, int) and not isinstance(length, int):
        if abs(place) >= _ENDLESS:
            return high if place > 0 else within(low)
        if place >= 0:
            return dims.minimum(place, high)
        return high if place == -1 and backward else within(dims.maximum(length + place, low))
    if dims.at_least(place, 0) and isinstance(backward, int):
        return dims.minimum(place, high)
    return dims.clamp(place + length * dims.compare("lt", place, 0), low, high)


@onnx_op(since=1, name="Slice")
def _slice_1(b, data, *, starts, ends, axes=None):
    return Slice(
        b, data, *(None if v is None else b.constant(np.array(v, np.int64)) for v in (starts, ends, axes))
    )


# Pads --------------------------------------------------------------------------------------------


@onnx_op(since=11, ranks={"pads": "<=2", "constant_value": "<=1", "axes": 1})
def Pad(b, data, pads, constant_value=None, axes=None, *, mode="constant"):
    """Negative pads cut elements away, and with constant padding also what the other side adds."""
    one_of(mode, ("constant", "edge", "reflect", "wrap"), "mode")
    count = data.rank if axes is None else axes.tensor.count
    if dims.equal(pads.tensor.count, 2 * count) is False:
        raise ops.TypeMismatch(f"{pads.tensor.count} pads are given for {count} axes")
    require(b, [(pads.tensor.count, 2 * count)], "the pads")
    pads = b.reshape(pads, (2 * count,))
    before, after = (at_axes(b, b.take(pads, 0, k * count, count), axes, data.rank, 0) for k in range(2))
    return padded(b, data, before, after, mode, constant_value)


def padded(
    b: Builder,
    x: Value,
    before: Sequence[Dimension],
    after: Sequence[Dimension],
    mode: ops.PadMode = "constant",
    value: Value | None = None,
) -> Value:
    """x with elements added on each axis, or cut away where the amounts are negative."""
    beyond = [(_excess(d, p, q, mode), _excess(d, q, p, mode)) for d, p, q in zip(x.shape, before, after)]
    cut = [(dims.maximum(-p, 0) - u, dims.maximum(-q, 0) - v) for p, q, (u, v) in zip(before, after, beyond)]
    added = [
        tuple(dims.maximum(p, 0) - v for p, (_, v) in zip(before, beyond)),
        tuple(dims.maximum(q, 0) - u for q, (u, _) in zip(after, beyond)),
    ]
    sizes = [d - p - q for d, (p, q) in zip(x.shape, cut)]
    if any(isinstance(d, int) and d < 0 for d in (*sizes, *added[0], *added[1])):
        padding = " and its padding have" if mode == "constant" else " has"
        raise ops.TypeMismatch(f"the negative pads cut more away than {x.type}{padding}")
    x = b.slice(x, [p for p, _ in cut], sizes)
    if not any(isinstance(p, dims.Dim) or p for part in added for p in part):
        return x
    if mode != "constant":
        for size, *amounts in zip(x.shape, *added):
            _require_inside(mode, size, amounts)
        return b.emit(ops.Pad(mode, *added), x)[0]
    fill = zeros(b, x.dtype, ()) if value is None else scalar(b, value, "pad value")
    return b.emit(ops.Pad(mode, *added), x, fill)[0]


def _excess(size: Dimension, pad: Dimension, other: Dimension, mode: ops.PadMode) -> Dimension:
    """How many elements a negative pad cuts beyond those of its axis: of what the other side adds."""
    if mode != "constant" or dims.at_least(-other, 0):
        return 0
    return dims.maximum(-pad - size, 0)


def _require_inside(mode: str, size: Dimension, amounts: Sequence[Dimension]) -> None:
    """Refuses pads that need more elements of an axis than it is known to have."""
    for amount in amounts:
        most = {"reflect": size - 1, "wrap": size, "edge": amount if size != 0 else 0}[mode]
        if dims.less(dims.maximum(most, 0), amount):
            raise ops.TypeMismatch(f"an axis of {size} elements has not the {amount} to pad with by {mode}")


@onnx_op(since=2, name="Pad")
def _pad_2(b, data, *, pads, mode="constant", value=0.0):
    return Pad(b, data, b.constant(np.array(pads, np.int64)), b.constant(value, data.dtype), mode=mode)


@onnx_op(since=1, name="Pad")
def _pad_1(b, data, *, paddings, mode="constant", value=0.0):
    return _pad_2(b, data, pads=paddings, mode=mode, value=value)


@onnx_op(since=18, ranks={"shape": 1})
def CenterCropPad(b, input_data, shape, *, axes=None):
    """The middle of what is too long, and zeros around what is too short."""
    chosen = [b.axis(a, input_data.rank) for a in (range(input_data.rank) if axes is None else axes)]
    target = b.dimensions(as_many(b, shape, len(chosen)), 0, "size")
    if len(target) != len(chosen):
        raise ops.TypeMismatch(f"{len(target)} sizes are given for {len(chosen)} axes")
    starts: list[Dimension] = [0] * input_data.rank
    before, after, sizes = list(starts), list(starts), list(input_data.shape)
    for axis, size in zip(chosen, target):
        length = input_data.shape[axis]
        sizes[axis] = dims.minimum(length, size)
        starts[axis] = dims.floor_divide(length - sizes[axis], 2)
        before[axis] = dims.floor_divide(size - sizes[axis], 2)
        after[axis] = size - sizes[axis] - before[axis]
    return padded(b, b.slice(input_data, starts, sizes), before, after)


# Repeats -----------------------------------------------------------------------------------------


def _asked(b: Builder, x: Value, size: Dimension, own: Dimension) -> Value:
    """x; the run fails where a size that is asked for is neither x's own nor 1: the result, which is as large
    as x, does not tell it."""
    asked = expr.size(size)
    says = f"the size {{}} is asked for where there are {own}"
    fits = expr.check(asked.equals(expr.size(own)) | asked.equals(1), asked, "dims_mismatch", says) >= 0
    return b.map(x, lambda e: expr.check(fits, e, "dims_mismatch"))


@onnx_op(since=8, ranks={"shape": 1})
def Expand(b, input, shape):
    sizes = b.dimensions(shape, 0, "size")
    if any(dims.less(d, 0) for d in sizes):
        raise ops.TypeMismatch("a size is negative")
    target = ops.broadcast_shapes(input.shape, sizes)
    for size, own, whole in zip(sizes[::-1], input.shape[::-1], target[::-1]):
        if whole == own and size != 1 and not dims.equal(size, own):
            input = _asked(b, input, size, own)
    return b.broadcast(input, target)


@onnx_op(since=6, ranks={"repeats": 1})
def Tile(b, input, repeats):
    if repeats.rank != 1:
        raise ops.TypeMismatch(f"the repeats are {repeats.type} where a vector is needed")
    times = b.dimensions(as_many(b, repeats, input.rank), 0, "repeats")
    if len(times) != input.rank:
        raise ops.TypeMismatch(f"{len(times)} repeats are given for {input.rank} axes")
    if any(isinstance(t, int) and t < 0 for t in times):
        raise ops.TypeMismatch(
            f"the number of repeats {min(t for t in times if isinstance(t, int))} is negative"
        )
    return tiled(b, input, times)


def tiled(b: Builder, x: Value, times: Sequence[Dimension]) -> Value:
    """x repeated along each axis: an axis of size 1 before it, broadcast and merged into it."""
    apart = [(1, d) if t != 1 else (d,) for d, t in zip(x.shape, times)]
    repeated = [(t, d) if t != 1 else (d,) for d, t in zip(x.shape, times)]
    flat = [[d for part in parts for d in part] for parts in (apart, repeated)]
    whole = b.reshape(x, flat[0])
    whole = whole if whole.shape == tuple(flat[1]) else b.emit(ops.Broadcast(tuple(flat[1])), whole)[0]
    return b.reshape(whole, [d * t for d, t in zip(x.shape, times)])


@onnx_op(since=1, name="Tile", ranks={"tiles": "<=1", "axis": "<=1"})
def _tile_1(b, input, tiles, axis):
    times = at_axes(b, b.cast(tiles, "int64"), b.cast(axis, "int64"), input.rank, 1)
    return tiled(b, input, times)


# Blocks ------------------------------------------------------------------------------------------


@onnx_op(since=1)
def DepthToSpace(b, input, *, blocksize, mode="DCR"):
    """Channels become blocks of pixels; `mode` says whether the block's place or the channel is
    outermost in depth."""
    one_of(mode, ("DCR", "CRD"), "mode")
    n, depth, h, w = _image(input, blocksize)
    channels = _exactly(depth, blocksize**2)
    if mode == "DCR":
        parts, order = (n, blocksize, blocksize, channels, h, w), (0, 3, 4, 1, 5, 2)
    else:
        parts, order = (n, channels, blocksize, blocksize, h, w), (0, 1, 4, 2, 5, 3)
    return b.reshape(b.transpose(b.reshape(input, parts), order), (n, channels, h * blocksize, w * blocksize))


@onnx_op(since=1)
def SpaceToDepth(b, input, *, blocksize, mode="DCR"):
    one_of(mode, ("DCR", "CRD"), "mode")
    n, channels, h, w = _image(input, blocksize)
    rows, columns = _exactly(h, blocksize), _exactly(w, blocksize)
    parts = b.reshape(input, (n, channels, rows, blocksize, columns, blocksize))
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return b.reshape(b.transpose(parts, order), (n, channels * blocksize**2, rows, columns))


def _image(x: Value, blocksize: int) -> tuple[Dimension, ...]:
    if x.rank != 4 or blocksize < 1:
        raise ops.TypeMismatch(f"blocks of {blocksize} of {x.type}, where a batch of images is needed")
    return x.shape


def _exactly(size: Dimension, divisor: int) -> Dimension:
    if isinstance(size, int) and size % divisor:
        raise ops.TypeMismatch(f"{size} is no multiple of {divisor}")
    return dims.floor_divide(size, divisor)
