"""Import rules of Resize and Upsample: one axis after the other is resampled.

Each output index has a coordinate on the input's axis. The nearest element is a Gather; linear and
cubic weigh two or four gathered neighbours; antialiasing widens the filter by the scale: to more
neighbours, which along an axis of their own are many or as many as the run tells. In a region that the
run tells all elements are, in a product with a matrix. Coordinates are float32, as scales and regions are;
where sizes tell the scale they are quotients of whole numbers, in float64, which meet every element and every
middle between two. Sizes, scales and regions may all be data.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from ...ir import dims, dtypes, expr, ops
from ...ir.builder import Builder, joined
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Value
from ...records import dataclass
from ..rules import onnx_op
from .common import along, distinct_axes, generate, one_of, wide, with_length

_NEAREST = {
    "round_prefer_floor": lambda x, scale: expr.ceil(x - 0.5),
    "round_prefer_ceil": lambda x, scale: expr.floor(x + 0.5),
    "floor": lambda x, scale: expr.floor(x),
    "ceil": lambda x, scale: expr.ceil(x),
    "simple": lambda x, scale: expr.where(scale < 1, expr.ceil(x), expr.floor(x)),  # before operator set 11
}
_COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)


@dataclass(frozen=True)
class ResizedAxis:
    """One axis to resample: sizes before and after; scale, and the region's start and end, as
    float32 scalars; the two sizes whose quotient the scale is, unless it is given as a number."""

    place: int
    length: Dimension
    size: Dimension
    scale: Value
    quotient: tuple[Dimension, Dimension] | None = None
    start: Value | None = None
    end: Value | None = None

    def along(self, b: Builder, mode: str, body: Callable[[Expr, Expr], Expr]) -> Value:
        """body(coordinate, scale) for each index of the output's axis."""
        region = [v for v in (self.start, self.end) if v is not None]
        values = [expr.input_(k, "float32") for k in range(1 + len(region))]
        return generate(b, (self.size,), body(self.coordinate(mode, *values), values[0]), self.scale, *region)

    def coordinate(self, mode: str, scale: Expr, *region: Expr) -> Expr:
        """Where output index i lies on the input's axis (the specification's x_original)."""
        quotient = self.quotient if not region else None
        dtype = "float32" if quotient is None else "float64"

        def number(size: Dimension) -> Expr:
            return expr.size(size).cast(dtype)

        def scaled(x: Expr, back: bool = False) -> Expr:
            if quotient is None:
                return x / scale if back else x * scale
            above, below = map(number, quotient[::-1] if back else quotient)
            return x * above / below

        i, length, size = expr.index(0).cast(dtype), number(self.length), number(self.size)
        centred = scaled(i + 0.5, back=True) - 0.5
        match mode:
            case "asymmetric":
                return scaled(i, back=True)
            case "align_corners":
                reach = scaled(length)
                return expr.where(reach.equals(1) | size.equals(1), 0, i * (length - 1) / (reach - 1))
            case "align_whole_corners":
                return expr.where(size.equals(1), 0, i * (length - 1) / (size - 1))
            case "pytorch_half_pixel":
                return expr.where(size > 1, centred, 0)
            case "half_pixel_symmetric":
                return scaled(i + 0.5 - size / 2, back=True) + (length - 1) / 2
            case "tf_half_pixel_for_nn":
                return scaled(i + 0.5, back=True)
            case "tf_crop_and_resize":
                start, end = region
                inside = start * (length - 1) + i * (end - start) * (length - 1) / (size - 1)
                return expr.where(size > 1, inside, 0.5 * (start + end) * (length - 1))
        return centred

    def clamped(self, x: Expr) -> Expr:
        """A float coordinate as an index of the input."""
        return x.cast("int64").clip(0, expr.size(self.length - 1))

    def is_outside(self, x: Expr, scale: Expr) -> Expr:
        """Whether a float coordinate lies beyond the first or the last element."""
        return (x < 0) | (x > _last(self, x.dtype))

    @property
    def unchanged(self) -> bool:
        known = self.scale.constant
        return (
            self.size == self.length and self.start is None and known is not None and float(known.array) == 1
        )


# Interpolation -----------------------------------------------------------------------------------


def _nearest(b: Builder, x: Value, axis: ResizedAxis, mode: str, rounding: str) -> Value:
    if (times := _repeats(axis, mode, rounding)) > 1:
        index = generate(b, (axis.size,), expr.index(0) / times)
    else:
        index = axis.along(b, mode, lambda c, s: axis.clamped(_NEAREST[rounding](c, s)))
    return b.emit(ops.Gather("axis", axis.place), x, index)[0]


def _repeats(axis: ResizedAxis, mode: str, rounding: str) -> int:
    """How many times each element follows itself in the result; 0 where that is not so or not known."""
    known = axis.scale.constant
    if known is None or float(known.array) % 1 != 0:
        return 0
    times = int(known.array)
    if times < 1 or dims.equal(axis.size, axis.length * times) is not True:
        return 0
    down = mode in ("asymmetric", "tf_half_pixel_for_nn") and rounding in ("floor", "simple")
    centred = mode in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
    return times if down or (centred and rounding.startswith("round")) else 0


def _fraction(c: Expr, dtype: str) -> Expr:
    """How far a coordinate lies behind the element before it."""
    return (c - expr.floor(c)).cast(dtype)


def _triangle(distance: Expr, a: float) -> Expr:
    return (1 - abs(distance)).maximum(0)


def _cubic(distance: Expr, a: float) -> Expr:
    """Keys' convolution kernel, IEEE Trans. ASSP 29 (1981), equation 4."""
    x = abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return expr.where(x <= 1, near, expr.where(x < 2, far, 0))


MOST_TAPS = 16  # of a stretched kernel that are gathered one by one
_KERNELS = {"linear": (_triangle, 1), "cubic": (_cubic, 2)}  # the function and how far it reaches


def _weighed(
    b: Builder, x: Value, axis: ResizedAxis, mode: str, kind: str, a: float, exclude_outside: bool
) -> Value:
    """The neighbours of each coordinate, weighed by their distance."""
    kernel, reach = _KERNELS[kind]
    taps = range(1 - reach, reach + 1)

    def weight(c: Expr, tap: int) -> Expr:
        value = kernel(tap - _fraction(c, x.dtype), a)
        return expr.where(_is_outside(axis, c, tap), 0, value) if exclude_outside else value

    def share(c: Expr, tap: int) -> Expr:
        return weight(c, tap) / expr.sum_of(weight(c, t) for t in taps) if exclude_outside else weight(c, tap)

    def factor(tap: int) -> Value:
        return axis.along(b, mode, lambda c, s: share(c, tap))

    return _combined(b, x, axis, mode, taps, [factor(tap) for tap in taps])


def _combined(
    b: Builder, x: Value, axis: ResizedAxis, mode: str, taps: Sequence[int], factors: Sequence[Value]
) -> Value:
    """The elements so many places behind each coordinate, times factors; borders repeat."""

    def neighbour(tap: int) -> Value:
        index = axis.along(b, mode, lambda c, s: axis.clamped(expr.floor(c) + tap))
        return b.emit(ops.Gather("axis", axis.place), x, index)[0]

    shares = [along(b, factor, axis.place, x.rank) for factor in factors]
    terms = [term for tap, share in zip(taps, shares) for term in (neighbour(tap), share)]
    return b.map(*terms, lambda *e: expr.sum_of(e[k] * e[k + 1] for k in range(0, len(e), 2)))


def _is_outside(axis: ResizedAxis, c: Expr, tap: Expr | int) -> Expr:
    """Whether there is no element so many places behind a coordinate."""
    place = expr.floor(c) + tap
    return (place < 0) | (place > _last(axis, c.dtype))


def _rank(axis: ResizedAxis) -> int:
    """The order in which axes are resampled: those that shrink first, and of those that grow the last axis,
    whose elements move by themselves, before others make it longer. A batch of any size, which is usually a
    single image, is the last."""
    known = axis.scale.constant
    if known is None and dims.typical(axis.length) == 1:
        return 1
    return -axis.place if known is not None and float(known.array) > 1 else -(1 << 20)


def _last(axis: ResizedAxis, dtype: str) -> Expr:
    return expr.size(axis.length - 1).cast(dtype)


def _antialiased(
    b: Builder, x: Value, axis: ResizedAxis, mode: str, kind: str, a: float, exclude_outside: bool
) -> Value:
    """The same where the kernel is stretched by 1 / scale, if that is less than 1."""
    known = axis.scale.constant
    scale = None if known is None else float(known.array)
    if scale is not None and scale >= 1:
        return _weighed(b, x, axis, mode, kind, a, exclude_outside)
    kernel, reach = _KERNELS[kind]
    behind: Dimension
    if scale is not None:
        behind = math.ceil(reach / scale)
    elif axis.start is None:  # the size is the length times the scale, rounded
        least = dims.maximum(2 * axis.size - 1, 1)
        behind = dims.maximum(dims.ceil_divide(axis.length * (2 * reach), least), reach)
    else:
        return _product(b, x, axis, mode, kind, a, exclude_outside)
    count = 2 * behind
    tap = expr.index(0) + 1 - expr.size(behind)  # which run along axis 0

    def place(c: Expr) -> Expr:
        return expr.floor(c) + tap.cast(c.dtype)

    def weight(c: Expr, s: Expr) -> Expr:
        distance = tap.cast(x.dtype) - _fraction(c, x.dtype)
        value = kernel(distance * s.cast(x.dtype).minimum(1), a)
        return expr.where(_is_outside(axis, c, tap.cast(c.dtype)), 0, value) if exclude_outside else value

    centre = along(b, axis.along(b, mode, lambda c, s: c), 1, 2)
    c, s = expr.input_(0, centre.dtype), expr.input_(1, "float32")
    weights = generate(b, (count, axis.size), weight(c, s), centre, axis.scale)
    weights = b.map(weights, b.reduce("sum", weights, [0], True), lambda w, t: w / t)
    if isinstance(count, int) and count <= MOST_TAPS:
        factors = [b.reshape(b.take(weights, 0, k, 1), (axis.size,)) for k in range(count)]
        return _combined(b, x, axis, mode, range(1 - count // 2, count // 2 + 1), factors)
    places = generate(b, (count, axis.size), axis.clamped(place(c)), centre)
    picked = b.emit(ops.Gather("axis", axis.place), x, places)[0]
    weights = b.reshape(weights, (count, axis.size, *(1,) * (x.rank - 1 - axis.place)))
    product = expr.input_(0, x.dtype) * expr.input_(1, x.dtype)
    return b.emit(ops.Reduce("sum", (axis.place,), False, product), picked, weights)[0]


def _product(
    b: Builder, x: Value, axis: ResizedAxis, mode: str, kind: str, a: float, exclude_outside: bool
) -> Value:
    """x times weights [output, input], where the kernel is stretched by 1 / scale; borders
    repeat unless excluded."""
    kernel, reach = _KERNELS[kind]
    border: Dimension = 0
    if not exclude_outside:
        border = dims.maximum(dims.ceil_divide(axis.length * reach, dims.maximum(axis.size, 1)), reach) + 1
        pads = tuple(border if k == axis.place else 0 for k in range(x.rank))
        x = b.emit(ops.Pad("edge", pads, pads), x)[0]
    centre = axis.along(b, mode, lambda c, s: c)
    shape = (axis.size, axis.length + 2 * border)
    tap = (expr.index(1) - expr.size(border)).cast(x.dtype)
    c, s = (expr.input_(k, "float32").cast(x.dtype) for k in range(2))
    distance = (tap - c) * s.minimum(1)
    weights = generate(b, shape, kernel(distance, a), along(b, centre, 0, 2), axis.scale)
    weights = b.map(weights, b.reduce("sum", weights, [1], True), lambda w, t: w / t)
    labels = string.ascii_lowercase[: x.rank]
    out = labels.replace(labels[axis.place], "Z")
    return b.contract(labels, f"Z{labels[axis.place]}", out, x, weights)


def resampled(
    b: Builder,
    x: Value,
    axes: Sequence[ResizedAxis],
    mode: str,
    kind: str,
    *,
    rounding: str = "simple",
    cubic_a: float = -0.75,
    exclude_outside: bool = False,
    antialias: bool = False,
    extrapolation: float = 0.0,
) -> Value:
    """x resampled along axes; outside the region of tf_crop_and_resize elements are
    `extrapolation`. Integers are rounded, but those between two neighbours, which are truncated as in ONNX
    Runtime."""
    dtype, y = x.dtype, x
    changed = sorted((axis for axis in axes if not axis.unchanged), key=_rank)
    if kind != "nearest" and changed:
        y = b.cast(y, _weighed_in(dtype))
    for axis in changed:
        if kind == "nearest":
            y = _nearest(b, y, axis, mode, rounding)
        else:
            resample = _antialiased if antialias else _weighed
            y = resample(b, y, axis, mode, kind, cubic_a, exclude_outside)
    if mode == "tf_crop_and_resize":
        number = expr.const(extrapolation, "float64")
        fill = number.cast(y.dtype) if dtypes.is_integer(y.dtype) else extrapolation
        for axis in changed:
            outside = axis.along(b, mode, axis.is_outside)
            y = b.map(along(b, outside, axis.place, y.rank), y, lambda o, e: expr.where(o, fill, e))
    if dtypes.is_integer(dtype) and dtypes.is_float(y.dtype) and (antialias or kind == "cubic"):
        y = b.map(y, expr.round_)
    return b.cast(y, dtype)


def _weighed_in(dtype: str) -> str:
    """The type in which elements are weighed, one that holds them all but for integers of 64 bits."""
    if dtypes.is_float(dtype):
        return wide(dtype)
    return "float64" if dtypes.bits(dtype) > 24 else "float32"


# Sizes -------------------------------------------------------------------------------------------


def _scaled_sizes(
    b: Builder, x: Value, places: Sequence[int], scales: Sequence[Value], spans: Value | None
) -> list[Dimension]:
    """floor(length * scale) of each axis, a formula where that is exact; times the region's span where there
    is one."""
    known = {k: float(s.constant.array) for k, s in enumerate(scales) if s.constant is not None}
    if wrong := [s for s in known.values() if not (math.isfinite(s) and s > 0)]:
        raise ops.TypeMismatch(f"a scale is {wrong[0]}")
    factors = {k: Fraction(s) for k, s in known.items() if spans is None}
    exact = {k: f for k, f in factors.items() if f.denominator <= 1024}
    found = {k: dims.floor_divide(x.shape[places[k]] * f.numerator, f.denominator) for k, f in exact.items()}
    rest = [k for k in range(len(places)) if k not in exact]
    if rest:
        given = b.concat([b.reshape(scales[k], (1,)) for k in rest], 0)
        operands = [b.elements([x.shape[places[k]] for k in rest]), given]
        operands += [] if spans is None else [spans]
        found |= zip(rest, b.dimensions(b.map(*operands, _scaled_size), 0, "resized"))
    return [found[k] for k in range(len(places))]


def _scaled_size(length: Expr, scale: Expr, *span: Expr) -> Expr:
    scale = scale * span[0] if span else scale
    size = expr.floor(length.cast("float32") * scale)
    fits = (scale > 0) & (size < 2.0**31)
    return expr.check(fits, size, "invalid_value", "a scale makes an axis of {} elements").cast("int64")


def _kept_ratio(
    b: Builder, x: Value, places: Sequence[int], sizes: Value, policy: str
) -> tuple[list[Dimension], tuple[Dimension, Dimension]]:
    """Sizes of one common scale, the least or greatest that sizes ask for, and whose quotient it is."""
    lengths = b.elements([x.shape[p] for p in places])
    ratios = b.map(sizes, lengths, lambda s, n: s.cast("float64") / n.cast("float64"))
    chosen = b.reduce("argmin" if policy == "not_larger" else "argmax", ratios, [0])
    above, below = (b.emit(ops.Gather("axis"), v, chosen)[0] for v in (sizes, lengths))

    def rounded(n: Expr, above: Expr, below: Expr) -> Expr:
        return expr.floor(n.cast("float64") * above.cast("float64") / below.cast("float64") + 0.5)

    found = b.cast(b.map(lengths, above, below, rounded), "int64")
    return b.dimensions(found, 0, "resized"), (b.dimension(above, 0), b.dimension(below, 0))


def _axes(
    b: Builder,
    x: Value,
    places: Sequence[int],
    scales: Value | None,
    sizes: Value | None,
    roi: Value | None,
    policy: str,
) -> list[ResizedAxis]:
    count = len(places)
    scales, sizes, roi = (
        value if value is None else with_length(b, value, wanted, name)
        for value, name, wanted in (
            (scales, "scales", count),
            (sizes, "sizes", count),
            (roi, "roi", 2 * count),
        )
    )

    def each(vector: Value, first: int = 0) -> list[Value]:
        """The elements for the axes, of which that one is the first's."""
        return [_element(b, vector, first + k) for k in range(count)]

    quotients: Sequence[tuple[Dimension, Dimension] | None] = [None] * count
    starts: Sequence[Value | None] = [None] * count
    ends, spans = starts, None
    if roi is not None:
        roi = b.cast(roi, "float32")
        starts, ends = each(roi), each(roi, count)
        spans = b.map(b.take(roi, 0, count, count), b.take(roi, 0, 0, count), lambda e, s: e - s)
    if scales is not None and sizes is None:
        scales = b.cast(scales, "float32")
        factors = each(scales)
        found = _scaled_sizes(b, x, places, factors, spans)
    elif sizes is not None and scales is None:
        if policy == "stretch":
            found = b.dimensions(sizes, 0, "size")
            ratios = [(size, x.shape[p]) for p, size in zip(places, found)]
        else:
            found, common = _kept_ratio(b, x, places, b.cast(sizes, "int64"), policy)
            ratios = [common] * count
        quotients, factors = ratios, [_ratio(b, *ratio) for ratio in ratios]
    else:
        raise ops.TypeMismatch("it needs either scales or sizes")
    if any(isinstance(o, int) and o < 0 for o in found):
        raise ops.TypeMismatch("a size is negative")
    lengths = [x.shape[p] for p in places]
    return [ResizedAxis(*own) for own in zip(places, lengths, found, factors, quotients, starts, ends)]


def _element(b: Builder, vector: Value, place: int) -> Value:
    """An element as a scalar, one that is known also where others of the vector are not."""
    at = place
    for part in joined(vector):
        if not isinstance(part.tensor.count, int):
            break
        if at < part.tensor.count:
            vector, place = part, at
            break
        at -= part.tensor.count
    return b.reshape(b.take(vector, 0, place, 1), ())


def _ratio(b: Builder, size: Dimension, length: Dimension) -> Value:
    """size / length as a float32 scalar."""
    if dims.equal(size, length):
        return b.constant(1.0, "float32")
    if isinstance(size, int) and isinstance(length, int):
        return b.constant(float(np.float32(size) / np.float32(max(length, 1))), "float32")
    return generate(b, (), expr.size(size).cast("float32") / expr.size(length).cast("float32"))


# Rules -------------------------------------------------------------------------------------------


@onnx_op(since=19, ranks={"roi": 1, "scales": 1, "sizes": 1})
def Resize(
    b,
    X,
    roi=None,
    scales=None,
    sizes=None,
    *,
    antialias=0,
    axes=None,
    coordinate_transformation_mode="half_pixel",
    cubic_coeff_a=-0.75,
    exclude_outside=0,
    extrapolation_value=0.0,
    keep_aspect_ratio_policy="stretch",
    mode="nearest",
    nearest_mode="round_prefer_floor",
):
    return _resize(**locals(), whole_corners=False)


@onnx_op(since=11, name="Resize", ranks={"roi": 1, "scales": 1, "sizes": 1})
def _resize_11(
    b,
    X,
    roi=None,
    scales=None,
    sizes=None,
    *,
    antialias=0,
    axes=None,
    coordinate_transformation_mode="half_pixel",
    cubic_coeff_a=-0.75,
    exclude_outside=0,
    extrapolation_value=0.0,
    keep_aspect_ratio_policy="stretch",
    mode="nearest",
    nearest_mode="round_prefer_floor",
):
    """Aligned corners are those of a whole number of elements, as exporters and ONNX Runtime have it;
    operator set 19 tells that number from the length times the scale, and means the latter."""
    return _resize(**locals(), whole_corners=True)


def _resize(
    b: Builder,
    X: Value,
    roi: Value | None,
    scales: Value | None,
    sizes: Value | None,
    *,
    whole_corners: bool,
    antialias: int,
    axes: Sequence[int] | None,
    coordinate_transformation_mode: str,
    cubic_coeff_a: float,
    exclude_outside: int,
    extrapolation_value: float,
    keep_aspect_ratio_policy: str,
    mode: str,
    nearest_mode: str,
) -> Value:
    one_of(mode, ("nearest", "linear", "cubic"), "mode")
    one_of(coordinate_transformation_mode, _COORDINATES, "coordinate_transformation_mode")
    one_of(nearest_mode, tuple(_NEAREST)[:-1], "nearest_mode")
    one_of(keep_aspect_ratio_policy, ("stretch", "not_larger", "not_smaller"), "keep_aspect_ratio_policy")
    scales, sizes = (None if v is None or v.tensor.count == 0 else v for v in (scales, sizes))
    cropped = coordinate_transformation_mode == "tf_crop_and_resize"
    if cropped and roi is None:
        raise ops.TypeMismatch("tf_crop_and_resize needs a region of interest")
    if whole_corners and coordinate_transformation_mode == "align_corners":
        coordinate_transformation_mode = "align_whole_corners"
    places = list(range(X.rank)) if axes is None else distinct_axes(b, axes, X.rank)
    chosen = _axes(b, X, places, scales, sizes, roi if cropped else None, keep_aspect_ratio_policy)
    return resampled(
        b,
        X,
        chosen,
        coordinate_transformation_mode,
        mode,
        rounding=nearest_mode,
        cubic_a=cubic_coeff_a,
        exclude_outside=bool(exclude_outside),
        antialias=bool(antialias),
        extrapolation=extrapolation_value,
    )


@onnx_op(since=10, name="Resize", ranks={"scales": 1})
def _resize_10(b, X, scales, *, mode="nearest"):
    return Upsample(b, X, scales, mode=mode)


@onnx_op(since=9, ranks={"scales": 1})
def Upsample(b, X, scales, *, mode="nearest"):
    one_of(mode, ("nearest", "linear", "bilinear"), "mode")
    axes = _axes(b, X, list(range(X.rank)), scales, None, None, "stretch")
    return resampled(b, X, axes, "asymmetric", "nearest" if mode == "nearest" else "linear")


@onnx_op(since=7, name="Upsample")
def _upsample_7(b, X, *, mode="nearest", scales):
    return Upsample(b, X, b.constant(np.array(scales, np.float32)), mode=mode)


@onnx_op(since=1, name="Upsample")
def _upsample_1(b, X, *, height_scale, mode="nearest", width_scale):
    return _upsample_7(b, X, mode=mode, scales=(1.0, 1.0, height_scale, width_scale))
