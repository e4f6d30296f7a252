"""split_batches: products over joined batch axes become products over these axes.

contract(reshape(%x) shape=(b*h, m, k), reshape(%y) shape=(b*h, k, n)) "amk", "akn" -> "amn"
    →   reshape(contract(%x: [b, h, m, k], %y: [b, h, k, n]) "abmk", "abkn" -> "abmn")

Exporters of bmm join batch and heads. Apart, they are axes that a Transpose orders, that a mask repeats along
and that a constant lacks. A Map of one operand may stand between a Reshape and the product.
"""

from __future__ import annotations

from dataclasses import replace
from string import ascii_letters

from ..ir import dims
from ..ir.bodies import maps_anywhere
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.ops import Contract, Reshape, Shape


@everywhere
def split_batches(graph: Graph) -> Graph:
    """graph with products over the axes that Reshapes of both operands join."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        batch = _batch(node) if isinstance(node.op, Contract) else None
        if batch is None:
            rewriter.copy(node)
            continue
        own = [c for c in ascii_letters if c not in node.op.lhs + node.op.rhs][: len(batch)]
        fresh = "".join(own)
        lhs, rhs, out = (fresh + labels[1:] for labels in (node.op.lhs, node.op.rhs, node.op.out))
        operands = [_apart(rewriter, v) for v in node.inputs]
        (product,) = rewriter.add(replace(node.op, lhs=lhs, rhs=rhs, out=out), operands, node.origin)
        names = [v.name for v in node.outputs]
        shape = node.outputs[0].shape
        rewriter.replace(node.outputs, rewriter.add(Reshape(shape), [product], node.origin, names))
    return rewriter.finish()


def _batch(node: Node[Contract]) -> Shape | None:
    """The axes, more than one of which is no 1, that a product's operands join as their first."""
    op = node.op
    labels = (op.lhs, op.rhs, op.out)
    if (
        len(node.inputs) != 2
        or not op.out
        or len({side[:1] for side in labels}) != 1
        or any(s.count(s[0]) > 1 for s in labels)
    ):
        return None
    first, second = map(_joined, node.inputs)
    if first is None or first != second or sum(d != 1 for d in first) < 2:
        return None
    return first


def _joined(value: Value) -> Shape | None:
    """The axes of which a Reshape makes the first one of a value."""
    node = value.producer
    if node is not None and maps_anywhere(node):
        node = node.inputs[0].producer
    if node is None or not isinstance(node.op, Reshape):
        return None
    source, shape = node.inputs[0].shape, node.outputs[0].shape
    count = len(source) - len(shape) + 1
    kept = count >= 2 and source[count:] == shape[1:]
    return source[:count] if kept and dims.product(source[:count]) == shape[0] else None


def _apart(rewriter: Rewriter, value: Value) -> Value:
    """What a Reshape made a value of, behind the Map that follows it."""
    node = value.node
    if isinstance(node.op, Reshape):
        return rewriter.of(node.inputs[0])
    return rewriter.add(node.op, [_apart(rewriter, node.inputs[0])], node.origin)[0]
