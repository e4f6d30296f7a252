"""Gradients of ops that move elements, and of those that accumulate along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.graph import Node, Value


def zeros(b: Builder, dtype: str, shape: Sequence[Dimension]) -> Value:
    """A tensor of zeros, of which one is stored."""
    return b.broadcast(b.constant(0, dtype), shape)


def numbers(b: Builder, shape: Sequence[Dimension]) -> Value:
    """The places of a tensor's elements in row-major order."""
    count = dims.product(shape)
    return b.reshape(b.emit(ops.Map(expr.index(0), (count,)))[0], shape)


def added(b: Builder, g: Value, places: Value, shape: Sequence[Dimension]) -> Value:
    """A tensor of the shape to whose elements at `places` (as `numbers` counts) those of g are added."""
    flat = [b.reshape(v, (v.tensor.count,)) for v in (places, g)]
    nothing = zeros(b, g.dtype, (dims.product(shape),))
    return b.reshape(b.emit(ops.Scatter("elements", 0, "add"), nothing, *flat)[0], shape)


def of_moved(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    """Of an op that only copies elements of its first operand: the same op over their numbers tells where
    each result came from."""
    if operand > 0:
        return None
    x, *others = node.inputs
    places = b.emit(node.op, numbers(b, x.shape), *others)[0]
    return added(b, g, places, x.shape)


def of_transpose(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    """The axes go back to where they came from."""
    perm = node.op.perm
    return b.transpose(g, sorted(range(len(perm)), key=perm.__getitem__))


def of_slice(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    """What is not in the slice gets 0."""
    op, x = node.op, node.inputs[0]
    if any(step != 1 for step in op.steps):
        return of_moved(b, node, g, operand)
    after = tuple(d - s - n for d, s, n in zip(x.shape, op.starts, op.sizes))
    return b.emit(ops.Pad("constant", op.starts, after), g, b.constant(0, g.dtype))[0]


def of_pad(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    """What pads by a number gets the sum of all that is around."""
    op, x = node.op, node.inputs[0]
    if op.mode != "constant":
        return of_moved(b, node, g, operand)
    inner = b.slice(g, op.before, x.shape)
    if operand == 0:
        return inner
    whole, part = (b.reduce("sum", v, range(v.rank)) for v in (g, inner))
    return b.map(whole, part, lambda w, p: w - p)


def of_concat(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    """Each operand gets the part of the cotangent that lies where the operand does."""
    axis = node.op.axis
    start: Dimension = sum((v.shape[axis] for v in node.inputs[:operand]), 0)
    return b.take(g, axis, start, node.inputs[operand].shape[axis])


def of_sort(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    """Each element gets the cotangent of the place that it was sorted to, or 0 where it was left out."""
    x = node.inputs[0]
    back = ops.Scatter("elements", node.op.axis)
    return b.emit(back, zeros(b, x.dtype, x.shape), node.outputs[1], g)[0]


def of_scatter(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    """Where nothing is combined, what was written last, or the element itself where nothing was, gets the
    cotangent; of the least and the greatest all equal ones do in equal parts."""
    op, (x, indices, updates) = node.op, node.inputs
    read = replace(ops.Gather("axis"), form=op.form, axis=op.axis)

    def at(value: Value) -> Value:
        return b.emit(read, value, indices)[0]

    def written(into: Value, what: Value, reduction: str = "none") -> Value:
        return b.emit(replace(op, reduction=reduction), into, indices, what)[0]

    if operand == 1:
        return None
    if op.reduction == "add":
        return g if operand == 0 else at(g)
    if op.reduction == "none":
        if operand == 0:
            return written(g, zeros(b, g.dtype, updates.shape))
        own = numbers(b, updates.shape)
        last = at(written(zeros(b, "int64", x.shape), own))
        return b.map(at(g), own, last, lambda g, k, m: expr.where(k.equals(m), g, 0))
    y = node.outputs[0]
    if op.reduction == "mul":
        if operand == 0:
            factors = written(b.broadcast(b.constant(1, x.dtype), x.shape), updates, "mul")
            return b.map(g, factors, lambda g, f: g * f)
        return b.map(at(g), at(y), updates, lambda g, y, u: g * y / u)
    own_equal = b.map(x, y, lambda x, y: x.equals(y).cast(x.dtype))
    equal = b.map(updates, at(y), lambda u, y: u.equals(y).cast(u.dtype))
    shared = b.map(g, written(own_equal, equal, "add"), lambda g, n: g / n)
    chosen, part = (own_equal, shared) if operand == 0 else (equal, at(shared))
    return b.map(chosen, part, lambda c, p: c * p)


def of_cumulate(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    """Of running sums the running sums of the cotangent from the other end."""
    op, x = node.op, node.inputs[0]
    if op.kind == "sum":
        return b.emit(replace(op, reverse=not op.reverse), g)[0]
    return _of_running_product(b, op, x, g)


def _of_running_product(b: Builder, op: ops.Cumulate, x: Value, g: Value) -> Value:
    """dx[j] = sum over i of g[i] times the product of x[k] for all k of i but j: a matrix for each row, so
    that elements may be 0."""
    axis, rank, size = op.axis, x.rank, x.shape[op.axis]
    order = [*(a for a in range(rank) if a != axis), axis]
    rows, cotangents = (b.transpose(v, order) for v in (x, g))
    j, k = expr.index(rank - 1), expr.index(rank)
    element = b.reshape(rows, (*rows.shape[:-1], 1, size))
    shape = (*rows.shape, size)
    without = b.emit(ops.Map(expr.where(j.equals(k), 1, expr.input_(0, x.dtype)), shape), element)[0]
    products = b.emit(replace(op, axis=rank), without)[0]
    later = (k < j if op.reverse else k > j) if op.exclusive else (k <= j if op.reverse else k >= j)
    weighed = expr.where(later, expr.input_(0, x.dtype) * expr.input_(1, x.dtype), 0)
    terms = b.emit(ops.Map(weighed), products, b.reshape(cotangents, (*rows.shape[:-1], 1, size)))[0]
    found = b.reduce("sum", terms, [rank])
    return b.transpose(found, sorted(range(rank), key=order.__getitem__))
