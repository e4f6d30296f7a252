"""What stands for a node that no kernel takes: the nodes of a fused group, those that round the rows of a
product, or the slices that windows see. Whatever else a kernel cannot do is loop_nest's.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...ir import dims, dtypes, expr
from ...ir.graph import Node, Value, constant_value, make_node
from ...ir.ops import Concat, Contract, Fused, Map, Op, Pad, Reduce, Reshape, Slice, Transpose, Unfold


def expanded(node: Node) -> list[Node]:
    """Nodes that give what node gives, its outputs among theirs; none where there is no other way."""
    match node.op:
        case Fused():
            return _inlined(node)
        case Contract() if node.op.rounded:
            return _rounding(node)
        case Unfold():
            return _sliced(node)
    return []


def _inlined(node: Node) -> list[Node]:
    """The nodes of a group; its operands and results are theirs from now on."""
    region = node.op.region
    stands = dict(zip(region.inputs, node.inputs))
    results = dict(zip(region.outputs, node.outputs))
    nodes = []
    for inner in region.nodes:
        outputs = tuple(results.get(v) or Value(v.type, v.name) for v in inner.outputs)
        nodes.append(Node(inner.op, tuple(stands.get(v, v) for v in inner.inputs), outputs, inner.origin))
        stands.update(zip(inner.outputs, outputs))
    return nodes


def _sliced(node: Node[Unfold]) -> list[Node]:
    """Of every tap the elements that it sees, one after the other along axis 1."""
    op, (x,), (out,) = node.op, node.inputs, node.outputs
    sizes, rest = (out.shape[0], *x.shape[1:]), (1,) * (x.rank - 1)
    taps = [
        make_node(Slice((k, *(0,) * (x.rank - 1)), sizes, (op.stride, *rest)), (x,), node.origin)
        for k in range(op.taps)
    ]
    return [*taps, Node(Concat(1), tuple(tap.outputs[0] for tap in taps), node.outputs, node.origin)]


def _rounding(node: Node[Contract]) -> list[Node]:
    """Maps that round the left operand of a product block by block, and the product as it is."""
    op, value, origin = node.op, node.inputs[0], node.origin
    nodes: list[Node] = []

    def add(step: Op, *inputs: Value) -> Value:
        nodes.append(make_node(step, inputs, origin))
        return nodes[-1].outputs[0]

    axis, rank = op.lhs.index(op.summed), value.rank
    order = (*(k for k in range(rank) if k != axis), axis)
    rows = add(Transpose(order), value)
    size = rows.shape[-1]
    blocks = dims.ceil_divide(size, op.rounded)
    whole = (*rows.shape[:-1], blocks * op.rounded)
    if whole != rows.shape:
        missing = (*(0,) * (rank - 1), whole[-1] - size)
        zero = constant_value(np.zeros((), dtypes.numpy_dtype(value.dtype)))
        rows = add(Pad("constant", (0,) * rank, missing), rows, zero)
    parts = add(Reshape((*whole[:-1], blocks, op.rounded)), rows)
    x = expr.input_(0, value.dtype)
    greatest = add(Reduce("max", (rank,), True, abs(x)), parts)
    step = expr.input_(1, value.dtype) / 127
    steps = expr.round_(x * expr.where(step.equals(0), step, 1 / step)) * step
    rounded = add(Reshape(whole), add(Map(steps), parts, greatest))
    if rounded.shape[-1] != size:
        rounded = add(Slice((0,) * rank, (*whole[:-1], size), (1,) * rank), rounded)
    back = tuple(order.index(k) for k in range(rank))
    rows = add(Transpose(back), rounded)
    return [*nodes, Node(replace(op, rounded=0), (rows, *node.inputs[1:]), node.outputs, origin)]
