"""merge_movement: movement that moves nothing vanishes, and two moves in a row become one.

concat(concat(%x, %y), %z)                      →   concat(%x, %y, %z)
transpose(transpose(%x))                        →   transpose(%x)
transpose(%x: [1, n, 8]) perm=(1, 0, 2)         →   reshape(%x) shape=(n, 1, 8)
slice(slice(%x) starts=(2)) starts=(1)          →   slice(%x) starts=(3)
map(%x) { $0 }                                  →   %x

A Reshape costs nothing: it is a view.
"""

from __future__ import annotations

from collections import Counter

from ..ir.expr import input_
from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.ops import Concat, Map, Op, Reshape, Slice, Transpose
from ..ir.regions import everywhere

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
        else:
            outputs = rewriter.add(*merged, node.origin, [node.outputs[0].name])
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
) -> tuple[Op, tuple[Value, ...]] | None:
    """The op and operands that do the work of the node and of those before it, if they are others."""
    match node.op:
        case Concat(axis):
            parts = tuple(part for value in inputs for part in _parts(value, axis, readers))
            return (node.op, parts) if len(inputs) < len(parts) <= MAX_PARTS else None
        case Transpose(perm):
            source = inputs[0]
            if source.producer is not None and isinstance(source.producer.op, Transpose):
                perm, source = (tuple(source.producer.op.perm[p] for p in perm), source.producer.inputs[0])
            moved = [p for p in perm if source.shape[p] != 1]
            if moved == sorted(moved):
                return Reshape(node.outputs[0].shape), (source,)
            return (Transpose(perm), (source,)) if source is not inputs[0] else None
        case Slice(starts, sizes, steps):
            outer = inputs[0].producer
            if outer is not None and isinstance(outer.op, Slice):
                starts = tuple(a + b * step for a, b, step in zip(outer.op.starts, starts, outer.op.steps))
                steps = tuple(a * b for a, b in zip(outer.op.steps, steps))
                return Slice(starts, sizes, steps), outer.inputs
    return None


def _parts(value: Value, axis: int, readers: Counter[Value]) -> tuple[Value, ...]:
    """What a value joins along the axis, if nothing else reads it; else the value."""
    node = value.producer
    if node is not None and node.op == Concat(axis) and readers[value] == 1:
        return node.inputs
    return (value,)
