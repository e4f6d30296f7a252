"""Import rules of operators that combine windows, whole images or regions of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.graph import TensorType, Value
from ..rules import onnx_op
from .common import integers, mean, one_of, wide, widened, with_length, with_size, zeros
from .convolution import Window, window

# Windows -----------------------------------------------------------------------------------------


def _pool(
    b: Builder,
    kind: ops.PoolKind,
    x: Value,
    place: Window,
    sizes: Sequence[Dimension],
    column_major: bool = False,
) -> Value:
    place = _reaching(place, x.shape[2:], sizes)
    kernel = dims.numbers(place.kernel)
    op = ops.Pool(kind, kernel, place.strides, place.pads, place.dilations, tuple(sizes), column_major)
    return b.emit(op, x)[0]


def _reaching(place: Window, image: Sequence[Dimension], sizes: Sequence[Dimension]) -> Window:
    """The same windows without the last elements that lie beyond the image in all of them, since rounding up
    lets a window be greater than the image: a pool of whole images is written as a kernel of any size."""
    kernel, pads = list(place.kernel), list(place.pads)
    for axis, (size, count) in enumerate(zip(image, sizes)):
        stride, dilation, before = place.strides[axis], place.dilations[axis], pads[axis]
        if not (isinstance(size, int) and isinstance(count, int) and isinstance(before, int)):
            continue
        reach = max(1, (size + before - 1) // dilation + 1)
        if dims.numbers(kernel)[axis] > reach:
            end = (count - 1) * stride + (reach - 1) * dilation + 1 - before
            kernel[axis], pads[axis + place.rank] = reach, max(0, end - size)
    return replace(place, kernel=tuple(kernel), pads=tuple(pads))


@onnx_op(since=1)
def MaxPool(
    b,
    X,
    *,
    auto_pad="NOTSET",
    ceil_mode=0,
    dilations=None,
    kernel_shape,
    pads=None,
    storage_order=0,
    strides=None,
):
    """The greatest element of each window, and its place in the whole tensor."""
    one_of(storage_order, (0, 1), "storage_order")
    place = window(X, kernel_shape, strides, dilations, pads, auto_pad)
    sizes = place.sizes(X.shape[2:], bool(ceil_mode))
    y = _pool(b, "max", X, place, sizes)
    if b.site.wanted[1:2] != (True,):
        return y
    channels, image = expr.size(X.shape[1]), expr.size(dims.product(X.shape[2:]))
    inside = _pool(b, "argmax", X, place, sizes, bool(storage_order))
    return y, b.map(inside, lambda k: k + (expr.index(0) * channels + expr.index(1)) * image)


@onnx_op(since=7)
def AveragePool(
    b,
    X,
    *,
    auto_pad="NOTSET",
    ceil_mode=0,
    count_include_pad=0,
    dilations=None,
    kernel_shape,
    pads=None,
    strides=None,
):
    """The mean of what each window covers of the image, or of the padded image."""
    place = window(X, kernel_shape, strides, dilations, pads, auto_pad)
    sizes = place.sizes(X.shape[2:], bool(ceil_mode))
    if not count_include_pad or not any(isinstance(p, dims.Dim) or p for p in place.pads):
        return _pool(b, "mean", X, place, sizes)
    total = _pool(b, "sum", b.cast(X, wide(X.dtype)), place, sizes)
    count = expr.const(1, "int64")
    for axis, (kernel, stride, dilation) in enumerate(zip(kernel_shape, place.strides, place.dilations)):
        taps = expr.const(kernel, "int64")
        if ceil_mode:  # the last window may reach beyond the padding, which does not count
            rest = expr.size(X.shape[axis + 2] + place.padding(axis)) - expr.index(axis + 2) * stride
            taps = ((rest + (dilation - 1)) / dilation).minimum(kernel)
        count = count * taps
    return b.map(total, lambda t: (t / count.cast(t.dtype)).cast(X.dtype))


@onnx_op(since=1, name="AveragePool")
def _average_pool_1(b, X, *, auto_pad="NOTSET", kernel_shape, pads=None, strides=None):
    return AveragePool(b, X, auto_pad=auto_pad, kernel_shape=kernel_shape, pads=pads, strides=strides)


def _norm(total: expr.Expr, p: float) -> expr.Expr:
    return (
        total if p == 1 else expr.sqrt(total) if p == 2 else expr.power(total, expr.const(1 / p, total.dtype))
    )


def _power(x: expr.Expr, p: float) -> expr.Expr:
    return abs(x) if p == 1 else x * x if p == 2 else expr.power(abs(x), expr.const(p, x.dtype))


@onnx_op(since=2)
def LpPool(
    b, X, *, auto_pad="NOTSET", ceil_mode=0, dilations=None, kernel_shape, p=2, pads=None, strides=None
):
    """The p-norm of each window."""
    if p < 1:
        raise ops.TypeMismatch(f"the norm's order is {p}")
    place = window(X, kernel_shape, strides, dilations, pads, auto_pad)
    powers = b.map(X, lambda x: _power(x.cast(wide(x.dtype)), p))
    total = _pool(b, "sum", powers, place, place.sizes(X.shape[2:], bool(ceil_mode)))
    return b.map(total, lambda t: _norm(t, p).cast(X.dtype))


@onnx_op(since=1, name="LpPool")
def _lp_pool_1(b, X, *, auto_pad="NOTSET", kernel_shape=None, p=2.0, pads=None, strides=None):
    if kernel_shape is None:
        return GlobalLpPool(b, X, p=p)
    return LpPool(b, X, auto_pad=auto_pad, kernel_shape=kernel_shape, p=p, pads=pads, strides=strides)


# Whole images ------------------------------------------------------------------------------------


def _spatial(x: Value) -> range:
    if x.rank < 2:
        raise ops.TypeMismatch(f"{x.type} is no batch of images")
    return range(2, x.rank)


@onnx_op(since=1)
def GlobalAveragePool(b, X):
    return b.cast(mean(b, X, _spatial(X), True, lambda x: x.cast(wide(X.dtype))), X.dtype)


@onnx_op(since=1)
def GlobalMaxPool(b, X):
    return b.reduce("max", X, _spatial(X), True)


@onnx_op(since=2)
def GlobalLpPool(b, X, *, p=2):
    total = b.reduce("sum", X, _spatial(X), True, lambda x: _power(x.cast(wide(x.dtype)), p))
    return b.map(total, lambda t: _norm(t, p).cast(X.dtype))


@onnx_op(since=1, name="GlobalLpPool")
def _global_lp_pool_1(b, X, *, p=2.0):
    return GlobalLpPool(b, X, p=p)


# Inverses and regions ----------------------------------------------------------------------------


@onnx_op(since=9, ranks={"X": "n", "I": "n", "output_shape": 1})
def MaxUnpool(b, X, I, output_shape=None, *, kernel_shape, pads=None, strides=None):  # noqa: E741
    """X at the places that a MaxPool gave, zeros elsewhere. The places are those of the smallest
    image that MaxPool makes X of; a greater output shape adds zeros at its ends, a smaller one cuts them."""
    place = window(X, kernel_shape, strides, None, pads, "NOTSET")
    image = [
        (d - 1) * s + k - place.padding(a)
        for a, (d, s, k) in enumerate(zip(X.shape[2:], place.strides, place.kernel))
    ]
    shape = [*X.shape[:2], *image]
    flat, count = zeros(b, X.dtype, (dims.product(shape),)), X.tensor.count
    written = b.emit(ops.Scatter("elements"), flat, b.reshape(I, (count,)), b.reshape(X, (count,)))[0]
    result = b.reshape(written, shape)
    if output_shape is None:
        return result
    wanted = b.dimensions(output_shape, 0, "size")
    if len(wanted) != X.rank:
        raise ops.TypeMismatch(f"the output shape has {len(wanted)} sizes for {X.rank} axes")
    if all(dims.equal(w, s) is True for w, s in zip(wanted, shape)):
        return result
    after = tuple(w - s for w, s in zip(wanted, shape))
    return b.emit(ops.Pad("constant", (0,) * X.rank, after), result, zeros(b, X.dtype, ()))[0]


def _regions(b: Builder, X: Value, rois: Value, width: int) -> Value:
    """Regions of images, each of so many numbers."""
    if X.rank != 4 or rois.rank != 2 or dims.equal(rois.shape[1], width) is False:
        raise ops.TypeMismatch(f"{rois.type} are no regions of {width} numbers of images {X.type}")
    return with_size(b, rois, 1, width)


def _of_regions(
    b: Builder,
    symbol: str,
    X: Value,
    rois: Value,
    operands: Sequence[Value],
    shape: ops.Shape,
    attributes: Sequence[int],
) -> Value:
    """What the runtime makes of regions, in the wide type of the images' numbers: each is read many times."""
    type_ = TensorType(wide(X.dtype), shape)
    x, places = widened(b, X), b.cast(rois, type_.dtype)
    made = b.call(symbol, [x, places, *operands], [type_], [*dims.numbers(shape[2:]), *attributes])[0]
    return b.cast(made, X.dtype)


@onnx_op(since=16, ranks={"X": 4, "rois": 2, "batch_indices": 1})
def RoiAlign(
    b,
    X,
    rois,
    batch_indices,
    *,
    coordinate_transformation_mode="half_pixel",
    mode="avg",
    output_height=1,
    output_width=1,
    sampling_ratio=0,
    spatial_scale=1.0,
):
    """Regions of images resampled to one size; without a sampling ratio each has as many samples
    as it has pixels."""
    one_of(mode, ("avg", "max"), "mode")
    one_of(
        coordinate_transformation_mode, ("half_pixel", "output_half_pixel"), "coordinate_transformation_mode"
    )
    rois = _regions(b, X, rois, 4)
    batch_indices = with_length(b, batch_indices, rois.shape[0], "batch_indices")
    if output_height < 1 or output_width < 1 or not 0 <= sampling_ratio <= 1 << 20:
        raise ops.TypeMismatch(f"an output of {output_height} x {output_width} with {sampling_ratio} samples")
    attributes = [sampling_ratio, int(mode == "max"), int(coordinate_transformation_mode == "half_pixel")]
    shape = (rois.shape[0], X.shape[1], output_height, output_width)
    operands = [b.cast(batch_indices, "int64"), b.constant(np.float32(spatial_scale))]
    return _of_regions(b, "roi_align", X, rois, operands, shape, attributes)


@onnx_op(since=10, name="RoiAlign", ranks={"X": 4, "rois": 2, "batch_indices": 1})
def _roi_align_10(
    b,
    X,
    rois,
    batch_indices,
    *,
    mode="avg",
    output_height=1,
    output_width=1,
    sampling_ratio=0,
    spatial_scale=1.0,
):
    return RoiAlign(
        b,
        X,
        rois,
        batch_indices,
        coordinate_transformation_mode="output_half_pixel",
        mode=mode,
        output_height=output_height,
        output_width=output_width,
        sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
    )


@onnx_op(since=1, ranks={"X": 4, "rois": 2})
def MaxRoiPool(b, X, rois, *, pooled_shape, spatial_scale=1.0):
    """The greatest element of each cell of a grid over each region (batch, x1, y1, x2, y2)."""
    rois = _regions(b, X, rois, 5)
    height, width = integers(pooled_shape, 2, 1, "pooled_shape", 1)
    shape = (rois.shape[0], X.shape[1], height, width)
    return _of_regions(b, "max_roi_pool", X, rois, [b.constant(np.float32(spatial_scale))], shape, [])
