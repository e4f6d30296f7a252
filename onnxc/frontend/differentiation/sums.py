"""Gradients of Maps, and of what sums, compares or multiplies: Reduce, Contract, Conv, Pool, OverlapAdd."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...errors import UnsupportedError
from ...ir import dims, dtypes, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Node, Value
from .movement import zeros
from .scalars import slope


def summed(b: Builder, x: Value, shape: Sequence[Dimension]) -> Value:
    """x, of a shape that `shape` broadcasts to, summed where it repeats what has that shape."""
    extra = x.rank - len(shape)
    axes = list(range(extra))
    for axis, (whole, part) in enumerate(zip(x.shape[extra:], shape), extra):
        if dims.equal(whole, part) is not True:
            if dims.equal(part, 1) is not True:
                raise UnsupportedError(f"the gradient of what may repeat along an axis of {part}")
            axes.append(axis)
    return b.reshape(b.reduce("sum", x, axes) if axes else x, shape)


def of_map(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    """Of a Map, and of the body of a Reduce."""
    shifted = expr.substitute(
        node.op.body, {k: expr.input_(k + 1, v.dtype) for k, v in enumerate(node.inputs)}
    )
    found = slope(shifted, operand + 1, expr.input_(0, g.dtype))
    if found is None:
        return None
    whole = b.emit(ops.Map(found, tuple(g.shape)), g, *node.inputs)[0]
    return summed(b, whole, node.inputs[operand].shape)


def of_reduce(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    """Of the greatest elements and the smallest all equal ones get the whole cotangent's equal parts; of a
    product each element gets the product of the others."""
    op, x = node.op, node.inputs[0]
    shape = x.shape
    kept = [1 if a in op.axes else d for a, d in enumerate(shape)]
    g = b.broadcast(b.reshape(g, kept), shape)
    if op.body is not None and op.kind != "sum":
        x = b.emit(ops.Map(op.body, tuple(shape)), *node.inputs)[0]
    if op.kind == "prod":
        g = b.map(g, _product_of_others(b, x, op.axes), lambda g, p: g * p)
    elif op.kind in ("min", "max"):
        y = b.reshape(node.outputs[0], kept)
        equal = b.map(x, y, lambda x, y: x.equals(y).cast(x.dtype))
        count = b.reduce("sum", equal, op.axes, keepdims=True)
        g = b.map(g, equal, count, lambda g, e, n: g * e / n)
    elif op.kind != "sum":
        return None
    return g if op.body is None else of_map(b, node, g, operand)


def _product_of_others(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    """Of each element the product of all others along axes: of those before and of those after."""
    order = [*(a for a in range(x.rank) if a not in axes), *axes]
    moved = b.transpose(x, order)
    first = x.rank - len(axes)
    rows = b.reshape(moved, (*moved.shape[:first], dims.product(moved.shape[first:])))
    before, after = (b.emit(ops.Cumulate("prod", first, True, back), rows)[0] for back in (False, True))
    others = b.reshape(b.map(before, after, lambda p, q: p * q), moved.shape)
    return b.transpose(others, sorted(range(x.rank), key=order.__getitem__))


def _before_epilogue(b: Builder, node: Node[Any], g: Value) -> Value:
    """The cotangent of a sum, whose epilogue may only narrow it."""
    end: Expr | None = node.op.epilogue
    if end is None:
        return g
    if end.op != "cast" or end.args[0].op != "input" or len(node.inputs) > 2:
        raise UnsupportedError("the gradient of a sum with an epilogue")
    return b.cast(g, node.op.accumulate)


def of_contract(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    """The product of the cotangent and the other operand, repeated along axes of this one that neither the
    other nor the result has."""
    op, (x, y, *_) = node.op, node.inputs
    g = _before_epilogue(b, node, g)
    own, other, value, against = (op.lhs, op.rhs, x, y) if operand == 0 else (op.rhs, op.lhs, y, x)
    alone = [label for label in own if label not in op.out and label not in other]
    kept = "".join(label for label in own if label not in alone)
    found = b.contract(op.out, other, kept, g, b.cast(against, op.accumulate))
    shape = [1 if label in alone else d for label, d in zip(own, value.shape)]
    return b.cast(b.broadcast(b.reshape(found, shape), value.shape), value.dtype)


# Windows -----------------------------------------------------------------------------------------


def of_conv(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    """Of the image the convolution that goes back, of the weights one over the images of a batch: each window
    of an image, spaced as the kernel's elements were, is weighed by the cotangent, spaced by the strides."""
    op, (x, w, *_) = node.op, node.inputs
    g, x, w = _before_epilogue(b, node, g), b.cast(x, op.accumulate), b.cast(w, op.accumulate)
    value = node.inputs[operand]
    plain = replace(op, epilogue=None, output_padding=())
    if operand == 0 and op.transposed:
        whole = b.emit(replace(plain, transposed=False), g, w)[0]
        return b.cast(b.slice(whole, (0,) * x.rank, x.shape), value.dtype)
    if operand == 0:
        found = _spread(b, g, w, plain, x.shape[2:])
    else:
        image, kernel = (g, x) if op.transposed else (x, g)
        found = _of_weights(b, image, kernel, plain, w.shape)
    return b.cast(found, value.dtype)


def _spread(b: Builder, g: Value, w: Value, op: ops.Conv, sizes: Sequence[Dimension]) -> Value:
    """The transposed convolution of g that gives images of these sizes."""
    pads = list(op.pads)
    rank = len(sizes)
    for axis, (size, windows) in enumerate(zip(sizes, g.shape[2:])):
        extent = (w.shape[axis + 2] - 1) * op.dilations[axis] + 1
        pads[rank + axis] = (windows - 1) * op.strides[axis] + extent - pads[axis] - size
    return b.emit(replace(op, transposed=True, pads=tuple(pads)), g, w)[0]


def _of_weights(b: Builder, image: Value, kernel: Value, op: ops.Conv, shape: Sequence[Dimension]) -> Value:
    """[N, G*A, ...] and [N, O, ...] → [O, A, ...]: the batch is summed as channels are, a group's channels
    are images of their own."""
    batch, channels, *sizes = image.shape
    part = dims.floor_divide(channels, op.groups)
    split = b.reshape(image, (batch, op.groups, part, *sizes))
    spatial = range(3, split.rank)
    images = b.reshape(b.transpose(split, (2, 1, 0, *spatial)), (part, op.groups * batch, *sizes))
    kernels = b.transpose(kernel, (1, 0, *range(2, kernel.rank)))
    back = replace(op, strides=op.dilations, dilations=op.strides, transposed=False)
    found = b.emit(back, images, kernels)[0]
    found = b.transpose(found, (1, 0, *range(2, found.rank)))
    return b.slice(found, (0,) * found.rank, shape)


def of_pool(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    """The greatest element of a window, the first of equal ones, gets its cotangent; of sums and means all
    elements do, as by a convolution with ones."""
    op, (x,) = node.op, node.inputs
    batch, channels, *sizes = x.shape
    if op.kind == "max":
        found = b.emit(replace(op, kind="argmax", column_major=False), x)[0]
        rows = [b.reshape(v, (batch, channels, dims.product(op.sizes))) for v in (found, g)]
        nothing = zeros(b, x.dtype, (batch, channels, dims.product(sizes)))
        return b.reshape(b.emit(ops.Scatter("elements", 2, "add"), nothing, *rows)[0], x.shape)
    if op.kind == "mean":
        inside = b.broadcast(b.constant(1, x.dtype), (1, 1, *sizes))
        counts = b.emit(replace(op, kind="sum"), inside)[0]
        g = b.map(g, counts, lambda g, n: g / n)
    elif op.kind != "sum":
        return None
    wide = "float32" if dtypes.bits(x.dtype) < 32 else x.dtype
    back = ops.Conv(op.strides, op.pads, op.dilations, accumulate=wide)
    ones = b.broadcast(b.constant(1, wide), (1, 1, *op.kernel))
    single = b.reshape(b.cast(g, wide), (batch * channels, 1, *op.sizes))
    return b.cast(b.reshape(_spread(b, single, ones, back, sizes), x.shape), x.dtype)


def of_overlap_add(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    """Blocks taken out of the cotangent, as by a convolution with weights of one 1 each."""
    op, (x,) = node.op, node.inputs
    taps = dims.product(op.kernel)
    wide = "float32" if dtypes.bits(x.dtype) < 32 else x.dtype
    flat = expr.const(0, "int64")
    for axis, size in enumerate(op.kernel, 2):
        flat = flat * expr.size(size) + expr.index(axis)
    one = flat.equals(expr.index(0)).cast(wide)
    weights = b.emit(ops.Map(one, (taps, 1, *op.kernel)))[0]
    axes = zip(x.shape[2:], op.strides, op.kernel, op.dilations)
    reach = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in axes]
    border = (*op.pads, *(r - p - size for r, p, size in zip(reach, op.pads, op.sizes)))
    single = b.reshape(b.cast(g, wide), (dims.product(g.shape[:2]), 1, *op.sizes))
    found = b.emit(ops.Conv(op.strides, border, op.dilations, accumulate=wide), single, weights)[0]
    return b.cast(b.reshape(found, x.shape), x.dtype)
