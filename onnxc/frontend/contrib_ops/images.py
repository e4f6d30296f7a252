"""Windows and crops of images whose place the run tells: CropAndResize, MaxpoolWithMask and
ConvTransposeWithDynamicPads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Value
from ..onnx_ops import convolution
from ..onnx_ops.common import checked, generate, one_of, require
from ..rules import Types
from .schema import FLOATS, Int64, contrib_op

Image = Annotated[Value, Types.of("T1", *FLOATS)]
Index = Annotated[Value, Types.of("T2", "int32")]
X = Annotated[Value, Types.of("T", *FLOATS)]
Single = Annotated[Value, Types.of("T", "float")]
Mask = Annotated[Value, Types.of("tensor(int32)", "int32")]


# Crops -------------------------------------------------------------------------------------------


def _coordinates(b: Builder, rois: Value, column: int, count: Dimension, size: Dimension) -> Value:
    """[R, count] places between a roi's two ends along an axis of so many pixels; the middle of one alone."""
    pixels = expr.size(size).cast(rois.dtype) - 1
    first, last = (b.take(rois, 1, at, 1) for at in (column, column + 2))
    low, high = (expr.input_(k, rois.dtype) for k in range(2))
    index, steps = expr.index(1), expr.size(count) - 1
    step = (high - low) * pixels / steps.cast(rois.dtype)
    place = expr.where(index.equals(steps), high * pixels, low * pixels + index.cast(rois.dtype) * step)
    place = expr.where(index.equals(0), low * pixels, place)
    middle = (low + high) * pixels * 0.5
    return generate(b, (rois.shape[0], count), expr.where(steps.equals(0), middle, place), first, last)


@contrib_op(outputs="Y", ranks={"X": 4, "rois": 2, "batch_indices": 1, "crop_size": 1})
def CropAndResize(
    b,
    X: Image,
    rois: Image,
    batch_indices: Index,
    crop_size: Index,
    *,
    extrapolation_value=0.0,
    mode="bilinear",
):
    """[R, C, height, width] of images [N, C, H, W]: the boxes (y1, x1, y2, x2), fractions of an image, at
    sizes that crop_size names; places outside the image have the value of the attribute."""
    one_of(mode, ("bilinear", "nearest"), "mode")
    if X.rank != 4 or rois.rank != 2 or dims.equal(rois.shape[1], 4) is False or batch_indices.rank != 1:
        raise ops.TypeMismatch(f"{rois.type} are no boxes in images {X.type}")
    require(b, [(rois.shape[1], 4)], f"a box of {rois.type}")
    images, channels, height, width = X.shape
    out_height, out_width = b.dimensions(crop_size, 1, "crop")
    count = rois.shape[0]
    rows = b.reshape(b.transpose(X, (0, 2, 3, 1)), (images * height * width, channels))
    which = checked(
        b, b.cast(batch_indices, "int64"), lambda e: (e >= 0) & (e < expr.size(images)), "index_out_of_range"
    )
    which = b.reshape(which, (count, 1, 1))
    y = b.reshape(_coordinates(b, rois, 0, out_height, height), (count, out_height, 1))
    x = b.reshape(_coordinates(b, rois, 1, out_width, width), (count, 1, out_width))
    at, real = expr.input_(0, "int64"), [expr.input_(k, X.dtype) for k in (1, 2)]

    def pixel(place: Expr, size: Dimension) -> Expr:
        return place.cast("int64").clip(0, expr.size(size) - 1)

    def gathered(own_y: Expr, own_x: Expr) -> Value:
        flat = (at * expr.size(height) + pixel(own_y, height)) * expr.size(width) + pixel(own_x, width)
        places = generate(b, (count, out_height, out_width), flat, which, y, x)
        return b.emit(ops.Gather("axis"), rows, places)[0]

    if mode == "nearest":
        nearest = [expr.floor(e) + (e - expr.floor(e) >= 0.5).cast(X.dtype) for e in real]
        found = gathered(*nearest)
    else:
        corners = [gathered(f(real[0]), g(real[1])) for f in _ENDS for g in _ENDS]
        shares = [b.map(v, lambda e: e - expr.floor(e)) for v in (y, x)]
        shares = [b.reshape(v, (*v.shape, 1)) for v in shares]

        def between(a: Expr, c: Expr, d: Expr, e: Expr, v: Expr, u: Expr) -> Expr:
            top, bottom = a + (c - a) * u, d + (e - d) * u
            return top + (bottom - top) * v

        found = b.map(*corners, *shares, between)
    inside = b.map(y, x, lambda v, u: _within(v, height) & _within(u, width))
    inside = b.reshape(inside, (*inside.shape, 1))
    crops = b.map(inside, found, lambda k, e: expr.where(k, e, extrapolation_value))
    return b.transpose(crops, (0, 3, 1, 2))


_ENDS = (expr.floor, expr.ceil)


def _within(place: Expr, size: Dimension) -> Expr:
    return (place >= 0) & (place <= expr.size(size).cast(place.dtype) - 1)


# Windows -----------------------------------------------------------------------------------------


@contrib_op(outputs="Y", ranks={"*": "n"})
def MaxpoolWithMask(
    b,
    X: Single,
    M: Mask,
    *,
    auto_pad="NOTSET",
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    storage_order=0,
    strides: Sequence[int] | None = None,
):
    """The greatest of a window, each of whose rows ends where the mask is 0."""
    if not kernel_shape or len(kernel_shape) > 3 or M.rank != X.rank:
        raise ops.TypeMismatch(f"windows {kernel_shape} over {X.type} with the mask {M.type}")
    place = convolution.window(X, kernel_shape, strides, None, pads, auto_pad)
    lowest = float(np.finfo(np.float32).min)
    images = _padded(b, X, place, lowest)
    masks = _padded(b, _ends_of_rows(b, X, M), place, 1)
    sizes = (*X.shape[:2], *place.sizes(X.shape[2:]))

    def tap(x: Value, at: Sequence[int]) -> Value:
        return b.slice(x, (0, 0, *at), sizes, (1, 1, *place.strides))

    best = b.broadcast(b.constant(lowest, "float32"), sizes)
    for row in np.ndindex(*kernel_shape[:-1]):
        goes_on = None
        for column in range(kernel_shape[-1]):
            own = b.cast(tap(masks, (*row, column)), "bool")
            goes_on = own if goes_on is None else b.map(goes_on, own, lambda x, y: x & y)
            pixel = tap(images, (*row, column))
            best = b.map(best, goes_on, pixel, lambda m, k, x: expr.where(k & (x > m), x, m))
    return best


def _padded(b: Builder, x: Value, place: convolution.Window, value: float) -> Value:
    """x with the window's pads, and behind them as much as the last window may reach."""
    before, after = ((0, 0, *part) for part in (place.pads[: place.rank], place.pads[place.rank :]))
    return b.emit(ops.Pad("constant", before, after), x, b.constant(value, x.dtype))[0]


def _ends_of_rows(b: Builder, x: Value, mask: Value) -> Value:
    """The mask of each image, 1 at the first pixel of those with several axes. ONNX Runtime begins to read
    that of image i at the element i * pixels modulo the number of masks, which is kept."""
    pixels, masks = (expr.size(dims.product(d)) for d in (x.shape[2:], mask.shape[:2]))
    inside = expr.const(0, "int64")
    for axis in range(2, x.rank):
        inside = inside * expr.size(x.shape[axis]) + expr.index(axis)
    image = expr.index(0) * expr.size(x.shape[1]) + expr.index(1)
    places = generate(b, x.shape, (image * pixels) % masks + inside)
    found = b.emit(ops.Gather("axis"), b.reshape(mask, (mask.tensor.count,)), places)[0]
    if x.rank == 3:
        return found
    return generate(b, x.shape, expr.where(inside.equals(0), 1, expr.input_(0, "int32")), found)


@contrib_op(outputs="Y", ranks={"X": "n", "W": "n", "Pads": 1, "B": 1})
def ConvTransposeWithDynamicPads(
    b,
    X: X,
    W: X,
    Pads: Int64 | None = None,
    B: X | None = None,
    *,
    auto_pad="NOTSET",
    dilations: Sequence[int] | None = None,
    group=1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
):
    """ConvTranspose, and without what the pads (before..., after...) cut off."""
    whole = convolution.ConvTranspose(
        b,
        X,
        W,
        B,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        output_padding=output_padding,
        strides=strides,
    )
    if Pads is None or auto_pad != "NOTSET":
        return whole
    rank = X.rank - 2
    if dims.equal(Pads.tensor.count, 2 * rank) is False:
        raise ops.TypeMismatch(f"{Pads.type} are no pads of {rank} axes")
    pads = b.dimensions(b.reshape(Pads, (2 * rank,)), 0, "pad")
    sizes = [d - before - after for d, before, after in zip(whole.shape[2:], pads[:rank], pads[rank:])]
    return b.slice(whole, (0, 0, *pads[:rank]), (*whole.shape[:2], *sizes))
