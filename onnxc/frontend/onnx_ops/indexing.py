"""Import rules of operators that read or write elements at places given by data."""

from __future__ import annotations

from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.graph import TensorType, Value
from ...ir.obligations import Shape
from ..rule_builder import decided
from ..rules import onnx_op
from .common import along, checked, generate, one_of, require, scalar, with_length, with_size


def _indices(x: Value) -> Value:
    if x.dtype not in ("int32", "int64"):
        raise ops.TypeMismatch(f"indices are {x.type} where int32 or int64 is needed")
    return x


def _with_axes(x: Value) -> Value:
    if x.rank < 1:
        raise ops.TypeMismatch("its data has no axes")
    return x


# Reading -----------------------------------------------------------------------------------------


@onnx_op(since=1)
def Gather(b, data, indices, *, axis=0):
    axis, place = b.axis(axis, _with_axes(data).rank), b.known(_indices(indices))
    size = data.shape[axis]
    if place is not None and place.size == 1 and isinstance(size, int) and -size <= place.item() < size:
        return _one(b, data, axis, place.item() % size, indices.shape)
    return b.emit(ops.Gather("axis", axis), data, indices)[0]


def _one(b: Builder, x: Value, axis: int, place: int, shape: Shape) -> Value:
    """What Gather makes of one place that is known: a part of x, with axes of size 1 of that shape."""
    starts = [place if a == axis else 0 for a in range(x.rank)]
    part = b.slice(x, starts, [1 if a == axis else size for a, size in enumerate(x.shape)])
    return b.reshape(part, (*x.shape[:axis], *shape, *x.shape[axis + 1 :]))


@onnx_op(since=11, ranks={"*": "n"})
def GatherElements(b, data, indices, *, axis=0):
    return b.emit(ops.Gather("elements", b.axis(axis, _with_axes(data).rank)), data, _indices(indices))[0]


@onnx_op(since=11)
def GatherND(b, data, indices, *, batch_dims=0):
    if not 0 <= batch_dims < min(data.rank, indices.rank):
        raise ops.TypeMismatch(f"{batch_dims} shared axes of {data.type} and {indices.type}")
    indices = _positions(b, indices, data.rank - batch_dims)
    if indices.shape[-1] == 1 and batch_dims == 0:
        return b.emit(ops.Gather("axis"), data, b.reshape(indices, indices.shape[:-1]))[0]
    return b.emit(ops.Gather("nd", 0, batch_dims), data, indices)[0]


def _positions(b: Builder, indices: Value, most: int) -> Value:
    """Indices whose last axis, which has up to `most` elements, is of known size."""
    return with_size(b, _indices(indices), indices.rank - 1, decided(b, indices.shape[-1], most))


@onnx_op(since=10, ranks={"sequence_lens": 1})
def ReverseSequence(b, input, sequence_lens, *, batch_axis=1, time_axis=0):
    """The first sequence_lens[i] steps of batch i in reverse order, the rest as they are."""
    if {batch_axis, time_axis} != {0, 1} or input.rank < 2:
        raise ops.TypeMismatch(f"batch axis {batch_axis} and time axis {time_axis} of {input.type}")
    sequence_lens = with_length(b, sequence_lens, input.shape[batch_axis], "sequence_lens")
    steps, batch = input.shape[time_axis], input.shape[batch_axis]
    count, at = expr.input_(0, "int64"), expr.index(time_axis)
    says = f"a sequence has {{}} of {steps} steps"
    count = expr.check((count >= 0) & (count <= expr.size(steps)), count, "invalid_value", says)
    place, own = expr.where(at < count, count - 1 - at, at), expr.index(batch_axis)
    row = own * expr.size(steps) + place if time_axis else place * expr.size(batch) + own
    lengths = along(b, b.cast(sequence_lens, "int64"), batch_axis, 2)
    rows = b.reshape(input, (steps * batch, *input.shape[2:]))
    return b.emit(ops.Gather("axis"), rows, generate(b, input.shape[:2], row, lengths))[0]


# Writing -----------------------------------------------------------------------------------------


@onnx_op(since=11, ranks={"*": "n"})
def ScatterElements(b, data, indices, updates, *, axis=0, reduction="none"):
    one_of(reduction, ("none", "add", "mul", "min", "max"), "reduction")
    if not data.rank == indices.rank == updates.rank:
        raise ops.TypeMismatch(f"{data.type}, {indices.type} and {updates.type} differ in rank")
    for have, want in zip(updates.shape, indices.shape):
        if dims.equal(have, want) is False:
            raise ops.TypeMismatch(f"the updates {updates.type} do not have the shape of {indices.type}")
    place = b.axis(axis, _with_axes(data).rank)
    return b.emit(ops.Scatter("elements", place, reduction), data, _indices(indices), updates)[0]


@onnx_op(since=9, ranks={"*": "n"})
def Scatter(b, data, indices, updates, *, axis=0):
    return ScatterElements(b, data, indices, updates, axis=axis)


@onnx_op(since=11, ranks={"updates": "any"})
def ScatterND(b, data, indices, updates, *, reduction="none"):
    """The rank of the updates follows from those of the others."""
    one_of(reduction, ("none", "add", "mul", "min", "max"), "reduction")
    depth = decided(b, indices.shape[-1], data.rank) if indices.rank else 0
    if not indices.rank or depth > data.rank:
        raise ops.TypeMismatch(f"the indices {indices.type} are no positions in {data.type}")
    named = (*indices.shape[:-1], *data.shape[depth:])
    updates = b.site.with_rank(b, updates, len(named))
    if len(named) != updates.rank or any(dims.equal(x, y) is False for x, y in zip(named, updates.shape)):
        raise ops.TypeMismatch(f"the updates {updates.type} do not fit {indices.type} and {data.type}")
    return b.emit(ops.Scatter("nd", 0, reduction), data, _positions(b, indices, data.rank), updates)[0]


@onnx_op(since=24, ranks={"past_cache": "n", "update": "n", "write_indices": 1})
def TensorScatter(b, past_cache, update, write_indices=None, *, axis=-2, mode="linear"):
    """The cache with update written along an axis from write_indices of each batch on;
    `circular` goes on at the start."""
    one_of(mode, ("linear", "circular"), "mode")
    place = b.axis(axis, past_cache.rank)
    if place == 0 or update.rank != past_cache.rank:
        raise ops.TypeMismatch(f"{update.type} cannot be written along axis {place} of {past_cache.type}")
    others = [sizes for a, sizes in enumerate(zip(update.shape, past_cache.shape)) if a != place]
    require(b, others, f"the update {update.type}")
    start = b.constant(0, "int64") if write_indices is None else b.cast(write_indices, "int64")
    start = checked(b, start, lambda s: s >= 0, "index_out_of_range")
    if write_indices is not None:
        start = along(b, with_length(b, start, past_cache.shape[0], "write_indices"), 0, update.rank)
    at = expr.input_(0, "int64") + expr.index(place)
    at = at % expr.size(past_cache.shape[place]) if mode == "circular" else at
    places = generate(b, update.shape, at, start)
    return b.emit(ops.Scatter("elements", place), past_cache, places, update)[0]


# Choosing ----------------------------------------------------------------------------------------


@onnx_op(since=11, ranks={"K": "<=1"})
def TopK(b, X, K, *, axis=-1, largest=1, sorted=1):
    """The K greatest (least) elements along an axis, in order, and their places."""
    place = b.axis(axis, _with_axes(X).rank)
    size = X.shape[place]
    if b.known(K) is None:
        limit, says = expr.size(size), f"the {{}} greatest of {size} elements are asked for"
        K = b.cast(scalar(b, K), "int64")
        K = checked(b, K, lambda k: (k >= 0) & (k <= limit), "invalid_value", says)
        count = dims.minimum(b.dimension(K, 0, "k"), size)
    else:
        count = b.dimension(K)
        if count < 0 or dims.less(size, count):
            raise ops.TypeMismatch(f"the {count} greatest of {size} elements are asked for")
    return b.emit(ops.Sort(place, bool(largest), count), X)


@onnx_op(since=10, name="TopK", ranks={"K": "<=1"})
def _topk_10(b, X, K, *, axis=-1):
    return TopK(b, X, K, axis=axis)


@onnx_op(since=1, name="TopK")
def _topk_1(b, X, *, axis=-1, k):
    return TopK(b, X, b.constant(k, "int64"), axis=axis)


@onnx_op(since=10, ranks={"boxes": 3, "scores": 3, "*": "<=1"})
def NonMaxSuppression(
    b,
    boxes,
    scores,
    max_output_boxes_per_class=None,
    iou_threshold=None,
    score_threshold=None,
    *,
    center_point_box=0,
):
    """(batch, class, box) of the best boxes that overlap no better one too much."""
    one_of(center_point_box, (0, 1), "center_point_box")
    if boxes.rank != 3 or scores.rank != 3 or dims.equal(boxes.shape[2], 4) is False:
        raise ops.TypeMismatch(
            f"boxes {boxes.type} and scores {scores.type} are no boxes [B, N, 4] and [B, C, N]"
        )
    if (
        dims.equal(boxes.shape[0], scores.shape[0]) is False
        or dims.equal(boxes.shape[1], scores.shape[2]) is False
    ):
        raise ops.TypeMismatch(f"boxes {boxes.type} and scores {scores.type} do not fit together")
    limits = [
        b.constant(default, dtype) if given is None else b.cast(scalar(b, given), dtype)
        for given, default, dtype in (
            (max_output_boxes_per_class, 0, "int64"),
            (iou_threshold, 0.0, "float32"),
            (score_threshold, float("-inf"), "float32"),
        )
    ]
    type_ = TensorType("int64", (b.fresh("selected"), 3))
    return b.call("non_max_suppression", [boxes, scores, *limits], [type_], [center_point_box])[0]
