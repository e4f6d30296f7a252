"""merge_movement: movement that moves nothing vanishes, and two moves in a row become one.

concat(concat(%x, %y), %z)                      →   concat(%x, %y, %z)
transpose(transpose(%x))                        →   transpose(%x)
reshape(reshape(%x))                            →   reshape(%x)
transpose(%x: [1, n, 8]) perm=(1, 0, 2)         →   reshape(%x) shape=(n, 1, 8)
reshape(transpose(%x: [n, hw, c])) [n, c, h, w]  →   transpose(reshape(%x) [n, h, w, c])
transpose(reshape(%x: [n, c, h, w]) [n, c, hw])  →   reshape(transpose(%x))
slice(slice(%x) starts=(2)) starts=(1)          →   slice(%x) starts=(3)
slice(concat(%x: [3], %y)) starts=(1) sizes=(2)  →   slice(%x) starts=(1) sizes=(2)
slice(pad(%x: [3]) before=(2)) starts=(2)       →   %x, and of nothing but padding a Broadcast
map(%x) { $0 }                                  →   %x

A Reshape costs nothing: it is a view. A Transpose moves images rather than the sequences of their pixels, so
that it meets the Transpose back, and images in blocks of channels.
"""

from __future__ import annotations

from collections import Counter

from ..ir import dims
from ..ir.everywhere import everywhere
from ..ir.expr import input_
from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.ops import Broadcast, Concat, Map, Op, Pad, Reshape, Shape, Slice, Transpose

MAX_PARTS = 64  # that one Concat joins, so that a long chain of them takes no time square in its length


@everywhere
def merge_movement(graph: Graph) -> Graph:
    """graph with fewer nodes that only move elements."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        inputs = tuple(rewriter.of(v) for v in node.inputs)
        if _is_identity(node, inputs):
            rewriter.replace(node.outputs, inputs)
            continue
        merged = _merged(node, inputs, rewriter.readers)
        if merged is None:
            rewriter.copy(node)
            continue
        (*before, op), inputs = merged
        if isinstance(op, Reshape) and not before:
            inputs = (_reshaped(inputs[0]),)
        moves = isinstance(node.op, Transpose) or before
        if isinstance(op, Reshape) and not moves and inputs[0].type == node.outputs[0].type:
            rewriter.replace(node.outputs, inputs)
            continue
        for first in before:
            inputs = rewriter.add(first, inputs, node.origin)
        outputs = rewriter.add(op, inputs, node.origin, [node.outputs[0].name])
        outputs[0].elements = node.outputs[0].elements
        rewriter.replace(node.outputs, outputs)
    return rewriter.finish()


def _is_identity(node: Node, inputs: tuple[Value, ...]) -> bool:
    """Whether the node's result is its only operand."""
    if len(inputs) != 1 or not node.outputs or node.outputs[0].type != inputs[0].type:
        return False
    match node.op:
        case Map(body):
            return body is input_(0, inputs[0].dtype)
        case Transpose(perm):
            return perm == tuple(range(len(perm)))
    return isinstance(node.op, (Reshape, Concat))


def _merged(
    node: Node, inputs: tuple[Value, ...], readers: Counter[Value]
) -> tuple[list[Op], tuple[Value, ...]] | None:
    """The ops, one after the other, and the operands that do the work of the node and of those before it, if
    they are others."""
    match node.op:
        case Concat(axis):
            parts = tuple(part for value in inputs for part in _parts(value, axis, readers))
            return ([node.op], parts) if len(inputs) < len(parts) <= MAX_PARTS else None
        case Transpose(perm):
            return _transposed(inputs[0], perm, node.outputs[0].shape)
        case Reshape(shape) if (made := inputs[0].producer) is not None and isinstance(made.op, Reshape):
            return [Reshape(shape)], made.inputs
        case Reshape(shape) if readers[inputs[0]] == 1:
            return _split_before(inputs[0], shape)
        case Slice(starts, sizes, steps):
            outer = inputs[0].producer
            if outer is not None and isinstance(outer.op, Concat):
                return _within_parts(outer, node.op, readers[inputs[0]] == 1)
            if outer is not None and isinstance(outer.op, Pad):
                return _within_padded(outer, node.op)
            if outer is not None and isinstance(outer.op, Slice):
                starts = tuple(a + b * step for a, b, step in zip(outer.op.starts, starts, outer.op.steps))
                steps = tuple(a * b for a, b in zip(outer.op.steps, steps))
                return [Slice(starts, sizes, steps)], outer.inputs
    return None


def _reshaped(value: Value) -> Value:
    """What a value is that only Reshapes made."""
    while value.producer is not None and isinstance(value.producer.op, Reshape):
        (value,) = value.producer.inputs
    return value


def _transposed(
    value: Value, perm: tuple[int, ...], shape: Shape
) -> tuple[list[Op], tuple[Value, ...]] | None:
    """A Transpose of what is behind Transposes and Reshapes that join axes, and a Reshape."""
    source = value
    while (made := source.producer) is not None:
        if isinstance(made.op, Transpose):
            perm, source = tuple(made.op.perm[p] for p in perm), made.inputs[0]
        elif isinstance(made.op, Reshape) and (axes := _split_axes(source.shape, made.inputs[0].shape)):
            perm, source = tuple(a for p in perm for a in axes[p]), made.inputs[0]
        else:
            break
    moved = [p for p in perm if source.shape[p] != 1]
    if moved == sorted(moved):
        return [Reshape(shape)], (source,)
    if source is value:
        return None
    same = tuple(source.shape[p] for p in perm) == shape
    return [Transpose(perm), *([] if same else [Reshape(shape)])], (source,)


def _split_before(value: Value, shape: Shape) -> tuple[list[Op], tuple[Value, ...]] | None:
    """A Transpose behind the Reshape that splits its axes."""
    made = value.producer
    axes = _split_axes(value.shape, shape) if made is not None and isinstance(made.op, Transpose) else None
    if made is None or axes is None:
        return None
    place = {axis: k for k, axis in enumerate(made.op.perm)}
    order = [a for axis in range(value.rank) for a in axes[place[axis]]]  # the result's axes, as stored
    split = Reshape(tuple(shape[a] for a in order))
    return [split, Transpose(tuple(order)).inverse], made.inputs


def _split_axes(shape: Shape, split: Shape) -> list[list[int]] | None:
    """For every axis of a shape those of another that it is split into, where some is split at all but for
    axes of size 1."""
    found: list[list[int]] = []
    axis = 0
    for k, size in enumerate(shape):
        left = len(split) - axis
        count = next((n for n in range(1, left + 1) if dims.product(split[axis : axis + n]) == size), None)
        if count is None:
            return None
        last = k == len(shape) - 1
        found.append(list(range(axis, len(split) if last else axis + count)))
        axis += count
    units = all(split[a] == 1 for a in range(axis, len(split)))
    several = any(sum(split[a] != 1 for a in axes) > 1 for axes in found)
    return found if found and units and several else None


def _within_parts(joined: Node, op: Slice, alone: bool) -> tuple[list[Op], tuple[Value, ...]] | None:
    """A Slice of the one part of what is joined that it lies in; of all of some parts, if nothing else
    wants what is joined, a shorter Concat."""
    axis = joined.op.axis
    place, size = op.starts[axis], op.sizes[axis]
    parts = list(joined.inputs)
    while parts and dims.at_least(place - parts[0].shape[axis], 0):
        place -= parts.pop(0).shape[axis]
    if not parts or op.steps[axis] != 1 or not dims.at_least(place, 0):
        return None
    dense = place == 0 and all(step == 1 for step in op.steps)
    if dims.at_least(parts[0].shape[axis] - place - size, 0):
        starts = (*op.starts[:axis], place, *op.starts[axis + 1 :])
        whole = dense and op.sizes == parts[0].shape
        return [Reshape(op.sizes) if whole else Slice(starts, op.sizes, op.steps)], (parts[0],)
    count = next((n for n in range(2, len(parts)) if _joined_shape(axis, parts[:n]) == op.sizes), 0)
    return ([Concat(axis)], tuple(parts[:count])) if count and alone and dense else None


def _joined_shape(axis: int, parts: list[Value]) -> Shape:
    shape = parts[0].shape
    return (*shape[:axis], dims.total(v.shape[axis] for v in parts), *shape[axis + 1 :])


def _within_padded(padded: Node, op: Slice) -> tuple[list[Op], tuple[Value, ...]] | None:
    """A Slice of what is padded with a number: of padding alone the number repeated, of no padding a Slice;
    of all that is padded a Pad on fewer sides."""
    x, pad = padded.inputs[0], padded.op
    if pad.mode != "constant" or any(step != 1 for step in op.steps):
        return None
    places = tuple(start - pads for start, pads in zip(op.starts, pad.before, strict=True))
    behind = tuple(length - place - size for length, place, size in zip(x.shape, places, op.sizes))
    if any(dims.at_least(p - d, 0) or dims.at_least(b - d, 0) for p, b, d in zip(places, behind, x.shape)):
        return [Broadcast(op.sizes)], padded.inputs[1:]
    if all(dims.at_least(d, 0) for d in (*places, *behind)):
        return [Reshape(x.shape) if op.sizes == x.shape else Slice(places, op.sizes, op.steps)], (x,)
    if all(dims.at_least(-d, 0) for d in (*places, *behind)):
        return [Pad("constant", tuple(-d for d in places), tuple(-d for d in behind))], padded.inputs
    return None


def _parts(value: Value, axis: int, readers: Counter[Value]) -> tuple[Value, ...]:
    """What a value joins along the axis, if nothing else reads it; else the value."""
    node = value.producer
    if node is not None and node.op == Concat(axis) and readers[value] == 1:
        return node.inputs
    return (value,)
