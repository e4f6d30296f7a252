"""Import rules of operators that read images between their pixels: GridSample, AffineGrid,
DeformConv, and Col2Im.

Images are laid out as rows of channels, so that each sample is a weighted sum of a few gathered
rows; of few channels they stay planes, and single elements are gathered.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from ...errors import LimitError, UnsupportedError
from ...ir import dims, dtypes, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import TensorType, Value
from ...records import dataclass
from ..rules import onnx_op
from .common import choose, generate, integers, number_of, one_of, require, wide, zeros
from .convolution import biased, kernel_of, window
from .movement import padded

# Sampling ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Border:
    """What lies outside an image: zeros, its border, or its reflection at the pixels' centres or
    edges."""

    kind: str
    align_corners: bool = False

    def reflected(self, x: Expr, size: Expr) -> Expr:
        """A float coordinate brought inside by a triangle wave."""
        low = 0.0 if self.align_corners else -0.5
        span = size - (1 if self.align_corners else 0)
        phase = expr.apply("fmod", abs(x - low), 2 * span)
        wave = expr.where(phase <= span, low + phase, low + 2 * span - phase)
        return expr.where(span > 0, wave, 0)

    def inside(self, x: Expr, size: Expr, beyond: int = 0) -> Expr:
        """The coordinate that is sampled instead of x. beyond: how far outside neighbours are inside."""
        low, high = (0.0, size - 1) if self.align_corners else (-0.5, size - 0.5)
        if self.kind == "border":
            return expr.where((x < low) | (x > high), x.clip(-beyond, size - 1 + beyond), x)
        if self.kind == "reflection":
            return expr.where((x < low) | (x > high), self.reflected(x, size), x)
        return x

    def pixel(self, x: Expr, size: Expr, dtype: str) -> Expr:
        """The index, of a type, of the pixel that stands for the whole number x."""
        place = self.inside(x, size) if self.kind == "reflection" else x
        return place.clip(0, size - 1).cast(dtype).clip(0, (size - 1).cast(dtype))  # NaN stands somewhere


def _linear(x: Expr, tap: int) -> Expr:
    fraction = x - expr.floor(x)
    return fraction if tap else 1 - fraction


def _cubic(x: Expr, tap: int) -> Expr:
    """Keys' kernel with a = -0.75, by the distance from tap."""
    distance, a = abs(expr.floor(x) + tap - x), -0.75
    if tap in (0, 1):
        return ((a + 2) * distance - (a + 3)) * distance * distance + 1
    return ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a


_TAPS: dict[str, tuple[Callable[[Expr, int], Expr] | None, tuple[int, ...]]] = {
    "nearest": (None, (0,)),
    "linear": (_linear, (0, 1)),
    "cubic": (_cubic, (-1, 0, 1, 2)),
}


#: The weight of a neighbour outside an image of zeros, greater than that of any pixel, which is 1 at most.
_OUTSIDE = 2.0


def _share(pixel: Expr, weight: Expr, border: Border) -> Expr:
    """What a neighbour adds to a sample; where it lies outside 0, also if the pixel read in its place is
    infinite or NaN."""
    share = pixel * weight
    return expr.where(weight < _OUTSIDE, share, 0) if border.kind == "zeros" else share


#: Channels, of at least so many bytes a number, up to which an image is sampled plane by plane.
_FEW, _LEAST_BYTES = 6, 4


def sampled(
    b: Builder, x: Value, coordinates: Sequence[Value], kind: str, border: Border, scale: Value | None = None
) -> Value:
    """x [B, C, spatial...] at float coordinates, [B, P] for each spatial axis, times a scale [B, P]:
    [B, C, P]."""
    sizes = x.shape[2:]
    if len(_TAPS[kind][1]) ** len(sizes) > 4096:
        raise LimitError(f"{kind} samples along {len(sizes)} axes have too many neighbours")
    count, found = dims.product(sizes), TensorType(x.dtype, (*x.shape[:2], coordinates[0].shape[1]))
    if border.kind != "zeros" and count == 0 and dims.at_least(found.count, 1):
        raise ops.TypeMismatch(f"the image {x.type} has no pixels to sample")
    images = b.reshape(x, (*x.shape[:2], count))
    channels = x.shape[1]
    few = isinstance(channels, int) and channels <= _FEW and dtypes.itemsize(x.dtype) >= _LEAST_BYTES
    if not few:
        images = b.transpose(images, (0, 2, 1))

    def weighed(inner: Builder) -> Value:
        captured, *points = map(inner.capture, (images, *coordinates))
        if few:
            points = [inner.reshape(v, (v.shape[0], 1, v.shape[1])) for v in points]
        y = _weighed(inner, captured, points, sizes, kind, border)
        if scale is not None:
            (batch, count), factor = scale.shape, inner.capture(scale)
            factor = inner.reshape(factor, (batch, 1, count) if few else (batch, count, 1))
            y = inner.map(y, factor, lambda e, m: e * m)
        return y if few else inner.transpose(y, (0, 2, 1))

    def of_none(inner: Builder) -> Value:
        """Samples of an image without pixels."""
        if border.kind == "zeros":
            return zeros(inner, x.dtype, found.shape)
        size = expr.size(count)
        none = expr.check(size > 0, size, "wrong_shape")
        return inner.cast(generate(inner, found.shape, none), x.dtype)

    return choose(b, 1 if dims.at_least(count, 1) else dims.minimum(count, 1), found, weighed, of_none)


def _weighed(
    b: Builder, x: Value, coordinates: Sequence[Value], sizes: Sequence[Dimension], kind: str, border: Border
) -> Value:
    """The sums of weighted neighbours in an image of these sizes: of rows [B, pixels, C] at coordinates
    [B, P], or of planes [B, C, pixels] at coordinates [B, 1, P]."""
    weigh, taps = _TAPS[kind]
    dtype = wide(x.dtype) if dtypes.is_float(x.dtype) else "float32"
    planes = coordinates[0].rank == 3
    floats = [expr.size(d).cast(coordinates[0].dtype) for d in sizes]
    count = dims.product(sizes)
    word = "int32" if isinstance(count, int) and count < 1 << 31 else "int64"  # of a place
    beyond = 2 if kind == "cubic" else 0  # as torch and ONNX Runtime have it
    points = [
        b.map(c, lambda e, size=size: border.inside(expr.round_(e) if weigh is None else e, size, beyond))
        for c, size in zip(coordinates, floats)
    ]

    def neighbour(offsets: Sequence[int]) -> tuple[Value, Value]:
        """The elements at these offsets from the points, and their weights."""

        def place(*at: Expr) -> Expr:
            flat = expr.const(0, word)
            for e, tap, size, d in zip(at, offsets, floats, sizes):
                flat = flat * expr.size(d).cast(word) + border.pixel(expr.floor(e) + tap, size, word)
            return flat

        def weight(*at: Expr) -> Expr:
            product, inside = expr.const(1, dtype), expr.const(True, "bool")
            for e, tap, size in zip(at, offsets, floats):
                pixel = expr.floor(e) + tap
                inside = inside & (pixel >= 0) & (pixel <= size - 1)
                product = product * (weigh(e, tap).cast(dtype) if weigh else 1)
            return expr.where(inside, product, _OUTSIDE) if border.kind == "zeros" else product

        index, factor = b.map(*points, place), b.map(*points, weight)
        if planes:
            index = b.broadcast(index, (*x.shape[:2], index.shape[2]))
            return b.emit(ops.Gather("elements", 2), x, index)[0], factor
        index, factor = (b.reshape(v, (*v.shape, 1)) for v in (index, factor))
        return b.emit(ops.Gather("nd", 0, 1), x, index)[0], factor

    neighbours = map(neighbour, itertools.product(taps, repeat=len(points)))
    pixels, factor = next(neighbours)
    if weigh is None:
        return b.map(pixels, factor, lambda e, f: expr.where(f < _OUTSIDE, e, 0))
    total = b.map(pixels, factor, lambda e, f: _share(e.cast(dtype), f, border))
    for pixels, factor in neighbours:
        total = b.map(total, pixels, factor, lambda t, e, f: t + _share(e.cast(dtype), f, border))
    return b.cast(total, x.dtype)


@onnx_op(since=20, ranks={"X": "n", "grid": "n"})
def GridSample(b, X, grid, *, align_corners=0, mode="linear", padding_mode="zeros"):
    """X at the places that grid names, from -1 to 1 across the image, innermost axis first."""
    kind = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    one_of(kind, tuple(_TAPS), "mode")
    one_of(padding_mode, ("zeros", "border", "reflection"), "padding_mode")
    rank = X.rank - 2
    if rank < 1 or grid.rank != X.rank or dims.equal(grid.shape[-1], rank) is False:
        raise ops.TypeMismatch(f"the grid {grid.type} does not fit images {X.type}")
    if dims.equal(grid.shape[0], X.shape[0]) is False:
        raise ops.TypeMismatch(f"the batches of {X.type} and {grid.type} differ")
    batch, out = X.shape[0], grid.shape[1:-1]
    places = b.cast(b.reshape(grid, (batch, dims.product(out), rank)), wide(grid.dtype))

    def coordinate(axis: int) -> Value:
        size = expr.size(X.shape[axis + 2]).cast(places.dtype)
        part = b.take(places, 2, rank - 1 - axis, 1)
        part = b.reshape(part, part.shape[:2])
        if align_corners:
            return b.map(part, lambda e: (e + 1) / 2 * (size - 1))
        return b.map(part, lambda e: ((e + 1) * size - 1) / 2)

    border = Border(padding_mode, bool(align_corners))
    y = sampled(b, X, [coordinate(axis) for axis in range(rank)], kind, border)
    return b.reshape(y, (batch, X.shape[1], *out))


@onnx_op(since=16, name="GridSample", ranks={"X": "n", "grid": "n"})
def _grid_sample_16(b, X, grid, *, align_corners=0, mode="bilinear", padding_mode="zeros"):
    return GridSample(b, X, grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode)


@onnx_op(since=20, ranks={"theta": 3, "size": 1})
def AffineGrid(b, theta, size, *, align_corners=0):
    """theta applied to the pixels' places (x, y[, z], 1), from -1 to 1 across an image of that
    size."""
    rank = number_of(b, size, "sizes") - 2
    fits = theta.rank == 3 and all(
        dims.equal(d, n) is not False for d, n in zip(theta.shape[1:], (rank, rank + 1))
    )
    if rank not in (2, 3) or not fits:
        raise ops.TypeMismatch(f"{theta.type} is no batch of matrices for images of {rank} axes")
    batch, _, *image = b.dimensions(size, 0, "size")
    require(b, zip(theta.shape, (batch, rank, rank + 1)), f"theta {theta.type}")

    def position(axis: int) -> Expr:
        i, count = (e.cast(wide(theta.dtype)) for e in (expr.index(axis + 2), expr.size(image[axis])))
        if align_corners:
            return expr.where(count > 1, 2 * i / (count - 1) - 1, -1)
        return (2 * i + 1) / count - 1

    columns = [
        b.reshape(b.take(theta, 2, k, 1), (theta.shape[0], rank, *(1,) * rank)) for k in range(rank + 1)
    ]
    values = [expr.input_(k, theta.dtype).cast(wide(theta.dtype)) for k in range(rank + 1)]
    terms = [v * position(rank - 1 - k) for k, v in enumerate(values[:-1])]
    whole = expr.sum_of([*terms, values[-1]]).cast(theta.dtype)
    planes = generate(b, (theta.shape[0], rank, *image), whole, *columns)  # rows of so few would be slow
    return b.transpose(planes, (0, *range(2, rank + 2), 1))


# Deformable convolution --------------------------------------------------------------------------


@onnx_op(since=19, ranks={"B": 1, "*": "n"})
def DeformConv(
    b,
    X,
    W,
    offset,
    B=None,
    mask=None,
    *,
    dilations=None,
    group=1,
    kernel_shape=None,
    offset_group=1,
    pads=None,
    strides=None,
):
    """A convolution whose every tap is moved by an offset of its own and scaled by the mask."""
    place = window(X, kernel_of(b, W, kernel_shape), strides, dilations, pads, "NOTSET")
    rank, batch, channels = place.rank, X.shape[0], X.shape[1]
    if (
        group < 1
        or offset_group < 1
        or any(
            isinstance(c, int) and c % g
            for c, g in ((channels, group), (channels, offset_group), (W.shape[0], group))
        )
    ):
        raise ops.TypeMismatch(
            f"{X.type} and {W.type} are not divisible into {group} and {offset_group} groups"
        )
    if dims.equal(W.shape[1] * group, channels) is False:
        raise ops.TypeMismatch(f"{X.type} has {channels} channels where {W.type} takes {W.shape[1] * group}")
    out, taps = place.sizes(X.shape[2:]), dims.product(place.kernel)
    lead = batch * offset_group
    whole = (lead, *place.kernel, *out)
    count = taps * dims.product(out)
    moved = b.reshape(offset, (lead, taps, rank, dims.product(out)))

    def coordinate(axis: int) -> Value:
        shift = b.reshape(b.take(moved, 2, axis, 1), whole)
        fixed = (
            expr.index(1 + axis) * place.dilations[axis] + expr.index(1 + rank + axis) * place.strides[axis]
        )
        start = fixed - expr.size(place.pads[axis])
        return b.reshape(
            b.map(shift, lambda e: e.cast(wide(e.dtype)) + start.cast(wide(e.dtype))), (lead, count)
        )

    per_group = dims.floor_divide(channels, offset_group)
    images = b.reshape(X, (lead, per_group, *X.shape[2:]))
    scale = None if mask is None else b.reshape(mask, (lead, count))
    columns = sampled(b, images, [coordinate(a) for a in range(rank)], "linear", Border("zeros"), scale)
    columns = b.reshape(columns, (batch, group, W.shape[1], taps, dims.product(out)))
    kernels = dims.floor_divide(W.shape[0], group)
    weights = b.reshape(W, (group, kernels, W.shape[1], taps))
    rows = b.contract("ngckp", "gock", "ngpo", columns, weights)  # of pixels, as they were sampled
    y = b.reshape(b.transpose(rows, (0, 1, 3, 2)), (batch, W.shape[0], *out))
    return biased(b, y, B)


# Columns to images -------------------------------------------------------------------------------


@onnx_op(since=18, ranks={"input": 3, "image_shape": 1, "block_shape": 1})
def Col2Im(b, input, image_shape, block_shape, *, dilations=None, pads=None, strides=None):
    """Adds the columns of blocks to the image, where they overlap too; where they lie side by side, they move
    to their places."""
    image, block = b.dimensions(image_shape, 0, "image"), b.dimensions(block_shape, 0, "block")
    if input.rank != 3 or len(image) != len(block):
        raise ops.TypeMismatch(
            f"{input.type} are no columns of blocks of {len(block)} axes in {len(image)} axes"
        )
    if not dtypes.is_float(input.dtype) and not dtypes.is_integer(input.dtype) and input.dtype != "bool":
        raise UnsupportedError(f"a Col2Im of {input.dtype}", "add its parts apart, as real numbers")
    rank = len(image)
    strides, dilations = (
        integers(strides, rank, 1, "strides", 1),
        integers(dilations, rank, 1, "dilations", 1),
    )
    pads = integers(pads, 2 * rank, 0, "pads", 0)
    before, after = pads[:rank], pads[rank:]
    extents = [(k - 1) * d + 1 for k, d in zip(block, dilations)]
    blocks: list[Dimension] = [
        dims.floor_divide(size + p + q - extent, stride) + 1
        for size, p, q, extent, stride in zip(image, before, after, extents, strides)
    ]
    x = b.reshape(input, (*input.shape[:2], *blocks))
    cut = [size + p - n * k for size, p, n, k in zip(image, before, blocks, block)]
    side_by_side = all(dims.equal(k, s) is True for k, s in zip(block, strides)) and set(dilations) == {1}
    channels = dims.floor_divide(x.shape[1], dims.product(block)) if side_by_side else 0
    whole = dims.equal(channels * dims.product(block), x.shape[1]) is True
    if side_by_side and whole and all(isinstance(amount, int) for amount in cut):
        taps, places = range(2, 2 + rank), range(2 + rank, 2 + 2 * rank)
        x = b.transpose(
            b.reshape(x, (x.shape[0], channels, *block, *blocks)),
            (0, 1, *itertools.chain.from_iterable(zip(places, taps))),
        )
        x = b.reshape(x, (*x.shape[:2], *(n * k for n, k in zip(blocks, block))))
        return padded(b, x, (0, 0, *(-p for p in before)), (0, 0, *cut))
    op = ops.OverlapAdd(tuple(block), strides, tuple(before), dilations, tuple(image))
    return b.cast(b.emit(op, b.cast(x, wide(input.dtype)))[0], input.dtype)
