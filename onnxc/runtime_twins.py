"""The numpy twin of every function of the C runtime that `RuntimeCall` names.

A twin takes the operands (arrays; sequences are lists) and the call's integer attributes and
returns the outputs. `TWINS` maps symbol to twin: a new runtime function is one entry here and one
function in `runtime_c/`.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .errors import RunError


class InterpretError(RunError):
    """A run that fails: `code` is the status of runtime_c/onnxc.h, `value` what caused it."""

    def __init__(self, code: str, value: object = None) -> None:
        super().__init__(code.replace("_", " ") + ("" if value is None else f": {value}"))
        self.code, self.value = code, value


def nonzero(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """x -> the positions of its elements that are not zero, int64 [rank, n], in row-major order."""
    (x,) = inputs
    if x.ndim == 0:
        return [np.zeros((0, int(x != np.zeros((), x.dtype))), np.int64)]
    return [np.stack(np.nonzero(x != np.zeros((), x.dtype))).astype(np.int64)]


def unique(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """x -> its distinct elements (axis -1) or slices along an axis; where each first occurs; for
    each element its place among the distinct ones; how often each occurs. Attributes: axis, sorted
    (0: in order of first occurrence)."""
    (x,), (axis, is_sorted) = inputs, attributes
    wide = x.astype(np.float32) if x.dtype.kind == "V" else x  # ml_dtypes have no sort of their own
    _, first, inverse, counts = np.unique(
        wide, True, True, True, axis=None if axis < 0 else axis, equal_nan=False)
    inverse = inverse.reshape(-1)
    if not is_sorted:
        order = np.argsort(first, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        first, inverse, counts = first[order], place[inverse], counts[order]
    y = x.reshape(-1)[first] if axis < 0 else np.take(x, first, axis)
    return [y, *(a.astype(np.int64) for a in (first, inverse, counts))]


def non_max_suppression(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list:
    """boxes [B, S, 4], scores [B, C, S], most boxes per class, overlap limit, score limit -> int64
    [n, 3] of (batch, class, box), best first. Attributes: 1 where boxes are (centre x, centre y,
    width, height), 0 for (y, x, y, x) corners."""
    boxes, scores, *limits = inputs
    most, overlap_limit, score_limit = (limit.reshape(-1)[0] for limit in limits)
    if attributes[0]:
        half = boxes[..., 2:] / 2
        low, high = boxes[..., :2] - half, boxes[..., :2] + half
    else:
        corners = boxes[..., :2], boxes[..., 2:]
        low, high = np.minimum(*corners), np.maximum(*corners)
    area = np.prod(high - low, -1)
    selected = []
    for batch, kind in np.ndindex(scores.shape[:2]):
        score = scores[batch, kind]
        candidates = np.argsort(-score, kind="stable")
        candidates = candidates[score[candidates] > score_limit]
        kept = 0
        while len(candidates) and kept < most:
            best, candidates = candidates[0], candidates[1:]
            selected.append((batch, kind, best))
            kept += 1
            inside = np.minimum(high[batch, best], high[batch, candidates]) - np.maximum(
                low[batch, best], low[batch, candidates])
            shared = np.prod(np.maximum(inside, 0), -1)
            union = area[batch, best] + area[batch, candidates] - shared
            overlap = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
            candidates = candidates[~(overlap > overlap_limit)]
    return [np.array(selected, np.int64).reshape(-1, 3)]


def position(index: np.ndarray, length: int) -> int:
    """The place that a scalar names in a sequence; negative ones count from the end."""
    place = int(index.reshape(-1)[0])
    if not -length <= place < length:
        raise InterpretError("index_out_of_range", place)
    return place + length if place < 0 else place


def sequence_construct(inputs: Sequence, attributes: Sequence[int]) -> list:
    """values... -> the sequence of them."""
    return [list(inputs)]


def sequence_at(inputs: Sequence, attributes: Sequence[int]) -> list:
    """sequence, position -> the value there."""
    sequence, index = inputs
    return [sequence[position(index, len(sequence))]]


def sequence_length(inputs: Sequence, attributes: Sequence[int]) -> list:
    """sequence -> how many values it has, int64 scalar."""
    return [np.asarray(len(inputs[0]), np.int64)]


def sequence_insert(inputs: Sequence, attributes: Sequence[int]) -> list:
    """sequence, value[, position] -> the sequence with the value before that position, or last."""
    sequence, value, *index = inputs
    place = len(sequence)
    if index and int(index[0].reshape(-1)[0]) != place:
        place = position(index[0], len(sequence))
    return [[*sequence[:place], value, *sequence[place:]]]


def sequence_erase(inputs: Sequence, attributes: Sequence[int]) -> list:
    """sequence[, position] -> the sequence without the value there, or without the last."""
    sequence, *index = inputs
    place = position(index[0] if index else np.asarray(-1), len(sequence))
    return [sequence[:place] + sequence[place + 1 :]]


def concat_from_sequence(inputs: Sequence, attributes: Sequence[int]) -> list:
    """sequence -> its tensors one after the other. Attributes: axis, 1 where that is a new axis."""
    (sequence,), (axis, new_axis) = inputs, attributes
    if not sequence:
        raise InterpretError("invalid_value", "no tensors")
    try:
        return [(np.stack if new_axis else np.concatenate)(sequence, axis)]
    except ValueError:
        raise InterpretError("dims_mismatch", [list(x.shape) for x in sequence]) from None


def split_to_sequence(inputs: Sequence, attributes: Sequence[int]) -> list:
    """x[, split] -> x cut along an axis: into parts of the sizes that split lists, into parts of
    one size (the last may be smaller) when split is a scalar, else into single slices. Attributes:
    axis, 0 where single slices lose the axis."""
    (x, *split), (axis, keepdims) = inputs, attributes
    length = x.shape[axis]
    if not split:
        parts = np.split(x, length, axis) if length else []
        return [parts if keepdims else [part.squeeze(axis) for part in parts]]
    if split[0].ndim == 0:
        size = int(split[0])
        if size < 1:
            raise InterpretError("invalid_value", size)
        ends = [*range(size, length, size), length]
    else:
        if np.any(split[0] < 0) or int(np.sum(split[0])) != length:
            raise InterpretError("invalid_value", list(split[0]))
        ends = [int(end) for end in np.cumsum(split[0])]
    starts = [0, *ends[:-1]]
    return [[np.take(x, range(a, b), axis) for a, b in zip(starts, ends, strict=True)]]


TWINS: dict[str, Callable[[Sequence, Sequence[int]], list]] = {
    "nonzero": nonzero,
    "unique": unique,
    "non_max_suppression": non_max_suppression,
    "sequence_construct": sequence_construct,
    "sequence_empty": sequence_construct,
    "sequence_at": sequence_at,
    "sequence_length": sequence_length,
    "sequence_insert": sequence_insert,
    "sequence_erase": sequence_erase,
    "concat_from_sequence": concat_from_sequence,
    "split_to_sequence": split_to_sequence,
}
