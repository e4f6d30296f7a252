"""Import rules of signal processing: Fourier transforms as products with matrices of angles,
windows, mel weights.

A transform sums over the time axis and the real and imaginary parts at once: weights [time, part in,
bin, part out]. One of a length that is known and large is several short ones, or adds numbers that have the
same angles first; one of a length that only the run knows, or of large factors, is a function of the C
runtime.
"""

from __future__ import annotations

import math
import string
from functools import cache

from ...ir import dims, dtypes, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import TensorType, Value
from ..rules import onnx_op
from .common import axis_switch, checked, element_type, generate, scalar, wide, with_length, zeros

LARGEST_FACTOR = 64  # of a size, that is transformed by one product
MOVES = 300  # multiply-adds that it takes as long as to turn and move a number between two products
READS = 9  # multiply-adds that it takes as long as to read a weight
FOLDS = 80  # that it takes as long as to add and move a number before and behind a product, ...
LARGEST_FOLD = 2048  # ... of a size whose weights are not too many
CACHE = 1 << 22  # bytes that stay in caches between products
CALLS = 3000  # multiply-adds that it takes as long as to transform a number of large factors by the runtime
LARGEST_WEIGHTS = 1 << 24  # bytes of a product: more would be made in every run
EXACT = "float64"  # what sums are computed in, so that what cancels is zero to the precision of the data

# Fourier transforms ------------------------------------------------------------------------------


def _angles(
    b: Builder,
    bins: Dimension,
    times: Dimension,
    period: Dimension,
    parts: tuple[Dimension, int],
    inverse: bool,
    halved: bool = False,
) -> Value:
    """cos and sin of 2 pi bin time / period for complex multiplication, [time, part in, bin, part out].
    `halved`: of a spectrum whose upper half is its lower half's conjugate, the times other than 0 and
    period / 2 count twice."""
    n, k, size = expr.index(0), expr.index(2), expr.size(period)
    angle = ((k * n) % size).cast("float64") * (2 * math.pi / size.cast("float64"))
    cosine, sine = expr.apply("cos", angle), expr.apply("sin", angle)
    sine = sine if inverse else -sine
    source, target = expr.index(1), expr.index(3)
    value = expr.where(source.equals(target), cosine, expr.where(source.equals(0), sine, -sine))
    if halved:
        value = expr.where(n.equals(0) | (2 * n).equals(size), value, 2 * value)
    return generate(b, (times, parts[0], bins, parts[1]), value)


def _product(b: Builder, x: Value, weights: Value) -> Value:
    """x [..., time, parts in] times weights [time, part in, bin, part out]."""
    rows = string.ascii_lowercase[: x.rank - 2]
    return b.contract(rows + "yz", "yzuv", rows + "uv", x, weights)


@cache
def _plan(size: int, parts: int) -> tuple[int, int | None]:
    """Multiply-adds a number of a whole transform of so many times, and the factor of the size that is
    transformed first where that is less than by one product."""
    ways: list[tuple[int, int | None]] = [(2 * parts * size, None)]
    for factor in range(2, min(size // 2, LARGEST_FACTOR) + 1):
        if size % factor == 0:
            ways.append((2 * parts * factor + MOVES + _plan(size // factor, 2)[0], factor))
    return min(ways, key=lambda way: way[0])


def _whole(b: Builder, x: Value, size: int, inverse: bool) -> Value:
    """All bins of x [..., size, parts], complex, by factors of the size ("An Algorithm for the Machine
    Calculation of Complex Fourier Series", Cooley and Tukey, 1965): of n = second * i + j and
    k = first * l + m the sum over i comes first, then a turn by j m / size, then the sum over j."""
    *rows, _, parts = x.shape
    first = _plan(size, dims.number(parts))[1]
    if first is None:
        return _product(b, x, _angles(b, size, size, size, (parts, 2), inverse))
    second, at = size // first, len(rows)
    outer = tuple(range(at))
    columns = b.transpose(b.reshape(x, (*rows, first, second, parts)), (*outer, at + 1, at, at + 2))
    y = _product(b, columns, _angles(b, first, first, first, (parts, 2), inverse))
    y = b.transpose(y, (*outer, at + 1, at, at + 2))  # [..., m, j, part]
    turn = (expr.index(0) * expr.index(1)).cast("float64") * (2 * math.pi / size)
    cosine, sine = (
        generate(b, (first, second, 1), expr.apply(name, turn if inverse else -turn))
        for name in ("cos", "sin")
    )
    real, imaginary = (b.take(y, at + 2, part, 1) for part in (0, 1))
    turned = b.concat(
        [
            b.map(real, imaginary, cosine, sine, lambda r, i, c, s: r * c - i * s),
            b.map(real, imaginary, cosine, sine, lambda r, i, c, s: r * s + i * c),
        ],
        at + 2,
    )
    z = _whole(b, turned, second, inverse)  # [..., m, l, part]
    return b.reshape(b.transpose(z, (*outer, at + 1, at, at + 2)), (*rows, size, 2))


def _divides(weights: int, period: int, parts: int) -> bool:
    """Whether a transform of all times is less work by factors than by one product with so many weights."""
    least, first = _plan(period, parts)
    return first is not None and least * period < weights


def _folds(rows: int, weights: int, period: int) -> bool:
    """Whether the transform of so many rows of real numbers is faster with numbers added first. Of
    few rows most of the time is for reading weights; many, by factors, leave the caches between products."""
    read = 1 + READS / rows
    spilled = 16 * rows * period > CACHE
    factors = _divides(weights, period, 1)
    others = _plan(period, 1)[0] * (2 if spilled else 1) if factors else weights * read / max(period, 1)
    return period % 4 == 0 and period <= LARGEST_FOLD and FOLDS + period * read / 4 < others


def _folded(b: Builder, x: Value, size: int) -> Value:
    """The first half of the bins of real x [..., size, 1]. A bin's cosines, and its sines, are the same but
    for their signs at n, size - n, size / 2 - n and size / 2 + n. The signs differ for even and odd bins:
    four sums of a quarter of the numbers are multiplied for a quarter of the results each."""
    *rows, _, _ = x.shape
    half, count = size // 2, size // 4 + 1
    x = b.reshape(x, (1, 1, *rows, size))
    last = x.rank - 1

    def part(start: int, count: int, step: int) -> Value:
        return b.slice(x, (*(0,) * last, start), (*x.shape[:-1], count), (*(1,) * last, step))

    odd, imaginary = expr.index(0), expr.index(1)
    one, plain = expr.const(1.0, "float64"), (1,) * (last - 1)
    sums = b.map(
        part(0, count, 1),
        b.concat([part(0, 1, 1), part(size - 1, count - 1, -1)], last),
        part(half, count, -1),
        part(half, count, 1),
        generate(b, (1, 2, *plain), expr.where(imaginary.equals(0), one, -one)),
        generate(b, (2, 2, *plain), expr.where(imaginary.equals(odd), one, -one)),
        lambda low, high, below, above, s, t: (
            low.cast("float64")
            + s * high.cast("float64")
            + t * (below.cast("float64") + s * above.cast("float64"))
        ),
    )
    n, bin_ = expr.index(2), 2 * expr.index(3) + odd
    angle = ((bin_ * n) % size).cast("float64") * (2 * math.pi / size)
    weight = expr.where(imaginary.equals(0), expr.apply("cos", angle), -expr.apply("sin", angle))
    twice = n.equals(0) | n.equals(count - 1)  # these numbers were added to themselves
    weights = generate(b, (2, 2, count, count), expr.where(twice, weight / 2, weight))
    labels = string.ascii_lowercase[: len(rows)]
    y = b.cast(b.contract(f"yz{labels}u", "yzuv", f"yz{labels}v", sums, weights), x.dtype)
    y = b.transpose(y, (*range(2, last + 1), 0, 1))  # [..., bin / 2, odd, part]
    return b.take(b.reshape(y, (*rows, 2 * count, 2)), len(rows), 0, half + 1)


def _remainder(size: int, parts: int) -> int:
    """How many times the last product of a transform by factors is of."""
    first = _plan(size, parts)[1]
    return size if first is None else _remainder(size // first, 2)


def _called(rows: int, weights: int, period: int, parts: int) -> bool:
    """Whether the transform of so many rows is faster by the runtime, which knows a way for large factors,
    than by factors or by one product with so many weights."""
    work = weights
    if _divides(weights, period, parts):
        work, weights = _plan(period, parts)[0] * period, 4 * _remainder(period, parts) ** 2
    read = READS * weights / rows if 8 * weights > CACHE else 0
    return 8 * weights > LARGEST_WEIGHTS or work + read > CALLS * period


def _extended(b: Builder, x: Value, size: Dimension) -> Value:
    """x [..., times, parts] with zeros behind its times."""
    if x.shape[-2] == size:
        return x
    after = (*(0,) * (x.rank - 2), size - x.shape[-2], 0)
    return b.emit(ops.Pad("constant", (0,) * x.rank, after), x, zeros(b, x.dtype, ()))[0]


def _mirrored(b: Builder, half: Value, size: int) -> Value:
    """All bins of real numbers, of which half [..., size / 2 + 1, 2] are first: others are conjugates."""
    *rows, count, _ = half.shape
    at, others = len(rows), size - dims.number(count)
    back = b.slice(half, (*(0,) * at, others, 0), (*rows, others, 2), (*(1,) * at, -1, 1))
    imaginary = expr.index(at + 1).equals(1)
    return b.concat([half, b.map(back, lambda e: expr.where(imaginary, -e, e))], at)


def _by_runtime(b: Builder, x: Value, period: Dimension, inverse: bool, onesided: bool) -> Value:
    """The sums of x [..., times, parts] for the bins, or for the times of an inverse."""
    half = dims.floor_divide(period, 2) + 1
    bins, out = (half, 2) if onesided and not inverse else (period, 1 if onesided else 2)
    type_ = TensorType(EXACT, (*x.shape[:-2], bins, out))
    return b.call(
        "fourier", [b.cast(x, EXACT), b.elements([period])], [type_], [int(inverse), int(onesided)]
    )[0]


def _of_known_size(b: Builder, x: Value, period: int, inverse: bool, onesided: bool) -> Value:
    """The same where how many times, parts and bins there are is known."""
    *rows, _, _ = x.shape
    times, parts = (dims.number(n) for n in x.shape[-2:])
    half, halved, at = period // 2 + 1, onesided and inverse, len(rows)
    bins, out = half if onesided and not inverse else period, 1 if halved else 2
    count, weights = dims.typical(dims.product(rows)), parts * out * bins * times
    if parts == 1 and not inverse and _folds(count, weights, period):
        y = _folded(b, _extended(b, x, period), period)
        return y if onesided else _mirrored(b, y, period)
    whole = 2 if halved else parts
    if _called(count, weights, period, whole):
        return _by_runtime(b, x, period, inverse, onesided)
    y = b.cast(x, EXACT)
    if not _divides(weights, period, whole):
        return _product(b, y, _angles(b, bins, times, period, (parts, out), inverse, halved))
    y = _mirrored(b, _extended(b, y, half), period) if halved else _extended(b, y, period)
    y = b.take(_whole(b, y, period, inverse), at, 0, bins)
    return b.take(y, at + 1, 0, out)


def _transformed(b: Builder, x: Value, axis: int, period: Dimension, inverse: bool, onesided: bool) -> Value:
    """x [..., time, ..., parts] with the axis transformed, its length cut or extended by zeros
    to the period."""
    parts = x.shape[-1]
    if x.rank < 2 or (isinstance(parts, int) and parts not in (1, 2)):
        raise ops.TypeMismatch(f"{x.type} has neither real nor complex numbers as its last axis")
    if onesided and isinstance(parts, int) and inverse == (parts == 1):
        raise ops.TypeMismatch(
            "a one-sided transform is of real numbers, a one-sided inverse of complex ones"
        )
    half = dims.floor_divide(period, 2) + 1
    times = dims.minimum(x.shape[axis], half if onesided and inverse else period)
    last = x.rank - 2  # where the axis is neighbour to the parts, so that bins and parts are columns
    order = [k for k in range(last + 1) if k != axis]
    y = b.transpose(b.take(x, axis, 0, times), (*order, axis, last + 1))
    if isinstance(period, int) and isinstance(parts, int):
        if not isinstance(times, int):
            y = _extended(b, y, half if onesided and inverse else period)
        y = _of_known_size(b, y, period, inverse, onesided)
    else:
        y = _by_runtime(b, y, period, inverse, onesided)
    if inverse:
        y = b.map(y, lambda e: e / expr.size(period).cast(EXACT))
    back = sorted(range(last + 1), key=(*order, axis).__getitem__)
    return b.cast(b.transpose(y, (*back, last + 1)), x.dtype)


@onnx_op(since=20, ranks={"dft_length": "<=1", "axis": "<=1"})
def DFT(b, input, dft_length=None, axis=None, *, inverse=0, onesided=0):
    """The axis may be data: then each possible one is a branch."""
    axis = b.constant(-2, "int64") if axis is None else axis

    def period(place: int) -> Dimension:
        if dft_length is not None:
            return b.dimension(scalar(b, dft_length), 0, "period")
        size = input.shape[place]
        return 2 * (size - 1) if onesided and inverse else size

    def transformed(inner: Builder, place: int) -> Value:
        return _transformed(inner, inner.capture(input), place, period(place), bool(inverse), bool(onesided))

    def shape(place: int) -> tuple[Dimension, ...]:
        bins = dims.floor_divide(period(place), 2) + 1 if onesided and not inverse else period(place)
        return (*input.shape[:place], bins, *input.shape[place + 1 : -1], 1 if onesided and inverse else 2)

    return axis_switch(
        b, axis, input.rank, input.rank - 1, lambda k: TensorType(input.dtype, shape(k)), transformed
    )


@onnx_op(since=17, name="DFT", ranks={"dft_length": "<=1"})
def _dft_17(b, input, dft_length=None, *, axis=1, inverse=0, onesided=0):
    return DFT(b, input, dft_length, b.constant(axis, "int64"), inverse=inverse, onesided=onesided)


@onnx_op(since=17, ranks={"frame_step": "<=1", "window": 1, "frame_length": "<=1"})
def STFT(b, signal, frame_step, window=None, frame_length=None, *, onesided=1):
    """The transform of each frame of the signal, times the window. A signal without an axis for real and
    imaginary parts, which ONNX Runtime and exporters allow, is real."""
    if signal.rank == 2:
        signal = b.reshape(signal, (*signal.shape, 1))
    if signal.rank != 3:
        raise ops.TypeMismatch(f"{signal.type} is no batch of signals")
    step = scalar(b, frame_step)
    if b.known(step) is None:
        step = checked(b, step, lambda s: s > 0, "invalid_value", "the frame step is {}")
    hop = b.dimension(step, 1, "step")
    if isinstance(hop, int) and hop < 1:
        raise ops.TypeMismatch(f"the frame step is {hop}")
    if frame_length is not None:
        size = b.dimension(scalar(b, frame_length), 0, "frame")
    else:
        size = signal.shape[1] if window is None else window.shape[0]
    count = dims.maximum(dims.floor_divide(signal.shape[1] - size, hop) + 1, 0)
    places = generate(b, (count, size), expr.index(0) * expr.size(hop) + expr.index(1))
    frames = b.emit(ops.Gather("axis", 1), signal, places)[0]
    if window is not None:
        window = with_length(b, window, size, "the window")
        frames = b.map(frames, b.reshape(window, (size, 1)), lambda e, w: e * w)
    if onesided and signal.shape[2] == 2:
        raise ops.TypeMismatch("a one-sided transform is of real numbers")
    return _transformed(b, frames, 2, size, False, bool(onesided))


# Windows -----------------------------------------------------------------------------------------


def _cosines(b: Builder, size: Value, periodic: int, code: int, *factors: float) -> Value:
    """sum of factors[k] * cos(2 pi k i / n), where n is the size, or one less if the window is
    not periodic. Even ones are added first: of the Blackman window's peak 0.42 + 0.08 + 0.5 is 1, other
    orders are less."""
    count, dtype = (
        b.dimension(b.cast(scalar(b, size, "size"), "int64"), 0, "size"),
        element_type(code, "output_datatype"),
    )
    if isinstance(count, int) and count < 0:
        raise ops.TypeMismatch(f"the size of the window is {count}")
    exact = wide(dtype) if dtypes.is_float(dtype) else "float64"
    period = expr.size(count if periodic else count - 1).cast(exact)
    turn = expr.index(0).cast(exact) * (2 * math.pi) / period
    terms = [
        expr.const(factors[0], exact),
        *(f * expr.apply("cos", turn * k) for k, f in enumerate(factors[1:], 1)),
    ]
    return generate(b, (count,), expr.sum_of(terms[::2] + terms[1::2]).cast(dtype))


@onnx_op(since=17, ranks={"size": "<=1"})
def HannWindow(b, size, *, output_datatype=1, periodic=1):
    return _cosines(b, size, periodic, output_datatype, 0.5, -0.5)


@onnx_op(since=17, ranks={"size": "<=1"})
def HammingWindow(b, size, *, output_datatype=1, periodic=1):
    return _cosines(b, size, periodic, output_datatype, 25 / 46, -21 / 46)


@onnx_op(since=17, ranks={"size": "<=1"})
def BlackmanWindow(b, size, *, output_datatype=1, periodic=1):
    return _cosines(b, size, periodic, output_datatype, 0.42, -0.5, 0.08)


# Mel weights -------------------------------------------------------------------------------------


@onnx_op(since=17, ranks={"*": "<=1"})
def MelWeightMatrix(
    b, num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz, *, output_datatype=1
):
    """Triangles between neighbouring edges, which are equally spaced on the mel scale 2595
    log10(1 + f / 700). Slopes are divided for once: a peak is 1, what is beside it within 1.5 ulp."""
    mels, period = (
        b.dimension(b.cast(scalar(b, v), "int64"), 0, n)
        for v, n in ((num_mel_bins, "mels"), (dft_length, "period"))
    )
    edges = [b.cast(scalar(b, v), "float64") for v in (sample_rate, lower_edge_hertz, upper_edge_hertz)]
    rate, low, high = (expr.input_(k, "float64") for k in range(3))

    def mel(hertz: Expr) -> Expr:
        return 2595 * expr.log(1 + hertz / 700) / math.log(10)

    step = (mel(high) - mel(low)) / expr.size(mels + 2).cast("float64")
    hertz = 700 * (expr.exp((expr.index(0).cast("float64") * step + mel(low)) * (math.log(10) / 2595)) - 1)
    bin_of_edge = expr.floor(expr.size(period + 1).cast("float64") * hertz / rate)
    countable = isinstance(period, int) and period < 1 << 24  # float32 holds every bin
    dtype = (
        "float32"
        if countable and element_type(output_datatype, "output_datatype") != "float64"
        else "float64"
    )
    bins = generate(b, (mels + 2,), bin_of_edge.cast(dtype), *edges)
    j = expr.index(0).cast(dtype)
    corners = [b.take(bins, 0, k, mels) for k in range(3)]
    slopes = [
        b.map(*corners[k : k + 2], lambda low, high: expr.where(low <= high, 1 / (high - low), 0))
        for k in range(2)
    ]
    peaks = b.map(*corners, lambda low, peak, high: expr.where((low <= peak) & (peak <= high), peak, -1))
    left, right, rise, fall, peak = (expr.input_(k, dtype) for k in range(5))
    rises, falls = (j - left) * rise, (right - j) * fall
    flank = expr.where(rises < falls, rises, falls)
    value = expr.where(j.equals(peak), 1, expr.where(flank > 0, flank, 0))
    shape = (dims.floor_divide(period, 2) + 1, mels)
    operands = (corners[0], corners[2], *slopes, peaks)
    return generate(b, shape, value.cast(element_type(output_datatype, "output_datatype")), *operands)
