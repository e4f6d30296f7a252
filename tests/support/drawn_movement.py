"""Draws of operators that move, join, cut, gather and sort."""

from __future__ import annotations

from math import prod

import numpy as np

from .drawn import MOST, TEXT, Data, Draw, Unfit
from .drawn_elementwise import broadcast


def transpose(d: Draw) -> None:
    shape = d.shape()
    d.take("data", shape)
    if d.chance() and shape:
        order = list(range(len(shape)))
        d.source.shuffle(order)
        d.attributes["perm"] = order


def reshape(d: Draw) -> None:
    shape = d.shape(d.integer(1, 4))
    d.take("data", shape)
    count, wanted = prod(shape), []
    while count > 1 and len(wanted) < 3:
        factor = d.choice([n for n in (1, 2, 3, 5, 7, 11, 13, 17) if count % n == 0])
        wanted.append(factor)
        count //= factor
    wanted.append(count)
    if 0 not in shape and d.chance():
        wanted[d.integer(0, len(wanted) - 1)] = -1
    elif shape[0] == wanted[0] and d.chance():
        wanted[0] = 0
    if 0 in shape:
        wanted = shape[::-1]
        if d.version < 14:
            raise Unfit
        d.attributes["allowzero"] = 1
    d.give("shape", wanted)


def squeeze(d: Draw) -> None:
    shape = [n if d.chance() else 1 for n in d.shape(d.integer(1, 4))]
    d.take("data", shape)
    ones = [k for k, n in enumerate(shape) if n == 1]
    if (axes := [k for k in ones if d.chance()]) or d.chance():
        axes = axes or ones
        if axes:
            d.give("axes", [k - len(shape) if d.chance() and d.version >= 11 else k for k in axes])


def unsqueeze(d: Draw) -> None:
    shape = d.shape(most_rank=3)
    d.take("data", shape)
    rank = len(shape) + d.integer(1, 2)
    axes = sorted(d.source.sample(range(rank), rank - len(shape)))
    d.give("axes", [k - rank if d.chance() and d.version >= 11 else k for k in axes])


def flatten(d: Draw) -> None:
    shape = d.shape(d.integer(1, 4))
    d.take("input", shape)
    d.attributes["axis"] = d.integer(-len(shape) if d.version >= 11 else 0, len(shape))


def slice_of(d: Draw) -> None:
    shape = d.shape(d.integer(1, 4))
    d.take("data", shape)
    axes = d.axes(len(shape), 1)
    axes = [a % len(shape) for a in axes] if d.version < 10 else axes
    ends = [d.choice((1, 2, -1, 100, 5, -2, 0)) for _ in axes]
    d.give("starts", [d.choice((0, 1, -1, -3, 2, 100)) for _ in axes])
    d.give("ends", ends)
    if "steps" in [i.name for i in d.schema.inputs]:
        d.give("axes", axes)
        if d.chance():
            d.give("steps", [d.choice((1, 2, 3, -1, -2)) for _ in axes])
    elif d.chance() or len(axes) < len(shape):
        d.give("axes", axes)


def split(d: Draw) -> None:
    shape = d.shape(d.integer(1, 3))
    axis = d.axis(len(shape))
    d.take("input", shape)
    d.attributes["axis"] = axis
    d.outputs = d.integer(1, 3)
    if "num_outputs" in d.schema.attributes and d.chance():
        d.attributes["num_outputs"] = d.outputs
        if shape[axis] < d.outputs:
            raise Unfit
        return
    parts = [shape[axis] // d.outputs] * d.outputs
    if d.chance() or shape[axis] % d.outputs or d.version >= 18:
        parts[0] += shape[axis] - sum(parts)
        d.give("split", parts)
        if d.version == 1:
            d.inputs.pop("split", None)
            d.attributes["split"] = parts


def tile(d: Draw) -> None:
    shape = d.shape(d.integer(1, 3))
    x = d.take("input", shape)
    if d.version == 1:
        d.inputs["tiles"], d.inputs["axis"] = np.asarray(2, x.dtype), np.asarray(d.axis(len(shape)), x.dtype)
        return
    times = [d.choice((1, 2, 0, 3)) for _ in shape]
    if prod(shape) * prod(times) > MOST:
        raise Unfit
    d.give("repeats", times)


def expand(d: Draw) -> None:
    shape = d.shape(most_rank=3)
    d.take("input", broadcast(d, shape))
    d.give("shape", np.asarray(shape, np.int64))


def pad(d: Draw) -> None:
    shape = d.shape(d.integer(1, 3), least=1)
    d.take("data", shape)
    mode = d.choice(("constant", "reflect", "edge", *(("wrap",) if d.version >= 19 else ())))
    d.attributes["mode"] = mode
    axes = list(range(len(shape)))
    if d.is_input("axes") and d.chance():
        axes = [k for k in axes if d.chance()] or axes
        d.give("axes", np.asarray(axes, d.dtype("axes")))
    room = [min(3, shape[k] - 1) if mode != "constant" else 3 for k in axes]
    least = [-1 if mode == "constant" and shape[k] > 2 else 0 for k in axes]
    pads = [d.integer(low, high) for _ in range(2) for low, high in zip(least, room)]
    d.give("paddings" if d.version == 1 else "pads", pads)
    if "value" in d.schema.attributes:
        d.maybe("value", 0.5)
    elif mode == "constant":
        d.optional("constant_value", ())


def concat(d: Draw) -> None:
    shape = d.shape(d.integer(1, 4))
    dtype, axis = d.dtype("inputs"), d.axis(len(shape))
    if d.version > 1 or axis != 1:
        d.attributes["axis"] = axis
    for _ in range(d.integer(1, 3)):
        part = list(shape)
        part[axis] = d.choice((1, 3, 0, 2, 8))
        d.variadic.append(d.array(dtype, part))


def gather(d: Draw) -> None:
    shape = d.shape(d.integer(1, 4), least=1)
    axis = d.axis(len(shape))
    d.take("data", shape)
    d.maybe("axis", axis)
    size = shape[d.attributes.get("axis", 0)]
    d.take("indices", d.shape(most_rank=2), -size if d.version >= 11 else 0, size - 1)


def gather_elements(d: Draw) -> None:
    shape = d.shape(d.integer(1, 3), least=1)
    axis = d.axis(len(shape))
    d.take("data", shape)
    d.attributes["axis"] = axis
    indices = [d.integer(0, n) for n in shape]
    indices[axis] = d.size()
    d.take("indices", indices, -shape[axis], shape[axis] - 1)


def _places(d: Draw, shape: list[int], depth: int, count: list[int], distinct: bool) -> np.ndarray:
    """Indices of depth numbers each into the first axes."""
    if not distinct:
        columns = [d.data.integers(-n, n, count) for n in shape[:depth]]
    else:
        there = prod(shape[:depth])
        if there < prod(count):
            raise Unfit
        chosen = d.data.permutation(there)[: prod(count)].reshape(count)
        columns = list(np.unravel_index(chosen, shape[:depth]))
    return np.stack(columns, -1).astype(np.int64)


def gather_nd(d: Draw) -> None:
    shape = d.shape(d.integer(1, 4), least=1)
    batch = d.integer(0, len(shape) - 1) if "batch_dims" in d.schema.attributes else 0
    d.attributes |= {"batch_dims": batch} if batch else {}
    d.take("data", shape)
    depth = d.integer(1, len(shape) - batch)
    count = [*shape[:batch], *d.shape(most_rank=2)]
    d.inputs["indices"] = _places(d, shape[batch:], depth, count, False)


def scatter_elements(d: Draw) -> None:
    shape = d.shape(d.integer(1, 3), least=1)
    axis = d.axis(len(shape))
    d.attributes["axis"] = axis
    d.maybe("reduction", *("none", "add", "mul", *(("min", "max") if d.version >= 18 else ())))
    among = (lambda t: t.kind in "fiu") if d.attributes.get("reduction", "none") != "none" else lambda _: True
    d.take("data", shape, among=among)
    counts = [d.integer(1, n) for n in shape]
    order = np.argsort(d.data.random(shape), axis=axis)
    places = order[tuple(slice(n) for n in counts)]
    negative = d.version >= 11 and d.chance()
    d.inputs["indices"] = (places - (shape[axis] if negative else 0)).astype(d.dtype("indices"))
    d.take("updates", counts, among=among)


def scatter_nd(d: Draw) -> None:
    shape = d.shape(d.integer(1, 3), least=1)
    depth = d.integer(1, len(shape))
    d.maybe("reduction", *("none", "add", "mul", *(("min", "max") if d.version >= 18 else ())))
    adds = d.attributes.get("reduction", "none") != "none"
    among = (lambda t: t.kind in "fiu") if adds else lambda _: True
    d.take("data", shape, among=among)
    count = [d.integer(0, min(4, prod(shape[:depth])))]
    d.inputs["indices"] = _places(d, shape, depth, count, not adds)
    d.take("updates", [*count, *shape[depth:]], among=among)


def tensor_scatter(d: Draw) -> None:
    batch, heads, room, width = d.size(1), d.choice((1, 3)), d.size(1), d.choice((1, 5))
    new = d.integer(1, room)
    d.take("past_cache", [batch, heads, room, width])
    d.take("update", [batch, heads, new, width])
    d.maybe("mode", "linear", "circular")
    most = room - 1 if d.attributes.get("mode") == "circular" else room - new
    if d.chance():
        d.inputs["write_indices"] = d.data.integers(0, most + 1, batch)


def depth_to_space(d: Draw) -> None:
    block = d.choice((2, 1, 3))
    d.attributes["blocksize"] = block
    batch, channels, height, width = (d.choice((1, 2, 3, 5)) for _ in range(4))
    d.maybe("mode", "DCR", "CRD")
    deep = d.schema.name == "DepthToSpace"
    shape = [channels * block * block, height, width] if deep else [channels, height * block, width * block]
    d.take("input", [batch, *shape])


def compress(d: Draw) -> None:
    shape = d.shape(d.integer(1, 3), least=1)
    d.take("input", shape)
    axis = d.axis(len(shape)) if d.chance() else None
    d.attributes |= {} if axis is None else {"axis": axis}
    d.take("condition", [d.integer(1, prod(shape) if axis is None else shape[axis])])


def top_k(d: Draw) -> None:
    shape = d.shape(d.integer(1, 3))
    axis = d.axis(len(shape))
    k = d.integer(0 if d.version >= 10 else 1, shape[axis]) if shape[axis] else 0
    dtype = d.dtype("X")
    d.take("X", shape)
    if dtype.kind in "fi" and shape[axis] < 100:  # no two alike
        order = np.argsort(d.data.random(shape), axis=axis)
        d.inputs["X"] = (order - shape[axis] // 2).astype(dtype)
    d.attributes["axis"] = axis
    d.maybe("largest", 0, 1)
    d.give("k" if d.version == 1 else "K", k if d.version == 1 else [k])
    d.outputs = 2


def one_hot(d: Draw) -> None:
    shape = d.shape(most_rank=2)
    depth = d.integer(1, 9)
    indices = d.take("indices", shape, -depth if d.version >= 11 else 0, depth)
    d.inputs["indices"] = np.trunc(indices).astype(indices.dtype) if indices.dtype.kind == "f" else indices
    d.give("depth", np.asarray(depth if d.chance() else [depth], d.dtype("depth")))
    d.take("values", [2])
    d.maybe("axis", -1, len(shape), 0)


def unique(d: Draw) -> None:
    shape = d.shape(d.integer(1, 3), least=1)
    d.take("X", shape, -3, 3)
    if d.chance():
        d.attributes["axis"] = d.axis(len(shape))
    d.maybe("sorted", 0, 1)
    d.outputs = d.integer(1, 4)


def trilu(d: Draw) -> None:
    shape = d.shape(d.integer(2, 4))
    d.take("input", shape)
    d.maybe("upper", 0, 1)
    if d.chance():
        d.give("k", np.asarray(d.integer(-3, 4), np.int64))


def cumulate(d: Draw) -> None:
    shape = d.shape(d.integer(1, 3))
    d.take("x", shape, *((0.5, 1.5) if d.schema.name == "CumProd" else (-4, 4)))
    d.give("axis", np.asarray(d.axis(len(shape)), d.dtype("axis")))
    d.maybe("exclusive", 0, 1)
    d.maybe("reverse", 0, 1)


def reverse_sequence(d: Draw) -> None:
    steps, batch = d.size(1), d.size(1)
    first = d.chance()
    d.take("input", [batch, steps, *d.shape(1)] if first else [steps, batch, *d.shape(1)])
    d.attributes |= {"batch_axis": 0, "time_axis": 1} if first else {}
    d.inputs["sequence_lens"] = d.data.integers(1, steps + 1, batch)


def center_crop_pad(d: Draw) -> None:
    shape = d.shape(d.integer(1, 4), least=1)
    d.take("input_data", shape, among=lambda t: t != TEXT)  # what a text is padded with nobody says
    axes = list(range(len(shape)))
    if d.chance():
        axes = [k for k in axes if d.chance()] or axes
        d.attributes["axes"] = axes
    d.give("shape", np.asarray([d.choice((1, 3, 4, 9)) for _ in axes], d.dtype("shape")))


# Sequences and optionals -------------------------------------------------------------------------


def _items(d: Draw, rank: int = 2, alike: bool = False) -> list[np.ndarray]:
    dtype = d.choice((np.dtype(np.float32), np.dtype(np.int64), np.dtype(object)))
    shape = d.shape(rank)
    return [d.array(dtype, shape if alike else d.shape(rank)) for _ in range(d.integer(1, 3))]


def sequence_construct(d: Draw) -> None:
    d.variadic = list[Data](_items(d))


def sequence_at(d: Draw) -> None:
    items = _items(d)
    d.inputs["input_sequence"] = items
    if d.schema.name != "SequenceLength" and (d.schema.name != "SequenceErase" or d.chance()):
        at = d.integer(-len(items), len(items) - 1)
        d.inputs["position"] = np.asarray(at, d.choice((np.int64, np.int32)))


def sequence_insert(d: Draw) -> None:
    items = _items(d)
    d.inputs["input_sequence"], d.inputs["tensor"] = items, d.array(items[0].dtype, d.shape(2))
    if d.chance():
        d.inputs["position"] = np.asarray(d.integer(-len(items), len(items)), np.int64)


def concat_sequence(d: Draw) -> None:
    items = _items(d, alike=True)
    d.inputs["input_sequence"] = items
    d.attributes["axis"] = d.axis(2)
    d.maybe("new_axis", 0, 1)


def split_to_sequence(d: Draw) -> None:
    shape = d.shape(d.integer(1, 3), least=1)
    axis = d.axis(len(shape))
    d.take("input", shape)
    d.attributes["axis"] = axis
    if d.chance():
        d.maybe("keepdims", 0, 1)
    else:  # which makes keepdims of no account
        split = d.integer(1, shape[axis])
        rest = [split, shape[axis] - split] if shape[axis] > split else [split]
        d.inputs["split"] = np.asarray(d.choice((split, rest)), d.dtype("split"))


def sequence_empty(d: Draw) -> None:
    d.maybe("dtype", 1, 7, 8)


def optional_of(d: Draw) -> None:
    d.inputs["input"] = d.array(np.float32, d.shape()) if d.chance() else _items(d)
    d.wrapped = d.schema.name != "Optional" and (d.version < 18 or d.chance())


DRAWS = {
    **{
        "Transpose": transpose,
        "Reshape": reshape,
        "Squeeze": squeeze,
        "Unsqueeze": unsqueeze,
        "Flatten": flatten,
    },
    **{"Slice": slice_of, "Split": split, "Tile": tile, "Expand": expand, "Pad": pad, "Concat": concat},
    **{"Gather": gather, "GatherElements": gather_elements, "GatherND": gather_nd, "Compress": compress},
    **{"Scatter": scatter_elements, "ScatterElements": scatter_elements, "ScatterND": scatter_nd},
    **{"TensorScatter": tensor_scatter, "DepthToSpace": depth_to_space, "SpaceToDepth": depth_to_space},
    **{
        "TopK": top_k,
        "OneHot": one_hot,
        "Unique": unique,
        "Trilu": trilu,
        "CumSum": cumulate,
        "CumProd": cumulate,
    },
    **{"ReverseSequence": reverse_sequence, "CenterCropPad": center_crop_pad},
    **{"SequenceConstruct": sequence_construct, "SequenceAt": sequence_at, "SequenceLength": sequence_at},
    **{
        "SequenceErase": sequence_at,
        "SequenceInsert": sequence_insert,
        "ConcatFromSequence": concat_sequence,
    },
    **{"SplitToSequence": split_to_sequence, "SequenceEmpty": sequence_empty, "Optional": optional_of},
    **{"OptionalGetElement": optional_of, "OptionalHasElement": optional_of},
}
