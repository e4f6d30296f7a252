"""The numpy twin of every function of the C runtime that `RuntimeCall` names.

A twin takes the operands (arrays; sequences are lists) and the call's integer attributes and
returns the outputs. `TWINS` maps symbol to twin: a new runtime function is one entry here and one
function in `runtime_c/`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from ..errors import RunError
from . import dtypes, expr
from .text_twins import TEXT_TWINS


class InterpretError(RunError):
    """A run that fails: `code` is the status of runtime_c/include/onnxc.h, `value` what caused it."""

    def __init__(self, code: str, value: object = None) -> None:
        super().__init__(code.replace("_", " ") + ("" if value is None else f": {value}"))
        self.code, self.value = code, value


def _agree(fits: bool, *operands: np.ndarray) -> None:
    """The run fails unless the sizes of operands fit each other, which is what the C function asks first."""
    if not fits:
        raise InterpretError("dims_mismatch", [list(x.shape) for x in operands])


def nonzero(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """x -> the positions of its elements that are not zero (of texts: not empty), int64 [rank, n], in
    row-major order."""
    (x,) = inputs
    there = np.asarray(x != ("" if x.dtype == object else np.zeros((), x.dtype)))
    if x.ndim == 0:
        return [np.zeros((0, int(there)), np.int64)]
    return [np.stack(np.nonzero(there)).astype(np.int64)]


def unique(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """x -> its distinct elements (axis -1) or slices along an axis; where each first occurs; for
    each element its place among the distinct ones; how often each occurs. Attributes: axis, sorted
    (0: in order of first occurrence)."""
    (x,), (axis, is_sorted) = inputs, attributes
    wide = x.astype(np.float32) if x.dtype.kind == "V" else x  # ml_dtypes have no sort of their own
    if wide.dtype == object:  # numpy compares no slices of texts, but of their places among all
        wide = np.unique(wide, return_inverse=True)[1].reshape(wide.shape)
    _, first, inverse, counts = np.unique(
        wide, True, True, True, axis=None if axis < 0 else axis, equal_nan=False
    )
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
    _agree(boxes.shape == (scores.shape[0], scores.shape[2], 4), boxes, scores)
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
                low[batch, best], low[batch, candidates]
            )
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


def dynamic_time_warping(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """costs [M, N] -> int32 [2, n], rows and columns of the cells of the cheapest way from the first to the
    last by steps down, to the right or both; where sums are equal it comes from the left."""
    (costs,) = inputs
    rows, columns = costs.shape
    sums = np.full((rows + 1, columns + 1), np.inf, np.float32)
    sums[0, 0] = 0
    steps: dict[tuple[int, int], tuple[int, int]] = {}
    for j in range(1, columns + 1):
        for i in range(1, rows + 1):
            diagonal, up, left = sums[i - 1, j - 1], sums[i - 1, j], sums[i, j - 1]
            if diagonal < up and diagonal < left:
                least, steps[i, j] = diagonal, (1, 1)
            elif up < diagonal and up < left:
                least, steps[i, j] = up, (1, 0)
            else:
                least, steps[i, j] = left, (0, 1)
            sums[i, j] = least + costs[i - 1, j - 1]
    path, cell = [], (rows, columns)
    while min(cell) > 0:
        path.append((cell[0] - 1, cell[1] - 1))
        cell = (cell[0] - steps[cell][0], cell[1] - steps[cell][1])
    return [np.array(path[::-1], np.int32).reshape(-1, 2).T.copy()]


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
    """x[, split] -> x cut along an axis: into parts of the sizes that split has, whatever its rank, into
    parts of one size (the last may be smaller) when split is a scalar, else into single slices. Attributes:
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
        ends = [*range(size, length, size), length] if length else []
    else:
        if np.any(split[0] < 0) or int(np.sum(split[0])) != length:
            raise InterpretError("invalid_value", list(split[0]))
        ends = [int(end) for end in np.cumsum(split[0])]
    return [[np.take(x, range(a, b), axis) for a, b in itertools.pairwise([0, *ends])]]


def optional(inputs: Sequence, attributes: Sequence[int]) -> list:
    """[value] -> the optional that holds it, or nothing. Optionals are their value or None."""
    return [inputs[0] if inputs else None]


def optional_get_element(inputs: Sequence, attributes: Sequence[int]) -> list:
    """optional -> what it holds."""
    if inputs[0] is None:
        raise InterpretError("empty_optional")
    return [inputs[0]]


def optional_has_element(inputs: Sequence, attributes: Sequence[int]) -> list:
    """[optional] -> whether it holds a value, bool scalar."""
    return [np.asarray(bool(inputs) and inputs[0] is not None)]


# Regions of images -------------------------------------------------------------------------------


def roi_align(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """X [N, C, H, W], regions [R, 4] (x1, y1, x2, y2), the image of each [R], their scale ->
    [R, C, height, width], each region resampled. Attributes: height, width, samples along each axis
    of a cell (0: one a pixel), 1 for the greatest, not the mean, 1 for pixel centres at 1/2."""
    (x, regions, images, scale), (height, width, asked, greatest, half) = inputs, attributes
    _agree(regions.shape == (len(images), 4), regions, images)
    result = np.zeros((len(regions), x.shape[1], height, width))
    for region, image, out in zip(regions.astype(np.float64), images, result, strict=True):
        if not 0 <= image < len(x):
            raise InterpretError("index_out_of_range", int(image))
        corners = region * float(scale) - 0.5 * half
        extents = corners[2:] - corners[:2]
        extents = extents if half else np.maximum(extents, 1)
        if not np.all(np.abs(extents) < 1 << 20):
            raise InterpretError("invalid_value", list(region))
        axes = []
        for start, extent, cells, size in zip(
            corners[1::-1], extents[::-1], (height, width), x.shape[2:], strict=True
        ):
            count = asked or max(0, int(np.ceil(extent / cells)))
            at = start + (np.arange(cells * count) + 0.5) * extent / (cells * max(count, 1))
            axes.append((count, _neighbours(at, size)))
        (rows, ys), (columns, xs) = axes
        if rows * columns * x[image].size:
            pairs = [(a, b, np.outer(p, q)) for a, p in ys for b, q in xs]
            with np.errstate(invalid="ignore"):
                parts = np.stack([np.where(w == 0, 0, x[image][:, a][:, :, b] * w) for a, b, w in pairs])
            samples = parts.max(0) if greatest else parts.sum(0)
            cells = samples.reshape(-1, height, rows, width, columns)
            out[...] = cells.max((2, 4)) if greatest else cells.mean((2, 4))
    return [result.astype(x.dtype)]


def _neighbours(at: np.ndarray, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The pixels before and behind points of an axis, and their weights, 0 for points outside."""
    inside = (at >= -1) & (at <= size)
    at = np.clip(at, 0, size - 1)
    low = np.floor(at).astype(np.int64)
    part = at - low
    return [(low, (1 - part) * inside), (np.minimum(low + 1, size - 1), part * inside)]


def max_roi_pool(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """X [N, C, H, W], regions [R, 5] (image, x1, y1, x2, y2), scale of the regions -> the greatest
    element of each cell of a grid over each region, 0 of empty ones. Attributes: height, width."""
    (x, regions, scale), cells = inputs, attributes
    _agree(regions.shape[1] == 5, regions)
    result = np.zeros((len(regions), x.shape[1], *cells), x.dtype)
    for (image, *corners), out in zip(regions.astype(np.float64), result, strict=True):
        if not 0 <= image < len(x):
            raise InterpretError("index_out_of_range", image)
        scaled = np.array(corners) * float(scale)
        x1, y1, x2, y2 = np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)  # half away from zero
        extents = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        for cell in np.ndindex(*cells):
            window = []
            for k, start, extent, count, size in zip(
                cell, (y1, x1), extents, cells, x.shape[2:], strict=True
            ):
                ends = np.floor(k * extent / count), np.ceil((k + 1) * extent / count)
                window.append(slice(*(int(np.clip(start + end, 0, size)) for end in ends)))
            pixels = x[int(image)][:, window[0], window[1]]
            if pixels[0].size:
                out[:, cell[0], cell[1]] = pixels.max((1, 2))
    return [result]


def determinant(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """matrices [..., n, n] -> their determinants."""
    _agree(inputs[0].shape[-1] == inputs[0].shape[-2], inputs[0])
    return [np.asarray(np.linalg.det(inputs[0].astype(np.float64))).astype(inputs[0].dtype)]


def inverse(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """matrices [..., n, n] -> their inverses; NaN where there is none."""
    (x,) = inputs
    _agree(x.shape[-1] == x.shape[-2], x)
    wide = x.astype(np.float64)
    singular = np.linalg.det(wide) == 0
    safe = np.where(singular[..., None, None], np.eye(x.shape[-1]), wide)
    found = np.where(singular[..., None, None], np.nan, np.linalg.inv(safe))
    return [found.astype(x.dtype)]


# Signals -----------------------------------------------------------------------------------------


def fourier(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """x [..., times, 1 or 2], length n -> its bins [..., n, 2], the sums alone of an inverse. Attributes: 1
    for the inverse, 1 for what is one-sided: half of the bins, or the real numbers that have such."""
    (x, length), (inverse, halved) = inputs, attributes
    n = int(np.ravel(length)[0])
    if 0 != n < x.shape[-2] or x.shape[-1] not in (1, 2):
        raise InterpretError("invalid_value", n)
    numbers = x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]
    if n == 0:
        found = np.zeros((*x.shape[:-2], int(halved and not inverse)))
    elif inverse:
        found = np.fft.irfft(numbers, n) * n if halved else np.fft.ifft(numbers, n) * n
    else:
        found = np.fft.fft(numbers, n)[..., : n // 2 + 1] if halved else np.fft.fft(numbers, n)
    return [np.stack([found.real] if inverse and halved else [found.real, found.imag], -1)]


# Ranks that only the run knows -------------------------------------------------------------------


def rank_of(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """x -> its number of axes, int64 scalar."""
    return [np.asarray(inputs[0].ndim, np.int64)]


def with_leading_ones(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """x -> x of at least so many axes, ones before its own and some behind that of a vector."""
    rank, behind = attributes[0], attributes[1] if inputs[0].ndim == 1 else 0
    shape = (*inputs[0].shape, *[1] * behind) if rank > inputs[0].ndim else inputs[0].shape
    return [inputs[0].reshape((1,) * (rank - len(shape)) + shape)]


def elements_of(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """x -> its elements along one axis."""
    return [inputs[0].reshape(-1)]


def same(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """x -> x, of which more or less is known."""
    return [inputs[0]]


# Strings -----------------------------------------------------------------------------------------


def numbers_to_strings(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """x -> the shortest text of each element, 1 or 0 of a bool. Attributes: codes of both types."""
    (x,) = inputs
    if dtypes.from_numpy(x.dtype) in dtypes.FLOATS:
        texts = [repr(_of_fewest_digits(v)) for v in x.flat]
    else:
        texts = [str(int(v)) if x.dtype.kind == "b" else str(v) for v in x.flat]
    return [np.array(texts, object).reshape(x.shape)]


def _of_fewest_digits(value: np.generic) -> float:
    """The number of the fewest digits that reads as the float, of those the nearest."""
    exact = float(value)
    if isinstance(value, np.floating):
        return float(np.format_float_scientific(value))
    if exact == 0 or not math.isfinite(exact):
        return exact
    for places in range(9):
        digits, exponent = f"{exact:.{places}e}".split("e")
        # at a power of two, where the number below is nearer, the nearest digits may be too low
        for away in (0, math.copysign(10.0**-places, exact)):
            near = float(f"{float(digits) + away:.{places}f}e{exponent}")
            if value.dtype.type(near) == value:
                return near
    return exact


def strings_to_numbers(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """x -> the number that each text is, without its fraction for integers. Attributes: codes of both
    types."""
    (x,), dtype = inputs, dtypes.ALL[attributes[1] - 1]
    whole = dtypes.is_integer(dtype) or dtype == "bool"
    try:
        values = [_whole_number(text, dtype) if whole else float(text) for text in x.flat]
        array = np.array(values, np.float64 if dtype == "bfloat16" else dtypes.numpy_dtype(dtype))
    except (ValueError, OverflowError):
        raise InterpretError("invalid_value", f"a text that is no {dtype}") from None
    return [expr.saturating_cast(array, dtypes.numpy_dtype(dtype)).reshape(x.shape)]


def _whole_number(text: str, dtype: str) -> int:
    try:
        return int(text)
    except ValueError:
        number = float(text)
    return int(number) or int(dtype == "bool" and number != 0)


def strings_equal(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """x, y of one shape -> where their elements are the same text."""
    x, y = inputs
    _agree(x.shape == y.shape, x, y)
    return [np.array([a == b for a, b in zip(x.flat, y.flat)], bool).reshape(x.shape)]


def hash_strings(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """x -> uint32, MurmurHash3 in 32 bits of each text's bytes. Attributes: the seed."""
    (x,), (seed,) = inputs, attributes
    return [np.array([_murmur(str(text).encode(), seed) for text in x.flat], np.uint32).reshape(x.shape)]


def _murmur(data: bytes, seed: int) -> int:
    def rotated(k: int, by: int) -> int:
        k &= 0xFFFFFFFF
        return (k << by | k >> (32 - by)) & 0xFFFFFFFF

    h, whole = seed, len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little")
        h = (rotated(h ^ (rotated(k * 0xCC9E2D51, 15) * 0x1B873593), 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= rotated(int.from_bytes(data[whole:], "little") * 0xCC9E2D51, 15) * 0x1B873593 & 0xFFFFFFFF
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


# Classes ------------------------------------------------------------------------------------------


def class_probabilities(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """[N, P], for each row the probability of the first of each pair of classes where it is one of the two
    -> those of all classes [N, C], found by rounds until they change little. Attributes: C."""
    (known,), (count,) = inputs, attributes
    _agree(known.shape[1] == count * (count - 1) // 2, known)
    rows, (first, second) = np.arange(len(known))[:, None], np.triu_indices(count, 1)
    pairwise = np.zeros((len(known), count, count), np.float32)
    pairwise[rows, first, second], pairwise[rows, second, first] = known, 1 - known
    result = np.full((len(known), count), 1 / count, np.float32)
    for r, p in zip(pairwise, result, strict=True):
        q = -r * r.T
        np.fill_diagonal(q, np.sum(r * r, 0))
        for _ in range(100):
            qp = q @ p
            pqp = p @ qp
            if np.max(np.abs(qp - pqp)) < 0.005 / count:
                break
            for i in range(count):
                change = (pqp - qp[i]) / q[i, i]
                p[i] += change
                pqp = (pqp + change * (change * q[i, i] + 2 * qp[i])) / (1 + change) ** 2
                qp = (qp + change * q[i]) / (1 + change)
                p /= 1 + change
    return [result]


# Maps --------------------------------------------------------------------------------------------


def zip_map(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list:
    """x [N, C] or [C], keys [C] -> the sequence of the maps from keys to each row, which are dicts."""
    x, keys = inputs
    _agree(x.shape[-1] == len(keys), x, keys)
    return [[dict(zip(keys.tolist(), row, strict=True)) for row in np.atleast_2d(x).tolist()]]


def map_parts(inputs: Sequence, attributes: Sequence[int]) -> list:
    """A map -> its keys and its values, vectors. Attributes: the types of both."""
    kinds = [dtypes.numpy_dtype(dtypes.ALL[number - 1]) for number in attributes]
    return [
        np.array(list(part), k) for part, k in zip((inputs[0].keys(), inputs[0].values()), kinds, strict=True)
    ]


def decode_image(inputs: Sequence[np.ndarray], attributes: Sequence[int]) -> list[np.ndarray]:
    """bytes of an image -> its pixels: the libraries of its formats are the library's, not numpy's."""
    raise InterpretError("unsupported", "an image")


TWINS: dict[str, Callable[[Sequence, Sequence[int]], list]] = {
    "nonzero": nonzero,
    "unique": unique,
    "non_max_suppression": non_max_suppression,
    "dynamic_time_warping": dynamic_time_warping,
    "sequence_construct": sequence_construct,
    "sequence_empty": sequence_construct,
    "sequence_at": sequence_at,
    "sequence_length": sequence_length,
    "sequence_insert": sequence_insert,
    "sequence_erase": sequence_erase,
    "concat_from_sequence": concat_from_sequence,
    "split_to_sequence": split_to_sequence,
    "optional": optional,
    "optional_get_element": optional_get_element,
    "optional_has_element": optional_has_element,
    "roi_align": roi_align,
    "max_roi_pool": max_roi_pool,
    "fourier": fourier,
    "determinant": determinant,
    "inverse": inverse,
    "rank_of": rank_of,
    "elements_of": elements_of,
    "with_any_rank": same,
    "with_leading_ones": with_leading_ones,
    "with_rank": same,
    "numbers_to_strings": numbers_to_strings,
    "strings_to_numbers": strings_to_numbers,
    "strings_equal": strings_equal,
    "hash_strings": hash_strings,
    "class_probabilities": class_probabilities,
    "zip_map": zip_map,
    "map_parts": map_parts,
    "decode_image": decode_image,
    **TEXT_TWINS,
}
